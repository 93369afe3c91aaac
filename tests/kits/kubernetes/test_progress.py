"""Lines about pods, from the states that Kubernetes gives them."""

from __future__ import annotations

from typing import Any

from kits.kubernetes.client.progress import PodLines, state_of

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


def test_an_image_that_cannot_be_pulled_is_said_once_for_all_its_pods() -> None:
    def unpulled(number: int, image: str) -> dict[str, Any]:
        waiting = {"reason": "ErrImagePull", "message": "not found"}
        found = pod({"image": image, "state": {"waiting": waiting}})
        return found | {"metadata": {"name": "a", "labels": {"stampede.io/host": str(number)}}}

    said: list[str] = []
    lines = PodLines("smoke", said.append)
    first, second, other = unpulled(1, "a:1"), unpulled(2, "a:1"), unpulled(3, "b:1")
    for pods in [{"a": first}, {"a": first, "b": second}, {"a": first, "b": second}]:
        lines.pods(pods)
    assert said == ["host 1 cannot start: the image a:1 cannot be pulled: not found"]
    assert lines.trouble == "host 1, host 2 cannot start: the image a:1 cannot be pulled: not found"
    lines.pods({"c": other})
    lines.pods({"b": second})  # nobody waits for it meanwhile
    assert [line for line in said if "pulled" in line][1:] == [
        "host 3 cannot start: the image b:1 cannot be pulled: not found",
        "host 2 cannot start: the image a:1 cannot be pulled: not found",
    ]
