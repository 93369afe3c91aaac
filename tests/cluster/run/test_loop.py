"""The loop of a run: what it orders for what it is told, and what it never does whatever it is told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pytest

from cluster.record.finalizations import Finalization
from cluster.record.run import Backend, FaultRecord, RunRecord
from cluster.run.events import (
    End,
    ForkTaken,
    JoinBegun,
    JoinEnded,
    Left,
    NewHeight,
    Order,
    ScenarioChanged,
    Seen,
    Standing,
    Standings,
    StopLoad,
    StopRequested,
    TakeFork,
    Tell,
    Time,
    Up,
    Violation,
)
from cluster.run.loop import Progress, RunLoop
from cluster.scenario import Scenario
from tests.cluster.records import make_genesis

STOP = {"height": 8, "drain_blocks": 2, "timeout_s": 20}
GOAL = 10


def make_loop(is_open: bool = False, stops_on_fail: bool = False, **changes: Any) -> RunLoop:
    scenario = Scenario.model_validate({"name": "loop", "validators": 4, "stop": STOP} | changes)
    return RunLoop(RunRecord(scenario, "sim", 1, "test", make_genesis()), is_open, stops_on_fail)


def orders_of(loop: RunLoop, *seen: Seen) -> list[Order]:
    return [order for each in seen for order in loop.handle(each)]


def standings(*heights: int, faults_are_over: bool = True, **of_the_last: bool) -> Standings:
    *others, last = (Standing(height, is_up=True) for height in heights)
    return Standings((*others, last._replace(**of_the_last)), faults_are_over)


def drained() -> RunLoop:
    loop = make_loop()
    orders_of(loop, Up(0.0), NewHeight(GOAL))
    return loop


# --- when the load stops ----------------------------------------------------------------------------------------------


def test_the_load_stops_once_when_its_last_height_is_reached() -> None:
    loop = make_loop()
    assert orders_of(loop, Up(0.0), NewHeight(7), Time(5.0)) == []
    assert orders_of(loop, NewHeight(8), NewHeight(9)) == [StopLoad(8)]


def test_a_lower_height_changes_nothing() -> None:
    loop = drained()
    assert orders_of(loop, NewHeight(3)) == [] and loop.height == GOAL


def test_the_load_stops_when_the_duration_is_over_which_begins_once_the_testnet_is_up() -> None:
    loop = make_loop(stop=STOP | {"duration_s": 30})
    assert orders_of(loop, Time(40_000.0), Up(50_000.0), NewHeight(99), Time(79_999.0)) == []
    assert orders_of(loop, Time(80_000.0)) == [Tell("height 99: 30 s are over"), StopLoad(99)]
    assert loop.record.stop_requested_at_height == 99 and loop.record.scenario == loop.scenario
    assert loop.deadline_ms == 100_000.0, "the time limit begins again"


@pytest.mark.parametrize("changes", [{}, {"stop": STOP | {"duration_s": 30}}, {"is_open": True}])
def test_a_run_is_stopped_at_the_height_that_it_has_reached(changes: dict[str, Any]) -> None:
    loop = make_loop(**changes)
    found = orders_of(loop, Up(0.0), NewHeight(5), StopRequested(7_000.0))
    assert found == [Tell("height 5: stop requested"), StopLoad(5)]
    assert orders_of(loop, StopRequested(8_000.0)) == [], "it was asked for already"
    assert (loop.record.stop_requested_at_height, loop.record.scenario.stop.height) == (5, 5)
    assert (loop.scenario.stop.height, loop.deadline_ms, loop.is_open) == (8, 27_000.0, False)


def test_a_run_that_drains_is_not_stopped_again() -> None:
    loop = drained()
    assert orders_of(loop, StopRequested(1.0)) == [] and loop.record.stop_requested_at_height is None


def test_an_open_run_goes_on_until_it_is_stopped() -> None:
    loop = make_loop(is_open=True, stop=STOP | {"duration_s": 30})
    assert orders_of(loop, Up(0.0), NewHeight(10_000), Time(1e9)) == [] and loop.is_open


# --- when the run is over ---------------------------------------------------------------------------------------------


def test_a_run_is_over_when_every_validator_has_drained() -> None:
    loop = drained()
    assert orders_of(loop, standings(GOAL, GOAL - 1)) == []
    assert orders_of(loop, standings(GOAL, GOAL)) == [End()]


@pytest.mark.parametrize(
    "awaited",
    [
        standings(GOAL, GOAL, is_up=False),
        standings(GOAL, GOAL, is_settled=False),
        standings(GOAL, GOAL, faults_are_over=False),
        standings(GOAL, 3, is_up=False, is_excused=True),
    ],
)
def test_a_run_waits(awaited: Standings) -> None:
    assert orders_of(drained(), awaited) == []


def test_no_height_of_a_validator_that_diverged_is_awaited() -> None:
    assert orders_of(drained(), standings(GOAL, 3, is_excused=True)) == [End()]


def test_a_run_is_not_over_before_its_end_is_known_unless_nobody_is_left() -> None:
    loop = make_loop(is_open=True)
    assert orders_of(loop, NewHeight(99), standings(99, 99)) == []
    assert orders_of(loop, Standings((), faults_are_over=False)) == [End()]


def test_a_run_goes_on_to_a_height_above_what_was_final_when_the_last_fault_ended() -> None:
    loop = drained()
    for height in range(1, 13):
        loop.record.finalizations.append(Finalization(100.0 * height, 0, height))
    loop.record.faults.append(FaultRecord("pause", "validator-0", 1, 1.0, 1_150.0, True, "", 1, 5))
    assert orders_of(loop, standings(12, 11)) == [], "height 11 was final by then, though it was not heard of"
    assert orders_of(loop, standings(12, 12)) == [End()]


@pytest.mark.parametrize("stop", [STOP, STOP | {"duration_s": 30}])
def test_a_run_that_takes_too_long_is_given_up(stop: dict[str, int]) -> None:
    loop = make_loop(stop=stop)
    began_ms = stop.get("duration_s", 0) * 1_000.0
    orders_of(loop, Up(0.0), NewHeight(2), Time(began_ms))
    assert orders_of(loop, Time(began_ms + 19_999.0)) == []
    assert orders_of(loop, Time(began_ms + 20_000.0)) == [End(is_time_up=True)]


def test_a_violation_ends_a_run_that_stops_on_fail() -> None:
    assert orders_of(make_loop(), Violation("two blocks")) == []
    loop = make_loop(stops_on_fail=True)
    line = "stopped at height 3 by --stop-on-fail: two blocks"
    assert orders_of(loop, NewHeight(3), Violation("two blocks"), Violation("three")) == [Tell(line), End()]
    assert loop.record.interrupted and loop.record.problems == [line]


@pytest.mark.parametrize(
    ("backend", "changes", "height"),
    [
        ("live", {"is_open": True}, 3),
        ("live", {"stop": STOP | {"duration_s": 30}}, 3),
        ("sim", {"stop": STOP | {"duration_s": 30}}, 8),
        ("live", {}, 8),
    ],
)
def test_a_run_that_is_left_ends_at_its_height(backend: Backend, changes: dict[str, Any], height: int) -> None:
    """A simulated one is repeated from its scenario, which stays as it is."""
    loop = make_loop(**changes)
    loop.record.backend = backend
    assert orders_of(loop, NewHeight(3), Left()) == []
    assert loop.record.stop_requested_at_height == (None if not changes else 3)
    assert loop.record.scenario.stop.height == height


# --- joins and forks --------------------------------------------------------------------------------------------------

LATE: dict[str, Any] = {"validators": {"count": 4, "nodes": [{}, {}, {}, {"joins_at_height": 5}]}}
FORKS: dict[str, Any] = {
    "forks": [{"at_height": 4, "changes": {"stop.height": 9}}, {"at_height": 5, "changes": {"stop.height": 6}}]
}


def test_a_join_is_noted_once() -> None:
    loop = make_loop(**LATE)
    orders_of(loop, NewHeight(6))
    assert orders_of(loop, JoinBegun(5.0, 3), JoinBegun(6.0, 3)) == [
        Tell("height 6: validator-3 joins by a snapshot"),
    ]
    orders_of(loop, NewHeight(7))
    ends = JoinEnded(9.0, 3, 5, {0: 2})
    assert orders_of(loop, ends, ends) == [Tell("height 7: validator-3 has the snapshot of height 5")]
    (join,) = loop.record.joins
    assert (join.begun_ms, join.ended_ms, join.height_when_begun, join.chunks) == (5.0, 9.0, 6, {0: 2})
    assert loop.joining == []


def test_a_validator_that_lost_its_disk_has_no_join() -> None:
    loop = make_loop(**LATE)
    assert orders_of(loop, JoinBegun(5.0, 1), JoinEnded(9.0, 1, 5, {})) == [] and loop.joining == [3]


def test_forks_are_taken_one_after_the_other() -> None:
    loop = make_loop(**FORKS)
    given, first, second = loop.scenario, loop.scenario.after_fork(0), loop.scenario.after_fork(1)
    assert orders_of(loop, NewHeight(4), NewHeight(7)) == [TakeFork(0)]
    others = "height 7: other settings apply from here on"
    assert orders_of(loop, ForkTaken(first)) == [Tell(others), TakeFork(1)]
    assert orders_of(loop, ForkTaken(second)) == [Tell(others), StopLoad(7)]
    assert (loop.record.scenario, loop.record.former, loop.end_height) == (second, [given, first], 6)


@pytest.mark.parametrize(
    ("given", "changes", "limit_s"),
    [
        ({}, {"stop.timeout_s": 300}, 300),
        ({}, {"stop.duration_s": 600}, 620),
        ({"duration_s": 600}, {"stop.timeout_s": 30}, 630),
    ],
)
def test_a_fork_has_the_time_limit_of_its_settings(
    given: dict[str, int], changes: dict[str, int], limit_s: int
) -> None:
    loop = make_loop(stop=STOP | given, forks=[{"at_height": 4, "changes": changes}])
    orders_of(loop, Up(0.0), NewHeight(4), ForkTaken(loop.scenario.after_fork(0)))
    assert loop.deadline_ms == limit_s * 1_000


def test_a_fork_that_is_not_reached_is_a_problem() -> None:
    loop = make_loop(**FORKS)
    orders_of(loop, NewHeight(4), ForkTaken(loop.scenario.after_fork(0)), Left(), Left())
    assert loop.record.problems == ["the fork at height 5 was never reached"]


def test_a_fault_that_is_added_is_in_the_record() -> None:
    loop = make_loop()
    other = loop.scenario.model_copy(update={"description": "with another fault"})
    assert orders_of(loop, ScenarioChanged(other)) == []
    assert loop.record.scenario is loop.scenario is other


# --- another driver ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"stop": STOP | {"duration_s": 30}}, {"is_open": True}])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_another_loop_goes_on_but_for_the_time_without_a_driver(changes: dict[str, Any], is_stopped: bool) -> None:
    loop, other = make_loop(**changes), make_loop(**changes)
    orders_of(loop, Up(0.0), NewHeight(5), *([StopRequested(9.0)] if is_stopped else []))
    left = Progress(*json.loads(json.dumps(loop.progress)))
    other.continue_from(left, loop.scenario, loop.height, 1_500.0)
    assert (other.height, other.end_height, other.over_ms) == (5, loop.end_height, loop.over_ms)
    assert other.deadline_ms == loop.deadline_ms + 1_500.0
    assert orders_of(other, NewHeight(5)) == ([StopLoad(5)] if is_stopped else []), "it may not have stopped yet"


# --- whatever it is told ----------------------------------------------------------------------------------------------


def anything(random: Random, scenario: Scenario, length: int = 40) -> list[Seen]:
    """What may be seen, in any order: time that jumps, validators that come and go, orders out of turn."""

    def one() -> Seen:
        at_ms, height = random.uniform(0.0, 60_000.0), random.randrange(16)
        kind = random.choice(
            (Up, Time, NewHeight, StopRequested, Violation, JoinBegun, JoinEnded, ForkTaken, Standings, Left)
        )
        if kind in (Up, Time, StopRequested):
            return kind(at_ms)
        if kind is NewHeight:
            return NewHeight(height)
        if kind is Violation:
            return Violation("a rule")
        if kind is JoinBegun:
            return JoinBegun(at_ms, random.randrange(4))
        if kind is JoinEnded:
            return JoinEnded(at_ms, random.randrange(4), height, {})
        if kind is ForkTaken:
            return ForkTaken(scenario.after_fork(random.randrange(len(scenario.forks))))
        if kind is Left:
            return Left() if random.random() < 0.1 else Time(at_ms)
        flags = [random.random() < 0.8 for _ in range(3)]
        return Standings((Standing(random.randrange(16), *flags),) * random.randrange(3), random.random() < 0.8)

    return [one() for _ in range(length)]


def play(loop: RunLoop, seen: Iterable[Seen]) -> list[list[Order]]:
    return [loop.handle(each) for each in seen]


def broken(orders: Sequence[list[Order]]) -> list[str]:
    """What a loop must not do."""
    flat = [order for each in orders for order in each]
    ends = [place for place, each in enumerate(orders) if any(isinstance(order, End) for order in each)]
    numbers = [order.number for order in flat if isinstance(order, TakeFork)]
    found = {
        "it ends twice": len(ends) > 1,
        "it goes on after its end": bool(ends) and any(orders[ends[0] + 1 :]),
        "it stops the load twice": sum(isinstance(order, StopLoad) for order in flat) > 1,
        "it takes a fork twice": numbers != sorted(set(numbers)),
    }
    return [what for what, is_so in found.items() if is_so]


def random_loop(random: Random) -> RunLoop:
    stop = STOP | random.choice([{}, {"duration_s": 30}])
    return make_loop(random.random() < 0.3, random.random() < 0.5, **(LATE | FORKS), stop=stop)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_it_is_told_it_ends_once_and_repeats(seed: int) -> None:
    for number in range(50):
        name = f"{seed}/{number}"
        loop, again = random_loop(Random(name)), random_loop(Random(name))
        seen = anything(Random(f"{name}/seen"), loop.scenario)
        orders = play(loop, seen)
        assert broken(orders) == [], seen
        assert play(again, seen) == orders
        assert again.record.problems == loop.record.problems and again.record.joins == loop.record.joins


class Endless(RunLoop):
    """It forgets that it has ended."""

    def _end(self, is_time_up: bool = False) -> End:
        return End(is_time_up)


class Repeating(RunLoop):
    """It forgets which forks it has ordered."""

    def handle(self, seen: Seen) -> list[Order]:
        self._forks_ordered = self._forks_taken = 0
        return super().handle(seen)


class Insistent(RunLoop):
    """It forgets that it has stopped the load."""

    def handle(self, seen: Seen) -> list[Order]:
        self._has_stopped_load = False
        return super().handle(seen)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (Endless, "it ends twice"),
        (Endless, "it goes on after its end"),
        (Insistent, "it stops the load twice"),
        (Repeating, "it takes a fork twice"),
    ],
)
def test_a_loop_that_forgets_is_found_out(kind: type[RunLoop], what: str) -> None:
    found = set()
    for number in range(50):
        loop = random_loop(Random(number))
        forgets = kind(loop.record, loop.is_open, loop.stops_on_fail)
        found |= set(broken(play(forgets, anything(Random(f"{number}/seen"), loop.scenario))))
    assert what in found
