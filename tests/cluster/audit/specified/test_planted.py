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
    DestroyedReceipt,
    Effects,
    Event,
    Extended,
    FireReceipt,
    Locked,
    Movement,
    Scheduled,
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
    return listed(kind, lambda items: items[1:])


def twice(kind: str) -> Change:
    return listed(kind, lambda items: (*items, items[-1]))


def swapped(kind: str) -> Change:
    return listed(kind, lambda items: (items[1], items[0], *items[2:]) if len(items) > 1 else items)


def again(kind: str) -> Change:
    """What was in the block before is in this one, too."""
    return lambda said, place: _with_more(said, place, kind, getattr(said[place - 1], kind)[:1]) if place else None


def early(kind: str) -> Change:
    """What is in the next block is in this one already."""

    def changed(said: Sequence[BlockReceipts], place: int) -> BlockReceipts | None:
        following = getattr(said[place + 1], kind) if place + 1 < len(said) else ()
        if kind == "fires":
            following = [fire for fire in following if fire.trigger_height == place + 2]
        return _with_more(said, place, kind, following[:1])

    return changed


def _with_more(said: Sequence[BlockReceipts], place: int, kind: str, items: Sequence[Any]) -> BlockReceipts | None:
    return replace(said[place], **{kind: (*getattr(said[place], kind), *items)}) if items else None


def scheduled_of(said: Sequence[BlockReceipts], place: int) -> dict[bytes, Scheduled]:
    """The timers that were scheduled before a block, by id."""
    runs: list[Any] = [run for each in said[:place] for run in (*each.transactions, *each.fires, *each.messages)]
    return {timer.timer_id: timer for run in runs for timer in run.effects.scheduled}


def fires_of(timer: Scheduled, fire: FireReceipt) -> FireReceipt:
    """The fire, as if it were another timer's."""
    names = ("timer_id", "actor", "trigger_height", "sequence", "fee_payer")
    return replace(fire, **{name: getattr(timer, name) for name in names})


def fires_cancelled(said: Sequence[BlockReceipts], place: int) -> BlockReceipts | None:
    runs: list[Any] = [run for each in said[:place] for run in (*each.transactions, *each.fires)]
    changes = [change for run in runs for change in run.effects.timer_changes]
    gone = {change.timer_id for change in changes if isinstance(change, Cancelled)}
    due = [
        timer for key, timer in scheduled_of(said, place).items() if key in gone and timer.trigger_height <= place + 1
    ]
    if not due or not said[place].fires:
        return None
    return _with_more(said, place, "fires", [fires_of(due[0], said[place].fires[0])])


def fires_destroyed(reason: str) -> Change:
    def changed(said: Sequence[BlockReceipts], place: int) -> BlockReceipts | None:
        gone = [each.timer_id for each in said[place - 1].destroyed if each.reason == reason] if place else []
        if not gone or not said[place].fires:
            return None
        timer = scheduled_of(said, place)[gone[0]]
        return _with_more(said, place, "fires", [fires_of(timer, said[place].fires[0])])

    return changed


def destroys_a_solvent(said: Sequence[BlockReceipts], place: int) -> BlockReceipts | None:
    """The last fire of the block is a removal for insufficient funds instead."""
    if not said[place].fires:
        return None
    fire = said[place].fires[-1]
    text = [
        ("timer_id", fire.timer_id.hex()),
        ("fee_payer", "0x" + fire.fee_payer.hex()),
        ("needed", "9"),
        ("balance", "1"),
    ]
    event = Event("TimerCancelledInsufficientFunds", fire.actor, tuple(text))
    gone = DestroyedReceipt(fire.timer_id, "insufficient_funds", event)
    ended = {"fires": said[place].fires[:-1], "destroyed": (*said[place].destroyed, gone)}
    return replace(said[place], **ended, gc_cycles=said[place].gc_cycles + 200)


def destroys_a_living(said: Sequence[BlockReceipts], place: int) -> BlockReceipts | None:
    """A pending timer is destroyed as expired before its end."""
    pending = [timer for timer in scheduled_of(said, place).values() if timer.trigger_height > place + 1]
    if not pending:
        return None
    key, actor = pending[-1].timer_id, pending[-1].actor
    gone = DestroyedReceipt(key, "expired", Event("TimerExpired", actor, (("timer_id", key.hex()),)))
    now = said[place]
    return replace(now, destroyed=(*now.destroyed, gone), gc_cycles=now.gc_cycles + 200)


def summary(**given: Any) -> Change:
    return lambda said, place: fields(**given)(said[place])


def stays(reason: str) -> Change:
    """A timer that ends for a reason stays."""
    return listed("destroyed", lambda items: tuple(each for each in items if each.reason != reason))


def one_more(name: str) -> Item:
    return fields(**{name: lambda old: getattr(old, name) + 1})


def a_unit_more(name: str) -> Item:
    return fields(**{name: lambda old: pack_uint(int.from_bytes(getattr(old, name), "big") + 1)})


def with_field(name: str, value: str) -> Item:
    """The receipt of a timer's end, whose event says something else."""

    def changed(old: DestroyedReceipt) -> DestroyedReceipt | None:
        said = dict(old.event.fields)
        if name not in said:
            return None
        return replace(old, event=replace(old.event, fields=tuple({**said, name: value}.items())))

    return changed


def succeeded(kind: str) -> Change:
    return one(kind, only_if(lambda run: not run.ok, fields(ok=True, error="")))


def left_by_a_failing(kind: str) -> Change:
    event = Event("kept", ACTOR, ())
    return one(kind, only_if(lambda run: not run.ok, fields(effects=Effects(events=(event,)))))


def changes(kind: type, **given: Any) -> Change:
    """A change of timers in a transaction is another."""
    return effect("transactions", "timer_changes", only_if(lambda old: isinstance(old, kind), fields(**given)))


def scheduled_twice(said: Sequence[BlockReceipts], place: int) -> BlockReceipts | None:
    timers = [timer for run in said[place].transactions for timer in run.effects.scheduled]
    return more("transactions", "scheduled", timers[0])(said, place) if timers else None


def event(name: str, key: str, value: str) -> Change:
    """A field of an event of a transaction has another value."""

    def changed(old: Event) -> Event | None:
        return replace(old, fields=tuple({**dict(old.fields), key: value}.items())) if old.name == name else None

    return effect("transactions", "events", changed)


def consumes(times: int) -> Item:
    """A callback that consumes its job, so many times."""

    def changed(run: Any) -> Any:
        consumed = next((event for event in run.effects.events if event.name == "JobConsumed"), None)
        if consumed is None:
            return None
        others = tuple(event for event in run.effects.events if event != consumed)
        return replace(run, effects=replace(run.effects, events=(consumed,) * times + others))

    return changed


UNPAID = one("queries", fields(outcome="unpaid", cycles=0, burned=b"", bid=None))
SENT = Sent(ACTOR, "run", 2_000, 0)
CHANGES, EVENTS = "transactions.effects.timer_changes", "transactions.effects.events"


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
        ("fires early", early("fires"), "fires"),
        ("fires late", missing("fires"), "fires"),
        ("is passed over", listed("fires", lambda items: items[:-1]), "fires"),
        ("no timer fires", listed("fires", lambda items: ()), "fires"),
        ("fires twice in a block", twice("fires"), "fires"),
        ("fires in two blocks", again("fires"), "fires"),
        ("fires out of turn", swapped("fires"), "fires"),
        ("a cancelled one fires", fires_cancelled, "fires"),
        ("an expired one fires", fires_destroyed("expired"), "fires"),
        ("one that could not pay fires", fires_destroyed("insufficient_funds"), "fires"),
        ("one that can pay is destroyed", destroys_a_solvent, "fires"),
        ("one that lives is destroyed", destroys_a_living, "destroyed"),
        ("one that expired stays", stays("expired"), "destroyed"),
        ("one that cannot pay stays", stays("insufficient_funds"), "destroyed"),
        policies=tuple(Policy),
    ),
    *of_run(TIMERS, "fires", "timer_id", "actor", "trigger_height", "sequence", "ok", "error"),
    *faults(
        TIMERS,
        ("a failing fire succeeds", succeeded("fires"), "fires.ok"),
        ("a fire steals", more("fires", "movements", Movement(ALICE, ACTOR, b"\1")), "fires.effects.movements"),
        ("a fire has no event", less("fires", "events"), "fires.effects.events"),
        ("ends for another reason", one("destroyed", fields(reason="expired")), "destroyed.reason"),
        ("needs another amount", one("destroyed", with_field("needed", "1")), "destroyed.event"),
        ("has another balance", one("destroyed", with_field("balance", "7")), "destroyed.event"),
        ("ended before", again("destroyed"), "destroyed"),
        ("removals cost nothing", summary(gc_cycles=lambda old: old.gc_cycles % 200), "gc_cycles"),
        ("removals cost more", summary(gc_cycles=lambda old: old.gc_cycles + 200), "gc_cycles"),
    ),
    # who pays for a fire, and how much
    *(
        fault._replace(policies=tuple(Policy))
        for fault in of_run(CONSERVATION, "fires", "fee_payer", "burned", "tip", "tip_per_cycle", "cycles", "cells")
    ),
    *faults(
        CONSERVATION,
        ("a fire burns nothing", one("fires", fields(burned=b"")), "fires.burned"),
        ("the median tip is another", summary(p50_tip=lambda old: pack_uint(len(old.p50_tip) + 77)), "p50_tip"),
        policies=tuple(Policy),
    ),
    # agents
    *faults(
        TIMERS,
        ("a query is made too early", early("queries"), "queries"),
        ("a query is left out", missing("queries"), "queries"),
        ("a query is made twice", twice("queries"), "queries"),
        ("queries are out of order", swapped("queries"), "queries"),
        ("a paid query is unpaid", UNPAID, "queries.outcome"),
        ("a query fails for no reason", one("queries", fields(outcome="failed", bid=None)), "queries.outcome"),
        ("an agent has no answer", one("queries", fields(bid=None)), "queries.bid"),
        policies=(CIP1, GBA),
    ),
    *of_run(TIMERS, "queries", "timer_id", "actor", "agent", "outcome", "bid"),
    *of_run(CONSERVATION, "queries", "burned", "cycles"),
    *faults(CONSERVATION, ("a query costs nothing", one("queries", fields(burned=b"")), "queries.burned")),
    # transactions
    *of_run(CHAIN, "transactions", "transaction_hash", "sender", "ok", "error", "created"),
    *of_run(CONSERVATION, "transactions", "burned", "tip", "cycles", "cells"),
    *faults(
        CHAIN,
        ("a refused one succeeds", succeeded("transactions"), "transactions.ok"),
        ("a receipt is left out", missing("transactions"), "transactions"),
        ("a receipt comes twice", twice("transactions"), "transactions"),
        ("receipts are out of order", swapped("transactions"), "transactions"),
        ("nothing is deployed", one("transactions", fields(created=b"")), "transactions.created"),
        ("a failing run left an event", left_by_a_failing("transactions"), "transactions.effects.events"),
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
        ("a timer is scheduled twice", scheduled_twice, "transactions.effects.scheduled"),
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
        ("a message runs without room", early("messages"), "messages"),
        ("a message runs again", again("messages"), "messages"),
        ("a message is passed over", missing("messages"), "messages"),
        ("messages are out of order", swapped("messages"), "messages"),
        ("a callback runs before its results", early("callbacks"), "callbacks"),
        ("a callback is passed over", missing("callbacks"), "callbacks"),
        ("a callback runs twice", twice("callbacks"), "callbacks"),
        ("a callback runs again", again("callbacks"), "callbacks"),
        ("a job is consumed twice", one("callbacks", consumes(2)), "callbacks.effects.events"),
        ("a job is not consumed", one("callbacks", consumes(0)), "callbacks.effects.events"),
        ("a job is settled", one("callbacks", fields(unsettled=None)), "callbacks.unsettled"),
        ("a job has a stranger's result", event("JobResultSubmitted", "runner", "0x"), EVENTS),
        ("a job needs more results", event("JobRequested", "results_needed", "9"), EVENTS),
        ("a job has another id", event("JobRequested", "job_id", "00"), EVENTS),
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
"""The parameters that no case of ``tests/conformance`` needs to be right."""


@pytest.mark.parametrize(("policy", "check", "params"), RULES)
def test_a_chain_that_does_not_keep_a_parameter_is_named(policy: Policy, check: str, params: dict[str, Any]) -> None:
    made = everything(policy)
    parameters = Parameters.from_names({**made.genesis.parameters.to_names(), **params})
    genesis = replace_genesis(made.genesis, parameters=parameters)
    found = judged(genesis, rechained(genesis, made.blocks))
    assert found is not None and found.check == check, found
