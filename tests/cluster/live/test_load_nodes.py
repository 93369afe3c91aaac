"""The load on nodes of its own: its users are dealt to them, and a node that is killed takes its users alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from cluster.common.checkout import ROOT
from tests.cluster.ray_cluster import ray_cluster

pytestmark = [pytest.mark.live, pytest.mark.slow]

KILL_AT, LAST = 12, 50
USERS: Final = 6
SCENARIO: Final[dict[str, Any]] = {
    "name": "load-nodes",
    "validators": 2,
    "consensus": {
        "block_interval_ms": 300,
        "leader_timeout_ms": 3_000,
        "advance_timeout_ms": 4_000,
        "rebroadcast_ms": 1_000,
    },
    "load": {"processes": 2, "users": [{"workload": "transfer", "count": USERS, "interval_ms": 300}]},
    "stop": {"height": LAST, "drain_blocks": 3, "timeout_s": 300},
    "success": {"heights_compared": 20, "transactions": 20, "fires": 0, "stall_ms": 120_000},
}
DRIVER: Final = """
import json, sys
from pathlib import Path
from cluster.checks.run import check_run
from cluster.watches.live.audited_testnet import run_live
from cluster.record.run import RunObserver, RunRequest
from cluster.scenario import Scenario

tell = lambda **facts: print(json.dumps(facts), flush=True)
record = run_live(
    RunRequest(Scenario.model_validate_json(sys.argv[1]), 1, "test", Path(sys.argv[2])),
    RunObserver(
        lambda sample: tell(height=max(height or 0 for height in sample.heights), transactions=sample.transactions),
        lambda notice: tell(notice=notice),
    ),
)
verdict = check_run(record)
tell(verdict=verdict.outcome, lost=record.load.lost, sent=record.load.transactions_sent,
     load=[check.detail for check in verdict.checks if check.name == "load"],
     wrong=[f"{check.name}: {check.detail}" for check in verdict.checks if check.verdict != "pass"])
"""


def test_a_load_node_that_is_killed_takes_its_users_and_the_load_goes_on(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    told: list[dict[str, Any]] = []
    at_kill = None
    with ray_cluster(environment=environment) as cluster:
        cluster.start(2, '--resources={"stampede_validators": 1}')
        for _ in range(2):
            cluster.start(1, '--resources={"stampede_load": 1}')
        command = [sys.executable, "-c", DRIVER, json.dumps(SCENARIO), str(tmp_path / "run")]
        environment = {**cluster.environment, "RAY_ADDRESS": cluster.address}
        log = tmp_path / "driver.log"
        with (
            log.open("w") as complaints,
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=complaints, text=True) as driver,
        ):
            assert driver.stdout is not None
            for line in driver.stdout:
                told.append(json.loads(line))
                if at_kill is None and told[-1].get("height", 0) >= KILL_AT:
                    at_kill = told[-1]["transactions"]
                    cluster.kill(2)
        assert driver.returncode == 0, log.read_text(encoding="utf-8")
    last = told[-1]
    assert last["verdict"] == "pass", last
    assert len(last["lost"]) == 1 and f"was lost with {USERS // 2} users" in last["lost"][0]
    assert last["lost"][0] in last["load"][0], "the verdict's table says it"
    committed = [each["transactions"] for each in told if "transactions" in each]
    assert at_kill is not None and committed[-1] > at_kill + LAST - KILL_AT, "the other half goes on"
    assert sum(each.get("notice", "").startswith("the load runs on ") for each in told) == 1
    run = tmp_path / "run"
    assert len(list((run / "logs").glob("locust.[01].log"))) == 1, "of the node that is left"
    assert json.loads((run / "load-stats.json").read_text())["transactions_sent"] == last["sent"] > 0
    assert len(list(tmp_path.glob("stampede-load-*"))) == 1, "that of the node that was killed"
