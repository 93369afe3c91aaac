"""A rehearsal of a cluster's losses: four Ray nodes in four network namespaces, and validators on all of them.

One node is killed for good in the middle, and nobody planned that. A new one joins and takes its validators. Then
another node is cut off until Ray has given it up: its hosts end themselves before their validators start elsewhere. The
chain goes on all the time, the run has its verdict, and both losses are judged like faults of the scenario.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.live.namespaces import ROOT, Machines, machines

pytestmark = [pytest.mark.live]

EXECUTOR = "stampede executor"
NETWORK = "10.213.79"
KILLED, CUT_OFF = 1, 2
KILL_AT: Final = 10
LOG_LINES: Final = 25
RAY_LOG_LINES: Final = 150
OF_ACTORS: Final = re.compile(r"\[\d{4}-.*\b(actor|worker|lease|kill|node|memory)", re.IGNORECASE)
RAY_LOGS: Final = {
    "gcs_server.out": OF_ACTORS,
    "raylet*.out": OF_ACTORS,
    "python-core-worker-*.log": re.compile(r"\[\d{4}-\S+ \S+ [WEFC] |\*\*\*"),
    "worker-*.err": re.compile(r"."),
}
DRIVER = """
import json, sys, threading
from pathlib import Path
from cluster.checks.run import check_run
from cluster.watches.live.audited_testnet import live_testnet
from cluster.record.run import RunObserver, RunRequest
from cluster.scenario import Scenario

tell = lambda **facts: print(json.dumps(facts), flush=True)
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
with live_testnet(
    RunRequest(Scenario.model_validate_json(sys.argv[1]), 1, "test", Path(sys.argv[2])),
    RunObserver(lambda sample: tell(at_ms=sample.at_ms, height=max(height or 0 for height in sample.heights),
                            up=sum(height is not None for height in sample.heights)),
        lambda notice: tell(notice=notice)), run_until_stopped=stop,
) as record:
    pass
verdict = check_run(record)
tell(verdict=verdict.outcome, faults=[[fault.target, fault.is_planned, fault.took_effect, fault.ended_ms,
     list(fault.targets), list(fault.lost_disks), fault.evidence] for fault in record.faults],
     wrong=[f"{check.name}: {check.detail}" for check in verdict.checks if check.verdict != "pass"])
"""


def scenario(validators: int, hosts: int, block_ms: int) -> dict[str, Any]:
    return {
        "name": "lost-nodes",
        # one validator of each host has a foreign executor
        "validators": {"count": validators, "hosts": hosts, "nodes": [{"executor": EXECUTOR}] * hosts},
        "consensus": {
            "block_interval_ms": block_ms,
            "leader_timeout_ms": 10 * block_ms,
            "advance_timeout_ms": 14 * block_ms,
            "rebroadcast_ms": 4 * block_ms,
        },
        "load": {"users": [{"workload": "heartbeat", "count": 2, "interval_ms": 1_000}]},
        "stop": {"height": 1_000, "drain_blocks": 3, "timeout_s": 900},
        "success": {"heights_compared": 10, "transactions": 1, "fires": 1, "stall_ms": 120_000, "recovery_ms": 120_000},
    }


class Rehearsal:
    """What is done to the nodes, by what the driver says."""

    def __init__(self, found: Machines, validators: int) -> None:
        self._machines = found
        self._validators = validators
        self.height = 0
        self.heights: dict[str, int] = {}
        """The height at which each thing was done."""
        self.notices: list[str] = []
        self.is_over = False

    def _do(self, what: str) -> bool:
        """Whether it is to be done: once."""
        is_new = what not in self.heights
        self.heights.setdefault(what, self.height)
        return is_new

    def take(self, told: dict[str, Any]) -> None:
        if "notice" in told:
            self.notices.append(told["notice"])
            self._take_notice(told["notice"])
        elif "at_ms" in told:
            self.height = told["height"]
            self._take_sample(told["up"])

    def _take_notice(self, notice: str) -> None:
        if f"{self._machines.address(KILLED)} (" in notice and "is lost with" in notice and self._do("join"):
            self._machines.start_ray(self._machines.add())
        if f"{self._machines.address(CUT_OFF)} (" in notice and "is lost with" in notice and self._do("return"):
            self._machines.plug(CUT_OFF, "up")
            self._machines.kill(CUT_OFF)
            self._machines.start_ray(CUT_OFF)

    def _take_sample(self, up: int) -> None:
        if self.height >= KILL_AT and self._do("kill"):
            self._machines.kill(KILLED)
        elif "join" in self.heights and up == self._validators and self._do("cut"):
            self._machines.plug(CUT_OFF, "down")
        elif "return" in self.heights and up == self._validators and self._do("all back"):
            pass
        elif self.height >= self.heights.get("all back", self.height) + 5:
            self.is_over = True


def ends_of_logs(folder: Path) -> Iterator[str]:
    """The last lines of each log, since a failed run's folder does not outlive continuous integration."""
    for path in sorted(folder.glob("*.log")):
        yield f"--- the end of {path.name}"
        yield from path.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]


def said_by_ray(logs: Path) -> Iterator[str]:
    """What Ray wrote of nodes, workers and actors, without its statistics: why a process of the run ended."""
    for pattern, worth in RAY_LOGS.items():
        for path in sorted(logs.glob(pattern)):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            told = [line for line in lines if worth.match(line) and "state-dump" not in line]
            yield from (f"--- of {path.name}", *told[-RAY_LOG_LINES:]) if told else ()


@pytest.mark.parametrize(
    ("validators", "hosts", "block_ms"),
    [pytest.param(8, 4, 300, marks=pytest.mark.slow), pytest.param(32, 8, 1_000, marks=pytest.mark.soak)],
)
def test_a_node_is_killed_and_another_cut_off_while_the_chain_goes_on(
    validators: int, hosts: int, block_ms: int, tmp_path: Path
) -> None:
    fields = json.dumps(scenario(validators, hosts, block_ms))
    command = [sys.executable, "-c", DRIVER, fields, str(tmp_path / "run")]
    log = tmp_path / "driver.log"
    with machines(4, NETWORK) as found, log.open("w") as complaints:
        for machine in range(4):
            found.start_ray(machine)
        rehearsal, told = Rehearsal(found, validators), dict[str, Any]()
        with found.start(0, *command, cwd=ROOT, stdin=-1, stdout=-1, stderr=complaints) as driver:
            assert driver.stdin is not None and driver.stdout is not None
            for line in driver.stdout:
                told = json.loads(line)
                rehearsal.take(told)
                if rehearsal.is_over and not driver.stdin.closed:
                    driver.stdin.close()
        assert driver.returncode == 0, log.read_text(encoding="utf-8")
        ray_said = list(said_by_ray(found.temporary / "session_latest" / "logs"))
    if told.get("verdict") != "pass":
        said = [*rehearsal.notices, *told.get("wrong", ()), *map(str, told.get("faults", ()))]
        pytest.fail("\n".join([*said, *ends_of_logs(tmp_path / "run" / "logs"), *ray_said]))
    heights = rehearsal.heights
    assert heights["cut"] > heights["kill"] and heights["return"] > heights["cut"], "the chain went on without them"
    assert all(
        not is_planned and took_effect and ended_ms for _, is_planned, took_effect, ended_ms, *_ in told["faults"]
    )
    first = told["faults"][0]
    assert found.address(KILLED) in first[0] and len(first[4]) == validators // 4
    assert any(int(name.removeprefix("validator-")) < hosts for name in first[4]), "one that has an executor is lost"
    assert any("goes to node" in notice and found.address(4) in notice for notice in rehearsal.notices)
