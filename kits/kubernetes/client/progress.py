"""Prints the progress of a deployment: a line whenever a pod's state changes, and a line for each new warning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from cluster.common.wording import printable
from kits.kubernetes.client.cluster import Object
from kits.kubernetes.names import COMPONENT_LABEL, HOST_LABEL

NO_IMAGE: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
STARTING: Final = frozenset({"ContainerCreating", "PodInitializing"})
SAID_BY_PODS: Final = frozenset({"FailedScheduling", "Failed", "BackOff", "Unhealthy", "InspectFailed"})
"""Reasons of events that are not printed: they repeat a pod's status, or occur at every start."""
RESTART: Final = "restart"
UNPULLED: Final = "no image"
QUOTA: Final = "exceeded quota"


def notice(text: str) -> None:
    """Print a line of progress."""
    print(printable(text), flush=True)


class PodState(NamedTuple):
    """A pod's state, as text for the user and as a key to detect changes."""

    key: str
    """Identifies the state: a line is printed when it changes. Texts of an unchanged state may differ: a failing image
    pull alternates between two."""
    words: str


def pod_name(pod: Object) -> str:
    """The role of a pod in the run, such as ``driver`` or ``host 2``."""
    labels = pod["metadata"].get("labels") or {}
    if HOST_LABEL in labels:
        return f"host {labels[HOST_LABEL]}"
    return labels.get(COMPONENT_LABEL) or pod["metadata"]["name"]


def newest(pods: Iterable[Object]) -> Object | None:
    """The pod that was created last; ``None`` if there is none."""
    return max(pods, key=lambda each: str(each["metadata"].get("creationTimestamp")), default=None)


def newest_of(pods: Iterable[Object], component: str) -> Object | None:
    """The newest pod of a component of a deployment, such as the driver; ``None`` if there is none."""
    return newest(each for each in pods if each["metadata"]["labels"].get(COMPONENT_LABEL) == component)


def is_ready(pod: Object) -> bool:
    """Whether a pod runs and passes its probes."""
    return _condition(pod, "Ready").get("status") == "True" and "deletionTimestamp" not in pod["metadata"]


def has_started(pod: Object) -> bool:
    """Whether a pod's container runs, or has run."""
    containers = pod.get("status", {}).get("containerStatuses") or []
    states = [each.get(field) or {} for each in containers for field in ("state", "lastState")]
    return any("running" in state or "terminated" in state for state in states)


def state_of(pod: Object) -> PodState:
    """A pod's state, from its conditions and containers."""
    status = pod.get("status") or {}
    if "deletionTimestamp" in pod["metadata"]:
        return PodState("deleted", "is being deleted")
    if status.get("phase") == "Failed":
        return PodState("failed", _failure(status))
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        if reason in NO_IMAGE:
            image = container["image"]
            return PodState(f"{UNPULLED} {image}", f"cannot start: the image {image} cannot be pulled{_colon(waiting)}")
        if reason and reason not in STARTING:
            return PodState(reason, f"does not start: {reason}{_colon(waiting)}")
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return PodState("unschedulable", f"finds no node{_colon(scheduled)}")
    if status.get("phase") == "Succeeded":
        return PodState("ended", "has ended")
    if is_ready(pod):
        return PodState("ready", "is ready")
    if again := _restart(status):
        return again
    return PodState("starting", "is starting")


def _failure(status: Object) -> str:
    for container in status.get("containerStatuses") or []:
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return f"failed: {ended.get('reason', 'Error')}, exit code {ended['exitCode']}"
    return f"failed: {status.get('reason', 'no reason given')}{_colon(status)}"


def _restart(status: Object) -> PodState | None:
    """The state of a pod whose container Kubernetes restarts in the same pod; ``None`` if it does not."""
    for container in status.get("containerStatuses") or []:
        ended = (container.get("lastState") or {}).get("terminated") or {}
        if container.get("restartCount") and ended:
            why = f"{ended.get('reason', 'Error')}, exit code {ended.get('exitCode')}"
            return PodState(f"{RESTART} {container['restartCount']}", f"starts again after {why}")
    return None


def _condition(pod: Object, kind: str) -> Mapping[str, Any]:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), {})


def _colon(said: Mapping[str, Any]) -> str:
    return f": {said['message']}" if said.get("message") else ""


class PodLines:
    """Prints a line for each change of a pod's state, and for each new warning."""

    def __init__(self, name: str, notice: Callable[[str], None]) -> None:
        """``name`` is the name of the deployment."""
        self._name = name
        self._notice = notice
        self._pods: dict[str, tuple[str, str]] = {}
        """The role of a pod and the key of its state, keyed by the pod's name."""
        self._events: set[tuple[str, str]] = set()
        self.trouble = ""
        """The newest reason why a pod does not start."""

    def pods(self, pods: Mapping[str, Object]) -> list[Object]:
        """Compare the current pods with those of the last call, and print a line for each change.

        An image that cannot be pulled gets one line for all its pods. :attr:`trouble` names all of them. Returns the
        pods whose container has ended since, and is started again.
        """
        restarted = []
        for name, pod in sorted(pods.items()):
            what, state = pod_name(pod), state_of(pod)
            if self._pods.get(name) == (what, state.key):
                continue
            alike = [role for role, key in self._pods.values() if key == state.key]
            self._pods[name] = what, state.key
            if alike and state.key.startswith(UNPULLED):
                self.trouble = f"{', '.join([*alike, what])} {state.words}"
                continue
            self._notice(f"{what} {state.words}")
            if state.key.startswith(RESTART):
                restarted.append(pod)
            if state.key not in ("starting", "ready", "ended", "deleted"):
                self.trouble = f"{what} {state.words}"
        for name in self._pods.keys() - pods.keys():
            self._notice(f"{self._pods.pop(name)[0]} is gone")
        return restarted

    def events(self, events: Mapping[str, Object], since: str) -> None:
        """Print new warnings of this deployment since a time, which has the form of ``creationTimestamp``."""
        for event in events.values():
            about = event.get("involvedObject") or {}
            owner, reason = str(about.get("name", "")), str(event.get("reason", ""))
            is_ours = owner == self._name or owner.startswith(f"{self._name}-")
            at = (
                event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or ""
            )
            if not is_ours or reason in SAID_BY_PODS or at[:19] < since[:19] or (owner, reason) in self._events:
                continue
            self._events.add((owner, reason))
            message = str(event.get("message", ""))
            what = "the quota does not allow it: " if QUOTA in message else ""
            self.trouble = f"{about.get('kind', '')} {owner}: {reason}: {what}{message}"
            self._notice(self.trouble)
