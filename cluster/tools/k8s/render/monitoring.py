"""Objects for the Prometheus operator (ports to scrape, alerts to raise), and a dashboard for Grafana.

A host takes two consecutive ports for each of its validators: for peers, then for HTTP. In a host's dedicated pod
all ports are free, so the HTTP ports are known in advance.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from cluster.live.kubernetes.names import (
    HOST_LABEL,
    INSTANCE_LABEL,
    VALIDATORS,
    component_labels,
    dashboard_config_map,
)
from cluster.report.alerts import Alert
from cluster.report.alerts import alerts as testnet_alerts
from cluster.report.dashboard import STEP, Variable, dashboard
from cluster.scenario import Scenario
from cluster.scenario.sections.kubernetes import amount_of
from cluster.tools.k8s.render.deployment import Deployment
from cluster.tools.k8s.render.metadata import Manifest, make
from consensus.types import quorum

FIRST_PORT: Final = 26_600
"""First port of a host's validators. It is below the ports that systems and Ray's workers take."""
PORTS_PER_VALIDATOR: Final = 2
DISK_SHARE: Final = 0.8
_API: Final = "monitoring.coreos.com/v1"
_INSTANCE: Final = "app_kubernetes_io_instance"
"""Name of the instance label in Prometheus."""
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


def monitors(scenario: Scenario, deployment: Deployment) -> Iterator[Manifest]:
    """The PodMonitor of the validators, the alerts, and the dashboard."""
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
    rules = [each.rule for each in alerts(scenario, deployment)]
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
    """The alerts of a deployment.

    Expressions select the namespace if it is known, since another namespace may have a deployment of the same name.
    """
    where = "" if deployment.namespace is None else f', namespace="{deployment.namespace}"'
    of = f'{{{_INSTANCE}="{deployment.name}"{where}}}'
    needed = quorum(scenario.validators.count)
    disk = int(amount_of(scenario.kubernetes.validators.disk) * round(100 * DISK_SHARE) / 100)
    yield from testnet_alerts(of, [], "pod")
    yield Alert(
        "StampedeNoQuorum",
        f"(count(stampede_height{of}) or vector(0)) < {needed}",
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
        f"sum by (pod) (stampede_disk_bytes{of}) > {disk}",
        "5m",
        "warning",
        f"The validators of a host use more than {DISK_SHARE:.0%} of its volume.",
    )
