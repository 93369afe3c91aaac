"""Locust workers in separate pods. The master is in the driver's pod, which has the plan and the endpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cluster.live.nodes.ray_nodes import LOAD
from cluster.scenario import Scenario
from kits.kubernetes.names import DRIVER, LOAD_PORT, component_labels, load_name
from kits.kubernetes.render.deployment import Deployment
from kits.kubernetes.render.metadata import Manifest, labels_of, make
from kits.kubernetes.render.pods import container, pod, resources
from kits.kubernetes.section import KubernetesSection
from loadgen.runplan import LOCUSTFILE_OF_THE_MASTER

WORKER: Final = "load-worker"
TMP, SCRATCH = "256Mi", "512Mi"


def has_workers(scenario: Scenario, deployment: Deployment) -> bool:
    """Whether the deployment has Locust workers in separate pods."""
    load, pods = scenario.load, KubernetesSection.of(scenario).load.pods
    return deployment.is_live and pods > 0 and not load.is_empty and not load.external


def _locustfile(scenario: Scenario) -> str:
    return "loadgen/locustfile.py" if scenario.load.locust is None else LOCUSTFILE_OF_THE_MASTER


def load_workers(scenario: Scenario, deployment: Deployment) -> Iterator[Manifest]:
    """The Deployment of the workers, and the Service by which they find their master."""
    if not has_workers(scenario, deployment):
        return
    section, name = KubernetesSection.of(scenario), load_name(deployment.name)
    asked = section.load
    yield make(
        "v1",
        "Service",
        name,
        deployment,
        spec={
            "selector": component_labels(deployment.name, DRIVER),
            "ports": [{"name": LOAD, "port": LOAD_PORT, "targetPort": LOAD}],
        },
    )
    worker = container(
        WORKER,
        section,
        resources(asked.cpu, asked.memory, SCRATCH),
        command=[
            *("python", "-m", "locust", "--locustfile", _locustfile(scenario), "--worker", "--loglevel", "WARNING"),
            *("--master-host", name, "--master-port", str(LOAD_PORT)),
        ],
    )
    yield make(
        "apps/v1",
        "Deployment",
        name,
        deployment,
        spec={
            "replicas": asked.pods,
            "selector": {"matchLabels": component_labels(deployment.name, LOAD)},
            "template": {
                "metadata": {"labels": labels_of(deployment, LOAD)},
                "spec": pod([worker], section, deployment.name, TMP),
            },
        },
    )
