"""The network policies of a deployment: its pods reach only each other, with a few exceptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cluster.live.nodes.ray_nodes import VALIDATORS
from cluster.scenario import Scenario
from kits.kubernetes.names import DRIVER, component_labels, instance_labels
from kits.kubernetes.render.access import needs_api
from kits.kubernetes.render.deployment import Deployment
from kits.kubernetes.render.metadata import Manifest, make
from kits.kubernetes.render.monitoring import http_ports
from kits.kubernetes.section import KubernetesSection

JOB_SERVER_PORT: Final = 8265
DNS_PORT: Final = 53
API_PORTS: Final = (443, 6443)
"""Ports of the API server: that of its Service, and the server's own port, which network plugins see."""
OPERATOR: Final = {"app.kubernetes.io/component": "kuberay-operator"}
"""Label of the KubeRay operator's pods. Both the operator's manifests and its Helm chart set it."""
PROMETHEUS: Final = {"app.kubernetes.io/name": "prometheus"}
_API: Final = "networking.k8s.io/v1"


def policies(scenario: Scenario, deployment: Deployment) -> Iterator[Manifest]:
    """The NetworkPolicies of a deployment."""
    ours = {"podSelector": {"matchLabels": instance_labels(deployment.name)}}
    dns = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    yield make(
        _API,
        "NetworkPolicy",
        f"{deployment.name}-confined",
        deployment,
        spec={
            **ours,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [dict(ours)]}],
            "egress": [{"to": [dict(ours)]}, {"to": [dns], "ports": _ports("UDP", DNS_PORT) + _ports("TCP", DNS_PORT)}],
        },
    )
    if deployment.command:
        yield _lets_in(deployment, DRIVER, "operator", OPERATOR, [JOB_SERVER_PORT])
    if deployment.monitoring and deployment.is_live:
        yield _lets_in(deployment, VALIDATORS, "prometheus", PROMETHEUS, http_ports(scenario))
    if deployment.is_sweep or needs_api(scenario, deployment):
        yield reaching_api(deployment)
    if (section := KubernetesSection.of(scenario)).results is not None:
        yield _lets_out(deployment, "results", [section.results_port])


def reaching_api(deployment: Deployment) -> Manifest:
    """The NetworkPolicy that lets the driver reach the API server."""
    return _lets_out(deployment, "api", API_PORTS)


def _lets_out(deployment: Deployment, whither: str, ports: Sequence[int]) -> Manifest:
    """The NetworkPolicy that lets the driver reach ports anywhere."""
    return _policy(deployment, DRIVER, whither, "Egress", ports)


def _lets_in(deployment: Deployment, component: str, who: str, labels: dict[str, str], ports: list[int]) -> Manifest:
    """The NetworkPolicy that lets pods with the given labels, in any namespace, reach ports of a component."""
    peers = [{"namespaceSelector": {}, "podSelector": {"matchLabels": dict(labels)}}]
    return _policy(deployment, component, who, "Ingress", ports, **{"from": peers})


def _policy(
    deployment: Deployment, component: str, suffix: str, direction: str, ports: Sequence[int], **peers: object
) -> Manifest:
    """The NetworkPolicy that allows connections of a component to ports, in one direction."""
    spec = {
        "podSelector": {"matchLabels": component_labels(deployment.name, component)},
        "policyTypes": [direction],
        direction.lower(): [{**peers, "ports": _ports("TCP", *ports)}],
    }
    return make(_API, "NetworkPolicy", f"{deployment.name}-{suffix}", deployment, spec=spec)


def _ports(protocol: str, *ports: int) -> list[Manifest]:
    return [{"protocol": protocol, "port": port} for port in ports]
