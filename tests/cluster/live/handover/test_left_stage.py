"""Faults that another driver goes on with: whatever they know, and whenever it comes, nothing is forgotten."""

from __future__ import annotations

from copy import copy
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.disks import PLANNED_FAILURE
from cluster.faults.calls import (
    Begin,
    End,
    GoOn,
    InForce,
    NoteEnd,
    Restart,
    StartValidator,
    UpgradeNext,
    UpgradeStart,
)
from cluster.faults.events import Voted
from cluster.faults.link_faults import LinkCounts
from cluster.live.driver.live_stage import UNKNOWN_ORDERS, Agenda, LiveStage, Pauses
from cluster.live.driver.supervised_host import Host
from cluster.live.handover.left import LeftCall, LiveCall, Prepared, TakePlace, Together
from cluster.live.host.validator_loop import LoopState
from cluster.live.means import MeansCall
from cluster.live.nodes.ray_nodes import Place
from cluster.live.processes.history import Phase
from cluster.live.processes.last_words import LastWords
from cluster.live.processes.processes import Process
from cluster.scenario import Scenario
from consensus.messages import VoteKind
from tests.cluster.live.handover.parts import FaultsOnHosts, inside, written_and_read

FAULTS = [
    {"kind": "degrade", "loss": 0.2, "at_height": 2, "until_height": 8},
    {"kind": "partition", "groups": [["validator-3"]], "at_height": 3, "for_ms": 700},
    {"kind": "kill", "target": "random", "at_height": 3, "down_ms": 900},
    {"kind": "slow_disk", "target": "validator-2", "sync_ms": 50, "at_ms": 250, "for_ms": 500},
    {"kind": "clock_skew", "target": "f", "clock_speed": 1.5, "at_height": 4, "for_ms": 2_000},
    {"kind": "slow_execution", "target": "validator-2", "job_ms": 5, "at_height": 4, "for_ms": 300},
    {"kind": "pause", "target": "validator-0", "at_height": 5, "for_ms": 400},
    {"kind": "disk_full", "target": "validator-1", "at_height": 5, "down_ms": 300},
    {"kind": "failed_sync", "target": "validator-3", "at_height": 6, "down_ms": 300},
    {"kind": "bit_rot", "target": "validator-2", "at_height": 6, "down_ms": 500},
    {"kind": "wipe", "target": "validator-3", "at_height": 7, "down_ms": 500},
    {"kind": "upgrade", "version": "2", "at_height": 7, "down_ms": 200, "heights_between": 1},
    {"kind": "kill", "target": "validator-0", "at_height": 8, "after_votes": "notarize", "down_ms": 100},
    {"kind": "leader_delay", "delay_ms": 30, "at_height": 9, "for_ms": 100},
    {"kind": "cut", "from": ["validator-0"], "to": ["validator-1"], "at_ms": 60_000, "for_ms": 100},
]
SCENARIO = Scenario.model_validate({"name": "handover", "validators": 4, "faults": FAULTS})
OUTSIDE = ("_hosts", "_faults", "network", "now_ms", "height")
"""Found again, as what each look finds."""


class ForgottenError(Exception):
    """A stage that was built again is not the same."""


class Hosts:
    """Four hosts. Orders to them are complete when the run says so."""

    make_call: Any
    """Makes a call: the stage's, once there is one."""

    def __init__(self) -> None:
        self.all = [Host(number, Place("a", ""), [number], {}) for number in range(4)]
        for host in self.all:
            host.actor, host.phase, host.processes.current = "actor", Phase.UP, Process(7, host.number)
            host.reports.states = {host.number: LoopState(ready=True)}
            host.reports.old_file_sizes = {host.number: {"blocks.log": 4_096}}
        self.injections: list[Any] = []
        self.orders: list[Any] = []
        self.addresses = [SimpleNamespace(index=index, url="") for index in range(4)]
        self.nodes = SimpleNamespace(hosts_on=lambda place: [])
        self.placed: list[int] = []

    def host_of(self, index: int) -> Host:
        return self.all[index]

    def carrying(self, indices: Any) -> list[Host]:
        return [self.all[index] for index in indices]

    def link_counts(self, key: int) -> LinkCounts:
        return LinkCounts()

    def resume(self, host: Host) -> None:
        pass

    def take_place(self, what: TakePlace) -> None:
        self.placed.append(what.host)

    def kill(self, host: Host, by_ray: bool) -> None:
        host.is_held_down = True
        host.went_down()

    def inject(self, injection: Any, then: Any) -> None:
        self.injections.append(injection)
        self.orders += [] if then is None else [then]

    def pause(self, host: Host) -> bool:
        return host.phase is Phase.UP

    def prepare(self, hosts: Any, release: Any, then: Any, on_failure: Any) -> None:
        self.orders.append(then)

    def replace(self, host: Host, release: Any) -> None:
        host.release, host.is_held_down = release, True
        host.went_down()

    def answer(self) -> None:
        orders, self.orders = self.orders, []
        for then in orders:
            self.make_call(then)

    def revive(self) -> None:
        """The next processes of hosts that may start are up."""
        for host in self.all:
            if host.phase is Phase.DOWN and not host.is_held_down:
                host.processes.note_death()
                host.pending_disk_operations.clear()
                host.processes.current, host.phase = Process(7, 100 + host.processes.deaths), Phase.UP
                host.reports.states = {host.number: LoopState(ready=True, height=9)}


class Run:
    """A run with every kind of fault; ``goes_on`` with another stage after each step, or never."""

    def __init__(self, goes_on: bool) -> None:
        self.hosts: Any = Hosts()
        self.height, self.now_ms = 1, 0.0
        self.lines: list[str] = []
        self._goes_on = goes_on
        self.begin()

    def begin(self, other: FaultsOnHosts | None = None) -> FaultsOnHosts:
        now_ms, height, tell = partial(getattr, self, "now_ms"), partial(getattr, self, "height"), self.lines.append
        self.faults = FaultsOnHosts(SCENARIO, self.hosts, now_ms, height, tell, self.keep)
        if other is None:
            self.faults.begin()
        else:
            self.faults.go_on(other)
        return self.faults

    @property
    def stage(self) -> LiveStage:
        return self.faults.stage

    def inside(self) -> Any:
        """All that faults and stage know, but for what each look finds again."""
        return inside((self.faults.engine, self.stage), OUTSIDE)

    def keep(self, index: int, url: str) -> None:
        self.lines.append(f"keep {index}")

    def hand_over(self) -> None:
        """Nothing that the stage knows is different afterwards, and records are no copies of each other."""
        before, left = self.inside(), written_and_read(self.stage.state)
        waiting = Together(self.hosts.orders)
        self.begin(self.faults)
        self.hosts.orders = written_and_read(waiting).calls
        if self.inside() != before:
            raise ForgottenError
        assert self.stage.state == left

    def step(self, number: int) -> None:
        """One look of the driver, and what happens by itself meanwhile."""
        self.height = 1 + number // 2
        self.now_ms = 100.0 * number
        self.faults.step()
        if number % 3 == 0:
            self.hosts.answer()
        if number % 4 == 0:
            self.hosts.revive()
        if number == 12:
            self.stage.on_lost(self.hosts.all[1], LastWords(7, 1, f"{PLANNED_FAILURE}: no space"))
            self.hosts.all[1].went_down()
        if number == 17:
            for sender in range(3):
                self.faults.feed.see(Voted(sender, 9, VoteKind.NOTARIZE))
        if number == 20:
            self.stage.note_lost_node([self.hosts.all[2]], "n2", "its machine burned", self.height)
        if self._goes_on:
            self.hand_over()


def test_a_run_that_is_taken_over_after_each_step_is_the_same_as_one_that_is_not() -> None:
    one, other = Run(goes_on=False), Run(goes_on=True)
    seen = set[str]()
    for number in range(1, 60):
        one.step(number)
        other.step(number)
        assert one.inside() == other.inside(), f"step {number}"
        seen |= {type(each.what).__name__ for each in other.stage.state.agenda.due}
    assert one.lines == other.lines
    assert inside(one.hosts.injections) == inside(other.hosts.injections)
    assert all(record.begun_ms is not None for record in one.faults.engine.records[:-2]), (
        "every kind of fault was there"
    )
    assert {"Begin", "End", "Restart", "UpgradeNext", "UpgradeStart"} <= seen
    (unplanned,) = [record for record in other.faults.engine.records if not record.is_planned]
    assert "its machine burned" in unplanned.evidence or unplanned.ended_ms is None


def go(run: Run) -> None:
    for number in range(1, 60):
        run.step(number)


@pytest.mark.parametrize(
    ("part", "attribute", "forgotten"),
    [
        (Agenda, "_count", -1),
        (Pauses, "_seen", {}),
    ],
)
def test_a_part_that_forgets_something_is_found_out(
    monkeypatch: pytest.MonkeyPatch, part: Any, attribute: str, forgotten: object
) -> None:
    """The faults that the test above would find: each is planted here."""
    take_over = part.take_over

    def takes_over(self: Any, *arguments: Any) -> None:
        take_over(self, *arguments)
        setattr(self, attribute, copy(forgotten))

    run = Run(goes_on=True)
    monkeypatch.setattr(part, "take_over", takes_over)
    with pytest.raises(ForgottenError):
        go(run)


# --- calls to come ----------------------------------------------------------------------------------------------------

CALLS: dict[Any, tuple[Any, ...]] = {
    **dict.fromkeys((Begin, End, GoOn, InForce, NoteEnd, StartValidator, UpgradeNext, TakePlace), (2,)),
    **dict.fromkeys((Restart, UpgradeStart), (2, [1, 3])),
    MeansCall: ({"type": "Uncordon", "node": "node-1"},),
    Prepared: (End(0),),
    Together: ([TakePlace(2), Prepared(End(0))],),
}
"""The arguments of each kind of call to come."""


def test_a_call_to_come_is_the_same_after_it_was_written() -> None:
    assert set(CALLS) >= {*LiveCall.__args__}
    for kind, arguments in CALLS.items():
        written_and_read(LeftCall(1.5, 2, Together([kind(*arguments)])))


def test_a_host_gets_its_other_code_from_another_driver() -> None:
    run = Run(goes_on=False)
    run.stage.make_call(written_and_read(Together([TakePlace(2), Prepared(End(0))])))
    assert run.hosts.placed == [2]
    (due,) = [each for each in run.stage.state.agenda.due if each.what == End(0)]
    assert due.at_ms == 0.0


def test_hosts_take_the_faults_of_another_driver_for_the_newest() -> None:
    run = Run(goes_on=False)
    for number in range(1, 7):
        run.step(number)
    before = run.hosts.injections[-1]
    run.hand_over()
    run.stage.inject(None, UNKNOWN_ORDERS)
    sent = run.hosts.injections[-1]
    assert sent.number > before.number + UNKNOWN_ORDERS
    assert (sent.links, sent.impairments) == (before.links, before.impairments) and sent.links
