"""Lines about pods, from the states that Kubernetes gives them."""

from __future__ import annotations

from typing import Any

from cluster.tools.k8s.client.progress import PodLines, state_of

RUNNING = {"state": {"running": {}}, "restartCount": 0}


def pod(container: dict[str, Any], ready: bool = False) -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": str(ready)}]
    labels = {"stampede.io/host": "1"}
    status = {"phase": "Running", "conditions": conditions, "containerStatuses": [container]}
    return {"metadata": {"name": "a", "labels": labels}, "status": status}


def restarted(count: int) -> dict[str, Any]:
    ended = {"reason": "OOMKilled", "exitCode": 137}
    return RUNNING | {"restartCount": count, "lastState": {"terminated": ended}}


def test_a_container_that_is_restarted_in_its_place_is_said_with_its_reason_each_time() -> None:
    said: list[str] = []
    lines = PodLines("smoke", said.append)
    for container, ready in [(RUNNING, True), (restarted(1), False), (restarted(1), True), (restarted(2), False)]:
        lines.pods({"a": pod(container, ready)})
    again = "host 1 starts again after OOMKilled, exit code 137"
    assert said == ["host 1 is ready", again, "host 1 is ready", again]
    assert lines.trouble == again


def test_a_first_start_is_none_after_an_end() -> None:
    assert state_of(pod(RUNNING)).words == "is starting"
