"""Headers and receipts: every field counts, and the receipts root is what the page of the protocol says."""

from __future__ import annotations

from itertools import chain
from typing import Any

import msgspec
import pytest

from tests.validator.chains import OTHER, Chain, make_genesis, schedule
from tests.validator.primitives.test_codec import HEADER, naive_root
from validator.chain.block import Block, BlockReceipts, Header, header_hash, receipts_root, transactions_root
from validator.chain.genesis import GenesisAgent
from validator.primitives.codec import decode, encode, tagged_hash

LISTS = ("transactions", "fires", "destroyed", "queries", "messages")
"""The lists of a block's receipts, in their order."""


def changed(value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value + "x"
        case bytes():
            return value[:-1] + bytes([value[-1] ^ 1]) if value else b"\1"
        case tuple():
            return (*value, value[0]) if value else value
        case msgspec.Struct():
            return next(iter(variants(value).values()), value)
    raise AssertionError(value)


def variants(struct: Any) -> dict[str, Any]:
    """The struct with one field changed, by the field's name."""
    found = {}
    for name in struct.__struct_fields__:
        other = changed(getattr(struct, name))
        if other != getattr(struct, name):
            found[name] = msgspec.structs.replace(struct, **{name: other})
    return found


def sample_receipts() -> BlockReceipts:
    """Receipts of a block with something in every list."""
    chain = Chain(make_genesis(agents={OTHER: GenesisAgent("builtin:fixed", 2**40, 1)}))
    chain.run(schedule(3), actor=OTHER)
    chain.run(
        schedule(2, ["emit", "n", "x"]),
        schedule(2, save_as="k", max_fee_per_cycle=2**40, max_priority_fee_per_cycle=0),
        schedule(2, fee_payer="sender", payer_cap=1),
        timer_allowance=1,
    )
    chain.empty(1)
    extend, cancel = ["extend", {"saved": "k", "expires_at": 2**40}], ["cancel", {"saved": "k"}]
    move = ["transfer", {"to": "0x" + "77" * 20, "amount": 5}]
    send = ["send", {"to": "0x" + OTHER.hex(), "handler": "run", "payload": [["emit", "n", "y"]]}]
    receipts = chain.block(chain.call(["try", extend], cancel, schedule(9), move, send)).receipts
    for name in LISTS:
        assert getattr(receipts, name), name
    return receipts


def test_every_field_of_a_header_is_in_its_hash() -> None:
    hashes = {header_hash(variant) for variant in variants(HEADER).values()}
    assert len(hashes | {header_hash(HEADER)}) == len(Header.__struct_fields__) + 1


def test_a_block_is_its_header_and_its_transactions() -> None:
    block = Block(HEADER, (b"one", b"two"))
    assert decode(encode(block), Block) == block
    hashes = [tagged_hash(b"x", bytes([i])) for i in range(5)]
    assert transactions_root(hashes) == naive_root(b"transactions", list(hashes))


def test_every_field_of_every_receipt_is_in_the_root() -> None:
    receipts = sample_receipts()
    roots = [receipts_root(receipts)]
    for name in LISTS:
        items = getattr(receipts, name)
        for place, item in enumerate(items):
            for variant in variants(item).values():
                changed_items = (*items[:place], variant, *items[place + 1 :])
                roots.append(receipts_root(msgspec.structs.replace(receipts, **{name: changed_items})))
        roots.append(receipts_root(msgspec.structs.replace(receipts, **{name: items[1:]})))
    for name in ("height", "proposer", "gc_cycles", "p50_tip"):
        variant = msgspec.structs.replace(receipts, **{name: changed(getattr(receipts, name))})
        roots.append(receipts_root(variant))
    assert len(roots) > 30
    assert len(set(roots)) == len(roots)


def test_the_receipts_root_by_its_definition() -> None:
    receipts = sample_receipts()
    lists = [getattr(receipts, name) for name in LISTS]
    lengths = tuple(len(items) for items in lists)
    summary = (receipts.height, receipts.proposer, receipts.gc_cycles, receipts.p50_tip, *lengths)
    leaves = [encode(item) for item in (summary, *chain.from_iterable(lists))]
    assert receipts_root(receipts) == naive_root(b"receipts", leaves)


def test_lists_cannot_be_taken_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary holds the lengths; without it a receipt could move from one list to the next."""
    receipts = sample_receipts()
    shifted = msgspec.structs.replace(
        receipts, fires=(*receipts.fires, *receipts.destroyed), destroyed=()
    )  # fmt: skip
    assert receipts_root(receipts) != receipts_root(shifted)
    monkeypatch.setattr("validator.chain.block.len", lambda _items: 0, raising=False)
    assert receipts_root(receipts) == receipts_root(shifted)


def test_receipts_survive_their_encoding() -> None:
    receipts = sample_receipts()
    assert decode(encode(receipts), BlockReceipts) == receipts
