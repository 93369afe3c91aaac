"""The vectors of ``docs/protocol.md``: by our code, by MessagePack and hashes alone, and as the page shows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgpack
import pytest
from blake3 import blake3
from Crypto.Hash import keccak
from Crypto.PublicKey import ECC
from Crypto.Signature import eddsa
from msgspec import structs

from tests.validator import vectors
from validator.chain import records
from validator.chain.block import Block, BlockReceipts, Header, QueryReceipt
from validator.chain.messages import BlockRequest, decode_message
from validator.chain.transactions import parse
from validator.primitives import codec
from validator.primitives.codec import decode
from validator.storage.frames import split

PAGE = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
PINNED: dict[str, str] = json.loads(vectors.VECTOR.read_text(encoding="utf-8"))


def pinned(name: str) -> bytes:
    return bytes.fromhex(PINNED[name])


def test_our_code_makes_the_vectors() -> None:
    assert vectors.vectors() == PINNED


def test_our_code_reads_the_vectors() -> None:
    assert parse(pinned("transaction"), vectors.CHAIN) == vectors.transaction()
    header = decode(pinned("header"), Header)
    assert decode(pinned("block"), Block) == Block(header, (pinned("transaction"),))
    assert decode(pinned("receipts"), BlockReceipts).height == header.height == 3
    assert decode_message(pinned("block_request")) == BlockRequest(pinned("header_hash"))
    assert split(pinned("frame"))[0][0].payload == b"stampede"


@pytest.mark.parametrize("name", PINNED)
def test_the_page_holds_every_vector(name: str) -> None:
    text = "".join(PAGE.read_text(encoding="utf-8").split())
    assert PINNED[name] in text


def test_a_drift_of_the_code_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "keccak256", lambda data: codec.tagged_hash(b"", data))
    monkeypatch.setattr("validator.chain.transactions.keccak256", codec.keccak256)
    assert vectors.vectors() != PINNED


# --- independently ----------------------------------------------------------------------------------------------------


def keccak256(data: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=data).digest()


def tagged(tag: str, data: bytes) -> bytes:
    return blake3(bytes([len(tag)]) + tag.encode() + data).digest()


def uint(value: int) -> bytes:
    """Big-endian, without leading zeros."""
    return value.to_bytes((value.bit_length() + 7) // 8, "big")


def packed(value: Any) -> bytes:
    return bytes(msgpack.packb(value, use_bin_type=True))


def root(name: str, leaves: list[bytes]) -> bytes:
    level = [tagged(f"{name}/leaf", leaf) for leaf in leaves]
    while len(level) > 1:
        above = [tagged(f"{name}/node", a + b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = above + (level[-1:] if len(level) % 2 else [])
    return tagged(f"{name}/root", len(leaves).to_bytes(8, "big") + b"".join(level))


def body() -> bytes:
    script = b'[["schedule",{"in":5,"payload":""}]]'
    fees = [uint(2_000_000), uint(0), uint(10**24)]
    action = ["call", b"\xaa" * 20, "run", script]
    return packed(["stampede-vectors-1", 7, 50_000, 1_000, *fees, uint(1), uint(0), action])


def test_a_signed_transaction_from_the_page_alone() -> None:
    key = ECC.construct(curve="Ed25519", seed=bytes(range(32)))
    public = key.public_key().export_key(format="raw")
    signature = eddsa.new(key, "rfc8032").sign(b"stampede/transaction/v1" + body())
    wire = packed([public, signature, body()])
    assert public == pinned("public_key")
    assert wire == pinned("transaction")
    assert tagged("transaction", wire) == pinned("transaction_hash")
    assert tagged("transaction", b"") == pinned("empty_tagged_hash")
    assert keccak256(public)[-20:] == pinned("sender")
    assert keccak256(keccak256(public)[-20:] + (7).to_bytes(8, "big"))[-20:] == pinned("deployed_address")


def test_a_timer_id_from_the_page_alone() -> None:
    data = b"\xaa" * 20 + (8).to_bytes(8, "big") + b"" + (0).to_bytes(8, "big")
    assert keccak256(data) == pinned("timer_id")


def plain_receipts() -> tuple[list[Any], bytes]:
    """The receipts as plain data, and their root."""
    effects: list[Any] = [[], [], [], [], []]
    receipt = [pinned("transaction_hash"), pinned("sender"), True, "", 2_000, 36, uint(1), uint(0), effects, b""]
    plain = [3, b"\x03" * 20, [receipt], [], [], [], [], 0, uint(0)]
    summary = [3, b"\x03" * 20, 0, uint(0), 1, 0, 0, 0, 0]
    return plain, root("receipts", [packed(item) for item in (summary, receipt)])


def test_receipts_header_and_block_from_the_page_alone() -> None:
    plain, receipts_root = plain_receipts()
    assert packed(plain) == pinned("receipts")
    assert receipts_root == pinned("receipts_root")
    roots = [root("transactions", [pinned("transaction_hash")]), receipts_root, b"\x02" * 32]
    fees = [uint(1_000_000), uint(10_000), uint(10**24)]
    header = ["stampede-vectors-1", 3, 5, b"\x01" * 32, 2, *roots, *fees, 0, 0, 2_000, 36]
    assert packed(header) == pinned("header")
    assert tagged("header", packed(header)) == pinned("header_hash")
    assert packed([header, [pinned("transaction")]]) == pinned("block")


def test_records_of_agents_from_the_page_alone() -> None:
    actor, agent, timer_id = b"\xaa" * 20, b"\xbb" * 20, pinned("timer_id")
    timer = [actor, 8, 0, None, b"", None, None, 99, None, uint(5), None, None, 3]
    assert packed([*timer, agent]) == pinned("timer_with_agent")
    assert packed(["builtin:script", agent, 1, 1, 0, None, [agent, 4]]) == pinned("actor_with_naming")
    assert packed([uint(7), None, 4]) == pinned("kept_answer")
    assert packed([actor, agent, "run", b"[]", 2_000, 0, b"\x04" * 32]) == pinned("message_with_origin")
    asked, bid = (timer_id, actor, "ok", 700, uint(1)), (None, uint(5))
    assert packed([*asked, bid, agent]) == pinned("query_of_contract")
    assert packed([*asked, bid]) == codec.encode(QueryReceipt(*asked, bid))
    assert packed([timer_id, actor, "unpaid", 0, b"", None]) == pinned("unpaid_query")
    assert uint(3 * 2**15) == pinned("smoothed_median")


def test_what_names_no_agent_and_has_no_origin_is_written_as_before() -> None:
    """And what is written reads back as it was."""
    for key, name, last in (
        (b"t" + pinned("timer_id"), "timer_with_agent", "bidding_agent"),
        (b"c", "actor_with_naming", "naming"),
        (b"m", "message_with_origin", "origin"),
    ):
        record = records.decode_record(key, pinned(name))
        assert records.encode_record(key, record) == pinned(name)
        default = next(field.default for field in structs.fields(record) if field.name == last)
        without = structs.replace(record, **{last: default})
        assert len(records.encode_record(key, without)) < len(pinned(name))
        assert msgpack.unpackb(records.encode_record(key, without)) == msgpack.unpackb(pinned(name))[:-1]
        assert records.decode_record(key, records.encode_record(key, without)) == without


def test_the_genesis_receipts_from_the_page_alone() -> None:
    assert root("receipts", [packed([0, bytes(20), 0, b"", 0, 0, 0, 0, 0])]) == pinned("genesis_receipts_root")


@pytest.mark.parametrize(
    ("key", "record", "value"),
    [
        (records.supply_key(7), 1_000_000, bytes.fromhex("0f4240")),
        (records.storage_key(b"\1" * 20, "k"), b"text", b"text"),
        (records.published_key(b"\1" * 20, "k"), b"text", b"text"),
        (records.timer_payload_key(b"\2" * 32), b"payload", b"payload"),
        (records.job_payload_key(b"\3" * 32), b"payload", b"payload"),
        (records.job_result_key(b"\3" * 32, b"\4" * 20), b"result", b"result"),
        (records.code_key(b"\5" * 32), "pass", b"pass"),
        (records.OVERFLOW, b"\6" * 32, b"\6" * 32),
        (records.account_key(b"\7" * 20), records.Account(5, 6), packed([uint(5), 6])),
    ],
)
def test_which_values_of_the_state_are_bare_bytes(key: bytes, record: Any, value: bytes) -> None:
    assert records.encode_record(key, record) == value
    assert records.decode_record(key, value) == record


def test_merkle_roots_from_the_page_alone() -> None:
    assert root("transactions", []) == pinned("transactions_root_of_none")
    assert root("transactions", [bytes([i]) * 32 for i in range(3)]) == pinned("transactions_root_of_three")


def test_peer_message_and_frame_from_the_page_alone() -> None:
    assert packed([[3, pinned("header_hash")]]) == pinned("block_request")
    payload = b"stampede"
    length = len(payload).to_bytes(4, "big")
    head = length + blake3(length).digest()[:4] + blake3(payload).digest()[:8]
    masked = bytes(a ^ b for a, b in zip(payload, blake3(head).digest(length=len(payload)), strict=True))
    assert b"\xa6" + head + masked + b"\xa6" == pinned("frame")
