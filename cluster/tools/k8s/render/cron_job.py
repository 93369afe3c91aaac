"""A soak: every night a CronJob runs the next seeds of a scenario in the simulator, in one pod with its own Ray."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from cluster.live.kubernetes.names import (
    DRIVER,
    SCENARIO_FILE,
    SCENARIO_FOLDER,
    runs_claim,
    scenario_config_map,
)
from cluster.scenario import Scenario
from cluster.scenario.code.gate import option_for
from cluster.scenario.sections.kubernetes import KubernetesSection
from cluster.tools.k8s.render.deployment import Deployment
from cluster.tools.k8s.render.metadata import Manifest, labels_of, make
from cluster.tools.k8s.render.pods import (
    bucket_access,
    bucket_address,
    claimed,
    container,
    memory_per_seed_mib,
    pod,
    resources,
    uploading,
    whole_processors,
)

SCHEDULE: Final = "17 2 * * *"
"""Schedule in cron syntax: every night, by the clock of the cluster's control plane."""
SEEDS_A_NIGHT: Final = 1_000
DEADLINE_S: Final = 6 * 3_600
TTL_S: Final = 7 * 86_400
"""Time for which a night's pod and its log are kept, in seconds."""
TMP, SCRATCH, SHARED_MEMORY = "2Gi", "4Gi", "128Mi"
DRIVER_MIB: Final = 1_024
"""Part of the pod's memory for Ray and the driver, in MiB."""


def soak(scenario: Scenario, deployment: Deployment) -> Iterator[Manifest]:
    """The CronJob of a soak. The date determines the seeds of a night, so no seed runs twice."""
    section = scenario.kubernetes
    volume, mount = claimed(runs_claim(deployment.name))
    scenario_volume = {"name": "scenario", "configMap": {"name": scenario_config_map(deployment.name)}}
    shared_memory = {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": SHARED_MEMORY}}
    night = container(
        "soak",
        section,
        resources(section.driver.cpu, section.driver.memory, SCRATCH),
        [
            mount,
            {"name": "scenario", "mountPath": SCENARIO_FOLDER, "readOnly": True},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
        ],
        bucket_address(section),
        command=["sh", "-ec", _script(section, deployment.name, option_for(scenario, is_copy=True))],
        **bucket_access(section),
    )
    spec = pod(
        [night],
        section,
        deployment.name,
        TMP,
        [volume, scenario_volume, shared_memory],
        restartPolicy="Never",
        terminationGracePeriodSeconds=120,
    )
    job = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": DEADLINE_S,
        "ttlSecondsAfterFinished": TTL_S,
        "template": {"metadata": {"labels": labels_of(deployment, DRIVER)}, "spec": spec},
    }
    yield make(
        "batch/v1",
        "CronJob",
        deployment.name,
        deployment,
        spec={
            "schedule": SCHEDULE,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 3_600,
            "successfulJobsHistoryLimit": 7,
            "failedJobsHistoryLimit": 7,
            "jobTemplate": {"metadata": {"labels": labels_of(deployment)}, "spec": job},
        },
    )


def _script(section: KubernetesSection, name: str, allowing: str) -> str:
    """The shell script of the pod. It sets the number of workers to the pod's processors: the machine has more."""
    workers = whole_processors(section.driver.cpu)
    memory = memory_per_seed_mib(section.driver.memory, workers, DRIVER_MIB)
    words = ("--workers", str(workers), "--memory", str(memory))
    sweep = (*uploading(section, name), "stampede", "sweep", f"{SCENARIO_FOLDER}/{SCENARIO_FILE}", *words)
    command = shlex.join(sweep) + allowing
    return (
        f"first=$(( $(date +%s) / 86400 * {SEEDS_A_NIGHT} ))\n"
        f'exec {command} --seeds "$first:$(( first + {SEEDS_A_NIGHT} ))" --out "runs/{name}-$first"\n'
    )
