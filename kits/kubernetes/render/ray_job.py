"""The RayJob of a deployment. KubeRay starts its Ray cluster, submits the driver to the head, and deletes the cluster
afterwards.

- The head runs the driver and no validators: it is the only node without a role (:mod:`cluster.live.nodes`).
- Each host has a worker group of one pod, with a separate volume and Ray resource. A pod that replaces a lost one has
  the same volume and resource, so the host finds its disk again.
- The seeds of a sweep have a separate worker group, which Ray's autoscaler scales.
- Ray refuses clients without the token that KubeRay makes for the cluster.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any, Final

from cluster.commands.sweeps.seed_pods import SEED_PODS_VARIABLE
from cluster.common.checkout import INSTANCE_VARIABLE
from cluster.common.errors import BadInput
from cluster.live.nodes.placement import hosts_to_place
from cluster.live.nodes.ray_nodes import LOAD, REGION_LABELS, RESOURCE_PREFIX, SEEDS, VALIDATORS, host_resource
from cluster.live.web.addresses import LOAD_LISTEN_VARIABLE, LOAD_WORKERS_VARIABLE, PORTS_VARIABLE
from cluster.scenario import Scenario
from cluster.scenario.code.gate import option_for
from kits.kubernetes.names import (
    DRIVER,
    HOST_LABEL,
    LOAD_PORT,
    SUBMITTER,
    component_labels,
    host_claim,
    host_group,
    runs_claim,
)
from kits.kubernetes.render.access import driver_account_of, needs_api
from kits.kubernetes.render.deployment import Deployment
from kits.kubernetes.render.load import has_workers
from kits.kubernetes.render.metadata import Manifest, labels_of, make
from kits.kubernetes.render.monitoring import http_port_name, http_ports, port_range
from kits.kubernetes.render.network import JOB_SERVER_PORT
from kits.kubernetes.render.pods import (
    bucket_access,
    bucket_address,
    claimed,
    container,
    own_namespace,
    pod,
    projected_token,
    resources,
    uploading,
    variable,
    whole_processors,
    with_scenario,
)
from kits.kubernetes.section import Cpu, KubernetesSection, Memory, amount_of, check_label_value

SWEEP_DEADLINE_S: Final = 86_400
TTL_S: Final = 60
"""Time after the end of the job until its Ray cluster is deleted."""
IDLE_S: Final = 60
"""A pod for seeds without work is removed after this time."""

MAX_OBJECT_STORE: Final = 256 * 1024**2
OBJECT_STORE_SHARE: Final = 4
"""Ray's object store gets a pod's memory divided by this number, at most :data:`MAX_OBJECT_STORE`."""
DRIVER_TMP, DRIVER_SCRATCH = "2Gi", "4Gi"
WORKER_TMP, WORKER_SCRATCH = "1Gi", "2Gi"
SUBMITTER_TMP, SUBMITTER_SCRATCH = "128Mi", "256Mi"
AGENT_PORT: Final = 52_365
"""Port of Ray's agent on each node. The agent's health page needs no token."""
RAYLET_WAIT_S: Final = 75
"""Time after which ``ray start`` gives up on its raylet; Ray's default is 30 s. A raylet waits at most 15 s for each of
four ports of its agents, one after the other, and then dies unnoticed. A port that is fixed takes its time away from
the others. Source: https://github.com/ray-project/ray/issues/65983."""


def ray_job(scenario: Scenario, deployment: Deployment) -> Manifest:
    """The manifest of a deployment's RayJob."""
    words = (*uploading(KubernetesSection.of(scenario), deployment.name), "stampede", *deployment.command)
    spec: Manifest = {
        "submissionMode": "K8sJobMode",
        "entrypoint": shlex.join(words) + option_for(scenario, is_copy=True),
        # A failed run is a finding, so it is not repeated.
        "backoffLimit": 0,
        "submitterConfig": {"backoffLimit": 0},
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": TTL_S,
        "submitterPodTemplate": _submitter(scenario, deployment),
        "rayClusterSpec": _ray_cluster(scenario, deployment),
    }
    if (deadline_s := _deadline_s(scenario, deployment)) is not None:
        spec["activeDeadlineSeconds"] = deadline_s
    return make("ray.io/v1", "RayJob", deployment.name, deployment, spec=spec)


def _deadline_s(scenario: Scenario, deployment: Deployment) -> int | None:
    """Time limit of the job; ``None`` if it runs until it is stopped."""
    if deployment.is_endless:
        return None
    return SWEEP_DEADLINE_S if deployment.is_sweep else scenario.stop.longest_s + deployment.start_timeout_s


def _ray_cluster(scenario: Scenario, deployment: Deployment) -> Manifest:
    groups: list[Manifest] = []
    if deployment.is_live:
        groups += _host_groups(scenario, deployment)
    scaled: Manifest = {}
    if deployment.is_sweep:
        groups.append(_seed_group(scenario, deployment))
        scaled = {"enableInTreeAutoscaling": True, "autoscalerOptions": _autoscaler(scenario)}
    return {
        "rayVersion": version("ray"),
        "authOptions": {"mode": "token"},
        **scaled,
        "headGroupSpec": _head(scenario, deployment),
        "workerGroupSpecs": groups,
    }


# --- pods -----------------------------------------------------------------------------------------------------------


def _template(deployment: Deployment, component: str, spec: Manifest, **labels: str) -> Manifest:
    return {"metadata": {"labels": {**labels_of(deployment, component), **labels}}, "spec": spec}


def _submitter(scenario: Scenario, deployment: Deployment) -> Manifest:
    section = KubernetesSection.of(scenario)
    asked = resources("500m", "512Mi", SUBMITTER_SCRATCH)
    spec = pod(
        [container("ray-job-submitter", section, asked)],
        section,
        deployment.name,
        SUBMITTER_TMP,
        restartPolicy="Never",
    )
    return _template(deployment, SUBMITTER, spec)


def _head(scenario: Scenario, deployment: Deployment) -> Manifest:
    section = KubernetesSection.of(scenario)
    runs, runs_mount = claimed(runs_claim(deployment.name))
    volumes, mounts = [runs], [runs_mount]
    if deployment.scenario_text is not None:
        scenario_volume, scenario_mount = with_scenario(deployment.name)
        volumes.append(scenario_volume)
        mounts.append(scenario_mount)
    if deployment.is_sweep:
        volumes.append(projected_token("autoscaler-token")[0])
    env = [
        own_namespace(),
        variable(INSTANCE_VARIABLE, deployment.name),
        *bucket_address(section),
    ]
    if deployment.is_sweep:
        env.append(variable(SEED_PODS_VARIABLE, str(section.seeds.pods)))
    ports = [("gcs-server", 6379), ("dashboard", JOB_SERVER_PORT), ("client", 10_001)]
    if has_workers(scenario, deployment):
        env.append(variable(LOAD_LISTEN_VARIABLE, f"0.0.0.0:{LOAD_PORT}"))
        env.append(variable(LOAD_WORKERS_VARIABLE, str(section.load.pods)))
        ports.append((LOAD, LOAD_PORT))
    node = _ray_container(
        "ray-head",
        scenario,
        resources(section.driver.cpu, section.driver.memory, DRIVER_SCRATCH),
        mounts,
        env,
        ports,
        **bucket_access(section),
    )
    spec = pod(
        [node],
        section,
        driver_account_of(scenario, deployment),
        DRIVER_TMP,
        volumes,
        gets_token=needs_api(scenario, deployment),
    )
    parameters = {"dashboard-host": "0.0.0.0", **_ray_parameters(section.driver.cpu, section.driver.memory)}
    return {"rayStartParams": parameters, "template": _template(deployment, DRIVER, spec)}


def _host_groups(scenario: Scenario, deployment: Deployment) -> Iterator[Manifest]:
    section = KubernetesSection.of(scenario)
    asked = section.validators
    http = [(http_port_name(position), port) for position, port in enumerate(http_ports(scenario))]
    for host in hosts_to_place(scenario):
        number = host.number
        volume, mount = claimed(host_claim(deployment.name, number))
        node = _ray_container(
            "ray-worker",
            scenario,
            resources(asked.cpu, asked.memory, WORKER_SCRATCH),
            [mount],
            [variable(PORTS_VARIABLE, port_range(scenario))],
            http,
        )
        affinity = _affinity(section.spread, deployment)
        spec = pod([node], section, deployment.name, WORKER_TMP, [volume], **affinity)
        template = _template(deployment, VALIDATORS, spec, **{HOST_LABEL: str(number)})
        custom = {RESOURCE_PREFIX + VALIDATORS: 1, host_resource(number): 1}
        group = _group(host_group(number), 1, 1, asked.cpu, asked.memory, custom, template)
        if host.region is not None:
            group["labels"] = {REGION_LABELS[0]: _region_label(host.region)}
        yield group


def _region_label(region: str) -> str:
    try:
        return check_label_value(REGION_LABELS[0], region)
    except ValueError as error:
        raise BadInput(f"region {region}: {error}") from None


def _seed_group(scenario: Scenario, deployment: Deployment) -> Manifest:
    section = KubernetesSection.of(scenario)
    asked = section.seeds
    node = _ray_container("ray-worker", scenario, resources(asked.cpu, asked.memory, WORKER_SCRATCH))
    template = _template(deployment, SEEDS, pod([node], section, deployment.name, WORKER_TMP))
    return _group(SEEDS, 0, asked.pods, asked.cpu, asked.memory, {RESOURCE_PREFIX + SEEDS: 1}, template)


def _affinity(spread: str, deployment: Deployment) -> Manifest:
    if spread == "none":
        return {}
    term = {
        "labelSelector": {"matchLabels": component_labels(deployment.name, VALIDATORS)},
        "topologyKey": "kubernetes.io/hostname",
    }
    if spread == "required":
        return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    weighted = {"weight": 100, "podAffinityTerm": term}
    return {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}}}


# --- Ray ------------------------------------------------------------------------------------------------------------


def _ray_container(
    name: str,
    scenario: Scenario,
    asked: Manifest,
    mounts: Sequence[Manifest] = (),
    env: Sequence[Manifest] = (),
    ports: Sequence[tuple[str, int]] = (),
    **more: Any,
) -> Manifest:
    listening = {"ports": [{"name": each, "containerPort": port} for each, port in ports]} if ports else {}
    liveness, readiness = _health(30, 120), _health(5, 10)
    probes = {"livenessProbe": liveness, "readinessProbe": readiness}
    patience = variable("RAY_raylet_start_wait_time_s", str(RAYLET_WAIT_S))
    section = KubernetesSection.of(scenario)
    return container(name, section, asked, mounts, [patience, *env], **listening, **probes, **more)


def _health(after_s: int, failures: int) -> Manifest:
    """A probe of the health page of Ray's agent. It replaces the probes of older KubeRay versions, which need wget; the
    image has none."""
    return {
        "httpGet": {"path": "/api/healthz", "port": AGENT_PORT},
        "initialDelaySeconds": after_s,
        "periodSeconds": 5,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _ray_parameters(cpu: Cpu, memory: Memory) -> dict[str, str]:
    """Parameters of ``ray start``, for a pod's resources."""
    store = min(MAX_OBJECT_STORE, int(amount_of(memory) / OBJECT_STORE_SHARE))
    return {"num-cpus": str(whole_processors(cpu)), "object-store-memory": str(store)}


def _group(
    name: str, least: int, most: int, cpu: Cpu, memory: Memory, custom: dict[str, int], template: Manifest
) -> Manifest:
    """A worker group of the Ray cluster. Its custom resources are in single quotes, which both the shell and Ray's
    autoscaler accept."""
    return {
        "groupName": name,
        "replicas": least,
        "minReplicas": least,
        "maxReplicas": most,
        "rayStartParams": {**_ray_parameters(cpu, memory), "resources": f"'{json.dumps(custom, sort_keys=True)}'"},
        "template": template,
    }


def _autoscaler(scenario: Scenario) -> Manifest:
    """Options of Ray's autoscaler, a container that KubeRay adds to the head's pod.

    Only this container gets the account's token.
    """
    given: Manifest = container(
        "autoscaler",
        KubernetesSection.of(scenario),
        resources("500m", "512Mi", SUBMITTER_SCRATCH),
        [projected_token("autoscaler-token")[1]],
    )
    kept: dict[str, Any] = {
        key: given[key] for key in ("imagePullPolicy", "env", "securityContext", "resources", "volumeMounts")
    }
    return {"version": "v2", "idleTimeoutSeconds": IDLE_S, "upscalingMode": "Default", **kept}
