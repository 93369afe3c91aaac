"""Pods that faults take from a live run's hosts."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.live.host.validator_loop import LoopState
from cluster.live.nodes.ray_nodes import Place
from cluster.live.processes.history import Phase
from cluster.live.processes.processes import Process
from kits.kubernetes.faults.means import KubernetesMeans
from tests.cluster.live.driver.test_live_stage import Run
from tests.kits.kubernetes.api_server import ApiServer, pod_of_host


@pytest.mark.parametrize(
    ("how", "evidence"),
    [
        ("pod", "pod smoke-host-3-x7k2p was deleted"),
        ("node", "pod smoke-host-3-x7k2p was evicted from machine-0"),
        ("chaos-mesh", "Chaos Mesh killed pod smoke-host-3-x7k2p (podchaos smoke-"),
    ],
)
def test_a_pod_is_taken_and_the_loss_of_its_node_is_the_fault_that_was_planned(how: str, evidence: str) -> None:
    plan = {"kind": "kill", "how": how, "target": "validator-3", "at_height": 5, "down_ms": 1_000}
    with ApiServer() as cluster:
        cluster.add(*(pod_of_host(number) for number in range(4)))

        def means(*arguments: Any) -> KubernetesMeans:
            found = KubernetesMeans(*arguments)
            found.leftovers.api = cluster.api()
            return found

        run = Run(plan, means=means)
        for host in run.hosts.all:
            host.place = Place(f"pod-{host.number}", "")
        run.reach(5)
        assert how == "chaos-mesh" or "smoke-host-3-x7k2p" not in cluster.pods
        assert len(cluster.pods) >= 3
    (record,) = run.records
    assert record.targets == ("validator-3",) and record.took_effect, "the loss is no other fault"
    assert [host.is_held_down for host in run.hosts.all] == [False, False, False, True]
    run.reach(6, after_ms=1_000)
    host = run.hosts.all[3]
    assert not host.is_held_down, "and it is placed once its node is there"
    host.actor, host.phase, host.processes.current = "back", Phase.UP, Process(8, 3)
    host.reports.states = {3: LoopState(ready=True, recovered_height=4)}
    run.reach(7)
    assert evidence in record.evidence and record.evidence.endswith(
        "process 7 gone, 8 in its place, recovered height 4"
    )
    assert record.lost_disks == () and record.ended_ms is not None
