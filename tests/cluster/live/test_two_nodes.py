"""A run over two Ray nodes in two network namespaces: real sockets between machines, as far as one can stand for two.

The link between the namespaces is cut while the chain runs, and healed: neither side has a quorum meanwhile, and
afterwards all agree again. Then faults of every way in which they are done hit validators of the node on which the
driver is not: in the transport, to a process, and to its disk. The test makes the namespaces itself and is skipped,
saying so, where the machine does not let it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.live.namespaces import ROOT, Machines, machines

pytestmark = [pytest.mark.live, pytest.mark.slow]

NETWORK = "10.213.77"
CUT_AT, HEALED_AFTER_MS, LAST = 8, 4_000, 60
SCENARIO: Final[dict[str, Any]] = {
    "name": "two-nodes",
    "validators": 4,
    "consensus": {"block_interval_ms": 100, "leader_timeout_ms": 500, "advance_timeout_ms": 800, "rebroadcast_ms": 300},
    "load": {"users": [{"workload": "heartbeat", "count": 2, "interval_ms": 300}]},
    "faults": [
        {"kind": "degrade", "from": ["validator-1"], "latency_ms": 40, "at_height": 20, "for_ms": 1_000},
        {"kind": "pause", "target": "validator-3", "at_height": 25, "for_ms": 700},
        {"kind": "kill", "target": "validator-1", "at_height": 32, "down_ms": 300},
        {"kind": "failed_sync", "target": "validator-3", "at_height": 40, "down_ms": 300},
        {"kind": "wipe", "target": "validator-1", "at_height": 48, "down_ms": 300},
    ],
    "stop": {"height": LAST, "drain_blocks": 3, "timeout_s": 100},
    "success": {"heights_compared": 20, "transactions": 1, "fires": 1},
}
DRIVER = """
import json, sys
from pathlib import Path
from cluster.checks.run import check_run
from cluster.watches.live.audited_testnet import run_live
from cluster.record.run import RunObserver, RunRequest
from cluster.checks.metrics.metrics import longest_stall
from cluster.scenario import Scenario

tell = lambda **facts: print(json.dumps(facts), flush=True)
record = run_live(
    RunRequest(Scenario.model_validate_json(sys.argv[1]), 1, "test", Path(sys.argv[2])),
    RunObserver(lambda sample: tell(at_ms=sample.at_ms, height=max(height or 0 for height in sample.heights))),
)
verdict = check_run(record)
tell(verdict=verdict.outcome, stall_ms=longest_stall(record).length_ms,
     took_effect={fault.kind: fault.evidence for fault in record.faults if fault.took_effect},
     wrong=[f"{check.name}: {check.detail}" for check in verdict.checks if check.verdict != "pass"])
"""


@pytest.fixture
def two_nodes() -> Iterator[Machines]:
    with machines(2, NETWORK) as found:
        for machine in range(2):
            found.start_ray(machine)
        yield found


def test_a_cable_that_is_pulled_stops_the_chain_until_it_is_back(two_nodes: Machines, tmp_path: Path) -> None:
    command = [sys.executable, "-c", DRIVER, json.dumps(SCENARIO), str(tmp_path / "run")]
    cut_ms = 0.0
    is_cut = False
    told: list[dict[str, Any]] = []
    with two_nodes.start(0, *command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert driver.stderr is not None
        for line in driver.stdout:
            told.append(json.loads(line))
            if not cut_ms and told[-1].get("height", 0) >= CUT_AT:
                two_nodes.plug(0, "down")
                cut_ms, is_cut = told[-1]["at_ms"], True
            elif is_cut and told[-1].get("at_ms", 0.0) >= cut_ms + HEALED_AFTER_MS:
                two_nodes.plug(0, "up")
                is_cut = False
        complaints = driver.stderr.read()
    assert driver.returncode == 0, complaints
    assert told[-1].get("verdict") == "pass", told[-1].get("wrong", told[-1])
    assert told[-1]["took_effect"].keys() == {fault["kind"] for fault in SCENARIO["faults"]}, told[-1]["took_effect"]
    assert told[-1]["stall_ms"] >= HEALED_AFTER_MS * 0.9, "neither side has a quorum by itself"
    endpoints = json.loads((tmp_path / "run" / "endpoints.json").read_text(encoding="utf-8"))["validators"]
    hosts = [validator["peers"].partition(":")[0] for validator in endpoints]
    assert set(hosts) == {two_nodes.address(0), two_nodes.address(1)}
    assert hosts[0] == hosts[2] != hosts[1] == hosts[3], "hosts go to the nodes in turn"
