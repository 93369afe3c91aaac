"""The API of Kubernetes as a driver in a pod uses it: its deployment's pods, their nodes, and objects of Chaos Mesh.

The client is made when the first call needs it. No call takes long: the driver has a chain to watch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cluster.common.checkout import INSTANCE_VARIABLE, NAMESPACE_VARIABLE
from kits.kubernetes.client.errors import ClusterError
from kits.kubernetes.kinds import CHAOS_MESH, NODE, OF_CHAOS_MESH, POD
from kits.kubernetes.names import CORDONED_BY, HOST_LABEL, INSTANCE_LABEL

if TYPE_CHECKING:
    from kits.kubernetes.client.cluster import Cluster

TOKEN_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
SERVER_VARIABLE: Final = "KUBERNETES_SERVICE_HOST"
"""Environment variable that Kubernetes sets in every pod."""
GRACE_S: Final = 1
"""A pod that is deleted gets this long to end."""


class Pod(NamedTuple):
    """A pod that carries a host."""

    name: str
    uid: str
    node: str
    """Name of the Kubernetes node."""


class Eviction(Enum):
    """The result of an eviction."""

    BEGUN = "begun"
    GONE = "gone"
    """The pod no longer exists: evicted by an attempt whose answer was lost, or gone for another reason."""
    FORBIDDEN = "forbidden"
    """A disruption budget forbids it for now."""


def why_not_in_a_pod(environment: Mapping[str, str]) -> str:
    """Why this process cannot use the API of the cluster that it runs in; empty if it can."""
    for variable in (NAMESPACE_VARIABLE, INSTANCE_VARIABLE, SERVER_VARIABLE):
        if not environment.get(variable):
            return f"{variable} is not set"
    return "" if TOKEN_FILE.is_file() else f"there is no token at {TOKEN_FILE}"


def _in_a_pod() -> Cluster:
    from kits.kubernetes.client.cluster import in_a_pod

    return in_a_pod()


class Pods:
    """The API for one deployment. Every call raises :class:`ClusterError`."""

    def __init__(self, namespace: str, instance: str, connect: Callable[[], Cluster] = _in_a_pod) -> None:
        self.namespace = namespace
        self.instance = instance
        self._connect = connect

    @classmethod
    def of_this_pod(cls) -> Pods:
        return cls(os.environ[NAMESPACE_VARIABLE], os.environ[INSTANCE_VARIABLE])

    @cached_property
    def _cluster(self) -> Cluster:
        return self._connect()

    def check(self) -> None:
        """Check that the API answers, and that this pod may use it."""
        self._cluster.list(POD, self.namespace, {"labelSelector": f"{INSTANCE_LABEL}={self.instance}", "limit": 1})

    # --- pods ---------------------------------------------------------------------------------------------------------

    def pod_of(self, host: int) -> Pod:
        """The pod that carries a host."""
        labels = f"{INSTANCE_LABEL}={self.instance},{HOST_LABEL}={host}"
        listed = self._cluster.list(POD, self.namespace, {"labelSelector": labels}).get("items") or []
        pods = [pod for pod in listed if pod["metadata"].get("deletionTimestamp") is None]
        if len(pods) != 1:
            found = ", ".join(pod["metadata"]["name"] for pod in pods) or "none"
            raise ClusterError(f"expected one pod of host {host} ({labels}) in {self.namespace}, found {found}")
        meta, spec = pods[0]["metadata"], pods[0]["spec"]
        return Pod(meta["name"], meta["uid"], spec.get("nodeName") or "")

    def delete(self, pod: Pod) -> None:
        """Delete a pod, unless it is gone, or another pod has its name."""
        try:
            self._cluster.delete(POD, self.namespace, pod.name, _ending(pod))
        except ClusterError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise

    def evict(self, pod: Pod) -> Eviction:
        """Ask for the eviction of a pod."""
        try:
            self._cluster.evict(self.namespace, pod.name, _ending(pod))
        except ClusterError as error:
            if error.status == HTTPStatus.TOO_MANY_REQUESTS:
                return Eviction.FORBIDDEN
            if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                return Eviction.GONE
            raise
        return Eviction.BEGUN

    # --- nodes --------------------------------------------------------------------------------------------------------

    def is_open(self, node: str) -> bool:
        """Whether pods may be scheduled on a node."""
        found = self._cluster.get(NODE, "", node)
        return found is not None and not found["spec"].get("unschedulable")

    def cordon(self, node: str) -> None:
        """Cordon a node: no new pod is scheduled there."""
        self._cordon(node, True, f"{self.namespace}/{self.instance}")

    def uncordon(self, node: str) -> None:
        """Let pods be scheduled on a node again."""
        self._cordon(node, None, None)

    def _cordon(self, node: str, is_cordoned: bool | None, by: str | None) -> None:
        annotations = {"annotations": {CORDONED_BY: by}}
        self._cluster.patch(NODE, node, {"metadata": annotations, "spec": {"unschedulable": is_cordoned}})

    # --- Chaos Mesh ---------------------------------------------------------------------------------------------------

    def has_chaos_mesh(self) -> bool:
        """Whether the cluster knows the resources of Chaos Mesh."""
        return self._cluster.has(CHAOS_MESH)

    def begin_chaos(self, plural: str, chaos: Mapping[str, Any]) -> None:
        """Create an object of Chaos Mesh, unless it exists; its kind in lower case is ``plural``."""
        self._cluster.create(dict(chaos), OF_CHAOS_MESH[plural], self.namespace)

    def conditions_of(self, plural: str, name: str) -> dict[str, bool] | None:
        """The conditions of an object of Chaos Mesh, keyed by type; ``None`` if there is no such object."""
        found = self._cluster.get(OF_CHAOS_MESH[plural], self.namespace, name)
        if found is None:
            return None
        conditions = found.get("status", {}).get("conditions") or []
        return {each["type"]: each.get("status") == "True" for each in conditions}

    def end_chaos(self, plural: str, name: str) -> None:
        """Delete an object of Chaos Mesh, if it exists: its effect ends."""
        self._cluster.delete(OF_CHAOS_MESH[plural], self.namespace, name)


def _ending(pod: Pod) -> dict[str, Any]:
    """How a pod is deleted: soon, and not another one of its name."""
    return {"gracePeriodSeconds": GRACE_S, "preconditions": {"uid": pod.uid}}
