"""The engine of faults on machines that only note what they are told to do, and that take their time."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from cluster.faults.engine import FaultEngine
from cluster.faults.events import (
    BitFlipped,
    Confirm,
    Count,
    Counted,
    Crash,
    Due,
    Failed,
    FaultCall,
    FaultOrder,
    FaultSeen,
    FlipBit,
    Impair,
    KeepBlocks,
    LayTrap,
    LoseDisk,
    MachineLost,
    Network,
    Observed,
    ObserveDelays,
    ObserveLinks,
    ObserveProcesses,
    Prepare,
    Recovery,
    Replace,
    Seat,
    SetLinks,
    Start,
    Tell,
    Voted,
    Wake,
)
from cluster.faults.impairment import Impairment, describe_delays
from cluster.faults.link_effects import LinkCounts, LinkEffect
from cluster.record.run import FaultRecord
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import Release
from consensus.messages import VoteKind
from tests.cluster.records import OUTSIDER_KEY

NOBODY = LinkCounts()
LEADER = 2


class FakeStage:
    """Four validators. What is told to links and disks counts only once :meth:`confirm` says so."""

    engine: FaultEngine

    def __init__(self, hosts: Sequence[Sequence[int]] = ((0,), (1,), (2,), (3,))) -> None:
        self.now_ms = 0.0
        self.height = 1
        self.hosts = self.ray_nodes = hosts
        self.running = {index for host in hosts for index in host}
        self.up = set(self.running)
        self.about_to_start: set[int] = set()
        self.lost: set[int] = set()
        self.diverged: set[int] = set()
        self.heights: dict[int, int] = {}
        self.died: Counter[int] = Counter()
        self.dies_at_once = True
        self.crash_ms = 0.0
        """How long it takes to take a validator down."""
        self.has_pods = False
        self.shares = False
        self.log: list[str] = []
        self.prepared: list[tuple[tuple[int, ...], str]] = []
        self.prepares_at_once = True
        self.goes_on: FaultCall | None = None
        self.notices: list[str] = []
        self.links: dict[int, LinkEffect] = {}
        self.counts = LinkCounts(sent=9, dropped=9)
        self.impairments: dict[int, Impairment] = {}
        self.late_counts: Counter[int] = Counter()
        self.traps: set[int] = set()
        self.snapshots: dict[int, int] = {}
        self.releases: dict[int, Release] = {}
        self.confirms_at_once = True
        self.unconfirmed: list[FaultCall] = []
        self._due: list[tuple[float, int, FaultCall]] = []
        self._number = 0

    def advance(self, by_ms: float) -> None:
        end = self.now_ms + by_ms
        while self._due and self._due[0][0] <= end:
            at_ms, _, call = heapq.heappop(self._due)
            self.now_ms = max(self.now_ms, at_ms)
            self.tell(Due(self.now_ms, call))
        self.now_ms = end

    def confirm(self) -> None:
        waiting, self.unconfirmed = self.unconfirmed, []
        for then in waiting:
            self.tell(Due(self.now_ms, then))

    def tell(self, seen: FaultSeen) -> None:
        self.perform(self.engine.reach(self.height))
        self.look()
        self.perform(self.engine.handle(seen))
        self.look()

    def come_up(self, *indices: int) -> None:
        self.up.update(indices)
        self.go_round()

    def go_round(self) -> None:
        """See how the validators are, and do what is ordered at once."""
        self.look()
        self.advance(0)

    def look(self) -> None:
        seats = tuple(map(self._seat, sorted(index for host in self.hosts for index in host)))
        self.perform(self.engine.handle(Network(self.now_ms, seats, LEADER, self.shares, self.has_pods)))

    def vote(self, sender: int, view: int, kind: VoteKind) -> None:
        self.tell(Voted(sender, view, kind))

    def fails(self, index: int, reason: str) -> bool:
        """A validator stops. Returns whether a fault explains that."""
        explains = self.engine.explains(index, reason)
        if explains:
            self.tell(Failed(self.now_ms, index, reason))
        return explains

    def loses(self, indices: Sequence[int], what: str, reason: str) -> None:
        self.tell(MachineLost(self.now_ms, indices, what, reason))

    def perform(self, orders: Iterable[FaultOrder]) -> None:
        answers = [answer for order in orders if (answer := self._perform(order)) is not None]
        for answer in answers:
            self.perform(self.engine.handle(answer))

    def _perform(self, order: FaultOrder) -> FaultSeen | None:
        match order:
            case Tell(text):
                self.notices.append(text)
            case Wake(at_ms, _, call):
                self._number += 1
                heapq.heappush(self._due, (at_ms, self._number, call))
            case SetLinks(faults, then):
                self.links = dict(faults)
                return self._confirmed(then)
            case Impair(impairments, then):
                self.impairments.update(impairments)
                return self._confirmed(then)
            case Prepare(indices, release, then):
                assert self.log == [], "before anybody stops"
                self.prepared.append((tuple(indices), release.version))
                self.goes_on = then
                return Due(self.now_ms, then) if self.prepares_at_once else None
            case Confirm(then):
                return Due(self.now_ms, then)
            case Count(key, _, indices):
                return Counted(key, self._delays(indices))
            case ObserveLinks(key, effect):
                return Observed(key, *effect.seen(self.counts))
            case ObserveDelays(key, kind, indices, count_before):
                delays, names = self._delays(indices) - count_before, [f"validator-{index}" for index in indices]
                pause = f"{delays} of pause: {', '.join(names)}"
                return Observed(key, delays > 0, pause if kind == "pause" else describe_delays(kind, delays, names))
            case ObserveProcesses(key, indices, release):
                running = sum(self.releases.get(index) == release for index in indices)
                return Observed(key, evidence=f"told of {list(indices)}", running=running)
            case FlipBit(key, index):
                return BitFlipped(key, index, f"file of {index}")
            case _:
                self._note(order)
        return None

    def _note(self, order: FaultOrder) -> None:
        match order:
            case Replace(indices, release):
                for index in indices:
                    self.log.append(f"replace {index}")
                    self.stop(index)
                    self.releases[index] = release
            case KeepBlocks(index):
                self.log.append(f"keep {index}")
            case Crash(index, _):
                self.now_ms += self.crash_ms
                self.log.append(f"crash {index}")
                self.stop(index)
            case Start(index):
                self.log.append(f"start {index}")
                self.running.add(index)
            case LayTrap(index, _):
                self.traps.add(index)
            case LoseDisk(index):
                self.log.append(f"lose {index}")

    def _confirmed(self, then: FaultCall) -> FaultSeen | None:
        if self.confirms_at_once:
            return Due(self.now_ms, then)
        self.unconfirmed.append(then)
        return None

    def _seat(self, index: int) -> Seat:
        on_host, on_node = (
            next(tuple(group) for group in groups if index in group) for groups in (self.hosts, self.ray_nodes)
        )
        return Seat(
            on_host,
            on_node,
            is_up=index in self.up,
            is_running=index in self.running,
            is_about_to_start=index in self.about_to_start,
            is_lost=index in self.lost,
            has_diverged=index in self.diverged,
            has_trap=index in self.traps,
            deaths=self.died[index],
            height=self.heights.get(index, self.height),
            recovery=Recovery(5, self.snapshots.get(index, 0)),
        )

    def stop(self, index: int) -> None:
        self.running.discard(index)
        self.up.discard(index)
        self.died[index] += self.dies_at_once

    def _delays(self, indices: Sequence[int]) -> int:
        return sum(self.late_counts[index] for index in indices)


def make_scenario(*faults: dict[str, Any], count: int = 4, hosts: int = 4) -> Scenario:
    validators = {"count": count, "hosts": hosts}
    return Scenario.model_validate({"name": "engine", "validators": validators, "faults": list(faults)})


def make(
    *faults: dict[str, Any], stage: FakeStage | None = None, count: int = 4, hosts: int = 4
) -> tuple[FaultEngine, FakeStage]:
    return begin(make_scenario(*faults, count=count, hosts=hosts), stage or FakeStage())


def begin(scenario: Scenario, stage: FakeStage) -> tuple[FaultEngine, FakeStage]:
    stage.engine = FaultEngine(scenario, 1)
    stage.perform(stage.engine.begin(0.0))
    reach(stage.engine, stage, 1)
    return stage.engine, stage


def reach(engine: FaultEngine, stage: FakeStage, height: int) -> None:
    stage.height = height
    stage.perform(engine.reach(height))
    stage.advance(0)


CUT = {"kind": "partition", "groups": [["validator-1"]], "at_height": 5, "for_ms": 1_000}
KILL = {"kind": "kill", "target": "validator-1", "at_height": 5, "down_ms": 1_000}


def bands(record: FaultRecord) -> tuple[float | None, float | None, int, int | None]:
    return record.begun_ms, record.ended_ms, record.height_when_begun, record.height_when_ended


def test_a_fault_lasts_from_its_height_for_its_time() -> None:
    engine, stage = make(CUT)
    reach(engine, stage, 4)
    assert stage.links == {} and engine.are_over
    stage.advance(70)
    reach(engine, stage, 6)
    assert list(stage.links) == [0] and not engine.are_over
    stage.advance(999)
    assert stage.links
    stage.height = 9
    stage.advance(1)
    assert stage.links == {} and engine.are_over
    assert bands(engine.records[0]) == (70, 1_070, 6, 9)
    assert (engine.records[0].took_effect, engine.records[0].evidence) == (True, "9 messages dropped")


def test_it_begins_once_it_is_in_force_everywhere_and_ends_when_it_is_taken_back() -> None:
    """So that whatever was final in between was final under it."""
    engine, stage = make(CUT)
    stage.confirms_at_once = False
    reach(engine, stage, 5)
    stage.advance(300)
    assert stage.notices == []
    stage.confirm()
    assert engine.records[0].begun_ms == 300
    stage.advance(1_000)
    assert stage.links == {}
    stage.advance(40)
    assert not engine.are_over, "nobody said yet what it did"
    stage.confirm()
    assert engine.are_over
    assert (engine.records[0].begun_ms, engine.records[0].ended_ms) == (300, 1_300)


def test_one_that_is_to_end_before_it_is_in_force_ends_then() -> None:
    engine, stage = make(CUT | {"until_height": 7})
    stage.confirms_at_once = False
    reach(engine, stage, 5)
    reach(engine, stage, 7)
    assert stage.links
    stage.confirm()
    assert stage.links == {}
    stage.confirm()
    assert engine.are_over
    stage.advance(5_000)
    assert len(stage.notices) == 2


def test_links_follow_from_all_faults_that_are_in_force_in_their_order() -> None:
    worse = {"kind": "degrade", "loss": 0.5, "at_height": 5, "for_ms": 500}
    engine, stage = make(CUT, worse)
    reach(engine, stage, 5)
    assert [effect.what for effect in stage.links.values()] == ["partition of validator-1", "degrade of all > all"]
    stage.advance(500)
    assert [effect.what for effect in stage.links.values()] == ["partition of validator-1"]


def test_a_fault_that_did_nothing_did_not_bite() -> None:
    stage = FakeStage()
    stage.counts = NOBODY
    engine, _ = make(CUT, {"kind": "pause", "target": "random", "at_height": 5, "for_ms": 10}, stage=stage)
    reach(engine, stage, 5)
    stage.advance(1_000)
    assert [record.took_effect for record in engine.records] == [False, False]
    assert [record.ended_ms for record in engine.records] == [1_000, 10]


def test_impairments_are_those_of_all_faults() -> None:
    engine, stage = make(
        {"kind": "pause", "target": "validator-1", "at_height": 5, "for_ms": 100},
        {"kind": "slow_disk", "target": "validator-1", "at_height": 5, "for_ms": 200, "sync_ms": 30},
        {"kind": "slow_disk", "target": "validator-1", "at_height": 5, "for_ms": 300, "sync_ms": 20},
        {"kind": "clock_skew", "target": "leader", "at_height": 5, "for_ms": 300, "clock_speed": 2},
        {"kind": "clock_skew", "target": "validator-2", "at_height": 5, "for_ms": 400, "clock_speed": 3},
    )
    reach(engine, stage, 5)
    assert stage.impairments == {1: Impairment(True, sync_ms=30), 2: Impairment(clock_speed=6)}
    stage.late_counts[1] = 4
    stage.advance(100)
    assert stage.impairments[1] == Impairment(sync_ms=30)
    assert (engine.records[0].took_effect, engine.records[0].evidence) == (True, "4 of pause: validator-1")
    stage.advance(100)
    assert stage.impairments[1] == Impairment(sync_ms=20)
    stage.advance(200)
    assert stage.impairments == {1: Impairment(), 2: Impairment()}


def test_a_killed_validator_is_started_when_nobody_holds_it_down() -> None:
    engine, stage = make(KILL, KILL | {"at_height": 6, "down_ms": 2_000})
    reach(engine, stage, 5)
    reach(engine, stage, 6)
    assert stage.log == ["crash 1"]
    assert engine.targets.is_held_down(1)
    stage.advance(1_999)
    assert stage.log == ["crash 1"]
    stage.advance(1)
    assert stage.log == ["crash 1", "start 1"]
    assert not engine.are_over, "it does not answer yet"
    stage.come_up(1)
    assert engine.are_over
    assert [record.took_effect for record in engine.records] == [True, False], "it was down when the second one came"
    assert engine.records[0].first_back_ms == engine.records[0].ended_ms == 2_000
    assert "told of [1]" in engine.records[0].evidence


def test_a_kill_bites_once_the_process_is_seen_to_be_gone() -> None:
    engine, stage = make(KILL)
    stage.dies_at_once = False
    reach(engine, stage, 5)
    stage.look()
    assert not engine.records[0].took_effect
    stage.died[1] += 1
    stage.look()
    assert engine.records[0].took_effect


def test_the_down_time_counts_from_the_moment_at_which_the_last_one_is_down() -> None:
    stage = FakeStage([[index] for index in range(7)])
    stage.crash_ms = 3_000
    engine, _ = make(KILL | {"target": ["validator-1", "validator-2"]}, stage=stage, count=7)
    stage.height = 5
    stage.perform(engine.reach(5))
    stage.advance(0)
    begun_ms = engine.records[0].begun_ms
    assert begun_ms == 6_000
    stage.now_ms = begun_ms
    stage.advance(999)
    assert stage.log == ["crash 1", "crash 2"]
    stage.advance(1)
    assert stage.log[2:] == ["start 1", "start 2"]


@pytest.mark.parametrize(("how", "has_pods", "hit"), [("pod", True, {1, 2}), ("pod", False, {1}), ("actor", True, {1})])
def test_a_fault_of_pods_takes_all_that_a_pod_carries(how: str, has_pods: bool, hit: set[int]) -> None:
    stage = FakeStage()
    stage.ray_nodes, stage.has_pods = [[1, 2], [0], [3]], has_pods
    engine, _ = make(KILL | {"how": how}, stage=stage)
    reach(engine, stage, 5)
    assert {0, 1, 2, 3} - stage.running == hit


def test_targets_that_the_scenario_leaves_open_follow_from_the_seed_and_from_that_of_a_fork() -> None:
    def targets(seed: int | None) -> tuple[str, ...]:
        scenario = make_scenario(KILL | {"target": "random"})
        engine, stage = begin(scenario, FakeStage())
        stage.perform(engine.adopt(scenario, seed))
        reach(engine, stage, 5)
        return engine.records[0].targets

    assert targets(None) == targets(None)
    assert len({targets(seed) for seed in range(12)}) == 4


@pytest.mark.parametrize("target", ["leader", "random", "f"])
def test_an_external_validator_is_nobodys_target(target: str) -> None:
    """It leads, and the harness has no process of it."""
    external = {"public_key": OUTSIDER_KEY, "address": "192.0.2.7:7000"}
    for outsider in range(4):
        nodes = [{"external": external} if index == outsider else {} for index in range(4)]
        fault = {"kind": "kill", "target": target, "at_height": 3}
        given = {"name": "engine", "validators": {"count": 4, "nodes": nodes}, "faults": [fault]}
        stage = FakeStage()
        engine, _ = begin(Scenario.model_validate(given), stage)
        reach(engine, stage, 3)
        killed = {0, 1, 2, 3} - stage.running
        assert outsider not in killed
        assert killed or (target == "leader" and outsider == LEADER)


def test_who_shares_a_host_shares_its_fate() -> None:
    """A killed host's validators are all targets; otherwise they are impaired, and nobody asks for their disks."""
    wipe = {"kind": "wipe", "target": "validator-4", "at_height": 5, "down_ms": 100}
    stage = FakeStage([[0, 4], [1, 5], [2, 6], [3]])
    engine, _ = make(wipe, KILL | {"target": "validator-0"}, stage=stage, count=7)
    stage.shares = True
    reach(engine, stage, 5)
    assert stage.log == ["keep 4", "crash 4", "lose 4", "crash 0"]
    wiped, killed = engine.records
    assert (wiped.targets, wiped.impaired) == (("validator-4",), ("validator-4", "validator-0"))
    assert killed.targets == killed.impaired == ("validator-0", "validator-4")


def test_all_on_a_lost_node_are_targets_and_their_blocks_are_asked_for_before_it_goes() -> None:
    stage = FakeStage([[0, 4], [1, 5], [2, 6], [3]])
    stage.ray_nodes = [[0, 4, 2, 6], [1, 5, 3]]
    lost = {"kind": "lose_node", "target": "validator-3", "at_height": 5, "down_ms": 100}
    engine, _ = make(lost, stage=stage, count=7)
    reach(engine, stage, 5)
    asked, done = stage.log[:3], stage.log[3:]
    assert asked == ["keep 1", "keep 5", "keep 3"]
    assert done == ["crash 1", "lose 1", "crash 5", "lose 5", "crash 3", "lose 3"]
    stage.loses([1, 3, 5], "node-b", "health check failed")
    assert len(engine.records) == 1, "the fault is why"


def test_the_loss_of_another_node_is_not_the_planned_one() -> None:
    stage = FakeStage()
    stage.ray_nodes = [[1, 2], [0], [3]]
    lost = {"kind": "lose_node", "target": "validator-1", "at_height": 5, "down_ms": 100}
    engine, _ = make(lost, KILL | {"at_height": 6, "how": "pod", "down_ms": 5_000}, stage=stage)
    reach(engine, stage, 5)
    stage.loses([1, 2], "node-b", "all its processes were killed")
    stage.advance(100)
    assert stage.running == {0, 1, 2, 3} and stage.up == {0, 3}, "they start elsewhere: 1 beside 3"
    stage.loses([1, 3], "node-c", "health check failed")
    planned, _, befallen = engine.records
    assert planned.is_planned and planned.ended_ms is None
    assert (befallen.is_planned, befallen.target, befallen.impaired) == (
        False,
        "node-c",
        ("validator-1", "validator-3"),
    )
    reach(engine, stage, 6)
    stage.loses([1], "node-d", "its pod was deleted")
    stage.loses([1], "node-e", "health check failed")
    assert [record.target for record in engine.records[2:]] == ["node-c", "node-e"], "each takes one node"


@pytest.mark.parametrize("how", ["pod", "node", "chaos-mesh"])
def test_a_pod_that_comes_back_without_its_disk_is_a_problem(how: str) -> None:
    problems = []
    for snapshots in ({1: 3}, {1: 6}):
        engine, stage = make(KILL | {"how": how})
        stage.snapshots = {1: 3}
        reach(engine, stage, 5)
        stage.loses([1], "node-b", "its pod is gone")
        stage.snapshots = snapshots
        stage.advance(2_000)
        stage.come_up(1)
        (record,) = engine.records
        assert record.ended_ms is not None
        problems.append(record.problem)
    assert problems == ["", "validator-1 came back by a snapshot: its disk did not come with it"]


def test_a_lost_disk_takes_what_a_validator_kept_on_it_that_another_fault_holds_down() -> None:
    stage = FakeStage()
    stage.ray_nodes = [[0, 1], [2, 3]]
    lost = {"kind": "lose_node", "target": "validator-0", "at_height": 6, "down_ms": 100}
    engine, _ = make(KILL, lost, stage=stage)
    reach(engine, stage, 5)
    reach(engine, stage, 6)
    assert stage.log == ["crash 1", "keep 0", "keep 1", "crash 0", "lose 0", "lose 1"]
    stage.advance(1_000)
    assert stage.log[6:] == ["start 0", "start 1"]
    stage.come_up(0, 1)
    assert [record.lost_disks for record in engine.records] == [(), ("validator-0", "validator-1")]


def test_a_loss_that_nobody_planned_is_a_fault_like_any_other() -> None:
    engine, stage = make(KILL | {"target": "validator-2", "at_height": 9})
    stage.advance(2_000)
    stage.height = 7
    stage.loses([1, 3], "node-b", "health check failed")
    stage.look()
    stage.running -= {1, 3}
    stage.up -= {1, 3}
    stage.advance(0)
    assert stage.log == ["start 1", "start 3"], "elsewhere, at once"
    planned, befallen = engine.records
    assert planned.begun_ms is None and planned.is_planned
    assert (befallen.kind, befallen.target, befallen.targets) == ("lose_node", "node-b", ("validator-1", "validator-3"))
    assert not befallen.is_planned and befallen.took_effect and befallen.begun_ms == 2_000
    assert not engine.are_over, "they were up as it was told, and are not any more"
    stage.loses([3], "node-c", "and again, before it was back")
    assert [record.target for record in engine.records] == ["validator-2", "node-b", "node-c"]
    stage.running.discard(3)
    stage.advance(0)
    assert stage.log[2:] == ["start 3"]
    stage.perform(
        engine.adopt(make_scenario(KILL | {"target": "validator-2", "at_height": 9}, KILL | {"at_height": 12}))
    )
    assert [record.is_planned for record in engine.records] == [True, True, False, False]
    stage.snapshots = {3: 6}
    stage.come_up(1, 3)
    assert engine.are_over
    assert befallen.lost_disks == ("validator-3",), "validator-1 found its disk on a shared volume"
    assert befallen.evidence.startswith("not planned: health check failed, down from height 7 to 7")
    assert "joined by the snapshot of height 6, recovered height 5" in befallen.evidence


def test_a_validator_that_another_fault_holds_down_waits_for_its_end_on_the_new_node() -> None:
    engine, stage = make(KILL)
    reach(engine, stage, 5)
    stage.loses([1], "node-b", "health check failed")
    assert stage.log == ["crash 1"]
    stage.advance(2_000)
    assert stage.log == ["crash 1", "start 1"]


def test_a_disk_that_fails_explains_why_its_validator_stopped() -> None:
    engine, stage = make({"kind": "disk_full", "target": "validator-1", "at_height": 5, "down_ms": 300})
    assert not stage.fails(1, "no fault yet")
    reach(engine, stage, 5)
    assert stage.traps == {1} and engine.are_over, "it only lies in wait"
    stage.traps.clear()
    stage.stop(1)
    assert not stage.fails(2, "another one: No space left on device")
    assert not stage.fails(1, "the journal is inconsistent"), "nothing of a full disk"
    assert stage.fails(1, "journal: write failed: No space left on device")
    assert not stage.fails(1, "twice: planned fault")
    assert not engine.are_over
    stage.advance(300)
    assert stage.log == ["start 1"]
    stage.come_up(1)
    record = engine.records[0]
    assert record.took_effect and engine.are_over
    assert "validator-1 stopped: journal: write failed: No space left" in record.evidence


def test_a_failed_sync_explains_no_other_stop() -> None:
    engine, stage = make({"kind": "failed_sync", "target": "validator-1", "at_height": 5, "down_ms": 300})
    reach(engine, stage, 5)
    stage.stop(1)
    assert not stage.fails(1, "state/log-000001: a frame does not fit its checksum")
    assert not engine.records[0].took_effect
    assert stage.fails(1, "state/log-000001: sync failed: Input/output error (planned fault)")


def test_a_rotten_disk_is_refused_and_replaced() -> None:
    engine, stage = make({"kind": "bit_rot", "target": "validator-1", "at_height": 5, "down_ms": 300})
    reach(engine, stage, 5)
    stage.advance(300)
    assert stage.log == ["keep 1", "crash 1", "start 1"]
    stage.stop(1)
    assert not stage.fails(1, "another file: damaged")
    assert stage.fails(1, "file of 1: damaged")
    stage.advance(0)
    assert stage.log == ["keep 1", "crash 1", "start 1", "lose 1", "start 1"]
    stage.come_up(1)
    assert engine.records[0].took_effect and engine.records[0].problem == ""


def test_a_rotten_disk_that_is_not_refused_is_a_problem() -> None:
    engine, stage = make({"kind": "bit_rot", "target": "validator-1", "at_height": 5, "down_ms": 300})
    reach(engine, stage, 5)
    stage.advance(300)
    stage.come_up(1)
    assert "started from a disk on which a bit of file of 1 had flipped" in engine.records[0].problem


def test_a_validator_that_never_comes_back_is_not_waited_for() -> None:
    engine, stage = make(KILL)
    reach(engine, stage, 5)
    assert not engine.are_over
    stage.lost.add(1)
    stage.look()
    assert engine.are_over
    assert engine.records[0].ended_ms is None


def test_one_that_waits_for_votes_begins_with_those_of_a_quorum_in_one_view() -> None:
    engine, stage = make(KILL | {"after_votes": "nullify"})
    stage.vote(0, 3, VoteKind.NULLIFY)
    reach(engine, stage, 5)
    assert engine.is_listening
    for sender, view, kind in [(0, 4, VoteKind.NULLIFY), (1, 4, VoteKind.NOTARIZE), (1, 5, VoteKind.TIMEOUT)]:
        stage.vote(sender, view, kind)
    stage.vote(2, 4, VoteKind.TIMEOUT)
    stage.advance(0)
    assert stage.log == []
    stage.vote(3, 4, VoteKind.NULLIFY)
    stage.advance(0)
    assert stage.log == ["crash 1"]
    assert not engine.is_listening


def test_a_vote_is_awaited_once_in_a_view_and_of_its_kind_alone() -> None:
    engine, stage = make(KILL | {"after_votes": "nullify"})
    vote = Voted(0, 4, VoteKind.NULLIFY)
    assert not engine.awaits(vote), "no height is reached"
    reach(engine, stage, 5)
    assert engine.awaits(vote) and not engine.awaits(vote._replace(kind=VoteKind.NOTARIZE))
    stage.vote(*vote)
    assert not engine.awaits(vote) and engine.awaits(vote._replace(view=5))


def test_the_committee_of_the_view_is_who_counts() -> None:
    epochs = [{"from_view": 1, "members": [f"validator-{index}" for index in range(4)]}]
    validators = {"count": 7, "epochs": epochs}
    fault = KILL | {"after_votes": "notarize", "target": "f"}
    scenario = Scenario.model_validate({"name": "engine", "validators": validators, "faults": [fault]})
    stage = FakeStage([[index] for index in range(7)])
    engine, _ = begin(scenario, stage)
    reach(engine, stage, 5)
    for sender in (0, 1, 4, 5, 6):
        stage.vote(sender, 3, VoteKind.NOTARIZE)
    stage.advance(0)
    assert stage.log == [], "three of them do not vote, whatever they send"
    stage.vote(2, 3, VoteKind.NOTARIZE)
    stage.advance(0)
    assert len(stage.log) == 1, "of a committee of four f is one"


def test_those_at_a_time_begin_then() -> None:
    begins = {key: value for key, value in KILL.items() if key != "at_height"} | {"at_ms": 250}
    engine, stage = make(begins)
    stage.advance(249)
    assert stage.log == []
    stage.advance(1)
    assert stage.log == ["crash 1"]
    assert engine.records[0].begun_ms == 250


# --- upgrades -------------------------------------------------------------------------------------------------------

UPGRADE = {"kind": "upgrade", "at_height": 5, "down_ms": 100, "heights_between": 2}


def come_back(engine: FaultEngine, stage: FakeStage, *indices: int) -> None:
    """The host that is down starts, and its validators make two heights final."""
    stage.advance(100)
    stage.height += 2
    stage.come_up(*indices)


def test_faults_that_are_added_while_it_runs_are_performed_like_the_others() -> None:
    engine, stage = make(CUT)
    records = engine.records
    reach(engine, stage, 6)
    given = [CUT, KILL | {"at_height": 8}, KILL | {"at_height": None, "at_ms": 0, "target": "validator-2"}]
    stage.perform(engine.adopt(Scenario.model_validate({"name": "engine", "faults": given})))
    stage.advance(0)
    assert stage.log == ["crash 2"], "it was to begin at a time that is over"
    reach(engine, stage, 8)
    assert stage.log == ["crash 2", "crash 1"]
    stage.advance(2_000)
    stage.come_up(1, 2)
    assert engine.are_over and stage.links == {}
    assert records is engine.records
    assert [record.kind for record in records] == ["partition", "kill", "kill"]
    assert all(record.ended_ms is not None for record in records)


def test_an_upgrade_goes_from_host_to_host() -> None:
    engine, stage = make(UPGRADE)
    reach(engine, stage, 5)
    assert stage.log == ["replace 0"]
    stage.advance(100)
    assert stage.log == ["replace 0", "start 0"]
    stage.up.add(0)
    stage.height, stage.heights[0] = 8, 6
    stage.go_round()
    assert stage.log == ["replace 0", "start 0"], "it has not shown that it can"
    stage.heights[0] = 7
    stage.go_round()
    assert stage.log[2:] == ["replace 1"]
    stage.heights.clear()
    for index in (1, 2, 3):
        come_back(engine, stage, index)
    assert engine.are_over
    assert stage.prepared == [((0, 1, 2, 3), "2")], "once for all"
    record = engine.records[0]
    assert record.took_effect and "4 of 4 validators run version 2" in record.evidence
    assert record.one_at_a_time == tuple((f"validator-{index}",) for index in range(4))
    assert record.impaired == () and record.problem == ""


@pytest.mark.parametrize("is_about_to_start", [False, True])
def test_an_upgrade_takes_one_that_is_about_to_start_but_not_one_that_is_down(is_about_to_start: bool) -> None:
    engine, stage = make(UPGRADE)
    stage.running.discard(2)
    stage.up.discard(2)
    stage.about_to_start = {2} if is_about_to_start else set()
    reach(engine, stage, 5)
    upgraded = [index for index in range(4) if is_about_to_start or index != 2]
    for index in upgraded:
        come_back(engine, stage, index)
    assert [line for line in stage.log if line.startswith("replace")] == [f"replace {index}" for index in upgraded]
    assert engine.records[0].targets == tuple(f"validator-{index}" for index in upgraded)


def test_an_upgrade_waits_for_no_progress_of_a_byzantine_validator() -> None:
    stage = FakeStage()
    validators = {"nodes": [{"byzantine": ["garbage"]}, {}, {}, {}]}
    fields = {"name": "engine", "validators": validators, "faults": [UPGRADE]}
    engine, _ = begin(Scenario.model_validate(fields), stage)
    reach(engine, stage, 5)
    stage.advance(100)
    assert stage.log == ["replace 0", "start 0"]
    stage.heights[0] = 5
    stage.go_round()
    assert stage.log == ["replace 0", "start 0"], "it is not up"
    stage.come_up(0)
    assert stage.log[2:] == ["replace 1"]
    stage.advance(100)
    stage.up.add(1)
    stage.heights[1] = 5
    stage.go_round()
    assert stage.log[3:] == ["start 1"], "an honest one has to go on"


def test_of_two_upgrades_each_goes_on_with_its_own_hosts() -> None:
    later = {"target": ["validator-2", "validator-3"], "version": "3", "at_height": 6}
    prepared = list[FaultCall | None]()
    engine, stage = make(UPGRADE | {"target": ["validator-0", "validator-1"]}, UPGRADE | later)
    stage.prepares_at_once = False
    for height in (5, 6):
        reach(engine, stage, height)
        prepared.append(stage.goes_on)
    for goes_on in prepared:
        assert goes_on is not None
        stage.tell(Due(stage.now_ms, goes_on))
    assert stage.log == ["replace 0", "replace 2"]
    for index in (2, 3, 0, 1):
        come_back(engine, stage, index)
    assert engine.are_over
    versions = [stage.releases[index].version for index in range(4)]
    assert versions == ["2", "2", "3", "3"]


def test_nobody_is_replaced_before_the_other_code_is_prepared() -> None:
    engine, stage = make(UPGRADE)
    stage.prepares_at_once = False
    reach(engine, stage, 5)
    stage.advance(1_000)
    assert (len(stage.prepared), stage.log) == (1, [])
    assert stage.goes_on is not None
    stage.tell(Due(stage.now_ms, stage.goes_on))
    assert stage.log == ["replace 0"]


def test_an_upgrade_stops_where_a_validator_diverges() -> None:
    engine, stage = make(UPGRADE | {"target": ["validator-2", "validator-0", "validator-1"]})
    reach(engine, stage, 5)
    come_back(engine, stage, 2)
    stage.advance(100)
    stage.diverged.add(0)
    stage.go_round()
    assert engine.are_over
    assert stage.log == ["replace 2", "start 2", "replace 0", "start 0"]
    record = engine.records[0]
    assert record.targets == ("validator-2", "validator-0")
    assert record.problem == "validator-0 diverged with version 2: no other validator was upgraded then"


@pytest.mark.parametrize("what", ["the version", "the process"])
def test_an_upgrade_that_changed_nothing_did_not_bite(what: str) -> None:
    engine, stage = make(UPGRADE | {"target": "validator-1"})
    stage.dies_at_once = what == "the version"
    reach(engine, stage, 5)
    if what == "the version":
        stage.releases.clear()
    come_back(engine, stage, 1)
    assert engine.are_over
    assert not engine.records[0].took_effect
