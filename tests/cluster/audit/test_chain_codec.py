"""The auditor's own reading of a chain: what the validators' structs hold where those keep to the tables."""

from __future__ import annotations

import sys
from typing import Any

import msgpack
import msgspec
import pytest

from cluster.audit.chain_codec import (
    Unreadable,
    read_block,
    read_receipts,
    read_transaction,
    transaction_hash,
    transactions_root,
)
from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.scenario import Scenario
from cluster.simulation.driver import simulate
from tests.cluster.records import make_chain
from validator.chain import block as blocks
from validator.chain.transactions import SignedTransaction, TransactionBody
from validator.primitives import codec

CHAIN = make_chain(6)
SCENARIO = Scenario.model_validate(
    {
        "name": "codec",
        "validators": 1,
        "consensus": {"signatures": "keyed-hash"},
        "load": {"users": [{"workload": "flood", "count": 1, "options": {"timers": 4}}, {"workload": "transfer"}]},
        "stop": {"height": 8, "drain_blocks": 1},
        "success": {"heights_compared": 8, "transactions": 2, "fires": 0},
    }
)


def plain(value: Any) -> Any:
    """A struct of either kind as nested tuples, tags and what was worked out apart; bytes that are neither an address
    nor a hash as the integer that they may stand for."""
    if isinstance(value, msgspec.Struct):
        return tuple(plain(each) for each in msgspec.structs.astuple(value))
    if isinstance(value, bytes) and len(value) not in (20, 32):
        return int.from_bytes(value, "big")
    return tuple(plain(each) for each in value) if isinstance(value, tuple | list) else value


@pytest.mark.parametrize("record", CHAIN.blocks, ids=lambda record: f"height {record.block[20]}")
def test_the_same_fields_as_the_validators_structs_hold(record: Any) -> None:
    block = codec.decode(record.block, blocks.Block)
    mine = read_block(record.block)
    assert plain(mine.header) == plain(block.header)
    assert mine.transactions == block.transactions
    assert mine.digest == blocks.header_hash(block.header)
    receipts = codec.decode(record.receipts, blocks.BlockReceipts)
    read = read_receipts(record.receipts)
    assert plain(read)[:-1] == plain(receipts)
    assert read.root == blocks.receipts_root(receipts) == block.header.receipts_root
    assert transactions_root([transaction_hash(wire) for wire in mine.transactions]) == mine.header.transactions_root
    for wire in mine.transactions:
        signed = codec.decode(wire, SignedTransaction)
        _, body = read_transaction(wire)
        assert plain(body) == plain(codec.decode(signed.body, TransactionBody))


def test_left_out_and_tagged_fields() -> None:
    query = blocks.QueryReceipt(bytes(32), bytes(20), "ok", 7, b"\1", (None, b"\5"), b"\x0b" * 20)
    own = blocks.QueryReceipt(bytes(32), bytes(20), "failed", 7, b"\1")
    bidder, extended = blocks.Bidder(b"", bytes(20)), blocks.Extended(bytes(32), 9)
    watching = blocks.Watching(bytes(32), bytes(20), "k")
    keys = (blocks.WatchableKey(bytes(20), "k", bytes(32)), blocks.UnwatchableKey(bytes(20), "k"))
    changes = (blocks.Cancelled(bytes(32)), extended, bidder, watching, *keys, blocks.WatchableKey(bytes(20), "l", b""))
    effects = blocks.Effects(timer_changes=changes)
    message = blocks.MessageReceipt(bytes(20), bytes(20), "", True, "", 1, 2, effects)
    callback = blocks.CallbackReceipt(bytes(32), bytes(20), "h", False, "E", 1, 2, blocks.Effects(), None)
    receipts = blocks.BlockReceipts(3, bytes(20), (), (), (), (query, own), (message,), 4, b"", (callback,))
    read = read_receipts(codec.encode(receipts))
    assert plain(read)[:-1] == plain(receipts)
    assert read.root == blocks.receipts_root(receipts)
    assert [type(change).__name__ for change in read.messages[0].effects.timer_changes] == [
        "Cancelled",
        "Extended",
        "Bidder",
        "Watching",
        "WatchableKey",
        "UnwatchableKey",
        "WatchableKey",
    ]


def changed(data: bytes, *path: int, to: Any) -> bytes:
    """The encoding with one field replaced."""
    value = msgpack.unpackb(data)
    at = value
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return bytes(msgpack.packb(value))


BLOCK, RECEIPTS = CHAIN.blocks[0].block, CHAIN.blocks[0].receipts


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        BLOCK[:-1],
        BLOCK + b"\xc0",
        BLOCK[:1] + BLOCK[1:].replace(b"\x01", b"\xcc\x01", 1),
        changed(BLOCK, 0, 1, to=-1),
        changed(BLOCK, 0, 1, to=1.0),
        changed(BLOCK, 0, 1, to=True),
        changed(BLOCK, 0, 3, to=bytes(31)),
        changed(BLOCK, 0, 8, to=b"\0\1"),
        changed(BLOCK, 0, 8, to=b"\1" * 33),
        changed(BLOCK, 0, 0, to=b"bytes"),
        changed(BLOCK, 1, to={}),
        changed(BLOCK, 1, to=["text"]),
        b"\x91" * 5_000 + b"\x90",
    ],
)
def test_what_is_no_block_is_refused(data: bytes) -> None:
    with pytest.raises(Unreadable):
        read_block(data)


@pytest.mark.parametrize(
    "data",
    [
        changed(RECEIPTS, 1, to=bytes(19)),
        changed(RECEIPTS, 5, to=[[bytes(32), bytes(20), "ok", 1, b"", None, b""]]),
        changed(RECEIPTS, 5, to=[[bytes(32), bytes(20), "ok", 1, b"", [b""]]]),
        msgpack.packb([*msgpack.unpackb(RECEIPTS), []]),
        msgpack.packb(msgpack.unpackb(RECEIPTS)[:8]),
        changed(RECEIPTS, 2, 0, 2, to=1),
        changed(RECEIPTS, 2, 0, 8, 2, to=[["destroyed", bytes(32)]]),
        changed(RECEIPTS, 2, 0, 8, 2, to=[[["cancelled"], bytes(32)]]),
        changed(RECEIPTS, 2, 0, 8, 3, to=[["Name", b"", [["field"]]]]),
    ],
)
def test_what_is_no_receipts_is_refused(data: bytes) -> None:
    with pytest.raises(Unreadable):
        read_receipts(data)


def test_amounts() -> None:
    for data, price in ((b"", 0), (b"\1\0", 256), (b"\xff" * 12, 2**96 - 1)):
        assert read_block(changed(BLOCK, 0, 8, to=data)).header.basefee_cycle == price
    with pytest.raises(Unreadable, match="is out of range, expected below"):
        read_block(changed(BLOCK, 0, 8, to=b"\1" + bytes(12)))


def test_a_codec_that_is_wrong_both_ways_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validators that write and read amounts the wrong way round agree with each other, and not with the tables."""
    assert check_run(simulate(SCENARIO, 1)).check("chain").verdict is Outcome.PASS

    def pack(value: int) -> bytes:
        return value.to_bytes((value.bit_length() + 7) // 8, "little")

    def unpack(data: bytes, limit: int) -> int:
        value = int.from_bytes(data, "little")
        assert value < limit
        return value

    for name, module in list(sys.modules.items()):
        if name.startswith("validator."):
            for attribute, planted in (("pack_uint", pack), ("unpack_uint", unpack)):
                if hasattr(module, attribute):
                    monkeypatch.setattr(module, attribute, planted)
    verdict = check_run(simulate(SCENARIO, 1))
    assert verdict.check("state_roots").verdict is not Outcome.FAIL, "they agree with each other"
    assert {verdict.check(name).verdict for name in ("chain", "conservation")} & {Outcome.FAIL}
