"""The Kubernetes API that a driver in a pod needs: its deployment's pods, the nodes that carry them, and Chaos Mesh.

The official client is imported only once it is needed. No call waits longer than some seconds: the driver has a chain
to watch. Transient failures (429, 5xx, no connection) are retried a few times.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from cluster.common.checkout import NAMESPACE_VARIABLE, NO_PROXY
from cluster.common.errors import HarnessError
from cluster.live.kubernetes.names import CORDONED_BY, HOST_LABEL, INSTANCE_LABEL, INSTANCE_VARIABLE
from loadgen.client import reason_of

TOKEN_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
SERVER_VARIABLE: Final = "KUBERNETES_SERVICE_HOST"
"""Environment variable that Kubernetes sets in every pod."""
GRACE_S: Final = 1
"""A pod that is deleted gets this long to end."""
TIMEOUT_S: Final = (3.0, 5.0)
"""Timeouts to connect, and to answer."""
ATTEMPTS: Final = 4
PAUSE_S: Final = 0.25
"""Pause before the second attempt; doubled before each further one."""
MISSING, CONFLICT, TOO_MANY, SERVER_ERROR = 404, 409, 429, 500
CHAOS_GROUP: Final = "chaos-mesh.org"
CHAOS_VERSION: Final = "v1alpha1"


class KubernetesError(HarnessError):
    """The API refused something, or did not answer. The message is one line."""


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


def client_in_a_pod() -> Any:
    """The client of the cluster that this process runs in. Raises :class:`KubernetesError`."""
    from kubernetes import client, config

    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException as error:
        raise KubernetesError(f"the Kubernetes API cannot be used: {error}") from None
    configuration.no_proxy = os.environ.get(NO_PROXY)  # the library reads it and forgets it
    configuration.retries = False  # urllib3 would repeat each attempt three times, silently
    return client.ApiClient(configuration)


class KubernetesApi:
    """The API for one deployment. Every call raises :class:`KubernetesError`."""

    def __init__(
        self,
        namespace: str,
        instance: str,
        connect: Callable[[], Any] = client_in_a_pod,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """``connect`` makes a client when the first call needs one; ``wait(seconds)`` pauses."""
        self.namespace = namespace
        self.instance = instance
        self._connect = connect
        self._wait = wait
        self._client: Any = None

    @classmethod
    def of_this_pod(cls) -> KubernetesApi:
        return cls(os.environ[NAMESPACE_VARIABLE], os.environ[INSTANCE_VARIABLE])

    def check(self) -> None:
        """Check that the API answers, and that this pod may use it."""
        self._call("list_namespaced_pod", self.namespace, label_selector=f"{INSTANCE_LABEL}={self.instance}", limit=1)

    # --- pods ---------------------------------------------------------------------------------------------------------

    def pod_of(self, host: int) -> Pod:
        """The pod that carries a host."""
        labels = f"{INSTANCE_LABEL}={self.instance},{HOST_LABEL}={host}"
        listed = self._call("list_namespaced_pod", self.namespace, label_selector=labels)
        pods = [pod for pod in listed.items if pod.metadata.deletion_timestamp is None]
        if len(pods) != 1:
            found = ", ".join(pod.metadata.name for pod in pods) or "none"
            raise KubernetesError(f"expected one pod of host {host} ({labels}) in {self.namespace}, found {found}")
        (pod,) = pods
        return Pod(pod.metadata.name, pod.metadata.uid, pod.spec.node_name or "")

    def delete(self, pod: Pod) -> None:
        """Delete a pod, unless it is gone, or another pod has its name."""
        self._call("delete_namespaced_pod", pod.name, self.namespace, body=_ending(pod), accepted=(MISSING, CONFLICT))

    def evict(self, pod: Pod) -> Eviction:
        """Ask for the eviction of a pod."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": self.namespace},
            "deleteOptions": _ending(pod),
        }
        name = "create_namespaced_pod_eviction"
        accepted = (MISSING, CONFLICT, TOO_MANY)
        answer = self._call(name, pod.name, self.namespace, body, accepted=accepted)
        return {MISSING: Eviction.GONE, CONFLICT: Eviction.GONE, TOO_MANY: Eviction.FORBIDDEN}.get(
            answer if isinstance(answer, int) else 0, Eviction.BEGUN
        )

    # --- nodes --------------------------------------------------------------------------------------------------------

    def is_open(self, node: str) -> bool:
        """Whether pods may be scheduled on a node."""
        return not self._call("read_node", node).spec.unschedulable

    def cordon(self, node: str) -> None:
        """Cordon a node: no new pod is scheduled there."""
        self._cordon(node, True, f"{self.namespace}/{self.instance}")

    def uncordon(self, node: str) -> None:
        """Let pods be scheduled on a node again."""
        self._cordon(node, None, None)

    def _cordon(self, node: str, is_cordoned: bool | None, by: str | None) -> None:
        annotations = {"annotations": {CORDONED_BY: by}}
        self._call("patch_node", node, {"metadata": annotations, "spec": {"unschedulable": is_cordoned}})

    # --- Chaos Mesh ---------------------------------------------------------------------------------------------------

    def has_chaos_mesh(self) -> bool:
        """Whether the cluster knows the resources of Chaos Mesh."""
        found = self._call("get_api_resources", CHAOS_GROUP, CHAOS_VERSION, of="CustomObjectsApi", accepted=(MISSING,))
        return found != MISSING

    def begin_chaos(self, plural: str, chaos: Mapping[str, Any]) -> None:
        """Create an object of Chaos Mesh; its kind in lower case is ``plural``."""
        self._chaos("create", plural, dict(chaos), accepted=(CONFLICT,))  # from an attempt whose answer was lost

    def conditions_of(self, plural: str, name: str) -> dict[str, bool] | None:
        """The conditions of an object of Chaos Mesh, keyed by type; ``None`` if there is no such object."""
        found = self._chaos("get", plural, name, accepted=(MISSING,))
        if found == MISSING:
            return None
        conditions = found.get("status", {}).get("conditions") or []
        return {each["type"]: each.get("status") == "True" for each in conditions}

    def end_chaos(self, plural: str, name: str) -> None:
        """Delete an object of Chaos Mesh, if it exists: its effect ends."""
        self._chaos("delete", plural, name, accepted=(MISSING,))

    # --- calls --------------------------------------------------------------------------------------------------------

    def _chaos(self, verb: str, plural: str, argument: object, accepted: tuple[int, ...]) -> Any:
        place = (CHAOS_GROUP, CHAOS_VERSION, self.namespace, plural, argument)
        return self._call(f"{verb}_namespaced_custom_object", *place, of="CustomObjectsApi", accepted=accepted)

    def _call(
        self, method: str, *arguments: object, of: str = "CoreV1Api", accepted: tuple[int, ...] = (), **options: object
    ) -> Any:
        """Call a method of the client. Returns its answer, or its HTTP status if that is one of ``accepted``."""
        from kubernetes import client
        from urllib3.exceptions import HTTPError

        if self._client is None:
            self._client = self._connect()
        call = getattr(getattr(client, of)(self._client), method)
        pause_s = PAUSE_S
        for attempt in range(ATTEMPTS):
            try:
                return call(*arguments, **options, _request_timeout=TIMEOUT_S)
            except client.ApiException as error:
                if error.status in accepted:
                    return error.status
                problem, is_brief = _said(error), error.status == TOO_MANY or (error.status or 0) >= SERVER_ERROR
            except HTTPError as error:
                problem, is_brief = reason_of(error), True
            if not is_brief or attempt == ATTEMPTS - 1:
                break
            self._wait(pause_s)
            pause_s *= 2
        raise KubernetesError(f"Kubernetes: {method}: {problem}")


def _ending(pod: Pod) -> dict[str, Any]:
    """How a pod is deleted: soon, and not another one of its name."""
    return {"gracePeriodSeconds": GRACE_S, "preconditions": {"uid": pod.uid}}


def _said(error: Any) -> str:
    """The HTTP status of an error and the server's reason, in one line."""
    try:
        said = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):
        said = ""
    words = f"{error.status} {error.reason}"
    return " ".join(f"{words}: {said}".split()) if said else words
