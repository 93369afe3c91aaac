"""A live validator with a foreign executor: it survives a kill, and ends with the run; its bug is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.checks.run import judge_run
from cluster.common.outcome import Outcome
from cluster.live.processes import processes
from cluster.record.run import RunRequest
from cluster.scenario import Scenario
from cluster.watches.live.audited_testnet import run_live

pytestmark = [pytest.mark.live, pytest.mark.slow]

SCENARIO = {
    "name": "foreign",
    "validators": [
        {},
        {"executor": "stampede executor --tree"},
        {"executor": "stampede executor --mutant wrong-balance"},
        {},
    ],
    "load": {"users": [{"workload": "transfer", "count": 2, "interval_ms": 300}]},
    "faults": [{"kind": "kill", "target": "validator-1", "at_height": 8}],
    "stop": {"height": 40, "timeout_s": 240},
    "success": {"transactions": 5, "heights_compared": 1, "stall_ms": 120_000},
}


def test_executors_follow_their_validators(tmp_path: Path) -> None:
    scenario = Scenario.model_validate(SCENARIO)
    record = run_live(RunRequest(scenario, 1, "test", tmp_path / "run"))
    assert processes.with_argument("wrong-balance") == set()
    judged = judge_run(record)
    (page,) = judged.books.bisections
    assert page["validator"] == "validator-2" and page["step"]["kind"] == "transaction" and page["keys"]
    assert page["note"] == "", "it gave its steps"
    assert judged.verdict.check("state_roots").verdict is Outcome.FAIL
    assert judged.verdict.check("agreement").verdict is Outcome.PASS
    survivor = record.validators[1]
    assert survivor.tip >= 40 and record.problems == []
