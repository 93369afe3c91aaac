"""The golden vectors of ``docs/protocol.md``: ``python -m tests.validator.vectors`` prints them as JSON.

They may change only together with the protocol; then the output replaces ``tests/vectors/protocol.json`` and the values
on the page.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from nacl.signing import SigningKey

from validator.chain.block import (
    Block,
    BlockReceipts,
    Effects,
    Header,
    QueryReceipt,
    TransactionReceipt,
    header_hash,
    receipts_root,
)
from validator.chain.genesis import Genesis
from validator.chain.messages import BlockRequest, encode_message
from validator.chain.records import (
    MEDIAN_FIRES,
    Actor,
    KeptAnswer,
    Naming,
    QueuedMessage,
    Timer,
    actor_key,
    encode_record,
    kept_answer_key,
    message_key,
)
from validator.chain.transactions import Call, Transaction, address_of, deployed_address, sign, transaction_hash
from validator.execution.timer_calls import timer_id_of
from validator.primitives.codec import encode, merkle_root, tagged_hash
from validator.primitives.types import Address, Hash
from validator.storage.frames import frame
from validator.transition.genesis_block import genesis_header

VECTOR: Final = Path(__file__).resolve().parents[1] / "vectors" / "protocol.json"
SEED: Final = bytes(range(32))
CHAIN: Final = "stampede-vectors-1"
ACTOR: Final = Address(b"\xaa" * 20)
AGENT: Final = Address(b"\xbb" * 20)
LEAVES: Final = tuple(Hash(bytes([i]) * 32) for i in range(3))


def transaction() -> Transaction:
    """A call that schedules one timer."""
    return Transaction(
        sender=address_of(bytes(SigningKey(SEED).verify_key)),
        nonce=7,
        gas_limit=50_000,
        cells_limit=1_000,
        max_fee_per_cycle=2_000_000,
        max_priority_fee_per_cycle=0,
        max_fee_per_cell=10**24,
        action=Call(ACTOR, "run", b'[["schedule",{"in":5,"payload":""}]]'),
        value=1,
        timer_allowance=0,
    )


def header(transactions_root: bytes, receipts_root_: bytes) -> Header:
    return Header(
        chain_id=CHAIN,
        height=3,
        view=5,
        parent_hash=b"\x01" * 32,
        proposer=2,
        transactions_root=transactions_root,
        receipts_root=receipts_root_,
        state_root=b"\x02" * 32,
        basefee_cycle=(1_000_000).to_bytes(3, "big"),
        basefee_cell=(10_000).to_bytes(2, "big"),
        basefee_lane_timer=(10**24).to_bytes(10, "big"),
        lane_cycles=0,
        lane_cells=0,
        user_cycles=2_000,
        user_cells=36,
    )


def receipts(digest: Hash, sender: Address) -> BlockReceipts:
    receipt = TransactionReceipt(digest, sender, True, "", 2_000, 36, b"\x01", b"", Effects())
    return BlockReceipts(3, b"\x03" * 20, (receipt,), (), (), (), (), 0, b"")


def agents() -> dict[str, bytes]:
    """Records and a receipt of a contract that bids for an actor."""
    key = timer_id_of(ACTOR, 8, b"", 0)
    timer = Timer(key, ACTOR, 8, 0, "handle_timer", b"", ACTOR, None, 99, None, 5, None, None, 3, AGENT)
    naming = Naming(AGENT, 4)
    message = QueuedMessage(ACTOR, AGENT, "run", b"[]", 2_000, 0, Hash(b"\x04" * 32))
    bid = (None, (5).to_bytes(1, "big"))
    return {
        "timer_with_agent": encode_record(timer.key, timer),
        "actor_with_naming": encode_record(actor_key(ACTOR), Actor("builtin:script", AGENT, 1, 1, 0, None, naming)),
        "kept_answer": encode_record(kept_answer_key(ACTOR, AGENT), KeptAnswer(7, None, 4)),
        "message_with_origin": encode_record(message_key(0), message),
        "query_of_contract": encode(QueryReceipt(key, ACTOR, "ok", 700, b"\x01", bid, AGENT)),
        "unpaid_query": encode(QueryReceipt(key, ACTOR, "unpaid", 0, b"", None)),
        "smoothed_median": encode_record(MEDIAN_FIRES, 3 * 2**15),
    }


def vectors() -> dict[str, Any]:
    """Every vector by its name, bytes as hex."""
    wire = sign(SigningKey(SEED), CHAIN, transaction())
    digest, sender = transaction_hash(wire), transaction().sender
    summary = receipts(digest, sender)
    top = header(merkle_root(b"transactions", [digest]), receipts_root(summary))
    found: dict[str, bytes] = {
        "key_seed": SEED,
        "public_key": bytes(SigningKey(SEED).verify_key),
        "sender": sender,
        "transaction": wire,
        "transaction_hash": digest,
        "deployed_address": deployed_address(sender, 7),
        "timer_id": timer_id_of(ACTOR, 8, b"", 0),
        "receipts": encode(summary),
        "receipts_root": receipts_root(summary),
        "header": encode(top),
        "header_hash": header_hash(top),
        "block": encode(Block(top, (wire,))),
        "genesis_receipts_root": genesis_header(Genesis(CHAIN, ()), b"").receipts_root,
        "transactions_root_of_none": merkle_root(b"transactions", []),
        "transactions_root_of_three": merkle_root(b"transactions", list(LEAVES)),
        "block_request": encode_message(BlockRequest(header_hash(top))),
        "frame": frame(b"stampede"),
        **agents(),
        "empty_tagged_hash": tagged_hash(b"transaction", b""),
    }
    return {name: value.hex() for name, value in found.items()}


def render() -> str:
    return json.dumps(vectors(), indent=1) + "\n"


if __name__ == "__main__":
    print(render(), end="")
