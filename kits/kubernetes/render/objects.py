"""Manifests of a deployment's namespace, scenario, volumes, disruption budget, and the pod that serves the results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cluster.common.errors import BadInput
from cluster.live.nodes.placement import hosts_to_place
from cluster.live.nodes.ray_nodes import VALIDATORS
from cluster.scenario import Scenario
from kits.kubernetes.names import (
    RESULTS,
    RUNS_PATH,
    SCENARIO_FILE,
    component_labels,
    host_claim,
    results_pod_name,
    runs_claim,
    scenario_config_map,
)
from kits.kubernetes.render.deployment import Deployment
from kits.kubernetes.render.metadata import Manifest, common_labels, labels_of, make
from kits.kubernetes.render.pods import claimed, container, pod, resources
from kits.kubernetes.section import KubernetesSection

MAX_SCENARIO_BYTES: Final = 1_000_000
DEFAULT_ACCOUNT: Final = "default"
"""The ServiceAccount that each namespace has."""
RESULTS_PORT: Final = 8000
RESULTS_LIFETIME_S: Final = 3_600


def namespace(name: str) -> Manifest:
    """The manifest of a namespace. It has no labels of a deployment, since several deployments may share it."""
    standard = "pod-security.kubernetes.io"
    security = {f"{standard}/enforce": "restricted", f"{standard}/warn": "restricted"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {**common_labels(), **security}},
    }


def scenario_file(deployment: Deployment) -> Iterator[Manifest]:
    """The ConfigMap of the scenario, if the command needs one. Raises :class:`BadInput` for one that is too long."""
    if deployment.scenario_text is not None:
        size = len(deployment.scenario_text.encode())
        if size > MAX_SCENARIO_BYTES:
            raise BadInput(
                f"{deployment.name}: the scenario has {size:,} bytes; expected at most {MAX_SCENARIO_BYTES:,}, which a"
                f" ConfigMap holds"
            )
        name, data = scenario_config_map(deployment.name), {SCENARIO_FILE: deployment.scenario_text}
        yield make("v1", "ConfigMap", name, deployment, data=data)


def claims(scenario: Scenario, deployment: Deployment) -> Iterator[Manifest]:
    """The claims of the volumes: one for the folders of runs and, in a live run, one for each host."""
    section = KubernetesSection.of(scenario)
    yield _claim(runs_claim(deployment.name), section.driver.disk, section, deployment)
    if deployment.is_live:
        for number in range(scenario.validators.host_count):
            yield _claim(host_claim(deployment.name, number), section.validators.disk, section, deployment)


def _claim(name: str, size: str, section: KubernetesSection, deployment: Deployment) -> Manifest:
    spec: Manifest = {"accessModes": ["ReadWriteOnce"]}
    if section.storage_class is not None:
        spec["storageClassName"] = section.storage_class
    spec["resources"] = {"requests": {"storage": size}}
    return make("v1", "PersistentVolumeClaim", name, deployment, spec=spec)


def disruption_budget(scenario: Scenario, deployment: Deployment) -> Iterator[Manifest]:
    """The PodDisruptionBudget that lets evictions stop at most ``f`` validators at a time.

    It states the number of pods that must stay. Kubernetes supports a number that may go only for some controllers.
    """
    if deployment.is_live:
        spec = {
            "minAvailable": scenario.validators.host_count - hosts_that_may_go(scenario),
            "selector": {"matchLabels": component_labels(deployment.name, VALIDATORS)},
        }
        yield make("policy/v1", "PodDisruptionBudget", f"{deployment.name}-validators", deployment, spec=spec)


def hosts_that_may_go(scenario: Scenario) -> int:
    """The largest number n of hosts such that any n hosts carry at most ``f`` validators together."""
    left, number = scenario.validators.withstood, 0
    for carried in sorted((len(host.validators) for host in hosts_to_place(scenario)), reverse=True):
        left -= carried
        if left < 0:
            break
        number += 1
    return number


def results_pod(section: KubernetesSection, deployment: Deployment) -> Manifest:
    """A pod that serves the volume of runs over HTTP, read-only, for an hour.

    It needs nothing of the deployment but the volume: its account is the namespace's own.
    """
    volume, mount = claimed(runs_claim(deployment.name), read_only=True)
    serving = container(
        "results",
        section,
        resources("100m", "128Mi", "128Mi"),
        [mount],
        command=["python", "-m", "http.server", str(RESULTS_PORT), "--directory", RUNS_PATH],
        ports=[{"name": "http", "containerPort": RESULTS_PORT}],
        readinessProbe={"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 2, "timeoutSeconds": 5},
        livenessProbe={"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 30, "timeoutSeconds": 10},
    )
    spec = pod(
        [serving],
        section,
        DEFAULT_ACCOUNT,
        "64Mi",
        [volume],
        restartPolicy="Never",
        activeDeadlineSeconds=RESULTS_LIFETIME_S,
        terminationGracePeriodSeconds=1,  # nothing is written; as process 1 the program ignores SIGTERM
    )
    found = make("v1", "Pod", results_pod_name(deployment.name), deployment, spec=spec)
    found["metadata"]["labels"] = labels_of(deployment, RESULTS)
    return found
