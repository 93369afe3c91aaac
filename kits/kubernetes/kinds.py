"""The kinds of objects that a deployment consists of, and the addresses of their API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of Kubernetes object, and the address of its API."""

    api: str
    """The ``apiVersion`` of manifests of this kind."""
    name: str
    plural: str
    is_namespaced: bool = True
    is_optional: bool = False
    """Whether a cluster may lack this kind, because a deployment works without it."""

    @property
    def group(self) -> str:
        """The group of the API; empty for that of Kubernetes' first kinds."""
        return self.api.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """The name that ``kubectl`` uses, such as ``rayjobs.ray.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


NAMESPACE: Final = Kind("v1", "Namespace", "namespaces", is_namespaced=False)
NODE: Final = Kind("v1", "Node", "nodes", is_namespaced=False)
POD: Final = Kind("v1", "Pod", "pods")
EVENT: Final = Kind("v1", "Event", "events")
CONFIG_MAP: Final = Kind("v1", "ConfigMap", "configmaps")
CLAIM: Final = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
REVIEW: Final = Kind(
    "authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", is_namespaced=False
)
RAY_JOB: Final = Kind("ray.io/v1", "RayJob", "rayjobs")

_RBAC: Final = "rbac.authorization.k8s.io/v1"
_MONITORING: Final = "monitoring.coreos.com/v1"
CHAOS_MESH: Final = "chaos-mesh.org/v1alpha1"

NETWORK_CHAOS: Final = Kind(CHAOS_MESH, "NetworkChaos", "networkchaos", is_optional=True)
POD_CHAOS: Final = Kind(CHAOS_MESH, "PodChaos", "podchaos", is_optional=True)
STRESS_CHAOS: Final = Kind(CHAOS_MESH, "StressChaos", "stresschaos", is_optional=True)
OF_CHAOS_MESH: Final = {kind.plural: kind for kind in (NETWORK_CHAOS, POD_CHAOS, STRESS_CHAOS)}
"""The kinds of Chaos Mesh, by plural."""
CRON_JOB: Final = Kind("batch/v1", "CronJob", "cronjobs", is_optional=True)
CLUSTER_ROLE: Final = Kind(_RBAC, "ClusterRole", "clusterroles", is_namespaced=False, is_optional=True)

DELETED: Final = (
    CRON_JOB,
    RAY_JOB,
    *OF_CHAOS_MESH.values(),
    Kind(_MONITORING, "PodMonitor", "podmonitors", is_optional=True),
    Kind(_MONITORING, "PrometheusRule", "prometheusrules", is_optional=True),
    Kind("apps/v1", "Deployment", "deployments", is_optional=True),
    POD,
    Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    CONFIG_MAP,
    Kind("v1", "Secret", "secrets", is_optional=True),
    Kind("v1", "Service", "services", is_optional=True),
    Kind(_RBAC, "RoleBinding", "rolebindings", is_optional=True),
    Kind(_RBAC, "Role", "roles", is_optional=True),
    Kind(_RBAC, "ClusterRoleBinding", "clusterrolebindings", is_namespaced=False, is_optional=True),
    CLUSTER_ROLE,
    Kind("v1", "ServiceAccount", "serviceaccounts"),
    CLAIM,
)
"""The kinds of a deployment's objects, in the order in which they are deleted. The namespace is not among them, since
it may hold other objects."""

_KNOWN: Final = {(kind.api, kind.name): kind for kind in (NAMESPACE, *DELETED)}


def kind_of(manifest: dict[str, object]) -> Kind:
    """The kind of a manifest. Raises :class:`KeyError` for a kind that no deployment has."""
    return _KNOWN[str(manifest["apiVersion"]), str(manifest["kind"])]
