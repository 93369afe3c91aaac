"""Faults that another driver goes on with: whatever they know, and whenever it comes, nothing is forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from cluster.disks import PLANNED_FAILURE
from cluster.faults.engine import FaultEngine
from cluster.faults.events import Voted
from cluster.faults.impairment import Impairment
from cluster.live.driver.live_stage import UNKNOWN_ORDERS, LiveStage
from cluster.live.driver.supervised_host import Host
from cluster.live.host.validator_loop import LoopState
from cluster.live.injection import Injection
from cluster.live.processes.history import Phase
from cluster.live.processes.last_words import LastWords
from cluster.live.processes.processes import Process
from cluster.run.events import Order
from cluster.run.loop import Feed
from cluster.scenario import Scenario
from consensus.messages import VoteKind
from tests.cluster.live.handover.parts import FaultsOnHosts, FourHosts, inside

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


class Hosts(FourHosts):
    """Hosts. Orders to them are complete when the run says so."""

    def __init__(self) -> None:
        super().__init__()
        for host in self.all:
            host.reports.old_file_sizes = {host.number: {"blocks.log": 4_096}}
        self.injections: list[Any] = []
        self.orders: list[Any] = []
        self.addresses = [SimpleNamespace(index=index, url="") for index in range(4)]
        self.nodes = SimpleNamespace(hosts_on=lambda place: [])

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
            then()

    def revive(self) -> None:
        """The next processes of hosts that may start are up."""
        for host in self.all:
            if host.phase is Phase.DOWN and not host.is_held_down:
                host.processes.note_death()
                host.pending_disk_operations.clear()
                host.processes.current, host.phase = Process(7, 100 + host.processes.deaths), Phase.UP
                host.reports.states = {host.number: LoopState(ready=True, height=9)}


class Run:
    """A run with every kind of fault; ``goes_on`` with another driver after each step, or never."""

    def __init__(self, goes_on: bool) -> None:
        self.hosts: Any = Hosts()
        self.height, self.now_ms = 1, 0.0
        self.lines: list[str] = []
        self._goes_on = goes_on
        self.faults = self.with_faults()
        self.faults.begin()

    def with_faults(self, left: FaultsOnHosts | None = None) -> FaultsOnHosts:
        now_ms, height, tell = partial(getattr, self, "now_ms"), partial(getattr, self, "height"), self.lines.append
        return FaultsOnHosts(SCENARIO, self.hosts, now_ms, height, tell, self.keep, left=left)

    def inside(self) -> Any:
        """All that matters of faults, stage and hosts, but for what each look finds again."""
        loop, stage, hosts = self.faults.loop, self.faults.stage, self.hosts
        known = loop.faults, loop.due, stage._pauses, [host.is_held_down for host in hosts.all]
        last = hosts.injections[-1] if hosts.injections else Injection()
        impairments = {index: each for index, each in last.impairments.items() if each != Impairment()}
        traps = {index: trap for index, (_, trap) in last.traps.items()}
        return inside((known, last.links, impairments, traps, self.lines), OUTSIDE)

    def keep(self, index: int, url: str) -> None:
        self.lines.append(f"keep {index}")

    def hand_over(self) -> None:
        """What was under way is not answered any more to the driver that gave the orders."""
        self.hosts.orders = []
        for host in self.hosts.all:
            host.is_held_down = False
        self.faults = self.with_faults(self.faults)
        self.faults.go_on()

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
            self.faults.stage.on_lost(self.hosts.all[1], LastWords(7, 1, f"{PLANNED_FAILURE}: no space"))
            self.hosts.all[1].went_down()
        if number == 17:
            for sender in range(3):
                self.faults.feed.see(Voted(sender, 9, VoteKind.NOTARIZE))
        if number == 20:
            self.faults.stage.note_lost_node([self.hosts.all[2]], "n2", "its machine burned", self.height)
            self.hosts.all[2].went_down()
        if self._goes_on:
            self.hand_over()


def differing() -> tuple[list[int], Run]:
    """The steps after which a run that is taken over after each differs from one that is not, up to the first; and the
    run that is taken over.
    """
    one, other = Run(goes_on=False), Run(goes_on=True)
    for number in range(1, 60):
        one.step(number)
        other.step(number)
        if one.inside() != other.inside():
            return [number], other
    return [], other


def test_a_run_that_is_taken_over_after_each_step_is_the_same_as_one_that_is_not() -> None:
    steps, run = differing()
    assert steps == []
    records = run.faults.engine.records
    assert all(record.begun_ms is not None for record in records[:-2]), "every kind of fault was there"
    (unplanned,) = [record for record in records if not record.is_planned]
    assert "its machine burned" in unplanned.evidence or unplanned.ended_ms is None


def without(name: str, nothing: object) -> property:
    """The state of a stage that forgets something."""
    state = LiveStage.state
    assert isinstance(state, property) and state.fget is not None
    return property(lambda stage: structs.replace(state.fget(stage), **{name: copy(nothing)}))


def twice(feed: Feed, due: Iterable[Order]) -> None:
    for order in [*due] * 2:
        for answer in list(feed._perform(order)):
            feed.see(answer)


@pytest.mark.parametrize(
    ("part", "name", "planted"),
    [
        (LiveStage, "state", without("traps", {})),
        (LiveStage, "state", without("stopped", set())),
        (FaultEngine, "in_force", property(lambda engine: ({}, {}))),
        (LiveStage, "go_on", lambda stage: None),
        (Feed, "go_on", lambda feed, due: None),
        (Feed, "go_on", twice),
    ],
    ids=["traps", "looks", "what is in force", "who is held down", "orders are lost", "a fault begins twice"],
)
def test_what_is_forgotten_or_done_twice_is_found_out(
    monkeypatch: pytest.MonkeyPatch, part: type, name: str, planted: object
) -> None:
    monkeypatch.setattr(part, name, planted)
    try:
        steps, run = differing()
    except AssertionError:  # a fault that begins twice may end twice
        return
    assert steps
    if planted is twice:
        assert any(run.lines.count(line) > 1 for line in run.lines if line.endswith(" begins"))


def test_hosts_take_the_faults_of_another_driver_for_the_newest() -> None:
    run = Run(goes_on=False)
    for number in range(1, 7):
        run.step(number)
    before = run.hosts.injections[-1]
    run.hand_over()
    sent = run.hosts.injections[-1]
    assert sent.number > before.number + UNKNOWN_ORDERS
    assert (sent.links, sent.impairments) == (before.links, before.impairments) and sent.links


def test_what_is_to_be_paused_stands_still_before_anybody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is awaited of a host that is known to stand still."""
    run, found = Run(goes_on=False), list[int]()
    while not any(each.is_paused for each in run.faults.engine.in_force[1].values()):
        run.step(int(run.now_ms // 100) + 1)
    monkeypatch.setattr(run.hosts, "pause", lambda host: found.append(host.number))
    run.with_faults(run.faults).stage.go_on()
    assert found == [index for index, each in run.faults.engine.in_force[1].items() if each.is_paused]
