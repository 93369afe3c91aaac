"""Objects for the Prometheus operator (ports to scrape, alerts to raise), and a dashboard for Grafana.

A host takes two consecutive ports for each of its validators: for peers, then for HTTP. In a host's dedicated pod
all ports are free, so the HTTP ports are known in advance.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from cluster.common.errors import BadInput
from cluster.live.nodes.ray_nodes import VALIDATORS
from cluster.report.alerts import Alert
from cluster.report.alerts import alerts as testnet_alerts
from cluster.report.grafana import STEP, Variable, dashboard
from cluster.scenario import Scenario
from consensus.types import quorum
from kits.kubernetes.names import HOST_LABEL, INSTANCE_LABEL, component_labels, dashboard_config_map
from kits.kubernetes.render.deployment import Deployment, Monitoring
from kits.kubernetes.render.metadata import Manifest, make
from kits.kubernetes.section import KubernetesSection, amount_of

FIRST_PORT: Final = 26_600
"""First port of a host's validators. It is below the ports that systems and Ray's workers take."""
PORTS_PER_VALIDATOR: Final = 2
DISK_SHARE: Final = 0.8
_API: Final = "monitoring.coreos.com/v1"
_INSTANCE: Final = "app_kubernetes_io_instance"
"""Name of the instance label in Prometheus."""
_TESTNET: Final = ("namespace", _INSTANCE)
"""Labels by which deployments differ: another namespace may have one of the same name."""
_SILENCE: Final = "10m"
"""Time without metrics after which the validators of pods that are still there count as lost."""
_VALIDATOR: Final = "host {{stampede_io_host}} {{endpoint}}"
"""Legend of a validator in a chart. It consists of labels that Prometheus adds: the host, and the name of the port,
which differs between the validators of a host."""
_DASHBOARD_LABEL: Final = {"grafana_dashboard": "1"}
"""Label of the ConfigMap with the dashboard. The sidecar of Grafana's Helm chart loads ConfigMaps with this label."""


def most_on_a_host(scenario: Scenario) -> int:
    """The number of validators on the fullest host."""
    section = scenario.validators
    return -(-section.count // section.host_count)


def port_range(scenario: Scenario) -> str:
    """The range of ports of a host's pod, in the form of the variable ``STAMPEDE_PORTS``."""
    return f"{FIRST_PORT}-{FIRST_PORT + PORTS_PER_VALIDATOR * most_on_a_host(scenario) - 1}"


def http_ports(scenario: Scenario) -> list[int]:
    """The ports at which the validators of a host serve HTTP."""
    return [FIRST_PORT + PORTS_PER_VALIDATOR * each + 1 for each in range(most_on_a_host(scenario))]


def http_port_name(position: int) -> str:
    """The name of a validator's HTTP port in the pod of its host; ``position`` is the validator's index on the host."""
    return f"http-{position}"


def monitors(scenario: Scenario, deployment: Deployment, settings: Monitoring) -> Iterator[Manifest]:
    """The PodMonitor of the validators, the alerts, and the dashboard.

    Raises :class:`BadInput` for a label that Stampede sets itself.
    """
    for each in _monitors(scenario, deployment, settings.runbooks):
        labels = each["metadata"]["labels"]
        for key in sorted(labels.keys() & settings.labels.keys() - _DASHBOARD_LABEL.keys()):
            raise BadInput(f"label {key}: Stampede sets it itself: expected another one")
        labels |= settings.labels
        yield each


def _monitors(scenario: Scenario, deployment: Deployment, runbooks: str | None) -> Iterator[Manifest]:
    endpoints = [
        {"port": http_port_name(each), "path": "/metrics", "interval": STEP}
        for each in range(len(http_ports(scenario)))
    ]
    yield make(
        _API,
        "PodMonitor",
        deployment.name,
        deployment,
        spec={
            "selector": {"matchLabels": component_labels(deployment.name, VALIDATORS)},
            "podTargetLabels": [INSTANCE_LABEL, HOST_LABEL],
            "podMetricsEndpoints": endpoints,
        },
    )
    rules = [each.rule(runbooks) for each in alerts(scenario, deployment)]
    spec = {"groups": [{"name": deployment.name, "interval": STEP, "rules": rules}]}
    yield make(_API, "PrometheusRule", deployment.name, deployment, spec=spec)
    page = {f"stampede-{deployment.name}.json": dashboard_text(deployment)}
    config = make("v1", "ConfigMap", dashboard_config_map(deployment.name), deployment, data=page)
    config["metadata"]["labels"] |= _DASHBOARD_LABEL
    yield config


def dashboard_text(deployment: Deployment) -> str:
    """The dashboard of a deployment, as JSON."""
    place = deployment.name if deployment.namespace is None else f"{deployment.namespace}/{deployment.name}"
    variables = (
        Variable("instance", _INSTANCE, deployment.name),
        Variable("namespace", "namespace", deployment.namespace),
    )
    return json.dumps(dashboard(f"Stampede {place}", variables, _VALIDATOR), indent=1) + "\n"


def alerts(scenario: Scenario, deployment: Deployment) -> Iterator[Alert]:
    """The alerts of a deployment, for each namespace that has one of this name.

    ``StampedeNoQuorum`` must be silent while a testnet starts, and after its end. Neither a validator nor its pod says
    that the run goes on, so this follows from what they serve:

    - A height above 0 is the work of a quorum. So a validator that serves one, next to too few others, has lost them.
      At the start all heights are 0. At the end the driver stops all validators within seconds.
    - If none serves, it may be the end: the driver judges the run, and a minute later its pods go. Prometheus then
      forgets them. Validators that served before, in pods that are still there after :data:`_SILENCE`, count as lost.
    """
    of = f'{{{_INSTANCE}="{deployment.name}"}}'
    needed = quorum(scenario.validators.count)
    testnet = f"({', '.join(_TESTNET)})"
    few = f"count by {testnet} (stampede_height{of}) < {needed} and max by {testnet} (stampede_height{of}) > 0"
    served = f"on (namespace, pod) max_over_time(stampede_height{of}[1h]) > 0"
    lately = f"on {testnet} max_over_time(stampede_height{of}[{_SILENCE}])"
    none = f"count by {testnet} (up{of} == 0 and {served} unless {lately})"
    disk = int(amount_of(KubernetesSection.of(scenario).validators.disk) * round(100 * DISK_SHARE) / 100)
    yield from testnet_alerts(of, _TESTNET, "pod")
    yield Alert(
        "StampedeNoQuorum",
        f"{few} or {none}",
        "1m",
        "critical",
        f"Fewer than {needed} of {scenario.validators.count} validators serve their metrics.",
    )
    if needed > 1:
        yield Alert(
            "StampedeFewPeers",
            f"stampede_peers{of} < {needed - 1}",
            "2m",
            "warning",
            "A validator is connected to fewer peers than a quorum needs.",
        )
    yield Alert(
        "StampedeDiskFills",
        f"sum by ({', '.join(_TESTNET)}, pod) (stampede_disk_bytes{of}) > {disk}",
        "5m",
        "warning",
        f"The validators of a host use more than {DISK_SHARE:.0%} of its volume.",
    )
