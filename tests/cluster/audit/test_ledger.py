"""The ledger's figures against those of the receipts and of a validator's state, and what ends a ledger."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import fields
from dataclasses import replace as replace_fields
from random import Random
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cluster.audit import figures, paid_waits
from cluster.audit.figures import ActorTimers, RunKind, TimerState
from cluster.audit.ledger import Ledger
from cluster.audit.violation import BOUNDS, CONSERVATION, STATE_ROOTS
from tests.cluster.audit.chains import HEIGHTS, Made, add, everything, ledger_of, make
from tests.cluster.audit.specified.test_planted import sealed
from tests.validator.chains import SMALL, make_genesis, schedule
from tests.validator.executors import Author, wire
from validator.chain.block import Block, BlockReceipts, Cancelled, Header, Watching
from validator.chain.genesis import Policy
from validator.chain.records import MEDIAN_FIRES, TIMER, decode_record
from validator.chain.transactions import Call, parse
from validator.primitives.codec import decode
from validator.scheduler.calendar import count_tiers
from validator.state.working_set import World

POLICIES = pytest.mark.parametrize("policy", list(Policy))


def headers(made: Made) -> list[Header]:
    return [decode(block, Block).header for block, _ in made.blocks]


def runs_of(receipts: BlockReceipts) -> Iterator[tuple[RunKind, Any]]:
    for kind, runs in (
        (RunKind.TRANSACTION, receipts.transactions),
        (RunKind.FIRE, receipts.fires),
        (RunKind.CALLBACK, receipts.callbacks),
        (RunKind.MESSAGE, receipts.messages),
    ):
        yield from ((kind, run) for run in runs)


def number(amount: bytes) -> int:
    return int.from_bytes(amount, "big")


# --- blocks -----------------------------------------------------------------------------------------------------------


def rows(ledger: Ledger) -> list[dict[str, int]]:
    """The figures of each block."""
    names = [each.name for each in fields(ledger.blocks)]
    columns = (getattr(ledger.blocks, name) for name in names)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


@POLICIES
def test_columns_of_blocks_are_those_of_headers_and_receipts(policy: Policy) -> None:
    made = everything(policy)
    ledger = ledger_of(made.genesis, made.blocks)
    assert ledger.violations == [] and ledger.height == len(ledger.blocks) == HEIGHTS
    pending: dict[bytes, int] = {}
    for row, header, receipts in zip(rows(ledger), headers(made), made.receipts, strict=True):
        scheduled = [timer for _, run in runs_of(receipts) for timer in run.effects.scheduled]
        changes = [change for _, run in runs_of(receipts) for change in run.effects.timer_changes]
        pending |= {timer.timer_id: timer.trigger_height for timer in scheduled}
        ended: list[Any] = [
            *receipts.fires,
            *receipts.destroyed,
            *(each for each in changes if isinstance(each, Cancelled)),
        ]
        for each in ended:
            pending.pop(each.timer_id, None)
        assert row == {
            "proposer": header.proposer,
            "transactions": len(receipts.transactions),
            "reverted": sum(not run.ok for run in receipts.transactions),
            "scheduled": len(scheduled),
            "fires": len(receipts.fires),
            "destroyed": len(receipts.destroyed),
            "messages": len(receipts.messages),
            "queries": len(receipts.queries),
            "pending": len(pending),
            "backlog": row["backlog"],
            "basefee_cycle": number(header.basefee_cycle),
            "basefee_cell": number(header.basefee_cell),
            "basefee_lane_timer": number(header.basefee_lane_timer),
            "lane_cycles": header.lane_cycles,
            "lane_limit": SMALL["LANE_TIMER_CYCLES"],
            "user_cycles": header.user_cycles,
        }
        if policy is not Policy.BIAS_AUCTION:  # where receipts do not say when a watched key has changed
            assert row["backlog"] == sum(trigger <= header.height for trigger in pending.values())
    state = [decode_record(*item) for item in made.author.executor.final_view.scan(TIMER)]
    assert ledger.backlog == sum(timer.trigger_height <= HEIGHTS for timer in state)
    assert ledger.backlog == ledger.blocks.backlog[-1] > 0


@POLICIES
def test_failed_runs_are_those_of_the_receipts(policy: Policy) -> None:
    made = everything(policy)
    outcomes = ledger_of(made.genesis, made.blocks).outcomes
    runs, errors, failed = Counter[Any](), Counter[Any](), Counter[Any]()
    for (block, _), receipts in zip(made.blocks, made.receipts, strict=True):
        called = [parse(each, made.genesis.chain_id).action for each in decode(block, Block).transactions]
        calls = iter(called)
        for kind, run in runs_of(receipts):
            action = next(calls) if kind is RunKind.TRANSACTION else None
            if kind is RunKind.TRANSACTION and not isinstance(action, Call):
                continue
            actor = action.to if isinstance(action, Call) else run.to if kind is RunKind.MESSAGE else run.actor
            runs[kind, actor] += 1
            if not run.ok:
                errors[kind, actor, run.error] += 1
                failed[kind] += 1
    assert outcomes.failed == failed
    assert {(each.kind, each.actor, each.error): each.times for each in outcomes.failures} == errors
    assert all(each.runs == runs[each.kind, each.actor] for each in outcomes.failures)
    assert [each.times for each in outcomes.failures] == sorted(errors.values(), reverse=True)
    always = {key for key in runs if sum(times for (*of, _), times in errors.items() if (*of,) == key) == runs[key]}
    assert {(each.kind, each.actor) for each in outcomes.always_failing} == always


# --- timers -----------------------------------------------------------------------------------------------------------


@POLICIES
def test_timers_are_counted_by_actor_and_by_how_they_ended(policy: Policy) -> None:
    made = everything(policy)
    timers = ledger_of(made.genesis, made.blocks).timers
    expected, states, ended_last = (
        defaultdict[bytes, ActorTimers](ActorTimers),
        Counter[TimerState](),
        list[set[bytes]](),
    )
    owner, trigger, new, watching = dict[bytes, bytes](), dict[bytes, int](), dict[bytes, list[Any]](), set[bytes]()
    for height, receipts in enumerate(made.receipts, 1):
        for timer in (timer for _, run in runs_of(receipts) for timer in run.effects.scheduled):
            expected[timer.actor].scheduled += 1
            owner[timer.timer_id], trigger[timer.timer_id] = timer.actor, timer.trigger_height
            new[timer.timer_id] = [height, None]
        changes = [change for _, run in runs_of(receipts) for change in run.effects.timer_changes]
        watching |= {owner[each.timer_id] for each in changes if isinstance(each, Watching)}
        ended = {each.timer_id: TimerState.CANCELLED for each in changes if isinstance(each, Cancelled)}
        ended |= {each.timer_id: TimerState(each.reason) for each in receipts.destroyed}
        ended |= {fire.timer_id: TimerState.FIRED for fire in receipts.fires}
        for timer_id, state in ended.items():
            of_actor, late = expected[owner[timer_id]], height - trigger[timer_id]
            states[state] += 1
            new[timer_id][1] = height
            if state is TimerState.FIRED:
                of_actor.fired_at.append(height)
            of_actor.due += late >= 0
            if late >= 0 and state is not TimerState.CANCELLED:
                of_actor.lateness[late] += 1
        ended_last.append(set(ended))
    assert timers.states == states and timers.fires == states[TimerState.FIRED] > 50
    assert timers.scheduled == sum(each.scheduled for each in expected.values())
    assert timers.by_actor.keys() == expected.keys()
    for actor, of_actor in timers.by_actor.items():
        if actor in watching:  # receipts do not say when a watched key has changed
            of_actor = replace_fields(of_actor, due=expected[actor].due, lateness=expected[actor].lateness)
        assert of_actor == expected[actor]
    assert {each.timer_id: [each.scheduled_at, each.ended_at] for each in timers.newest} == new
    assert len(timers.ended_last) == figures.ENDED_KEPT and set(timers.ended_last) <= set().union(*ended_last)
    assert ended_last[-1] == set(list(timers.ended_last)[-len(ended_last[-1]) :])


def test_the_newest_timers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "NEWEST_KEPT", 5)
    monkeypatch.setattr(figures, "NEWEST_HEIGHTS", 3)
    genesis = make_genesis()
    made = make(genesis, 9, lambda author, height: [wire(height - 1, *(schedule(50 + n) for n in range(4)))])
    timers = ledger_of(genesis, made.blocks).timers
    assert timers.scheduled == 36
    assert [each.scheduled_at for each in timers.newest] == [5, *[6] * 4, *[7] * 4, *[8] * 4, *[9] * 4]


@POLICIES
def test_tiers_are_those_of_the_calendar(policy: Policy) -> None:
    params = {"EPOCH_LENGTH": 3, "EPOCH_HORIZON": 2, "RING_BUFFER_SIZE": 4, "LANE_TIMER_CYCLES": 9_000}
    genesis, random, seen = make_genesis({**SMALL, **params}, policy=policy), Random(3), set[str]()
    author, ledger = Author(genesis), Ledger(genesis)
    for height in range(1, 20):
        aheads = random.choices(range(1, 25), k=4)
        fees: dict[str, Any] = {"max_fee_per_cycle": 10**9, "gas_limit": 8_000}
        ledger.apply(*add(author, wire(height - 1, *(schedule(ahead, **fees) for ahead in aheads))))
        tiers = dict(ledger.tiers)
        assert tiers.pop("due") == ledger.backlog
        seen |= {tier for tier, count in tiers.items() if count}
        author.executor._branches.move_index(author.executor.final_digest)
        expected = count_tiers(author.executor.index.timers_rows(), height, genesis.parameters)
        assert {**tiers, "ring": tiers["ring"] + ledger.backlog} == expected
    assert ledger.violations == [] and seen == {"ring", "epoch", "overflow"} and ledger.backlog


# --- amounts ----------------------------------------------------------------------------------------------------------


@POLICIES
def test_totals_are_those_of_the_receipts(policy: Policy) -> None:
    made = everything(policy)
    ledger = ledger_of(made.genesis, made.blocks)
    burned = tips = cell = cycle = 0
    for header, receipts in zip(headers(made), made.receipts, strict=True):
        charged: list[Any] = [*receipts.transactions, *receipts.fires]
        burned += sum(number(each.burned) for each in (*charged, *receipts.queries))
        tips += sum(number(each.tip) for each in charged)
        cell += sum(each.cells for each in charged) * number(header.basefee_cell)
        cycle += sum(each.cycles for each in charged) * number(header.basefee_cycle)
        cycle += sum(number(query.burned) for query in receipts.queries)
    assert (ledger.burned, ledger.tips) == (burned, tips)
    assert (ledger.burned_cell, ledger.burned_cycle, ledger.burned_lane_timer) == (cell, cycle, burned - cell - cycle)
    assert (ledger.burned_lane_timer > 0) == (policy is Policy.CIP1)
    given = sum(made.genesis.accounts.values()) + sum(actor.balance for actor in made.genesis.actors.values())
    assert ledger.minted == given == ledger.held + ledger.burned


def test_smoothed_medians_are_those_of_a_validators_state() -> None:
    params = {**SMALL, "MEDIAN_SMOOTHING_MILLI": 300, "FAIRNESS_WINDOW_BLOCKS": 2, "LANE_TIMER_CYCLES": 200_000}
    genesis, random = make_genesis({**params, "SCAN_LIMIT": 40, "TIMER_GC_CYCLES": 20_000}), Random(5)
    author, ledger, medians = Author(genesis), Ledger(genesis), dict[int, int]()
    for height in range(1, 16):
        timers = [schedule(1) for _ in range(random.randrange(7))]
        ledger.apply(*add(author, wire(height - 1, *timers)))
        median = World(author.executor.final_view).get(MEDIAN_FIRES)
        if median is not None:
            medians[height] = median
    assert ledger.smoothed_medians == medians and len(set(medians.values())) > 3
    assert everything(Policy.CIP1).genesis.parameters.median_smoothing_milli == 1_000
    assert ledger_of(*everything(Policy.CIP1)[:2]).smoothed_medians == {}


# --- waits ------------------------------------------------------------------------------------------------------------


def test_a_paid_wait_beyond_its_bound_is_a_violation_that_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paid_waits, "_pays", lambda *_: False)
    for policy in Policy:
        made = everything(policy)
        ledger = ledger_of(made.genesis, made.blocks)
        assert ledger.height == HEIGHTS and not ledger.broken
        found = {(violation.check, violation.what.split(" waits for ")[1][:16]) for violation in ledger.violations}
        assert found == ({(BOUNDS, "1 blocks in a ro")} if policy is Policy.CIP1 else set())


# --- what ends a ledger -----------------------------------------------------------------------------------------------


def wrong_block(made: Made, place: int) -> tuple[bytes, bytes]:
    """The block with a transaction that burned nothing."""
    receipts = made.receipts[place]
    transactions = (replace(receipts.transactions[0], burned=b""), *receipts.transactions[1:])
    return sealed(made.blocks[place][0], replace(receipts, transactions=transactions))


def figures_now(ledger: Ledger) -> tuple[Any, ...]:
    return ledger.height, rows(ledger), ledger.tips, dict(ledger.timers.states), ledger.outcomes.failures


def test_a_deviation_ends_the_ledger() -> None:
    made, place = everything(Policy.CIP1), 9
    ledger = ledger_of(made.genesis, made.blocks[:place])
    before = figures_now(ledger)
    assert not ledger.broken
    for block in (wrong_block(made, place), made.blocks[place], made.blocks[place + 1]):
        ledger.apply(*block)
        assert ledger.chain.judge_receipts(*block) is None
        (violation,), deviation = ledger.violations, ledger.chain.deviation
        assert deviation is not None and deviation.violation == violation and deviation.rules
        assert (violation.check, violation.height) == (CONSERVATION, place + 1)
        assert violation.what.startswith("receipts.transactions[0].burned is 0, by the specification ")
        assert ledger.broken and figures_now(ledger) == before


@pytest.mark.parametrize("is_right", [True, False])
def test_evidence_is_judged_with_the_final_block(is_right: bool) -> None:
    made, place = everything(Policy.CIP1), 9
    chain = ledger_of(made.genesis, made.blocks[:place]).chain
    right, wrong = made.blocks[place], wrong_block(made, place)
    block, receipts = (wrong[0], right[1]) if is_right else (right[0], wrong[1])  # the header is another validator's
    found = chain.judge_receipts(block, receipts)
    assert found is None if is_right else found is not None and found.check == CONSERVATION


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([0, 1]), st.integers(0, 10**6), st.integers(0, 255), st.sampled_from(["set", "cut", "insert"]))
def test_changed_bytes_never_raise(which: int, at: int, value: int, how: str) -> None:
    made = everything(Policy.BIAS_AUCTION)
    ledger, given_ = ledger_of(made.genesis, made.blocks[:1]), list(made.blocks[1])
    data = bytearray(given_[which])
    at %= len(data)
    if how == "cut":
        del data[at:]
    elif how == "insert":
        data.insert(at, value)
    else:
        data[at] = value
    given_[which] = bytes(data)
    ledger.chain.judge_receipts(*given_)
    ledger = ledger_of(made.genesis, [made.blocks[0], (given_[0], given_[1])])
    ends = [violation for violation in ledger.violations if violation.check != STATE_ROOTS]
    assert ledger.broken == bool(ends) and ledger.height == (1 if ledger.broken else 2)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((0,), 2.0),
        ((2, 0, 2), 1),
        ((2, 0, 10), b"junk"),
        ((8,), nested(400)),
    ],
    ids=["height as float", "flag as number", "field too many", "deep"],
)
def test_receipts_of_the_same_values_in_other_bytes_are_a_violation(path: tuple[int, ...], value: Any) -> None:
    """The decoder of Python takes 1, 1.0 and True for the same, and a comparison by fields sees none too many."""
    made, place = everything(Policy.FIFO), 1
    block, encoded = made.blocks[place]
    receipts = whole = msgpack.unpackb(encoded, use_list=True, strict_map_key=False)
    for step in path[:-1]:
        receipts = receipts[step]
    receipts[path[-1] :] = [value] if path[-1] == len(receipts) else [value, *receipts[path[-1] + 1 :]]
    changed = msgpack.packb(whole)
    assert ledger_of(made.genesis, made.blocks[:place]).chain.judge_receipts(block, changed) is not None
    ledger = ledger_of(made.genesis, [*made.blocks[:place], (block, changed)])
    assert ledger.broken and ledger.violations[0].what.startswith("receipts")
