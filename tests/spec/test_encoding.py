"""Receipts of the specification: what is read is what was written, and whatever no table allows is refused."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from spec.encoding import Receipts, Unreadable, decode, encode_receipts, read_block, read_receipts, receipts_root, uint
from tests.cluster.records import make_chain
from validator.chain import block as blocks
from validator.primitives import codec

CHAIN = make_chain(6)
BLOCK, RECEIPTS = CHAIN.blocks[0].block, CHAIN.blocks[0].receipts
ID, ADDRESS = bytes(32), bytes(20)


def full() -> bytes:
    """Receipts with each kind of receipt and of change, as the validator's structs write them."""
    term = codec.pack_uint(7)
    effects = blocks.Effects(
        (blocks.Movement(ADDRESS, ADDRESS, codec.pack_uint(2**200)),),
        (
            blocks.Scheduled(ID, ADDRESS, 3, 4, 5, ADDRESS, 6, term, term, term),
            blocks.Scheduled(ID, ADDRESS, 3, 4, 5, ADDRESS),
        ),
        (
            blocks.Cancelled(ID),
            blocks.Extended(ID, 9),
            blocks.Bidder(b"", ADDRESS),
            blocks.Locked(ID, term),
            blocks.Watching(ID, ADDRESS, "k"),
            blocks.WatchableKey(ADDRESS, "k", b""),
            blocks.UnwatchableKey(ADDRESS, "k"),
        ),
        (blocks.Event("Name", ADDRESS, (("field", "1"),)),),
        (blocks.Sent(ADDRESS, "h", 1, 2),),
    )
    event, run = effects.events[0], (True, "", 1, 2)
    receipts = blocks.BlockReceipts(
        3,
        ADDRESS,
        (blocks.TransactionReceipt(ID, ADDRESS, *run, term, term, effects, ADDRESS),),
        (blocks.FireReceipt(ID, ADDRESS, 1, 2, ADDRESS, *run, term, b"", term, effects),),
        (blocks.DestroyedReceipt(ID, "expired", event),),
        (
            blocks.QueryReceipt(ID, ADDRESS, "ok", 7, term, (None, term), b"\x0b" * 20),
            blocks.QueryReceipt(ID, ADDRESS, "failed", 7, term),
        ),
        (blocks.MessageReceipt(ADDRESS, ADDRESS, "", *run, effects),),
        4,
        term,
        (
            blocks.CallbackReceipt(ID, ADDRESS, "h", *run, effects, None),
            blocks.CallbackReceipt(ID, ADDRESS, "h", *run, effects, event),
        ),
    )
    assert receipts_root(read_receipts(codec.encode(receipts))) == blocks.receipts_root(receipts)
    return codec.encode(receipts)


FULL = full()


@pytest.mark.parametrize("data", [FULL, *(record.receipts for record in CHAIN.blocks)])
def test_what_is_read_is_what_was_written(data: bytes) -> None:
    receipts = read_receipts(data)
    assert encode_receipts(receipts) == data
    assert [type(each).__name__ for each in receipts.fires] == ["FireReceipt"] * len(receipts.fires)


def test_the_root_of_a_block_is_its_receipts() -> None:
    for record in CHAIN.blocks:
        assert receipts_root(read_receipts(record.receipts)) == read_block(record.block).header.receipts_root


def test_fields_have_their_names() -> None:
    receipts = read_receipts(FULL)
    (sent,), (fire,) = receipts.transactions, receipts.fires
    assert (sent.effects.movements[0].amount, fire.tip, fire.tip_per_cycle) == (uint(2**200), b"", uint(7))
    assert [change[0] for change in sent.effects.timer_changes] == [
        "cancelled",
        "extended",
        "bidder",
        "locked",
        "watching",
        "watchable",
        "unwatchable",
    ]
    assert sent.effects.timer_changes[1] == ("extended", ID, 9)
    assert [query.agent for query in receipts.queries] == [b"\x0b" * 20, b""]
    assert isinstance(receipts, Receipts) and [each.unsettled is None for each in receipts.callbacks] == [True, False]


def changed(data: bytes, *path: int, to: Any) -> bytes:
    """The encoding with one field replaced."""
    value = decode(data)
    at = value
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return bytes(msgpack.packb(value))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\xc0",
        b"\x91" * 5_000 + b"\x90",
        FULL[:-1],
        FULL + b"\xc0",
        FULL.replace(b"\x03", b"\xcc\x03", 1),
        changed(FULL, 0, to=-1),
        changed(FULL, 0, to=True),
        changed(FULL, 0, to=3.0),
        changed(FULL, 1, to=bytes(19)),
        changed(FULL, 8, to=b"\0\1"),
        changed(FULL, 8, to=b"\1" + bytes(12)),
        changed(FULL, 2, 0, 2, to=1),
        changed(FULL, 2, 0, 6, to=b"\1" + bytes(32)),
        changed(FULL, 2, 0, 9, to=bytes(19)),
        changed(FULL, 2, 0, 8, 1, 0, 9, to=b"\1" + bytes(16)),
        changed(FULL, 2, 0, 8, 2, to=[["destroyed", ID]]),
        changed(FULL, 2, 0, 8, 2, to=[[["cancelled"], ID]]),
        changed(FULL, 2, 0, 8, 2, to=[["cancelled"]]),
        changed(FULL, 2, 0, 8, 2, to=[["cancelled", [ID]]]),
        changed(FULL, 2, 0, 8, 2, to=[[]]),
        changed(FULL, 2, 0, 8, 2, to=["cancelled"]),
        changed(FULL, 2, 0, 8, 3, to=[["Name", b"", [["field"]]]]),
        changed(FULL, 3, to={}),
        changed(FULL, 4, 0, to=[ID, "expired"]),
        changed(FULL, 5, to=[None]),
        changed(FULL, 5, to=[[]]),
        changed(FULL, 5, to=[[ID, ADDRESS, "ok", 1, b"", None, b""]]),
        changed(FULL, 5, to=[[ID, ADDRESS, "ok", 1, b"", [b""]]]),
        changed(FULL, 9, to=[]),
        msgpack.packb(decode(RECEIPTS)[:8]),
        msgpack.packb([*decode(FULL), []]),
    ],
)
def test_what_is_no_receipts_is_refused(data: bytes) -> None:
    with pytest.raises(Unreadable):
        read_receipts(data)


@pytest.mark.parametrize(
    "data",
    [b"", changed(BLOCK, 0, 3, to=bytes(31)), changed(BLOCK, 1, to={}), changed(BLOCK, 1, to=["text"]), RECEIPTS],
)
def test_what_is_no_block_is_refused(data: bytes) -> None:
    with pytest.raises(Unreadable):
        read_block(data)
