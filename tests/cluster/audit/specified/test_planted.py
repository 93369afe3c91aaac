"""Planted faults: a real chain with one field, receipt or transaction that is wrong, and the check that names it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace as replace_genesis
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from cluster.audit.specified.judge import SpecifiedChain
from cluster.audit.violation import BOUNDS, CHAIN, CONSERVATION, STATE_ROOTS, TIMERS
from tests.cluster.audit.chains import (
    Blocks,
    Made,
    everything,
    judged,
    rechained,
)
from tests.validator.chains import (
    ACTOR,
    ALICE,
    CHAIN_ID,
    KEYS,
    OTHER,
    USERS,
)
from validator.chain import block as blocks_of
from validator.chain.block import (
    Block,
    BlockReceipts,
    Cancelled,
    Effects,
    Event,
    Extended,
    Locked,
    Movement,
    Sent,
    UnwatchableKey,
    WatchableKey,
    Watching,
    transactions_root,
)
from validator.chain.genesis import Genesis, GenesisEpoch, Policy
from validator.chain.transactions import Call, Transaction, sign, transaction_hash
from validator.primitives.codec import decode, encode, pack_uint
from validator.primitives.params import Parameters, TieBreak
from validator.primitives.types import Address

CIP1, GBA, BIAS = Policy.CIP1, Policy.GBA_AUCTION, Policy.BIAS_AUCTION
NOWHERE = bytes(20)

Change = Callable[[Sequence[BlockReceipts], int], BlockReceipts | None]
"""The receipts of all blocks and a place, to the wrong receipts of that block; ``None`` if the fault needs another."""
Item = Callable[[Any], Any]
"""A receipt or effect to the wrong one; ``None`` if the fault needs another."""


def sealed(
    block: bytes, receipts: BlockReceipts, wires: Sequence[bytes] | None = None, **header: Any
) -> tuple[bytes, bytes]:
    """A block with these receipts, and with these transactions if they are given. The roots in its header are right."""
    read = decode(block, Block)
    given = read.transactions if wires is None else tuple(wires)
    roots = {
        "receipts_root": blocks_of.receipts_root(receipts),
        "transactions_root": transactions_root([transaction_hash(each) for each in given]),
    }
    return encode(Block(replace(read.header, **{**roots, **header}), given)), encode(receipts)


def planted(made: Made, change: Change) -> Blocks:
    """The chain up to the first block in which the fault fits, with the fault."""
    said = made.receipts
    for place, (block, _) in enumerate(made.blocks):
        wrong = change(said, place)
        if wrong is not None and wrong != said[place]:
            return [*made.blocks[:place], sealed(block, wrong)]
    raise AssertionError("the chain has no block for this fault")


# --- changes of receipts ----------------------------------------------------------------------------------------------


def fields(**given: Any) -> Item:
    """Other values of fields. A function has the receipt or effect for its argument."""

    def changed(old: Any) -> Any:
        new = replace(old, **{name: value(old) if callable(value) else value for name, value in given.items()})
        return None if new == old else new

    return changed


def only_if(is_fit: Callable[[Any], bool], change: Item) -> Item:
    return lambda old: change(old) if is_fit(old) else None


def first_of(items: Sequence[Any], change: Item) -> tuple[Any, ...] | None:
    for place, old in enumerate(items):
        new = change(old)
        if new is not None:
            return *items[:place], new, *items[place + 1 :]
    return None


def one(kind: str, change: Item) -> Change:
    """One receipt of a list is wrong."""

    def changed(said: Sequence[BlockReceipts], place: int) -> BlockReceipts | None:
        wrong = first_of(getattr(said[place], kind), change)
        return None if wrong is None else replace(said[place], **{kind: wrong})

    return changed


def effect(kind: str, effects: str, change: Item) -> Change:
    """One effect of a run is wrong."""

    def changed(receipt: Any) -> Any:
        wrong = first_of(getattr(receipt.effects, effects), change)
        return None if wrong is None else replace(receipt, effects=replace(receipt.effects, **{effects: wrong}))

    return one(kind, changed)


def more(kind: str, effects: str, item: Any) -> Change:
    """A successful run has an effect that it did not have."""

    def changed(receipt: Any) -> Any:
        items = (*getattr(receipt.effects, effects), item)
        return replace(receipt, effects=replace(receipt.effects, **{effects: items})) if receipt.ok else None

    return one(kind, changed)


def less(kind: str, effects: str, item: type = object) -> Change:
    """A run lacks its first effect of a kind."""

    def changed(receipt: Any) -> Any:
        items = list(getattr(receipt.effects, effects))
        found = next((each for each in items if isinstance(each, item)), None)
        if found is None:
            return None
        items.remove(found)
        return replace(receipt, effects=replace(receipt.effects, **{effects: tuple(items)}))

    return one(kind, changed)


def listed(kind: str, change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Change:
    """A whole list of receipts is another."""

    def changed(said: Sequence[BlockReceipts], place: int) -> BlockReceipts | None:
        items = getattr(said[place], kind)
        return replace(said[place], **{kind: change(items)}) if items else None

    return changed


def missing(kind: str) -> Change:
    return listed(kind, lambda items: items[:-1])


def twice(kind: str) -> Change:
    return listed(kind, lambda items: (*items, items[-1]))


def swapped(kind: str) -> Change:
    return listed(kind, lambda items: (items[1], items[0], *items[2:]) if len(items) > 1 else items)


def summary(**given: Any) -> Change:
    return lambda said, place: fields(**given)(said[place])


def one_more(name: str) -> Item:
    return fields(**{name: lambda old: getattr(old, name) + 1})


def a_unit_more(name: str) -> Item:
    return fields(**{name: lambda old: pack_uint(int.from_bytes(getattr(old, name), "big") + 1)})


def changes(kind: type, **given: Any) -> Change:
    """A change of timers in a transaction is another."""
    return effect("transactions", "timer_changes", only_if(lambda old: isinstance(old, kind), fields(**given)))


SENT = Sent(ACTOR, "run", 2_000, 0)
CHANGES = "transactions.effects.timer_changes"


class Fault(NamedTuple):
    what: str
    change: Change
    field: str
    """The beginning of the field that is named, without places in lists."""
    check: str
    policies: tuple[Policy, ...]


Row = tuple[str, Change, str]


def faults(check: str, *rows: Row, policies: tuple[Policy, ...] = (CIP1,)) -> list[Fault]:
    return [Fault(*row, check, policies) for row in rows]


def of_run(check: str, kind: str, *names: str) -> list[Fault]:
    """Each of these fields of a receipt is another."""
    others: dict[str, Item] = {
        **{name: fields(**{name: NOWHERE}) for name in ("actor", "to", "sender", "source", "target", "fee_payer")},
        **{name: fields(**{name: bytes(32)}) for name in ("timer_id", "job_id", "transaction_hash")},
        **{name: one_more(name) for name in ("trigger_height", "sequence", "expires_at", "cycles", "cells")},
        **{name: a_unit_more(name) for name in ("burned", "tip", "tip_per_cycle", "amount")},
        **{name: fields(**{name: b"\7"}) for name in ("payer_cap", "max_fee_per_cycle", "max_priority_fee_per_cycle")},
        **{name: fields(**{name: "other"}) for name in ("handler", "outcome", "name")},
        "gas_limit": fields(gas_limit=2_000),
        "created": only_if(lambda run: run.created != b"", fields(created=OTHER)),
        "ok": only_if(lambda run: run.ok, fields(ok=False, error="ScriptFailed", effects=Effects())),
        "error": only_if(lambda run: not run.ok, fields(error="OutOfCells")),
        "agent": fields(agent=OTHER),
        "bid": fields(bid=(b"\1", b"\2")),
    }
    run, _, inner = kind.partition(".")
    change = (lambda item: effect(run, inner, item)) if inner else (lambda item: one(run, item))
    said = f"{run}.effects.{inner}" if inner else run
    return faults(check, *((f"another {name} in {kind}", change(others[name]), f"{said}.{name}") for name in names))


FAULTS = [
    # which timers end, and when
    *faults(
        TIMERS,
        ("a fire is left out", missing("fires"), "fires"),
        ("a fire comes twice", twice("fires"), "fires"),
        ("fires are out of order", swapped("fires"), "fires"),
        ("the end of a timer is left out", missing("destroyed"), "destroyed"),
        ("the end of a timer comes twice", twice("destroyed"), "destroyed"),
        policies=tuple(Policy),
    ),
    *of_run(TIMERS, "fires", "timer_id", "actor", "trigger_height", "sequence", "ok", "error"),
    *faults(
        TIMERS,
        ("a fire steals", more("fires", "movements", Movement(ALICE, ACTOR, b"\1")), "fires.effects.movements"),
        ("a fire has no event", less("fires", "events"), "fires.effects.events"),
        ("ends for another reason", one("destroyed", fields(reason="expired")), "destroyed.reason"),
        ("ends with another event", one("destroyed", fields(event=Event("E", ACTOR, ()))), "destroyed.event"),
        ("removals cost more", summary(gc_cycles=lambda old: old.gc_cycles + 200), "gc_cycles"),
    ),
    # who pays for a fire, and how much
    *(
        fault._replace(policies=tuple(Policy))
        for fault in of_run(CONSERVATION, "fires", "fee_payer", "burned", "tip", "tip_per_cycle", "cycles", "cells")
    ),
    *faults(
        CONSERVATION,
        ("the median tip is another", summary(p50_tip=lambda old: pack_uint(len(old.p50_tip) + 77)), "p50_tip"),
        policies=tuple(Policy),
    ),
    # agents
    *faults(
        TIMERS,
        ("a query is left out", missing("queries"), "queries"),
        ("a query is made twice", twice("queries"), "queries"),
        ("queries are out of order", swapped("queries"), "queries"),
        policies=(CIP1, GBA),
    ),
    *of_run(TIMERS, "queries", "timer_id", "actor", "agent", "outcome", "bid"),
    *of_run(CONSERVATION, "queries", "burned", "cycles"),
    # transactions
    *of_run(CHAIN, "transactions", "transaction_hash", "sender", "ok", "error", "created"),
    *of_run(CONSERVATION, "transactions", "burned", "tip", "cycles", "cells"),
    *faults(
        CHAIN,
        ("a receipt is left out", missing("transactions"), "transactions"),
        ("a receipt comes twice", twice("transactions"), "transactions"),
        ("receipts are out of order", swapped("transactions"), "transactions"),
        ("the tips go to another account", summary(proposer=ALICE), "proposer"),
        ("receipts of another height", summary(height=lambda old: old.height + 1), "height"),
    ),
    # what a run did
    *of_run(CHAIN, "transactions.movements", "source", "target", "amount"),
    *of_run(CHAIN, "transactions.events", "name", "actor"),
    *of_run(CHAIN, "transactions.messages", "to", "handler"),
    *of_run(CONSERVATION, "transactions.messages", "cycles", "cells"),
    *of_run(CHAIN, "transactions.scheduled", "timer_id", "actor", "trigger_height", "sequence", "expires_at"),
    *of_run(CHAIN, "transactions.scheduled", "gas_limit", "max_fee_per_cycle", "max_priority_fee_per_cycle"),
    *of_run(CHAIN, "transactions.scheduled", "payer_cap"),
    *of_run(CONSERVATION, "transactions.scheduled", "fee_payer"),
    *faults(
        CHAIN,
        ("a value does not move", less("transactions", "movements"), "transactions.effects.movements"),
        ("a timer is not scheduled", less("transactions", "scheduled"), "transactions.effects.scheduled"),
        ("a timer is not cancelled", less("transactions", "timer_changes", Cancelled), CHANGES),
        ("another timer is cancelled", changes(Cancelled, timer_id=bytes(32)), CHANGES),
        ("a stranger's timer is cancelled", more("transactions", "timer_changes", Cancelled(bytes(32))), CHANGES),
        ("a timer lives for longer", changes(Extended, expires_at=99), CHANGES),
        ("a timer is not extended", less("transactions", "timer_changes", Extended), CHANGES),
        ("a message is not sent", less("transactions", "messages"), "transactions.effects.messages"),
        ("a message that was not sent waits", more("transactions", "messages", SENT), "transactions.effects.messages"),
    ),
    # messages and callbacks
    *of_run(CHAIN, "messages", "to", "sender", "handler", "ok", "error"),
    *of_run(CONSERVATION, "messages", "cycles", "cells"),
    *of_run(CHAIN, "callbacks", "job_id", "actor", "handler"),
    *of_run(CONSERVATION, "callbacks", "cycles", "cells"),
    *faults(
        CHAIN,
        ("a message was never sent", twice("messages"), "messages"),
        ("a message is passed over", missing("messages"), "messages"),
        ("messages are out of order", swapped("messages"), "messages"),
        ("a callback is passed over", missing("callbacks"), "callbacks"),
        ("a callback runs twice", twice("callbacks"), "callbacks"),
        ("a job is settled", one("callbacks", fields(unsettled=None)), "callbacks.unsettled"),
    ),
    # bids and watched keys
    *faults(
        CHAIN,
        ("a bid is not locked", less("transactions", "timer_changes", Locked), CHANGES),
        ("another bid is locked", changes(Locked, amount=b"\1"), CHANGES),
        ("a key is not watched", less("transactions", "timer_changes", Watching), CHANGES),
        ("another key is watched", changes(Watching, key="l"), CHANGES),
        ("another actor's key is watched", changes(Watching, actor=NOWHERE), CHANGES),
        ("a key may be watched still", less("transactions", "timer_changes", UnwatchableKey), CHANGES),
        ("a key has another value", changes(WatchableKey, digest=bytes(32)), CHANGES),
        policies=(BIAS,),
    ),
    *faults(CONSERVATION, ("a bid pays nothing", one("fires", fields(tip=b"")), "fires.tip"), policies=(BIAS,)),
]


@pytest.mark.parametrize(
    ("policy", "fault"),
    [pytest.param(policy, fault, id=f"{policy.value}: {fault.what}") for fault in FAULTS for policy in fault.policies],
)
def test_receipts_that_are_wrong_are_named(policy: Policy, fault: Fault) -> None:
    made = everything(policy)
    blocks = planted(made, fault.change)
    found = judged(made.genesis, blocks)
    assert found is not None
    assert (found.height, found.check) == (len(blocks), fault.check), found
    assert re.sub(r"\[\d+\]", "", found.difference.field).startswith(f"receipts.{fault.field}"), found


# --- blocks -----------------------------------------------------------------------------------------------------------

PLACE = 6
"""The place of the block that is changed: the auction is in force, and all lanes are in use."""
Wires = Callable[[tuple[bytes, ...]], tuple[bytes, ...]]


def call_of(user: int, chain_id: str = CHAIN_ID, **fields: Any) -> bytes:
    """A signed call of a user who has sent nothing yet."""
    given = {"gas_limit": 2_000, "cells_limit": 9, "max_fee_per_cycle": 10**9, "max_fee_per_cell": 10**9, **fields}
    call = Call(ACTOR, "run", b"[]")
    return sign(KEYS[user], chain_id, Transaction(USERS[user], 0, action=call, max_priority_fee_per_cycle=0, **given))


def found_in(change: Callable[[bytes, bytes], tuple[bytes, bytes]], policy: Policy = CIP1) -> tuple[str, str]:
    """The check and the field of what is found in a chain with one block that is changed."""
    made = everything(policy)
    found = judged(made.genesis, [*made.blocks[:PLACE], change(*made.blocks[PLACE])])
    assert found is not None and found.height == PLACE + 1
    return found.check, found.difference.field


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize(
    ("check", "name", "value"),
    [
        *((CONSERVATION, name, pack_uint(7)) for name in ("basefee_cycle", "basefee_cell", "basefee_lane_timer")),
        *((CHAIN, name, 1) for name in ("lane_cycles", "lane_cells", "user_cycles", "user_cells")),
        *((CHAIN, name, bytes(32)) for name in ("parent_hash", "transactions_root", "receipts_root")),
        (CHAIN, "chain_id", "another-chain"),
        (CHAIN, "height", 99),
        (CHAIN, "proposer", 99),
        (CHAIN, "proposer", 0),
    ],
)
def test_a_header_that_is_wrong_is_named(policy: Policy, check: str, name: str, value: Any) -> None:
    expected = {"height": "the block", "proposer": "receipts.proposer" if value == 0 else "the block"}
    found = found_in(lambda block, receipts: sealed(block, decode(receipts, BlockReceipts), **{name: value}), policy)
    assert found == (check, expected.get(name, f"header.{name}"))


@pytest.mark.parametrize(
    ("change", "check", "why"),
    [
        (lambda wires: (*wires, wires[0]), CHAIN, "BadNonce"),
        (lambda wires: (wires[1], wires[0], *wires[2:]), CHAIN, "BadNonce"),
        (lambda wires: (*wires, call_of(3)), CONSERVATION, "InsufficientFunds"),
        (lambda wires: (*wires, call_of(3, max_fee_per_cycle=1)), CONSERVATION, "FeeTooLow"),
        (lambda wires: (*wires, call_of(3, max_fee_per_cell=1)), CONSERVATION, "FeeTooLow"),
        (lambda wires: (*wires, call_of(3, gas_limit=999)), CHAIN, "GasTooLow"),
        (lambda wires: (*wires, call_of(3, gas_limit=10**9)), BOUNDS, "LaneFull"),
        (lambda wires: (*wires, call_of(3, cells_limit=10**9)), BOUNDS, "LaneFull"),
        (lambda wires: (*wires, call_of(3, "another-chain")), CHAIN, "of another chain"),
        (lambda wires: (*wires, b"\xc1"), CHAIN, "no MessagePack"),
        (lambda wires: (*wires[:-1], wires[-1][:-1]), CHAIN, "no MessagePack"),
    ],
)
def test_a_transaction_that_must_not_be_is_named(change: Wires, check: str, why: str) -> None:
    made = everything(CIP1)
    block, receipts = made.blocks[PLACE]
    changed = sealed(block, decode(receipts, BlockReceipts), change(decode(block, Block).transactions))
    found = judged(made.genesis, [*made.blocks[:PLACE], changed])
    assert found is not None
    assert (found.check, found.difference.field) == (check, "the block")
    assert why in found.difference.expected


@pytest.mark.parametrize("garbage", [b"", b"\xc1", b"\x90", b"\x93\1\2\3", b"\x91" * 5_000 + b"\x90", b"\xcc\1"])
def test_bytes_that_cannot_be_read_are_named(garbage: bytes) -> None:
    assert found_in(lambda _, receipts: (garbage, receipts)) == (CHAIN, "the block")
    check, field = found_in(lambda block, _: (block, garbage))
    assert check in (CHAIN, CONSERVATION) and field.startswith("receipts")
    for tail in (b"\0", b"\xc0"):
        assert found_in(lambda block, receipts: (block + tail, receipts)) == (CHAIN, "the block")  # noqa: B023
        assert found_in(lambda block, receipts: (block, receipts + tail)) == (CHAIN, "receipts")  # noqa: B023


# --- chains of another genesis ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("the block", lambda genesis: {"chain_id": "another-chain"}),
        ("receipts.proposer", lambda genesis: {"validators": genesis.validators[::-1]}),
        *(
            ("header.parent_hash", change)
            for change in (
                lambda genesis: {"validators": (*genesis.validators, bytes(32))},
                lambda genesis: {"policy": GBA},
                lambda genesis: {"parameters": replace_genesis(genesis.parameters, tie_break=TieBreak.AGED)},
                lambda genesis: {"parameters": replace_genesis(genesis.parameters, max_watchers_per_key=65)},
                lambda genesis: {"system_deployers": (*genesis.system_deployers, ALICE)},
                lambda genesis: {"epochs": (GenesisEpoch(9, (1, 2)),)},
            )
        ),
    ],
)
def test_a_first_block_on_another_genesis_is_named(field: str, change: Callable[[Genesis], Any]) -> None:
    made = everything(CIP1)
    found = judged(replace_genesis(made.genesis, **change(made.genesis)), made.blocks)
    assert found is not None
    assert (found.height, found.check, found.difference.field) == (1, CHAIN, field)


def test_with_another_root_of_the_genesis_the_root_is_named() -> None:
    made = everything(CIP1)
    chain = SpecifiedChain(replace_genesis(made.genesis, accounts={**made.genesis.accounts, Address(b"\7" * 20): 0}))
    found = chain.enter(*made.blocks[0])
    assert found is not None and (found.check, found.difference.field) == (STATE_ROOTS, "header.state_root")
    assert chain.enter(*made.blocks[1]) is None


RULES: list[tuple[Policy, str, dict[str, Any]]] = [
    (CIP1, TIMERS, {"LANE_TIMER_CELLS": 20}),
    (CIP1, CHAIN, {"PRIORITY_TIERS": [1, 2, 3, 4]}),
    (GBA, TIMERS, {"BUDGET_SLICES": 1}),
    (BIAS, TIMERS, {"VALUE_LIFE_BLOCKS": 1}),
    (BIAS, CONSERVATION, {"PAYMENT_RULE": "critical"}),
    (BIAS, CONSERVATION, {"PAYMENT_RULE": "first_price"}),
]
"""The parameters that no case of ``tests/kits/conform/specification`` needs to be right."""


@pytest.mark.parametrize(("policy", "check", "params"), RULES)
def test_a_chain_that_does_not_keep_a_parameter_is_named(policy: Policy, check: str, params: dict[str, Any]) -> None:
    made = everything(policy)
    parameters = Parameters.from_names({**made.genesis.parameters.to_names(), **params})
    genesis = replace_genesis(made.genesis, parameters=parameters)
    found = judged(genesis, rechained(genesis, made.blocks))
    assert found is not None and found.check == check, found
