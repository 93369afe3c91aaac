"""Validators with foreign executors in the simulator: nothing differs, unless the executor does; then it is named."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.audit.reexecution.bisect import NO_STEPS
from cluster.checks.run import judge_run
from cluster.common.outcome import Outcome
from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.simulation.driver import simulate

SEED = 3
PLAN: dict[str, Any] = {
    "name": "foreign",
    "consensus": {"block_interval_ms": 100, "signatures": "keyed-hash"},
    "load": {"users": [{"workload": "flood", "count": 2, "interval_ms": 400, "options": {"timers": 3}}]},
    "faults": [
        {"kind": "kill", "target": "validator-1", "at_height": 8, "down_ms": 1_000},
        {"kind": "wipe", "target": "validator-1", "at_height": 16, "down_ms": 1_000},
    ],
    "stop": {"height": 30, "drain_blocks": 2},
    "success": {"transactions": 0, "fires": 0},
}


def run(executor: str | None, **changes: Any) -> RunRecord:
    return simulate(
        Scenario.model_validate(PLAN | {"validators": [{}, {"executor": executor}, {}, {}]} | changes), SEED
    )


@pytest.mark.parametrize("protocol", ["simplex", pytest.param("hotstuff", marks=pytest.mark.slow)])
def test_the_run_is_that_of_validators_with_their_own_transition(protocol: str) -> None:
    consensus = PLAN["consensus"] | {"protocol": protocol}
    records = [run(executor, consensus=consensus) for executor in (None, "stampede executor")]
    assert records[0].digest == records[1].digest
    assert records[1].problems == [] and records[1].validators[1].tip >= 30


def test_an_executor_with_a_bug_is_named_with_height_step_and_key() -> None:
    judged = judge_run(run("stampede executor --mutant wrong-balance", faults=[]))
    (page,) = judged.books.bisections
    assert page["validator"] == "validator-1" and page["height"] >= 6 and page["note"] == NO_STEPS
    assert page["step"]["kind"] == "transaction" and page["keys"][0]["fields"][0]["name"] == "balance"
    (check,) = [check for check in judged.verdict.checks if check.name == "state_roots"]
    assert check.verdict is Outcome.FAIL and "validator-1" in check.detail


def test_an_executor_that_ends_stops_its_validator_with_one_line() -> None:
    record = run("false", faults=[], stop=PLAN["stop"] | {"timeout_s": 20})
    assert record.problems[0] == "validator-1 stopped: executor 'false': it ended with code 1"
