"""Each kind of fault bites in the simulator, and one that does not is noticed."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cache
from itertools import combinations
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import pytest

from cluster.checks.run import check_run
from cluster.checks.verdict import Check
from cluster.common.errors import BadInput
from cluster.common.outcome import Outcome
from cluster.disks.memory import FaultPlan, MemoryDisk
from cluster.faults.events import Crash, FaultSeen, MachineOrder, Replace
from cluster.faults.link_effects import LinkFaultInForce
from cluster.record.finalizations import Finalization, Finalizations
from cluster.record.run import FaultRecord, RunRecord, RunRequest
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import SHIPPED
from cluster.simulation import machine as machine_module
from cluster.simulation.machine import Machine
from cluster.simulation.network import Network
from cluster.simulation.observer import Observer
from cluster.simulation.simulated_stage import DurableSizes, SimulatedStage
from cluster.watches.live.audited_testnet import run_live
from cluster.watches.watched_simulation import WatchedSimulation, simulate
from consensus.keys import ValidatorSet
from tests.cluster.faults.examples import example_of
from validator.chain.genesis import Genesis
from validator.node.events import SetTimer, TimerName
from validator.storage.journal import JOURNAL_FILE
from validator.storage.segments import ARCHIVE_FILE


def make_scenario(*faults: dict[str, Any], count: int = 4, height: int = 30, **fields: Any) -> Scenario:
    plan = {
        "name": "faults",
        "validators": count,
        "consensus": {
            "block_interval_ms": 100,
            "leader_timeout_ms": 400,
            "advance_timeout_ms": 600,
            "rebroadcast_ms": 300,
        },
        "faults": list(faults),
        "stop": {"height": height, "drain_blocks": 2, "timeout_s": 60},
        "success": {"heights_compared": 20, "transactions": 0, "fires": 0},
    }
    return Scenario.model_validate(plan | fields)


def run(*faults: dict[str, Any], seed: int = 5, **fields: Any) -> RunRecord:
    return simulate(make_scenario(*faults, **fields), seed)


def check(record: RunRecord, name: str = "faults") -> Check:
    return check_run(record).check(name)


# --- every kind bites -----------------------------------------------------------------------------------------------

LASTING = {"at_height": 5, "for_ms": 2_000}
BITING: dict[str, tuple[dict[str, Any], str]] = {
    "kill": ({"target": "validator-1"}, "recovered height"),
    "wipe": ({"target": "validator-1", "at_height": 12}, "joined by the snapshot of height 16"),
    "lose_node": ({"target": "validator-1", "at_height": 12}, "joined by the snapshot of height 16"),
    "disk_full": ({"target": "validator-1"}, "failed: planned fault"),
    "failed_sync": ({"target": "validator-1"}, "sync failed: planned fault"),
    "bit_rot": ({"target": "validator-1", "at_height": 12}, "validator-1 stopped: "),
    "pause": (LASTING | {"target": "validator-1"}, "events held back of validator-1"),
    "slow_disk": (LASTING | {"target": "validator-1", "sync_ms": 40}, "slow syncs of validator-1"),
    "slow_execution": (LASTING | {"target": "validator-1", "job_ms": 40}, "slow jobs of validator-1"),
    "clock_skew": (LASTING | {"target": "validator-1", "clock_speed": 3.0}, "timers at another speed of validator-1"),
    "partition": (LASTING | {"groups": [["validator-1"]]}, "messages dropped"),
    "one_way_partition": (LASTING | {"from": ["validator-1"]}, "messages dropped"),
    "cut": (LASTING | {"from": ["validator-1"], "to": ["validator-2"]}, "messages dropped"),
    "degrade": (LASTING | {"loss": 0.1, "duplication": 0.1, "reordering": 0.1, "latency_ms": 40.0}, "doubled"),
    "leader_delay": (LASTING | {"delay_ms": 100}, "sends of leaders 100 ms later"),
    "upgrade": ({"heights_between": 2}, "4 of 4 validators run version 2 now"),
}


def biting(kind: str) -> dict[str, Any]:
    """A fault of a kind that takes effect."""
    fields, _ = BITING.get(kind) or (example_of(kind), "")
    return {"kind": kind, "at_height": 5} | fields


@cache
def bitten(kind: str) -> RunRecord:
    return run(biting(kind))


@pytest.mark.parametrize("kind", SHIPPED)
def test_every_kind_bites_and_says_by_what(kind: str) -> None:
    record = bitten(kind)
    fault = record.faults[0]
    assert fault.took_effect
    assert fault.begun_ms is not None
    assert fault.ended_ms is not None
    assert fault.ended_ms > fault.begun_ms
    assert BITING.get(kind, ("", fault.evidence or "none"))[1] in fault.evidence
    verdict = check_run(record)
    assert verdict.outcome is Outcome.PASS, [each for each in verdict.checks if each.verdict is not Outcome.PASS]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["partition", "degrade", "slow_disk", "kill"])
def test_a_fault_changes_the_run_and_repeats_itself(kind: str) -> None:
    again = run(biting(kind))
    assert again.digest == bitten(kind).digest != run().digest


# --- lost nodes -----------------------------------------------------------------------------------------------------

ON_TWO_OF_A_NODE: dict[str, Any] = {"validators": {"count": 8, "ray_nodes": 4}}
LOST_NODE = {"kind": "lose_node", "target": "validator-5", "at_height": 12, "down_ms": 1_500}


@pytest.mark.slow
@pytest.mark.parametrize("disks", ["lost", "kept"])
def test_all_of_a_node_go_and_come_back_with_or_without_their_disks(disks: str) -> None:
    record = run(LOST_NODE | {"disks": disks}, **ON_TWO_OF_A_NODE)
    fault = record.faults[0]
    assert set(fault.targets) == {"validator-1", "validator-5"}
    assert set(fault.lost_disks) == (set(fault.targets) if disks == "lost" else set())
    found = check(record)
    assert found.verdict is Outcome.PASS, found.detail
    expected = "joined by the snapshot of height 16" if disks == "lost" else "recovered height 11 from its own disk"
    assert found.detail.count(expected) >= 2, found.detail


def test_nobody_finalises_while_a_node_with_more_than_f_is_gone() -> None:
    fault = LOST_NODE | {"target": "validator-1", "disks": "kept"}
    record = run(fault, validators={"count": 4, "hosts": 4, "ray_nodes": 2})
    found = check(record)
    assert found.verdict is Outcome.PASS, found.detail
    assert len(record.faults[0].targets) == 2
    assert "without a quorum" in found.detail


def test_a_node_that_kept_the_disks_that_it_was_to_lose_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedStage, "_lose_disk", lambda _self, _index: None)
    found = check(run(LOST_NODE, **ON_TWO_OF_A_NODE))
    assert found.verdict is Outcome.FAIL
    assert "validator-1 lost its disk, but did not come back by a snapshot" in found.detail


def test_a_disk_that_was_to_be_kept_and_is_empty_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a live node that does not share the run's folder: its validators join by a snapshot."""
    act = SimulatedStage._act_on_machine

    def act_and_lose(self: SimulatedStage, order: MachineOrder) -> Iterator[FaultSeen]:
        yield from act(self, order)
        if isinstance(order, Crash):
            self._lose_disk(order.validator)

    monkeypatch.setattr(SimulatedStage, "_act_on_machine", act_and_lose)
    record = run(LOST_NODE | {"disks": "kept"}, **ON_TWO_OF_A_NODE)
    assert set(record.faults[0].lost_disks) == {"validator-1", "validator-5"}
    found = check(record)
    assert found.verdict is Outcome.PASS, found.detail
    assert "joined by the snapshot" in found.detail


@pytest.mark.parametrize(
    ("fault", "validators", "wrong"),
    [
        (
            {},
            {"count": 8, "ray_nodes": 2},
            "target: 4 of 8 validators lose their disks with their nodes; at most 2 may",
        ),
        ({"target": "random"}, {"count": 8, "ray_nodes": 2}, "target: 4 of 8 validators lose their disks"),
        (
            {"target": ["validator-1", "validator-2"]},
            {"count": 8, "ray_nodes": 4},
            "target: 4 of 8 validators lose their disks",
        ),
        ({"target": "f", "disks": "kept"}, {"count": 8, "ray_nodes": 2}, "every Ray node carries more than f"),
        ({}, {"count": 8, "ray_nodes": 9}, "ray_nodes: 9 nodes for 8 hosts"),
    ],
)
def test_a_lost_node_that_nobody_could_make_up_for_is_refused(
    fault: dict[str, Any], validators: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(wrong)):
        make_scenario(LOST_NODE | fault, validators=validators)


# --- a fault that does not bite is noticed --------------------------------------------------------------------------


def cut_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LinkFaultInForce, "hits", lambda *_: False)


def delay_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Network, "_leader_delay_us", lambda _self, _machine: 0)


def impair_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedStage, "_impair", lambda _self, _impairments: None)


def crash_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Machine, "crash", lambda _self, _random, _scattered=False: None)


def rot_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DurableSizes, "on_final", lambda _self, _index: None)


def fail_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("cluster.simulation.simulated_stage.FILLING", frozenset({"nothing"}))
    patch.setattr("cluster.simulation.simulated_stage.SYNCING", frozenset({"nothing"}))


def install_nothing(patch: pytest.MonkeyPatch) -> None:
    right = SimulatedStage._replace

    def replace(stage: SimulatedStage, order: Replace) -> None:
        right(stage, order._replace(release=stage.machines[order.validators[0]].release))

    patch.setattr(SimulatedStage, "_replace", replace)


PLANTED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "partition": cut_nothing,
    "one_way_partition": cut_nothing,
    "cut": cut_nothing,
    "degrade": cut_nothing,
    "leader_delay": delay_nothing,
    "pause": impair_nothing,
    "slow_disk": impair_nothing,
    "slow_execution": impair_nothing,
    "clock_skew": impair_nothing,
    "kill": crash_nothing,
    "wipe": crash_nothing,
    "lose_node": crash_nothing,
    "bit_rot": rot_nothing,
    "disk_full": fail_nothing,
    "failed_sync": fail_nothing,
    "upgrade": install_nothing,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHIPPED)
def test_a_fault_that_does_nothing_makes_the_run_inconclusive(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED.get(kind, cut_nothing)(monkeypatch)
    record = run(biting(kind))
    assert not record.faults[0].took_effect
    found = check(record)
    assert found.verdict is Outcome.INCONCLUSIVE
    assert "had no observable effect" in found.detail


def test_a_degradation_to_what_the_links_are_does_not_bite() -> None:
    record = run({"kind": "degrade", "latency_ms": 20.0} | LASTING)
    assert check(record).verdict is Outcome.INCONCLUSIVE
    assert "none touched" in record.faults[0].evidence


def test_a_degradation_may_better_the_links() -> None:
    plan = make_scenario({"kind": "degrade", "loss": 0.0, "duplication": 0.0} | LASTING)
    links = plan.links.model_copy(update={"loss": 0.05, "duplication": 0.05})
    record = WatchedSimulation(plan.model_copy(update={"links": links}), 1, "test").run()
    assert record.faults[0].took_effect
    assert "on better links" in record.faults[0].evidence


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["partition", "pause"])
def test_a_fault_that_lasts_beyond_the_end_is_said_to_be_under_way(kind: str) -> None:
    whom = {"groups": [["validator-1"]]} if kind == "partition" else {"target": "validator-1"}
    plan = make_scenario({"kind": kind, "at_height": 5, "for_ms": 3_600_000} | whom)
    stop = plan.stop.model_copy(update={"timeout_s": 20})
    record = WatchedSimulation(plan.model_copy(update={"stop": stop}), 1, "test").run()
    found = check(record)
    assert found.verdict is Outcome.INCONCLUSIVE
    assert found.detail.endswith("was still under way at the end")


def test_a_fault_at_a_time_that_never_comes_is_inconclusive() -> None:
    record = run({"kind": "pause", "target": "random", "at_ms": 50_000, "for_ms": 10})
    assert "never began" in check(record).detail


def test_a_rotten_bit_that_nobody_notices_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryDisk, "flip_bit", lambda *_: None)
    record = bitten.__wrapped__("bit_rot")
    found = check(record)
    assert found.verdict is Outcome.FAIL
    assert "validator-1 started from a disk on which a bit of " in found.detail


@pytest.mark.slow
def test_rot_is_refused_by_an_error_that_names_the_file() -> None:
    """Damage to the last commit would be mended from the archive, so the bit must lie before it."""
    rotten = set()
    for seed in range(8):
        evidence = run({"kind": "bit_rot", "target": "f", "at_height": 10}, seed=seed).faults[0].evidence
        found = re.search(r"a bit of (\S+) at offset \d+ of (\S+) flipped, (\S+) stopped: (\S+): ", evidence)
        assert found is not None, evidence
        assert (found[1], found[2]) == (found[4], found[3])
        rotten.add(found[1].partition("-")[0])
    assert rotten == {ARCHIVE_FILE, JOURNAL_FILE, "state/log"}


def test_a_height_that_is_final_without_a_quorum_fails() -> None:
    record = run({"kind": "partition", "groups": [["validator-0", "validator-1"]]} | LASTING)
    sound = check(record)
    assert sound.verdict is Outcome.PASS
    assert "without a quorum" in sound.detail
    begun = record.faults[0].begun_ms
    assert begun is not None
    record.finalizations.append(Finalization(begun + 701, 0, 99))
    found = check(record)
    assert found.verdict is Outcome.FAIL
    assert "1 height from 99 on was finalised without a quorum" in found.detail


def test_a_disk_that_fails_without_a_fault_is_a_problem() -> None:
    simulation = WatchedSimulation(make_scenario(height=12, stop={"height": 12, "timeout_s": 5}), 5, "test")
    simulation.machines[2].disk.plan = FaultPlan(40)
    record = simulation.run()
    assert record.problems[0].startswith("validator-2 stopped: ")
    assert "failed: planned fault" in record.problems[0]
    assert check(record, "no_problems").verdict is Outcome.FAIL


# --- targets and moments --------------------------------------------------------------------------------------------


def only(record: RunRecord) -> FaultRecord:
    assert len(record.faults) == 1
    return record.faults[0]


@pytest.mark.slow
def test_targets_are_drawn_from_the_seed() -> None:
    fault = {"kind": "pause", "target": "random"} | LASTING
    targets = {only(run(fault, seed=seed, height=12)).targets for seed in range(8)}
    assert len(targets) > 1
    assert only(run(fault, seed=3, height=12)).targets == only(run(fault, seed=3, height=12)).targets


def test_f_targets_as_many_as_are_withstood() -> None:
    fault = only(run({"kind": "kill", "target": "f", "at_height": 5, "down_ms": 900}, count=7))
    assert len(fault.targets) == 2
    assert fault.took_effect


def test_the_leader_is_who_leads_the_newest_view() -> None:
    simulation = WatchedSimulation(make_scenario({"kind": "pause", "target": "leader"} | LASTING), 5, "test")
    simulation.begin()
    (fault,), leader = simulation.record.faults, -1
    while not fault.targets:
        nodes = [machine.validator.node for machine in simulation.machines if machine.validator is not None]
        leader = max(nodes, key=lambda node: node.view).leader
        assert simulation.advance()
    assert fault.targets == (f"validator-{leader}",)


def test_a_disk_that_is_lost_before_it_fails_is_not_waited_for() -> None:
    full = {"kind": "failed_sync", "target": ["validator-0", "validator-1"], "at_height": 10, "down_ms": 100}

    class LosingTheOther(Observer):
        def stops(self, machine: Machine, is_crash: bool) -> None:
            simulation.machines[1 - machine.index].disk.plan = None

    simulation = WatchedSimulation(make_scenario(full, count=7), 5, "test")
    simulation.observe(LosingTheOther())
    fault = only(simulation.run())
    assert fault.took_effect
    assert fault.ended_ms is not None


def test_what_is_left_of_a_timer_runs_at_the_clocks_new_speed() -> None:
    """A clock that was very slow for a moment does not make its validator miss the views of a minute."""
    machine = WatchedSimulation(make_scenario(), 5, "test").machines[0]
    timer, second_us = TimerName("test"), 1_000_000
    machine.own_clock.set_speed(0.04)
    machine._perform(SetTimer(timer, 1_000))
    assert machine.own_clock._timers[timer].expires_us == 25 * second_us
    machine.own_clock.set_speed(1.0)
    assert machine.own_clock._timers[timer].expires_us == second_us
    machine.own_clock.set_speed(2.0)
    assert machine.own_clock._timers[timer].expires_us == second_us // 2


def test_a_machines_own_clock_runs_as_its_timers_do() -> None:
    simulation = WatchedSimulation(make_scenario(), 5, "test")
    machine, clock = simulation.machines[0], simulation.clock
    for speed, passes_ms, says_ms in ((1.0, 100, 100), (0.5, 100, 150), (4.0, 25, 250)):
        machine.own_clock.set_speed(speed)
        clock.now_us += passes_ms * 1_000
        assert machine.own_clock.now_ms == says_ms


def test_who_is_back_first_is_noted_while_the_fault_lasts_and_not_after_it() -> None:
    short = {"kind": "kill", "target": "validator-1", "at_height": 5, "down_ms": 400}
    long = {"kind": "kill", "target": ["validator-1", "validator-2"], "at_height": 6, "down_ms": 2_000}
    again = {"kind": "kill", "target": "validator-1", "at_height": 15, "down_ms": 500}
    faults = run(short, long, again).faults
    assert all(fault.ended_ms is not None and fault.first_back_ms is not None for fault in faults)
    assert all((fault.first_back_ms or 0) <= (fault.ended_ms or 0) for fault in faults)
    paused = run({"kind": "pause", "target": "validator-1", "at_height": 5, "for_ms": 300}, again).faults
    assert paused[0].first_back_ms is None, "nobody was down"


def test_what_comes_for_a_paused_machine_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "MAX_HELD_MESSAGES", 20)
    simulation = WatchedSimulation(make_scenario({"kind": "pause", "target": "validator-1"} | LASTING), 5, "test")
    record = simulation.run()
    assert simulation.machines[1].held.lost > 20
    assert check(record).verdict is Outcome.PASS


# --- recovery -------------------------------------------------------------------------------------------------------


def test_recovery_has_a_bound_that_follows_from_the_timeouts() -> None:
    assert make_scenario().recovery_ms == 300 + 3 * 700
    assert make_scenario(count=7).recovery_ms == 300 + 4 * 700
    consensus = make_scenario().consensus.model_copy(update={"leader_election": "random"})
    assert make_scenario().model_copy(update={"consensus": consensus}).recovery_ms == 300 + 9 * 700
    assert make_scenario(success={"recovery_ms": 9}).recovery_ms == 9


def test_a_recovery_that_takes_too_long_fails() -> None:
    halves = {"kind": "partition", "groups": [["validator-0", "validator-1"]]} | LASTING
    record = run(halves, success={"heights_compared": 20, "transactions": 0, "fires": 0, "recovery_ms": 1})
    found = check(record, "recovery")
    assert found.verdict is Outcome.FAIL
    assert "allowed 1 ms" in found.detail


def test_a_network_that_never_recovers_fails() -> None:
    record = run({"kind": "partition", "groups": [["validator-0", "validator-1"]]} | LASTING)
    end = record.faults[0].ended_ms
    assert end is not None
    record.finalizations = Finalizations(
        seen for seen in record.finalizations if seen.at_ms <= end or seen.validator == 0
    )
    found = check(record, "recovery")
    assert found.verdict is Outcome.FAIL
    assert "no quorum finalised a height" in found.detail
    record.duration_ms = end + 1
    assert check(record, "recovery").verdict is Outcome.INCONCLUSIVE


# --- upgrades -------------------------------------------------------------------------------------------------------


def upgrade(**fields: Any) -> RunRecord:
    return run({"kind": "upgrade", "at_height": 5, "heights_between": 2, **fields}, load=TIMERS)


TIMERS = {
    "users": [{"workload": "flood", "count": 2, "interval_ms": 200, "options": {"timers": 5, "spread_blocks": 3}}]
}


def test_upgraded_validators_start_again_with_another_version_one_host_after_the_other() -> None:
    record = upgrade(target=["validator-2", "validator-0"])
    assert only(record).targets == ("validator-2", "validator-0")
    statuses = [validator.status or {} for validator in record.validators]
    assert [status["version"] for status in statuses] == ["2", "1", "2", "1"]
    assert [status["starts"] for status in statuses] == [2, 1, 2, 1]
    assert statuses[2]["recovered_height"] < statuses[0]["recovered_height"]
    assert check(record).verdict is Outcome.PASS
    assert "heights finalised in the" in check(record).detail


def test_one_that_an_upgrade_keeps_down_for_longer_is_back_with_it() -> None:
    record = run(
        {"kind": "kill", "target": "validator-1", "at_height": 5, "down_ms": 500},
        {"kind": "upgrade", "target": "validator-1", "at_height": 5, "heights_between": 2, "down_ms": 1_500},
    )
    kill, upgrade = record.faults
    assert kill.took_effect
    assert kill.ended_ms == (upgrade.begun_ms or 0) + 1_500
    assert check(record, "recovery").verdict is Outcome.PASS


@pytest.mark.slow
def test_a_bad_upgrade_is_caught_before_it_reaches_anybody_else() -> None:
    record = upgrade(mutant="wrong-balance")
    fault = only(record)
    assert fault.targets == ("validator-0",)
    assert fault.problem == "validator-0 diverged with version 2: no other validator was upgraded then"
    verdict = check_run(record)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.check("state_roots").verdict is verdict.check("faults").verdict is Outcome.FAIL
    assert "validator-0 diverged" in verdict.check("state_roots").detail
    assert [validator.mutant for validator in record.validators] == ["wrong-balance", None, None, None]
    assert record.validators[0].mutant_runs > 0
    assert check_run(upgrade(target="validator-0")).outcome is Outcome.PASS, "without the bug"


def test_a_network_that_stands_still_during_an_upgrade_fails() -> None:
    """One host at a time is no excuse: the others are a quorum."""
    record = upgrade()
    fault = only(record)
    assert fault.begun_ms is not None and fault.ended_ms is not None
    assert fault.ended_ms - fault.begun_ms > record.recovery_ms
    begun, ended = fault.begun_ms, fault.ended_ms
    record.finalizations = Finalizations(seen for seen in record.finalizations if not begun < seen.at_ms <= ended)
    found = check(record)
    assert found.verdict is Outcome.FAIL
    assert "no height was finalised in the" in found.detail
    fault.one_at_a_time = (("validator-0", "validator-1"),)
    assert check(record).verdict is Outcome.PASS, "a host with more than f of them may hold everybody up"


@pytest.mark.kits
def test_an_upgrade_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown mutant 'none-such'"):
        make_scenario({"kind": "upgrade", "at_height": 5, "mutant": "none-such"})
    with pytest.raises(ValueError, match=r"no validator is named 'validator-9'"):
        make_scenario({"kind": "upgrade", "at_height": 5, "target": "validator-9"})
    with pytest.raises(ValueError, match=r"'leader' cannot be in a list"):
        make_scenario({"kind": "upgrade", "at_height": 5, "target": ["leader", "validator-0"]})


# --- what a backend cannot do is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SHIPPED)
def test_the_live_testnet_performs_every_kind(kind: str) -> None:
    assert make_scenario(biting(kind)).live_problem is None


def test_the_live_testnet_refuses_a_disk_that_reorders(tmp_path: Path) -> None:
    scenario = make_scenario({"kind": "kill", "target": "random", "at_height": 5, "reorders": True})
    with pytest.raises(BadInput, match=r"^faults: faults\[0\]\.reorders: only the simulator can do this"):
        run_live(RunRequest(scenario, 1, "test", tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_code_of_another_folder_must_be_there_and_is_for_the_live_testnet(tmp_path: Path) -> None:
    scenario = make_scenario({"kind": "upgrade", "at_height": 5, "code": str(tmp_path)})
    problem = scenario.live_problem
    assert problem is not None
    assert problem.startswith(f"faults[0].code: {tmp_path} is not a checkout: ")
    with pytest.raises(BadInput, match=r"^faults: faults\[0\]\.code: only the live testnet can do this"):
        simulate(scenario, 1)
    scenario = make_scenario({"kind": "upgrade", "at_height": 5, "code": str(Path(__file__).parents[3])})
    assert scenario.live_problem is None


# --- nothing is shared ----------------------------------------------------------------------------------------------

FREE = (ModuleType, Enum, type, FunctionType, BuiltinFunctionType, Genesis, ValidatorSet)
"""Code, and what all validators are given and none may change."""


def reachable(root: object) -> dict[int, object]:
    """Mutable objects that a validator, or a part of it, can reach."""
    found: dict[int, object] = {}
    stack: list[object] = [root]
    while stack:
        each = stack.pop()
        if id(each) in found or isinstance(each, FREE):
            continue
        found[id(each)] = each
        stack += gc.get_referents(each)
    return found


def in_common(roots: Iterable[object]) -> list[object]:
    """Containers that two of the objects can both reach."""
    return [
        one[each]
        for one, other in combinations(map(reachable, roots), 2)
        for each in one.keys() & other.keys()
        if isinstance(one[each], dict | list | set | bytearray)
    ]


def test_validators_share_nothing_but_what_they_were_given() -> None:
    simulation = WatchedSimulation(make_scenario(height=10), 5, "test")
    simulation.run()
    validators = [machine.validator for machine in simulation.machines[:2] if machine.validator is not None]
    assert len(validators) == 2 and in_common(validators) == []
    results: dict[bytes, bytes] = {b"block": b"result"}
    for validator in validators:
        validator.executor.archive.planted = results  # type: ignore[attr-defined]
    assert in_common(validators) == [results]


def test_a_fault_may_wait_for_the_votes_of_a_quorum() -> None:
    """All are killed as soon as a quorum has nullified: it takes a leader that is silent, and three votes on disk."""
    everybody = [f"validator-{index}" for index in range(4)]
    paused = {"kind": "pause", "target": "leader", "at_height": 8, "for_ms": 4_000}
    killed = {"kind": "kill", "target": everybody, "at_height": 8, "after_votes": "nullify", "down_ms": 1_000}
    record = run(paused, killed)
    begun, ended = record.faults[0].begun_ms, record.faults[1].begun_ms
    assert begun is not None and ended is not None
    assert ended >= begun + record.scenario.consensus.leader_timeout_ms / 2, "that view, and no earlier one"
    assert record.faults[1].took_effect
    never = run({"kind": "kill", "target": "validator-1", "at_height": 8, "after_votes": "nullify"})
    assert check(never).verdict is Outcome.INCONCLUSIVE, "nobody nullifies where nothing is wrong"
    assert "never began" in check(never).detail
