"""A run over two Ray nodes in two network namespaces: real sockets between machines, as far as one can stand for two.

The link between the namespaces is cut while the chain runs, and healed: neither side has a quorum meanwhile, and
afterwards all agree again. Then faults of every way in which they are done hit validators of the node on which the
driver is not: in the transport, to a process, and to its disk. The test makes the namespaces itself and is skipped,
saying so, where the machine does not let it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
ADDRESSES = ("10.213.77.1", "10.213.77.2")
PORT = 6399
WAIT_S = 120.0
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
from cluster.live.driver.driver import run_live
from cluster.checks.metrics.metrics import longest_stall
from cluster.scenario import Scenario

tell = lambda **facts: print(json.dumps(facts), flush=True)
record = run_live(
    Scenario.model_validate_json(sys.argv[1]), 1, "test", Path(sys.argv[2]),
    lambda sample: tell(at_ms=sample.at_ms, height=max(height or 0 for height in sample.heights)),
)
verdict = check_run(record)
tell(verdict=verdict.outcome, stall_ms=longest_stall(record).length_ms,
     took_effect={fault.kind: fault.evidence for fault in record.faults if fault.took_effect},
     wrong=[f"{check.name}: {check.detail}" for check in verdict.checks if check.verdict != "pass"])
"""


@dataclass(frozen=True)
class TwoNodes:
    """Two namespaces with a cable between them, and a Ray node in each."""

    names: tuple[str, str]
    environment: dict[str, str]

    def start(self, node: int, *command: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["ip", "netns", "exec", self.names[node], *command], env=self.environment, text=True, **options
        )

    def plug(self, state: str) -> None:
        """Pull the cable (``down``) or put it back (``up``)."""
        subprocess.run(["ip", "-n", self.names[0], "link", "set", "cable", state], check=True)


def run_ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def two_nodes() -> Iterator[TwoNodes]:
    names = f"st-{os.getpid()}-a", f"st-{os.getpid()}-b"
    made: list[str] = []
    temporary = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    try:
        try:
            for name in names:
                run_ip("netns", "add", name)
                made.append(name)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"needs network namespaces, which this machine does not let us make: {error}")
        run_ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            run_ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
            for device in ("cable", "lo"):
                run_ip("-n", name, "link", "set", device, "up")
        nodes = TwoNodes(
            names,
            {
                **os.environ,
                "RAY_USAGE_STATS_ENABLED": "0",
                "RAY_worker_niceness": "0",
                "RAY_AUTH_MODE": "token",
                "RAY_AUTH_TOKEN": secrets.token_hex(32),
                "RAY_ADDRESS": f"{ADDRESSES[0]}:{PORT}",
            },
        )
        own = ["--num-cpus=2", "--object-store-memory=80000000", "--disable-usage-stats"]
        head = ["--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={temporary}"]
        for node, role in enumerate((head, [f"--address={ADDRESSES[0]}:{PORT}"])):
            command = [str(Path(sys.executable).parent / "ray"), "start", *role, f"--node-ip-address={ADDRESSES[node]}"]
            with nodes.start(node, *command, *own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as starting:
                said, _ = starting.communicate(timeout=WAIT_S)
            assert starting.returncode == 0, said
        yield nodes
    finally:
        for name in made:
            listed = subprocess.run(["ip", "netns", "pids", name], check=True, capture_output=True, text=True)
            for pid in listed.stdout.split():
                os.kill(int(pid), signal.SIGKILL)
            run_ip("netns", "del", name)
        shutil.rmtree(temporary)


def test_a_cable_that_is_pulled_stops_the_chain_until_it_is_back(two_nodes: TwoNodes, tmp_path: Path) -> None:
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
                two_nodes.plug("down")
                cut_ms, is_cut = told[-1]["at_ms"], True
            elif is_cut and told[-1].get("at_ms", 0.0) >= cut_ms + HEALED_AFTER_MS:
                two_nodes.plug("up")
                is_cut = False
        complaints = driver.stderr.read()
    assert driver.returncode == 0, complaints
    assert told[-1].get("verdict") == "pass", told[-1]
    assert told[-1]["took_effect"].keys() == {fault["kind"] for fault in SCENARIO["faults"]}, told[-1]["took_effect"]
    assert told[-1]["stall_ms"] >= HEALED_AFTER_MS * 0.9, "neither side has a quorum by itself"
    endpoints = json.loads((tmp_path / "run" / "endpoints.json").read_text(encoding="utf-8"))["validators"]
    hosts = [validator["peers"].partition(":")[0] for validator in endpoints]
    assert set(hosts) == set(ADDRESSES)
    assert hosts[0] == hosts[2] != hosts[1] == hosts[3], "hosts go to the nodes in turn"
