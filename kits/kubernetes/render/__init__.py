"""Renders a scenario as manifests for Kubernetes with the KubeRay operator. Nothing here talks to a cluster.

Scenarios take seconds to load: commands that need only a deployment's name do not import them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kits.kubernetes.render.deployment import Deployment, Monitoring
from kits.kubernetes.render.metadata import Manifest

if TYPE_CHECKING:
    from cluster.scenario import Scenario

__all__ = ["Deployment", "Monitoring", "manifests", "scheduled_manifests", "soak_manifests"]


def manifests(scenario: Scenario, deployment: Deployment) -> list[Manifest]:
    """The manifests of all objects of a deployment, in the order of creation. Raises :class:`BadInput`."""
    from kits.kubernetes.render.load import load_workers
    from kits.kubernetes.render.monitoring import monitors
    from kits.kubernetes.render.objects import disruption_budget
    from kits.kubernetes.render.ray_job import ray_job

    found = [
        *_before_the_job(scenario, deployment),
        *disruption_budget(scenario, deployment),
        *load_workers(scenario, deployment),
        ray_job(scenario, deployment),
    ]
    if deployment.monitoring and deployment.is_live:
        found += monitors(scenario, deployment, deployment.monitoring)
    return found


def soak_manifests(scenario: Scenario, deployment: Deployment, schedule: str | None = None) -> list[Manifest]:
    """The manifests of a soak in the simulator, by default every night; the deployment's command is ignored."""
    from kits.kubernetes.render.cron_job import SCHEDULE, soak

    return [*_before_the_job(scenario, deployment), soak(scenario, deployment, schedule or SCHEDULE)]


def scheduled_manifests(
    scenario: Scenario,
    deployment: Deployment,
    command: str,
    made: Sequence[Manifest],
    schedule: str,
    rules: list[Manifest],
) -> list[Manifest]:
    """The manifests of a schedule for a command that makes a deployment with the manifests ``made``.

    ``rules`` are the rights that the command needs.
    """
    from kits.kubernetes.render.access import role
    from kits.kubernetes.render.cron_job import scheduled
    from kits.kubernetes.render.network import reaching_api

    (job,) = (each for each in made if each["kind"] == "RayJob")
    return [
        *_before_the_job(scenario, deployment),
        *role(deployment.name, rules, deployment),
        reaching_api(deployment),
        scheduled(scenario, deployment, command, job["spec"]["activeDeadlineSeconds"], schedule),
    ]


def _before_the_job(scenario: Scenario, deployment: Deployment) -> list[Manifest]:
    from kits.kubernetes.render.access import accounts
    from kits.kubernetes.render.network import policies
    from kits.kubernetes.render.objects import claims, namespace, scenario_file

    return [
        *([] if deployment.namespace is None else [namespace(deployment.namespace)]),
        *accounts(scenario, deployment),
        *scenario_file(deployment),
        *claims(scenario, deployment),
        *policies(scenario, deployment),
    ]
