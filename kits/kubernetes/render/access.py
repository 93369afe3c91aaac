"""The service accounts of a deployment: one without rights for all pods, and one for pods that use the Kubernetes API.

Two clients use that API. One is a driver whose scenario has a fault with ``how: pod``, ``node`` or ``chaos-mesh``, or
allows such faults to be added (``kubernetes.inject``). The other is Ray's autoscaler in the driver's pod of a sweep;
KubeRay makes its role.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, get_args

from cluster.common.errors import BadInput
from cluster.scenario import Scenario
from kits.kubernetes.kinds import NETWORK_CHAOS, OF_CHAOS_MESH
from kits.kubernetes.names import driver_account
from kits.kubernetes.render.deployment import Deployment
from kits.kubernetes.render.metadata import Manifest, make
from kits.kubernetes.section import KubernetesSection, Means

BY_NODE: Final = "node"
BY_CHAOS_MESH: Final = "chaos-mesh"
_ROLES: Final = "rbac.authorization.k8s.io"


def ways_by_kubernetes(scenario: Scenario) -> set[str]:
    """Those values of ``how``, of faults that the scenario has or allows, that need the Kubernetes API."""
    ways = {getattr(fault, "how", None) for fault in scenario.faults} | set(KubernetesSection.of(scenario).inject)
    return set(get_args(Means)).intersection(ways)


def needs_api(scenario: Scenario, deployment: Deployment) -> bool:
    """Whether the driver talks to the Kubernetes API."""
    return deployment.is_live and bool(ways_by_kubernetes(scenario))


def driver_account_of(scenario: Scenario, deployment: Deployment) -> str:
    """The name of the ServiceAccount of the driver's pod."""
    has_own = deployment.is_sweep or needs_api(scenario, deployment)
    return driver_account(deployment.name) if has_own else deployment.name


def accounts(scenario: Scenario, deployment: Deployment) -> Iterator[Manifest]:
    """The ServiceAccounts, and the roles of the driver's account. Raises :class:`BadInput`."""
    name = driver_account_of(scenario, deployment)
    for each in dict.fromkeys((deployment.name, name)):
        yield make("v1", "ServiceAccount", each, deployment, automountServiceAccountToken=False)
    if needs_api(scenario, deployment):
        ways = ways_by_kubernetes(scenario)
        yield from role(name, list(_rules(ways)), deployment)
        if BY_NODE in ways:
            yield from _node_role(name, deployment)


def role(account: str, rules: list[Manifest], deployment: Deployment) -> Iterator[Manifest]:
    """A role of an account's name, and its binding to the account."""
    yield make(f"{_ROLES}/v1", "Role", account, deployment, rules=rules)
    yield _binding("Role", account, account, deployment)


def _rules(ways: set[str]) -> Iterator[Manifest]:
    yield {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "delete"]}
    yield {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}
    if BY_CHAOS_MESH in ways:
        verbs = ["get", "create", "delete"]
        yield {"apiGroups": [NETWORK_CHAOS.group], "resources": list(OF_CHAOS_MESH), "verbs": verbs}


def _node_role(account: str, deployment: Deployment) -> Iterator[Manifest]:
    """A cluster-wide role over nodes, which have no namespace, and its binding to the account.

    Their name contains the account's namespace, so that it is unique in the cluster.
    """
    if deployment.namespace is None:
        raise BadInput("faults with how: node need a role over nodes, bound in a namespace: give --namespace")
    name = f"{deployment.namespace}-{account}"
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}]
    yield make(f"{_ROLES}/v1", "ClusterRole", name, deployment, is_namespaced=False, rules=rules)
    yield _binding("ClusterRole", name, account, deployment)


def _binding(kind: str, role: str, account: str, deployment: Deployment) -> Manifest:
    subject = {"kind": "ServiceAccount", "name": account}
    if deployment.namespace is not None:
        subject["namespace"] = deployment.namespace
    return make(
        f"{_ROLES}/v1",
        f"{kind}Binding",
        role,
        deployment,
        is_namespaced=kind == "Role",
        roleRef={"apiGroup": _ROLES, "kind": kind, "name": role},
        subjects=[subject],
    )
