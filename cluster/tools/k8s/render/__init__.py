"""Renders a scenario as manifests for Kubernetes with the KubeRay operator. Nothing here talks to a cluster."""

from __future__ import annotations

from cluster.scenario import Scenario
from cluster.tools.k8s.render.access import accounts
from cluster.tools.k8s.render.deployment import Deployment
from cluster.tools.k8s.render.load import load_workers
from cluster.tools.k8s.render.metadata import Manifest
from cluster.tools.k8s.render.monitoring import monitors
from cluster.tools.k8s.render.network import policies
from cluster.tools.k8s.render.objects import claims, disruption_budget, namespace, results_pod, scenario_file
from cluster.tools.k8s.render.ray_job import ray_job
from cluster.tools.k8s.render.soak import soak

__all__ = ["Deployment", "manifests", "results_pod", "soak_manifests"]


def manifests(scenario: Scenario, deployment: Deployment) -> list[Manifest]:
    """The manifests of all objects of a deployment, in the order of creation. Raises :class:`BadInput`."""
    found = [
        *_before_the_job(scenario, deployment),
        *disruption_budget(scenario, deployment),
        *load_workers(scenario, deployment),
        ray_job(scenario, deployment),
    ]
    if deployment.monitoring and deployment.is_live:
        found += monitors(scenario, deployment)
    return found


def soak_manifests(scenario: Scenario, deployment: Deployment) -> list[Manifest]:
    """The manifests of a nightly soak in the simulator; the deployment's command is ignored."""
    return [*_before_the_job(scenario, deployment), *soak(scenario, deployment)]


def _before_the_job(scenario: Scenario, deployment: Deployment) -> list[Manifest]:
    return [
        *([] if deployment.namespace is None else [namespace(deployment.namespace)]),
        *accounts(scenario, deployment),
        *scenario_file(deployment),
        *claims(scenario, deployment),
        *policies(scenario, deployment),
    ]
