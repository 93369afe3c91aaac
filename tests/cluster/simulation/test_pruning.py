"""Simulated runs whose validators prune: the verdict has every block, and who lacks blocks hears of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.misbehaviour.planted import RunCounter
from cluster.record.rules import SafetyRule
from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.scenario.node_setup import parts_of
from cluster.simulation.recorder import Recorder
from cluster.watches.watched_simulation import simulate
from validator.node.executor.executor import Executor
from validator.storage.archive import BlockArchive

KEPT = 10
SEED = 1


def scenario_of(*faults: dict[str, Any], height: int = 50, keep_blocks: int | None = KEPT) -> Scenario:
    storage = {"segment_kib": 8, "retained_heights": 8, "keep_blocks": keep_blocks}
    workloads = {"heartbeat": 4, "churn": 2, "transfer": 2}
    scenario = {
        "name": "pruning",
        "validators": 4,
        "storage": storage,
        "load": {"users": [{"workload": name, "count": count} for name, count in workloads.items()]},
        "faults": list(faults),
        "stop": {"height": height, "drain_blocks": 3, "timeout_s": 60},
        "success": {"heights_compared": 30, "transactions": 20, "fires": 20},
    }
    return Scenario.model_validate(scenario)


def run(*faults: dict[str, Any], height: int = 50, keep_blocks: int | None = KEPT) -> RunRecord:
    return simulate(scenario_of(*faults, height=height, keep_blocks=keep_blocks), SEED)


def first_blocks(record: RunRecord) -> Sequence[int]:
    return [(validator.status or {}).get("first_block", 0) for validator in record.validators]


def require_pass(record: RunRecord) -> None:
    report = check_run(record)
    assert [(check.name, check.detail) for check in report.checks if check.verdict is not Outcome.PASS] == []


def test_the_verdict_has_every_block_though_validators_prune() -> None:
    record, whole = run(), run(keep_blocks=None)
    tip = record.validators[0].tip
    for validator, first in zip(record.validators, first_blocks(record), strict=True):
        assert (validator.first_height, validator.tip) == (1, tip), "the auditor has those that are gone"
        assert tip - KEPT - 6 <= first <= tip - KEPT + 1, "ten blocks, and those that share a file with them"
    assert first_blocks(whole) == [1] * 4
    assert [each.blocks for each in record.validators] == [each.blocks for each in whole.validators]
    assert record.digest == whole.digest, "pruning is nothing to the chain"
    used, unpruned = ((each.validators[0].status or {})["disk_bytes"]["blocks"] for each in (record, whole))
    assert used < unpruned / 2
    assert record.monitor is not None
    assert record.monitor.counts[SafetyRule.PRUNING] > 100
    require_pass(record)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [{"kind": "kill", "reorders": True}, {"kind": "wipe"}], ids=["kill", "wipe"])
def test_validators_that_come_back_prune_and_pass(fault: dict[str, Any]) -> None:
    record = run({"target": "validator-2", "at_height": 20, "down_ms": 1_500, **fault}, height=60)
    assert min(first_blocks(record)) > 30
    require_pass(record)


LONG_DOWN = {"kind": "kill", "target": "validator-2", "at_height": 20, "down_ms": 20_000}


@pytest.mark.slow
def test_peers_keep_what_a_validator_that_is_down_will_need() -> None:
    record = run(LONG_DOWN, height=80)
    assert min(first_blocks(record)) > 60
    require_pass(record)


@pytest.mark.slow
def test_peers_keep_what_a_validator_needs_that_joined_and_stopped() -> None:
    """It stops as soon as it has the state of an old height, and stays down while its peers make ten blocks."""
    names = [f"validator-{index}" for index in range(4)]
    stops = {"kind": "failed_sync", "of": "state", "target": names, "at_height": 20, "down_ms": 9_000}
    record = run(stops, {"kind": "wipe", "target": "validator-2", "at_height": 20, "down_ms": 1_500}, height=90)
    assert "joined by the snapshot of height 16" in record.faults[1].evidence
    assert not record.problems


@pytest.mark.slow
def test_a_validator_whose_peers_have_pruned_what_it_needs_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver gave it up, and then it came back."""
    monkeypatch.setattr(Recorder, "lowest_tip", lambda _: 10**9)
    record = run(LONG_DOWN, height=80)
    assert record.problems[0].startswith("validator-2 stopped: the peers have pruned block 2")
    assert record.problems[0].endswith("without its data folder the validator joins by a snapshot")
    assert "\n" not in record.problems[0]
    assert check_run(record).outcome is Outcome.FAIL
    assert min(first_blocks(record)[:2]) > 40


@pytest.mark.slow
def test_validators_that_prune_what_the_auditor_lacks_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: the executor does not wait for the auditor, who looks every 30 heights."""
    keep = Recorder.keep

    def seldom(recorder: Recorder, machine: Any) -> None:
        if machine.validator.node.height % 30 == 0:
            keep(recorder, machine)

    monkeypatch.setattr(Recorder, "keep", seldom)
    require_pass(run())
    monkeypatch.setattr(Executor, "prunable_height", property(lambda _: 10**9, lambda *_: None), raising=False)
    record = run()
    assert any("is not here: the blocks of this validator begin at height" in problem for problem in record.problems)
    assert check_run(record).outcome is Outcome.FAIL


# --- the watch --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_validator_that_prunes_one_block_too_many_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    prune = BlockArchive.prune
    monkeypatch.setattr(BlockArchive, "prune", lambda archive, height: prune(archive, height + 1))
    monitor = run(height=30).monitor
    assert monitor is not None
    assert "pruning: validator-" in monitor.violations[0]


# --- settings ---------------------------------------------------------------------------------------------------------


def test_fewer_blocks_than_a_snapshot_needs_are_refused() -> None:
    scenario = Scenario.model_validate({"name": "pruning", "storage": {"keep_blocks": 256}})
    assert scenario.storage.keep_blocks == 256
    with pytest.raises(ValueError, match=r"keep_blocks: 255 is below retained_heights \(256\)"):
        Scenario.model_validate({"name": "pruning", "storage": {"keep_blocks": 255}})
    assert parts_of(scenario, 0, RunCounter()).storage.keep_blocks == 256
