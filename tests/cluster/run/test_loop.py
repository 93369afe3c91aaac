"""The loop of a run: what it orders for what it is told, and what it never does whatever it is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from cluster.common.errors import BadInput
from cluster.disks import PLANNED_FAILURE
from cluster.faults.events import (
    Begin,
    BitFlipped,
    Confirm,
    Count,
    Counted,
    Crash,
    Due,
    End,
    Failed,
    FaultSeen,
    FlipBit,
    Impair,
    InForce,
    MachineLost,
    Network,
    NoteEnd,
    Observed,
    ObserveDelays,
    ObserveLinks,
    ObserveProcesses,
    Prepare,
    Recovery,
    Seat,
    SetLinks,
    Tell,
    Voted,
    Wake,
)
from cluster.faults.impairment import Impairment
from cluster.record.finalizations import Finalization
from cluster.record.run import Backend, FaultRecord, RunRecord
from cluster.run.events import (
    Absent,
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
    Time,
    Up,
    Violation,
)
from cluster.run.events import (
    End as EndRun,
)
from cluster.run.loop import RunLoop, late_faults
from cluster.scenario import Scenario
from consensus.messages import VoteKind
from tests.cluster.records import make_genesis

STOP = {"height": 8, "drain_blocks": 2, "timeout_s": 20}
GOAL = 10
NETWORK = Network(0.0, tuple(Seat((index,), (index,), True, True) for index in range(4)), 0)


def make_loop(is_open: bool = False, stops_on_fail: bool = False, **changes: Any) -> RunLoop:
    scenario = Scenario.model_validate({"name": "loop", "validators": 4, "stop": STOP} | changes)
    return RunLoop(RunRecord(scenario, "sim", 1, "test", make_genesis()), is_open, stops_on_fail)


def orders_of(loop: RunLoop, *seen: Seen) -> list[Order]:
    return [order for each in seen for order in loop.handle(each)]


def standings(*heights: int, **of_the_last: bool) -> Standings:
    *others, last = (Standing(height, is_up=True) for height in heights)
    return Standings((*others, last._replace(**of_the_last)))


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
    assert orders_of(loop, standings(GOAL, GOAL)) == [EndRun()]


@pytest.mark.parametrize(
    "awaited",
    [
        standings(GOAL, GOAL, is_up=False),
        standings(GOAL, GOAL, is_settled=False),
        standings(GOAL, 3, is_up=False, is_excused=True),
    ],
)
def test_a_run_waits(awaited: Standings) -> None:
    assert orders_of(drained(), awaited) == []


def test_a_run_waits_for_a_fault_that_has_begun() -> None:
    loop = make_loop(faults=[{"kind": "pause", "target": "validator-1", "at_ms": 5, "for_ms": 90}])
    (wake,) = orders_of(loop, Up(0.0))
    assert isinstance(wake, Wake) and wake.at_ms == 5.0
    orders = orders_of(loop, NewHeight(GOAL), NETWORK, Due(5.0, wake.call))
    assert [type(order) for order in orders] == [StopLoad, Count, Impair]
    assert orders_of(loop, Counted(0, 3), Due(6.0, InForce(0)), standings(GOAL, GOAL)) == [
        Tell(f"height {GOAL}: pause of validator-1 begins"),
        Wake(96.0, "fault 0 ends", End(0)),
    ]
    (back,) = orders_of(loop, Due(96.0, End(0)))
    assert back == Impair({1: Impairment()}, NoteEnd(0))
    (observe,) = orders_of(loop, Due(97.0, NoteEnd(0)))
    assert isinstance(observe, ObserveDelays) and observe.count_before == 3
    assert orders_of(loop, standings(GOAL, GOAL)) == []
    assert orders_of(loop, Observed(0, True, "it stood still"), standings(GOAL, GOAL)) == [
        Tell(f"height {GOAL}: pause of validator-1 is over: it stood still"),
        EndRun(),
    ]


@pytest.mark.parametrize("begins", [{"at_height": 7}, {"at_ms": 5}])
def test_a_run_waits_for_a_fault_that_should_have_begun(begins: dict[str, int]) -> None:
    """As after a time without a driver, in which the chain came past the fault and the last height."""
    later = {"kind": "pause", "target": "validator-2", "at_ms": 9_000, "for_ms": 90}
    loop = make_loop(faults=[{"kind": "kill", "target": "validator-1", "down_ms": 0, **begins}, later])
    found = orders_of(loop, Up(0.0), NewHeight(GOAL), NETWORK._replace(at_ms=9.0))
    wake = next(order for order in found if isinstance(order, Wake) and order.call == Begin(0))
    assert wake.at_ms <= 9.0
    assert orders_of(loop, standings(GOAL, GOAL)) == [], "its call waits for the driver's next look"
    began = orders_of(loop, Due(9.0, wake.call))
    assert any(isinstance(order, Crash) for order in began)


def test_a_run_that_nobody_takes_part_in_waits_for_no_fault() -> None:
    loop = make_loop(faults=[{"kind": "kill", "target": "validator-1", "at_ms": 5}])
    orders_of(loop, Up(0.0), NETWORK, Due(5.0, Begin(0)))
    assert not loop.faults.are_over
    assert orders_of(loop, Standings(())) == [EndRun()]


def test_no_height_of_a_validator_that_diverged_is_awaited() -> None:
    assert orders_of(drained(), standings(GOAL, 3, is_excused=True)) == [EndRun()]


def test_a_run_is_not_over_before_its_end_is_known_unless_nobody_is_left() -> None:
    loop = make_loop(is_open=True)
    assert orders_of(loop, NewHeight(99), standings(99, 99)) == []
    assert orders_of(loop, Standings(())) == [EndRun()]


def test_a_run_goes_on_to_a_height_above_what_was_final_when_the_last_fault_ended() -> None:
    loop = drained()
    for height in range(1, 13):
        loop.record.finalizations.append(Finalization(100.0 * height, 0, height))
    loop.record.faults.append(FaultRecord("pause", "validator-0", 1, 1.0, 1_150.0, True, "", 1, 5))
    assert orders_of(loop, standings(12, 11)) == [], "height 11 was final by then, though it was not heard of"
    assert orders_of(loop, standings(12, 12)) == [EndRun()]


@pytest.mark.parametrize("stop", [STOP, STOP | {"duration_s": 30}])
def test_a_run_that_takes_too_long_is_given_up(stop: dict[str, int]) -> None:
    loop = make_loop(stop=stop)
    began_ms = stop.get("duration_s", 0) * 1_000.0
    orders_of(loop, Up(0.0), NewHeight(2), Time(began_ms))
    assert orders_of(loop, Time(began_ms + 19_999.0)) == []
    assert orders_of(loop, Time(began_ms + 20_000.0)) == [EndRun(is_time_up=True)]


def test_a_violation_ends_a_run_that_stops_on_fail() -> None:
    assert orders_of(make_loop(), Violation("two blocks")) == []
    loop = make_loop(stops_on_fail=True)
    line = "stopped at height 3 by --stop-on-fail: two blocks"
    assert orders_of(loop, NewHeight(3), Violation("two blocks"), Violation("three")) == [Tell(line), EndRun()]
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


def test_a_fault_is_added_from_now_on_or_later_until_the_last_height_is_reached() -> None:
    kill, loop = {"kind": "kill", "target": "validator-1"}, make_loop()
    orders_of(loop, Up(500.0), NewHeight(5))
    assert loop.with_fault(kill, 2_000.2).faults[-1].at_ms == 1_501, "from now on"
    assert loop.with_fault(kill | {"at_height": 6}, 2_000.0).faults[-1].at_height == 6
    for begins, problem in (
        ({"at_height": 5}, "at_height: 5 is not above 5, the final height"),
        ({"at_ms": 1_499}, "at_ms: 1499 is over: it is 1500 ms since the testnet was up"),
    ):
        with pytest.raises(BadInput, match=f"^{problem}$"):
            loop.with_fault(kill | begins, 2_000.0)
    assert not loop.scenario.faults, "the caller tells the loop once it can be done"
    orders_of(loop, NewHeight(8))
    with pytest.raises(BadInput, match=r"^the run is about to end: height 8 is reached$"):
        loop.with_fault(kill, 2_000.0)


# --- another driver ---------------------------------------------------------------------------------------------------


def test_the_time_without_a_driver_does_not_count_and_late_faults_are_told() -> None:
    loop = make_loop(faults=[{"kind": "pause", "target": "validator-1", "at_ms": 1_000, "for_ms": 9}])
    orders_of(loop, Up(500.0), NewHeight(5))
    lines = [
        "no driver from height 4 to 5 (2 s)",
        "pause of validator-1 at 1,000 ms was due while there was no driver: it begins late",
    ]
    assert orders_of(loop, Absent(600.0, 2_100.0, 4)) == [Tell(line) for line in lines]
    assert loop.deadline_ms == 21_500.0
    orders_of(loop, Left())
    assert len(orders_of(loop, Absent(2_200.0, 3_000.0, 5))) == 2, "the other one died while all came to rest"
    loop.record.absences.pop()
    (absence,) = loop.record.absences
    assert (absence.from_ms, absence.until_ms, absence.late) == (600.0, 2_100.0, tuple(lines[1:]))


def test_late_faults_are_told_and_others_are_not() -> None:
    faults = [
        FaultRecord("kill", "validator-0", 5, begun_ms=1.0, ended_ms=2.0),
        FaultRecord("kill", "validator-1", 6, begun_ms=3.0),
        FaultRecord("kill", "validator-2", 20),
        FaultRecord("kill", "validator-3", 21),
        FaultRecord("pause", "validator-0", None, at_ms=900),
        FaultRecord("pause", "validator-1", None, at_ms=901),
    ]
    assert late_faults(faults, 20, 900.0) == (
        "kill of validator-1 at height 6 was under way without a driver: it may end late",
        "kill of validator-2 at height 20 was due while there was no driver: it begins late",
        "pause of validator-0 at 900 ms was due while there was no driver: it begins late",
    )


# --- whatever it is told ----------------------------------------------------------------------------------------------

FAULTS: list[dict[str, Any]] = [
    {"kind": "partition", "groups": [["validator-1"]], "at_height": 2, "until_height": 6},
    {"kind": "kill", "target": "random", "at_height": 2, "down_ms": 900},
    {"kind": "kill", "target": "leader", "at_height": 3, "after_votes": "notarize", "down_ms": 100},
    {"kind": "slow_disk", "target": "f", "sync_ms": 50, "at_ms": 250, "for_ms": 500},
    {"kind": "disk_full", "target": "validator-1", "at_height": 3, "down_ms": 300},
    {"kind": "bit_rot", "target": "validator-2", "at_height": 4, "down_ms": 500},
    {"kind": "lose_node", "target": "validator-0", "at_height": 5, "down_ms": 50},
    {"kind": "upgrade", "at_height": 5, "down_ms": 200, "heights_between": 1},
]


class World:
    """What may be seen, in any order: time that jumps, hosts that vanish and come back, orders carried out late."""

    def __init__(self, random: Random, loop: RunLoop) -> None:
        self._random = random
        self._loop = loop
        self._owed: list[FaultSeen] = []
        """Calls that are due once, and answers."""
        self.seen: list[Seen] = []
        self.orders: list[list[Order]] = []

    def go(self, length: int = 40) -> World:
        """The testnet is up, and so many things happen."""
        self.tell(Up(self._random.uniform(0.0, 99.0)))
        for _ in range(length):
            self.tell(self._anything())
        return self

    def settle(self) -> World:
        """All that is owed is told, validators are up, and heights are reached, until nothing happens any more."""
        height = 20
        for _ in range(200):
            height += 1
            owed, self._owed = self._owed, []
            self.tell(NewHeight(height), self.network(is_settled=True, height=height), *owed)
            if not (owed or self._owed):
                break
        return self

    def tell(self, *seen: Seen) -> None:
        for each in seen:
            orders = self._loop.handle(each)
            self.seen.append(each)
            self.orders.append(orders)
            self._owed += [answer for order in orders if (answer := self._answer(order)) is not None]

    def network(self, is_settled: bool = False, height: int = 9) -> Network:
        def is_so(share: float) -> bool:
            return not is_settled and self._random.random() < share

        seats = []
        for index in range(4):
            is_down = is_so(0.3)
            seat = Seat((index,), (index, index ^ 1), not is_down, not (is_down and is_so(0.9)), is_down, is_so(0.02))
            deaths = height if is_settled else self._random.randrange(9)
            seats.append(seat._replace(deaths=deaths, height=height, recovery=Recovery(3, 0)))
        return Network(self._random.uniform(0.0, 60_000.0), tuple(seats), self._random.randrange(4))

    def _answer(self, order: Order) -> FaultSeen | None:
        at_ms = self._random.uniform(0.0, 60_000.0)
        match order:
            case Wake(call=call) | SetLinks(then=call) | Impair(then=call) | Prepare(then=call) | Confirm(call):
                return Due(at_ms, call)
            case Count(key=key):
                return Counted(key, self._random.randrange(9))
            case FlipBit(key=key, validator=index):
                return BitFlipped(key, index, "blocks at offset 7")
            case ObserveLinks(key) | ObserveDelays(key) | ObserveProcesses(key):
                return Observed(key, self._random.random() < 0.5, "something", self._random.randrange(5))
        return None

    def _anything(self) -> Seen:
        random, scenario = self._random, self._loop.scenario
        at_ms, height = random.uniform(0.0, 60_000.0), random.randrange(16)
        if self._owed and random.random() < 0.5:
            return self._owed.pop(random.randrange(len(self._owed)))
        stopped = f"blocks: {PLANNED_FAILURE}"
        index, flags = random.randrange(4), [random.random() < 0.8 for _ in range(3)]
        choices: list[Seen] = [
            Time(at_ms),
            NewHeight(height),
            StopRequested(at_ms),
            Violation("a rule"),
            JoinBegun(at_ms, index),
            JoinEnded(at_ms, index, height, {}),
            *(ForkTaken(scenario.after_fork(number)) for number in range(len(scenario.forks))),
            Standings((Standing(height, *flags),) * random.randrange(3)),
            Left() if random.random() < 0.1 else Time(at_ms),
            self.network(),
            self.network(),
            Voted(index, 1 + height, VoteKind.NOTARIZE),
            MachineLost(at_ms, [index], f"node {height}", "it burned"),
            *([Failed(at_ms, index, stopped)] if self._loop.faults.explains(index, stopped) else []),
        ]
        return random.choice(choices)


def play(loop: RunLoop, seen: Iterable[Seen]) -> list[list[Order]]:
    return [loop.handle(each) for each in seen]


def broken(loop: RunLoop, world: World) -> list[str]:
    """What a loop must not do."""
    flat = [order for each in world.orders for order in each]
    ends = [place for place, order in enumerate(flat) if isinstance(order, EndRun)]
    numbers = [order.number for order in flat if isinstance(order, TakeFork)]
    begun = [order.text for order in flat if isinstance(order, Tell) and order.text.endswith(" begins")]
    found = {
        "it ends twice": len(ends) > 1,
        "it goes on after its end": any(not isinstance(order, Tell) for end in ends for order in flat[end + 1 :]),
        "it stops the load twice": sum(isinstance(order, StopLoad) for order in flat) > 1,
        "it takes a fork twice": numbers != sorted(set(numbers)),
        "a fault begins twice": len(begun) > sum(record.begun_ms is not None for record in loop.record.faults),
        "a fault does not end": not (ends or Left() in world.seen or loop.faults.are_over),
    }
    return [what for what, is_so in found.items() if is_so]


def random_loop(random: Random) -> RunLoop:
    stop = STOP | random.choice([{}, {"duration_s": 30}])
    faults = random.sample(FAULTS, random.randrange(1, 5))
    return make_loop(random.random() < 0.3, random.random() < 0.5, **(LATE | FORKS), stop=stop, faults=faults)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_it_is_told_it_ends_once_and_repeats(seed: int) -> None:
    for number in range(50):
        name = f"{seed}/{number}"
        loop, again = random_loop(Random(name)), random_loop(Random(name))
        world = World(Random(f"{name}/seen"), loop).go().settle()
        assert broken(loop, world) == [], world.seen
        assert play(again, world.seen) == world.orders
        assert replace(again.record, scheme=loop.record.scheme) == loop.record


class Endless(RunLoop):
    """It forgets that it has ended."""

    def _end(self, is_time_up: bool = False) -> EndRun:
        return EndRun(is_time_up)


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


class Deaf(RunLoop):
    """It does not hear that validators are up again."""

    def handle(self, seen: Seen) -> list[Order]:
        return [] if isinstance(seen, Network) and self.faults.have_begun else super().handle(seen)


class Eager(RunLoop):
    """It forgets which faults have begun."""

    def handle(self, seen: Seen) -> list[Order]:
        self.faults._waiting = list(self.faults._planned)
        return super().handle(seen)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (Endless, "it ends twice"),
        (Endless, "it goes on after its end"),
        (Insistent, "it stops the load twice"),
        (Repeating, "it takes a fork twice"),
        (Deaf, "a fault does not end"),
        (Eager, "a fault begins twice"),
    ],
)
def test_a_loop_that_forgets_is_found_out(kind: type[RunLoop], what: str) -> None:
    found = set()
    for number in range(50):
        loop = random_loop(Random(number))
        forgets = kind(loop.record, loop.is_open, loop.stops_on_fail)
        world = World(Random(f"{number}/seen"), forgets).go().settle()
        found |= set(broken(forgets, world))
    assert what in found
