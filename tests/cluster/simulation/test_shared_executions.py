"""Validators of a simulated run share executions: nothing that can be seen changes, except nondeterminism."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.commands.sweeps.drawing.random_scenario import random_scenario
from cluster.commands.sweeps.outcome import SeedOutcome, judge
from cluster.commands.sweeps.runner import run_seed
from cluster.commands.sweeps.tasks import ScenarioTask
from cluster.misbehaviour.planted import PartsPatch, RunCounter, planted_bugs
from cluster.scenario import Scenario
from cluster.simulation.machine import Machine
from cluster.simulation.shared_executions import COMPARED_BLOCKS, SharedExecution
from cluster.watches.watched_simulation import WatchedSimulation
from consensus.messages import Vote, VoteKind
from consensus.types import Digest, Signature, ValidatorIndex, View
from tests.cluster.faults.test_faults import in_common
from validator.chain.block import header_hash
from validator.execution.timer_phase import TimerPhase
from validator.node.assembly import PRODUCTION
from validator.node.executor.executor import Executor
from validator.primitives.types import Hash
from validator.transition.transition import Outcome, Transition

SEED = 3
PLAN = {
    "name": "shared",
    "consensus": {"block_interval_ms": 100, "signatures": "keyed-hash"},
    "load": {"users": [{"workload": "flood", "count": 2, "interval_ms": 400, "options": {"timers": 3}}]},
    "faults": [{"kind": "kill", "target": "validator-2", "at_height": 8, "down_ms": 1_000}],
    "stop": {"height": 40, "drain_blocks": 2},
    "success": {"transactions": 0, "fires": 0},
}
BY_BUILDER_AND_FIRST = 2
"""Executions of a compared block: the proposer's own, and the first of the others'."""


@pytest.mark.parametrize("protocol", ["simplex", "hotstuff"])
@pytest.mark.parametrize("seed", [5, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (11, 12))])
def test_nothing_that_can_be_seen_changes(protocol: str, seed: int) -> None:
    plan = random_scenario(seed, protocol)
    alone, shared = WatchedSimulation(plan, seed, "test"), WatchedSimulation(plan, seed, "test", shortcuts=True)
    runs = [each.run() for each in (alone, shared)]
    assert alone.executions is None
    assert shared.executions is not None and shared.executions.taken_over > 40
    assert runs[0].digest == runs[1].digest
    assert runs[0].monitor is not None and runs[1].monitor is not None
    assert runs[0].monitor.counts == runs[1].monitor.counts
    outcomes = [judge(run, 0.0)[0] for run in runs]
    assert outcomes[0] == outcomes[1]


def test_all_but_the_proposer_take_over_and_one_compares_some_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    executed: Counter[int] = Counter()
    finish = Transition.finish

    def counted(self: Transition) -> Outcome:
        executed[self.context.height] += 1
        return finish(self)

    monkeypatch.setattr(Transition, "finish", counted)
    plan = Scenario.model_validate(PLAN | {"faults": []})
    simulation = WatchedSimulation(plan, SEED, "test", shortcuts=True)
    simulation.run()
    validator = simulation.machines[0].validator
    assert validator is not None
    archive, compared = validator.executor.archive, set()
    for height in range(1, archive.height + 1):
        block = archive.block(height)
        assert block is not None
        is_compared = header_hash(block.header)[0] % COMPARED_BLOCKS == 0
        assert executed[height] == (BY_BUILDER_AND_FIRST if is_compared else 1)
        compared.add(is_compared)
    assert compared == {False, True}


def test_building_that_differs_from_executing_is_seen_at_compared_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    close, select, execute = Transition.close, Transition.select, Executor._execute
    building: list[Transition] = []
    errors: dict[Hash, str] = {}

    def noted(self: Transition, *given: Any) -> Any:
        building.append(self)
        return select(self, *given)

    def differing(self: Transition, phase: TimerPhase) -> int:
        if any(each is self for each in building):
            self.world.credit(self.context.proposer, 1)
        return close(self, phase)

    def watched(self: Executor, digest: Hash, *given: Any) -> str | None:
        error = execute(self, digest, *given)
        if error is not None:
            errors[digest] = error
        return error

    monkeypatch.setattr(Transition, "select", noted)
    monkeypatch.setattr(Transition, "close", differing)
    monkeypatch.setattr(Executor, "_execute", watched)
    WatchedSimulation(Scenario.model_validate(PLAN | {"faults": []}), SEED, "test", shortcuts=True).run()
    assert set(errors.values()) == {"execution gives another state_root"}
    assert all(digest[0] % COMPARED_BLOCKS == 0 for digest in errors)


@pytest.mark.parametrize("shortcuts", [False, True])
def test_most_votes_are_counted_without_an_event(shortcuts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: Counter[bool] = Counter()
    take_vote = Machine.take_vote

    def noted(self: Machine, sender: int, vote: Vote) -> bool:
        is_counted = take_vote(self, sender, vote)
        counted[is_counted] += 1
        return is_counted

    monkeypatch.setattr(Machine, "take_vote", noted)
    plan = Scenario.model_validate(PLAN | {"faults": [], "validators": {"count": 7}})
    WatchedSimulation(plan, SEED, "test", shortcuts=shortcuts).run()
    assert sum(counted.values()) > 1_000
    assert (counted[True] > counted[False]) == shortcuts


@pytest.mark.kits
def test_a_validator_that_is_paused_down_broken_or_byzantine_counts_no_vote() -> None:
    nodes = [{}, {"byzantine": ["conflicting-voter"]}, {"mutant": "quorum-of-2f"}, {}, {}, {}, {}]
    plan = Scenario.model_validate(PLAN | {"faults": [], "validators": nodes})
    simulation = WatchedSimulation(plan, SEED, "test", shortcuts=True)
    simulation.begin()
    while simulation.machines[0].view < 3:
        assert simulation.advance()
    machine = simulation.machines[0]
    vote = Vote(
        VoteKind.NOTARIZE, View(machine.view), View(1), Digest(bytes(32)), ValidatorIndex(3), Signature(bytes(64))
    )
    assert [each.counts_votes for each in simulation.machines] == [True, False, False, True, True, True, True]
    assert not simulation.machines[1].take_vote(3, vote) and not simulation.machines[2].take_vote(3, vote)
    machine.pause()
    assert not machine.take_vote(3, vote)
    machine.go_on()
    assert machine.take_vote(3, vote)
    machine.shut_down()
    assert not machine.take_vote(3, vote)


@pytest.mark.kits
def test_broken_code_shares_nothing() -> None:
    simulation = WatchedSimulation(Scenario.model_validate(PLAN), SEED, "test", shortcuts=True)
    executions = simulation.executions
    assert executions is not None
    assert executions.for_parts(PRODUCTION).executor is executions.executor
    broken = [bug.patch.parts(RunCounter()) for bug in planted_bugs().values() if isinstance(bug.patch, PartsPatch)]
    executing = [each for each in broken if each.executor is not Executor or each.transition is not Transition]
    assert len(executing) > 10
    assert all(executions.for_parts(each) is each for each in executing)


def without_last_change(known: SharedExecution) -> SharedExecution:
    """The execution as of a state that has outgrown the plain engine, without its last change."""
    return SharedExecution(replace(known.outcome, changes=known.outcome.changes[:-1]), None)


def from_other_slots(known: SharedExecution) -> SharedExecution:
    """The execution without its last change, and with other positions of the changed keys in the parent's state."""
    assert known.record is not None
    step = known.record.step
    others = tuple(slot and (slot[0] + 1, slot[1]) for slot in step.before)
    record = known.record._replace(step=replace(step, before=others))
    return without_last_change(known)._replace(record=record)


@pytest.mark.parametrize("alter", [without_last_change, from_other_slots])
def test_who_comes_to_another_root_executes_by_itself(
    alter: Callable[[SharedExecution], SharedExecution], monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = WatchedSimulation(Scenario.model_validate(PLAN), SEED, "test", shortcuts=True)
    executions = simulation.executions
    assert executions is not None
    find = executions.find

    def altered(parent_root: Hash, digest: Hash) -> SharedExecution | None:
        known = find(parent_root, digest)
        return known and alter(known)

    monkeypatch.setattr(executions, "find", altered)
    record = simulation.run()
    assert executions.taken_over == 0
    outcome, _ = judge(record, 0.0)
    assert not outcome.failed, outcome.why
    assert outcome.heights >= 40


def test_state_trees_share_nothing_that_changes() -> None:
    """Records of steps hold tuples: two stores that repeated the same steps have no container in common."""
    simulation = WatchedSimulation(Scenario.model_validate(PLAN), SEED, "test", shortcuts=True)
    simulation.run()
    assert simulation.executions is not None and simulation.executions.taken_over > 40
    stores = [machine.validator.executor._store for machine in simulation.machines if machine.validator is not None]
    assert len(stores) == 4
    assert in_common(stores) == []
    planted = {b"key": b"value"}
    for store in stores[:2]:
        store.planted = planted  # type: ignore[attr-defined]
    assert in_common(stores) == [planted]


class TestNondeterminism:
    """A transition that gives something else from its third execution of a block on."""

    @pytest.fixture(autouse=True)
    def planted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        executed: Counter[Hash] = Counter()
        close = Transition.close

        def nondeterministic(self: Transition, phase: TimerPhase) -> int:
            executed[self.parent.root] += 1
            if executed[self.parent.root] > BY_BUILDER_AND_FIRST and self.context.height > 10:
                self.world.credit(self.context.proposer, 1)
            return close(self, phase)

        monkeypatch.setattr(Transition, "close", nondeterministic)

    @pytest.mark.parametrize(("seed", "shortcuts"), [(100, True), (101, False)])
    def test_it_is_found_where_nothing_is_shared(self, seed: int, shortcuts: bool, tmp_path: Path) -> None:
        assert run(seed, shortcuts, tmp_path).failed

    def test_it_is_not_seen_otherwise(self, tmp_path: Path) -> None:
        assert not run(101, True, tmp_path).failed


def run(seed: int, shortcuts: bool, folder: Path) -> SeedOutcome:
    plan = json.dumps(PLAN | {"faults": []})
    return run_seed(ScenarioTask("a.yaml", plan, shortcuts=shortcuts), str(folder), "test", seed, seed, folder / "seed")
