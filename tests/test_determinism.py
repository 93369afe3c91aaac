"""The simulator repeats itself exactly, and its checks catch validators that are broken on purpose."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.misbehaviour.planted import planted
from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.watches.watched_simulation import simulate
from tests.hangs import HANGS_AFTER_S

ROOT = Path(__file__).resolve().parents[1]
SEED = 11

PROGRAM = """
from tests.test_determinism import SEED, run
record = run(SEED)
print(record.digest, *(block.computed_root.hex() for block in record.validators[0].blocks))
"""


@cache
def run(seed: int, *mutants: tuple[int, str], kill: bool = False) -> RunRecord:
    """A short run; ``mutants`` are ``(validator, name)``."""
    validators: list[dict[str, Any]] = [{} for _ in range(4)]
    for index, name in mutants:
        validators[index] = {"mutant": name}
    workloads = {"heartbeat": 4, "flood": 2, "churn": 2, "transfer": 2}
    scenario = {
        "name": "determinism",
        "validators": {"count": 4, "nodes": validators, "allow_more_faults": True},
        "load": {"users": [{"workload": name, "count": count} for name, count in workloads.items()]},
        "faults": [{"kind": "kill", "target": "validator-2", "at_height": 8, "down_ms": 1_500}] if kill else [],
        "stop": {"height": 24, "drain_blocks": 3},
        "success": {"heights_compared": 16, "transactions": 20, "fires": 20},
    }
    return simulate(Scenario.model_validate(scenario), seed)


def mutant_runs(record: RunRecord) -> list[int]:
    return [(validator.status or {})["mutant_runs"] for validator in record.validators]


# --- determinism ----------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = run(SEED), run.__wrapped__(SEED)
    assert first is not second
    assert first.digest == second.digest
    assert first.validators == second.validators
    assert first.finalizations == second.finalizations
    assert first.samples == second.samples
    assert check_run(first) == check_run(second)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_with_a_crash_in_it() -> None:
    first, second = run(SEED, kill=True), run.__wrapped__(SEED, kill=True)
    assert first.digest == second.digest != run(SEED).digest
    assert check_run(first).outcome is Outcome.PASS, check_run(first)


@pytest.mark.slow
def test_another_seed_gives_another_run() -> None:
    digests = {run(seed).digest for seed in range(SEED, SEED + 4)}
    assert len(digests) == 4
    assert "" not in digests


@pytest.mark.parametrize(
    "hash_seed", [pytest.param("0", marks=pytest.mark.slow), pytest.param("1", marks=pytest.mark.soak), "12345"]
)
def test_another_process_with_another_hash_seed_gives_the_same_run(hash_seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM]
    told = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=True
    )
    here = run(SEED)
    roots = [block.computed_root.hex() for block in here.validators[0].blocks]
    assert told.stdout.split() == [here.digest, *roots]


# --- mutants --------------------------------------------------------------------------------------------------------


def test_the_run_passes_without_mutants() -> None:
    record = run(SEED)
    verdict = check_run(record)
    assert verdict.outcome is Outcome.PASS, verdict
    assert mutant_runs(record) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "index",
    [0, *(pytest.param(index, marks=pytest.mark.soak) for index in (1, 2)), pytest.param(3, marks=pytest.mark.slow)],
)
def test_a_wrong_balance_on_one_validator_fails_the_state_roots_by_height_and_name(index: int) -> None:
    record = run(SEED, (index, "wrong-balance"))
    check = check_run(record).check(planted("wrong-balance").must_fail.check)
    assert check.name == "state_roots"
    assert check.verdict is Outcome.FAIL
    status = record.validators[index].status or {}
    diverged = status["diverged"]
    assert diverged["height"] >= 6
    assert f"validator-{index} diverged at height {diverged['height']} " in check.detail
    assert all(f"validator-{other} " not in check.detail for other in range(4) if other != index)
    runs = mutant_runs(record)
    assert runs[index] > 0
    assert [count for at, count in enumerate(runs) if at != index] == [0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "indices",
    [(0,), *(pytest.param(indices, marks=pytest.mark.slow) for indices in ((3,), (0, 1, 2, 3)))],
    ids=["first", "last", "all"],
)
def test_a_double_fire_fails_the_timers(indices: tuple[int, ...]) -> None:
    """One such validator disagrees with the others, and what it computed shows the fault; all of them agree on it."""
    record = run(SEED, *[(index, "double-fire") for index in indices])
    verdict = check_run(record)
    check = verdict.check(planted("double-fire").must_fail.check)
    assert check.name == "timers"
    assert check.verdict is Outcome.FAIL, verdict
    assert verdict.outcome is Outcome.FAIL
    runs = mutant_runs(record)
    assert all((runs[index] > 0) == (index in indices) for index in range(4))
    if len(indices) == 4:
        assert verdict.check("state_roots").verdict is Outcome.PASS, "they all compute the same wrong state"
