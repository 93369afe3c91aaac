"""Hosts in pods: each has a Ray node of its own, with a volume that only this node has, and its own process ids.

The pods start while the driver waits for them. Then three hosts are killed, one after the other: by a signal, which
must find the right process among equal ids; by a request to a server that stands for Kubernetes, which deletes the pod;
and by nobody's plan, as a pod that is asked to end. Another pod takes the place and the volume of one that is gone,
after a while in which the host must not go elsewhere, and the validator recovers from its own disk.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from cluster.common.checkout import ROOT
from tests.cluster.live.pods import why_no_pods
from tests.cluster.ray_cluster import RayCluster, ray_cluster
from tests.kits.kubernetes.api_server import ApiServer, pod_of_host

pytestmark = [pytest.mark.live, pytest.mark.slow]

VALIDATORS: Final = 4
BY_SIGNAL, BY_POD, UNPLANNED = 1, 3, 2
SIGNAL_AT, POD_AT, BACK_AFTER = 8, 24, 4
"""Heights."""
LEADER_TIMEOUT_MS: Final = 3_000
DOWN_MS: Final = LEADER_TIMEOUT_MS + 1_000
"""The host that is killed by a signal stays down for longer than a view without its leader takes: a shorter kill
shows nothing if its validator leads the next view, since no height becomes final meanwhile."""
SCENARIO: Final[dict[str, Any]] = {
    "name": "pods",
    "validators": VALIDATORS,
    "consensus": {
        "block_interval_ms": 400,
        "leader_timeout_ms": LEADER_TIMEOUT_MS,
        "advance_timeout_ms": 4_000,
        "rebroadcast_ms": 1_000,
    },
    "faults": [
        {
            "kind": "kill",
            "how": "process",
            "target": f"validator-{BY_SIGNAL}",
            "at_height": SIGNAL_AT,
            "down_ms": DOWN_MS,
        },
        {"kind": "kill", "how": "pod", "target": f"validator-{BY_POD}", "at_height": POD_AT, "down_ms": 500},
    ],
    "load": {"users": [{"workload": "heartbeat", "count": 2, "interval_ms": 1_000}]},
    "stop": {"height": 1_000, "drain_blocks": 3, "timeout_s": 300},
    "success": {"heights_compared": 10, "transactions": 1, "fires": 1, "stall_ms": 120_000, "recovery_ms": 120_000},
}
DRIVER: Final = """
import json, sys, threading
from pathlib import Path
from cluster.checks.run import check_run
from cluster.watches.live.audited_testnet import live_testnet
from cluster.record.run import RunObserver, RunRequest
from kits.kubernetes.faults import means
from cluster.scenario import Scenario
from tests.kits.kubernetes.api_server import api_at

means.why_not_in_a_pod = lambda environment: ""
means.Pods.of_this_pod = staticmethod(lambda: api_at(sys.argv[3]))
tell = lambda **facts: print(json.dumps(facts), flush=True)
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
with live_testnet(
    RunRequest(Scenario.model_validate_json(sys.argv[1]), 1, "test", Path(sys.argv[2])),
    RunObserver(lambda sample: tell(height=max(height or 0 for height in sample.heights),
                            up=sum(height is not None for height in sample.heights)),
        lambda notice: tell(notice=notice)), run_until_stopped=stop,
) as record:
    pass
verdict = check_run(record)
tell(verdict=verdict.outcome, problems=record.problems,
     faults=[check.detail for check in verdict.checks if check.name == "faults"],
     wrong=[f"{check.name}: {check.detail}" for check in verdict.checks if check.verdict != "pass"])
"""


class Pods:
    """The pods of a run, one for each host."""

    def __init__(self, cluster: RayCluster, kubernetes: ApiServer, folder: Path) -> None:
        self._cluster = cluster
        self._kubernetes = kubernetes
        self._folder = folder
        self._numbers: dict[int, int] = {}
        self.runs = folder / "runs"
        self.runs.mkdir()

    def start(self, host: int) -> None:
        """Start the pod of a host, with its volume."""
        volume = self._folder / f"volume-{host}"
        volume.mkdir(exist_ok=True)
        resources = json.dumps({"stampede_validators": 1, f"stampede_host_{host}": 1})
        self._kubernetes.add(pod_of_host(host))
        self._numbers[host] = self._cluster.start_pod(volume, self.runs, f"--resources={resources}")

    def kill(self, host: int) -> None:
        self._cluster.kill_pod(self._numbers[host])

    def end(self, host: int) -> None:
        self._cluster.end_pod(self._numbers[host])


def test_a_pod_that_is_lost_comes_back_with_its_volume(tmp_path: Path) -> None:
    if reason := why_no_pods():
        pytest.skip(reason)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), "STAMPEDE_INSTANCE": "smoke"}
    log = tmp_path / "driver.log"
    with ray_cluster(environment=environment) as cluster, ApiServer() as kubernetes:
        cluster.start(1)
        pods = Pods(cluster, kubernetes, tmp_path)
        command = [sys.executable, "-c", DRIVER, json.dumps(SCENARIO), str(pods.runs / "run"), kubernetes.url]
        environment = {**cluster.environment, "RAY_ADDRESS": cluster.address}
        with (
            log.open("w") as complaints,
            subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            ) as driver,
        ):
            told = follow(driver, pods)
        assert driver.returncode == 0, log.read_text(encoding="utf-8")
        changes = [asked for asked in kubernetes.asked if not asked.startswith("GET")]
        assert changes == [f"DELETE /api/v1/pods/smoke-host-{BY_POD}-x7k2p"]
        assert kubernetes.bodies[-1]["gracePeriodSeconds"] == 1
    last, notices = told[-1], [each["notice"] for each in told if "notice" in each]
    assert last.get("verdict") == "pass", "\n".join([*notices, *map(str, last.values())])
    for host in (BY_POD, UNPLANNED):
        assert f"host {host} waits for a Ray node with stampede_host_{host}: its disk comes with it" in notices
    (detail,) = last["faults"]
    for host in (BY_SIGNAL, BY_POD, UNPLANNED):
        assert f"validator-{host} recovered height" in detail
    assert "snapshot" not in detail and f"pod smoke-host-{BY_POD}-x7k2p was deleted" in detail
    assert detail.count("not planned") == 1
    for host in range(VALIDATORS):
        assert sorted(path.name for path in (tmp_path / f"volume-{host}/run/data").glob("validator-*/")) == [
            f"validator-{host}"
        ], "each volume has the disk of its own host alone"
    assert not list((pods.runs / "run").glob("data/validator-*")), "the driver has none"


def follow(driver: subprocess.Popen[str], pods: Pods) -> list[dict[str, Any]]:
    """Do to the pods what is to be done, by what the driver says. Returns all that it said."""
    assert driver.stdout is not None and driver.stdin is not None
    told: list[dict[str, Any]] = []
    back = set[int]()
    killed_at = 0
    for line in driver.stdout:
        told.append(json.loads(line))
        notice, height = told[-1].get("notice", ""), told[-1].get("height", 0)
        are_all_up = told[-1].get("up") == VALIDATORS
        if "waiting for Ray nodes" in notice:
            for host in range(VALIDATORS):
                pods.start(host)
        elif f"is lost with host {BY_POD}: pod" in notice:
            pods.kill(BY_POD)
        elif waiting := [each for each in (BY_POD, UNPLANNED) if f"host {each} waits" in notice]:
            pods.start(waiting[0])
            back.update(waiting)
        elif are_all_up and BY_POD in back and not killed_at:
            pods.end(UNPLANNED)
            killed_at = height
        elif are_all_up and UNPLANNED in back and height >= killed_at + BACK_AFTER:
            driver.stdin.close()
            back.clear()  # it is told once
    return told
