"""Tracks what faults change in a Kubernetes cluster, until the driver or its watchdog undoes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from kits.kubernetes.client.errors import ClusterError
from kits.kubernetes.faults.chaos import Deployment
from kits.kubernetes.faults.pods import Pods


class LeftLeftovers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of :class:`Leftovers`."""

    api: tuple[str, str] | None
    """Namespace and instance of the deployment; ``None`` if its API was not needed so far."""
    objects: dict[str, str]
    """Kinds of the objects of Chaos Mesh, keyed by name."""
    cordoned: dict[str, int]
    """Number of faults that cordon a node, keyed by node."""


class Leftovers:
    """The leftovers of one run: objects of Chaos Mesh, and cordoned nodes."""

    def __init__(
        self, api: Pods | None, notice: Callable[[str], None], tell: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """``tell`` gets the arguments of :func:`take_back` whenever they change, before the cluster is changed."""
        self.api = api
        """``None`` outside of Kubernetes, or if it was not needed so far."""
        self.tell = tell
        self._notice = notice
        self._objects: dict[str, str] = {}
        """Kinds of the objects of Chaos Mesh, in lower case, keyed by name."""
        self._cordoned: Counter[str] = Counter()
        """Number of faults that cordon a node, keyed by node."""

    @property
    def state(self) -> LeftLeftovers:
        """The state for another driver that takes the run over."""
        api = None if self.api is None else (self.api.namespace, self.api.instance)
        return LeftLeftovers(api, self._objects, dict(self._cordoned))

    def take_over(self, left: LeftLeftovers) -> None:
        """Restore the state that another driver left. Its API is connected again, unless there is one already."""
        if self.api is None and left.api is not None:
            self.api = Pods(*left.api)
        self._objects, self._cordoned = left.objects, Counter(left.cordoned)

    @property
    def deployment(self) -> Deployment:
        assert self.api is not None
        return Deployment(self.api.namespace, self.api.instance)

    def say(self) -> None:
        """Report all current leftovers to ``tell``. Each report is complete."""
        if self.api is not None:
            nodes = sorted(node for node, count in self._cordoned.items() if count >= 0)
            self.tell({**self.deployment._asdict(), "objects": dict(self._objects), "nodes": nodes})

    # --- objects of Chaos Mesh ----------------------------------------------------------------------------------------

    def create(self, kind: str, content: Mapping[str, Any]) -> None:
        """Create an object of Chaos Mesh, which is a leftover from now on. Raises :class:`ClusterError`."""
        assert self.api is not None
        self._objects[content["metadata"]["name"]] = kind  # even if the answer is lost
        self.say()
        self.api.begin_chaos(kind, content)

    def delete(self, name: str) -> None:
        """Delete an object of Chaos Mesh. If that fails, it is tried again at the end of the run."""
        assert self.api is not None
        try:
            self.api.end_chaos(self._objects[name], name)
        except ClusterError as error:
            self._notice(f"{self._objects[name]} {name} is still there: {error}")
        else:
            del self._objects[name]
            self.say()

    def conditions_of(self, kind: str, name: str) -> dict[str, bool] | None:
        """The conditions of an object; ``None`` if it is gone. Conditions that cannot be read now count as false."""
        assert self.api is not None
        try:
            return self.api.conditions_of(kind, name)
        except ClusterError:
            return {}

    # --- nodes --------------------------------------------------------------------------------------------------------

    def cordon(self, node: str) -> bool:
        """Cordon a node, unless another party has. Returns whether :meth:`uncordon` is to be called.

        Raises :class:`ClusterError`.
        """
        assert self.api is not None
        if not self._cordoned[node] and not self.api.is_open(node):
            return False
        self._cordoned[node] += 1
        self.say()
        if self._cordoned[node] == 1:
            try:
                self.api.cordon(node)
            except ClusterError:
                self.uncordon(node)  # the cordon may be in force, with its answer lost
                raise
        return True

    def uncordon(self, node: str) -> None:
        """End a fault's cordon of a node."""
        self._cordoned[node] -= 1
        if self._cordoned[node] <= 0 and self.api is not None:
            try:
                self.api.uncordon(node)
            except ClusterError as error:
                self._notice(f"node {node} still carries no new pods: {error}")
            else:
                del self._cordoned[node]
                self.say()

    # --- end ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Undo everything. Never raises."""
        for name in list(self._objects):
            self.delete(name)
        for node in [node for node, count in self._cordoned.items() if count >= 0]:
            self._cordoned[node] = 1
            self.uncordon(node)


def take_back(
    notice: Callable[[str], None], namespace: str, instance: str, objects: Mapping[str, str], nodes: Iterable[str]
) -> None:
    """Undo the leftovers that a killed driver had reported: objects, by name, and nodes. Never raises."""
    left = Leftovers(Pods(namespace, instance), notice, lambda facts: None)
    left._objects.update(objects)
    left._cordoned.update(nodes)
    left.close()
