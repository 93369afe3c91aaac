"""Work at the times of a schedule, by a CronJob.

A soak runs the next seeds of a scenario in the simulator, in one pod with its own Ray. All other work is done by a pod
that runs ``stampede k8s run``: it makes the objects, waits, fetches the folder and deletes the objects.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

from cluster.common.checkout import NAMESPACE_VARIABLE
from cluster.common.errors import BadInput
from cluster.scenario import Scenario
from cluster.scenario.code.gate import option_for
from kits.kubernetes.names import DRIVER, SCENARIO_PATH, runs_claim
from kits.kubernetes.render.deployment import Deployment
from kits.kubernetes.render.metadata import Manifest, labels_of, make
from kits.kubernetes.render.pods import (
    bucket_access,
    bucket_address,
    claimed,
    container,
    memory_per_seed_mib,
    own_namespace,
    pod,
    resources,
    uploading,
    whole_processors,
    with_scenario,
)
from kits.kubernetes.section import KubernetesSection

SCHEDULE: Final = "17 2 * * *"
"""Schedule in cron syntax: every night, by the clock of the cluster's control plane."""
SEEDS_A_NIGHT: Final = 1_000
DEADLINE_S: Final = 6 * 3_600
TTL_S: Final = 7 * 86_400
"""Time for which a night's pod and its log are kept, in seconds."""
KEPT_RUNS: Final = 14
"""Number of runs of a schedule whose folders are kept."""
END_S: Final = 1_800
"""Time that the client of a run may take besides the run, for images, volumes, the folder and the deletion."""
STOP_S: Final = 300
"""Time for the client to stop its run and to delete the objects, if it is stopped itself."""
CLIENT_TMP, CLIENT_SCRATCH = "256Mi", "512Mi"
_FIELDS: Final = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 6))
_PART: Final = re.compile(r"(?:\*|(\d{1,2})(?:-(\d{1,2}))?)(?:/[1-9]\d?)?", re.ASCII)
TMP, SCRATCH, SHARED_MEMORY = "2Gi", "4Gi", "128Mi"
DRIVER_MIB: Final = 1_024
"""Part of the pod's memory for Ray and the driver, in MiB."""


def check_schedule(schedule: str) -> str:
    """A schedule in cron syntax, as Kubernetes takes it, without names of months and days.

    Raises :class:`BadInput` for any other text.
    """
    fields = schedule.split()
    if len(fields) != len(_FIELDS):
        raise BadInput(
            f"--schedule {schedule!r}: expected five fields (minute, hour, day, month, weekday), such as 0 2 * * *"
        )
    for text, (name, least, most) in zip(fields, _FIELDS, strict=True):
        if not all(_is_part(part, least, most) for part in text.split(",")):
            raise BadInput(
                f"--schedule {schedule!r}: {name} {text!r}: expected *, numbers from {least} to {most}, ranges such as"
                f" {least}-{most} or steps such as */2, separated by commas"
            )
    return " ".join(fields)


def _is_part(text: str, least: int, most: int) -> bool:
    found = _PART.fullmatch(text)
    numbers = [int(number) for number in found.groups() if number] if found else []
    return found is not None and numbers == sorted(numbers) and all(least <= number <= most for number in numbers)


def client_command(run: Deployment, given: Scenario, options: Sequence[str], words: Sequence[str]) -> str:
    """The shell command of a pod that does the work of a deployment ``run`` with the scenario file that the pod has.

    ``options`` are those of ``stampede k8s run`` as they are written, ``words`` those of ``--command``.
    """
    client = ["stampede", "k8s", "run", SCENARIO_PATH, "--name", run.name, *options]
    if run.monitoring is not None:
        labels = (f"--label={key}={value}" for key, value in run.monitoring.labels.items())
        runbooks = [f"--runbooks={run.monitoring.runbooks}"] if run.monitoring.runbooks else []
        client += map(shlex.quote, ("--monitoring", *labels, *runbooks))
    return (
        f'{" ".join(client)} --namespace "${NAMESPACE_VARIABLE}"{option_for(given, is_copy=True)}'
        f" --command {shlex.join(words)}"
    )


def scheduled(scenario: Scenario, deployment: Deployment, command: str, deadline_s: int, schedule: str) -> Manifest:
    """The CronJob whose pods run a :func:`client_command`, one at a time. Their account needs the rights for it."""
    section = KubernetesSection.of(scenario)
    volume, mount = claimed(runs_claim(deployment.name))
    scenario_volume, scenario_mount = with_scenario(deployment.name)
    script = f"rm -rf $(ls -d runs/[0-9]*/ 2>/dev/null | head -n -{KEPT_RUNS - 1})\nexec {command}\n"
    client = container(
        "client",
        section,
        resources("500m", "1Gi", CLIENT_SCRATCH),
        [mount, scenario_mount],
        [own_namespace()],
        command=["sh", "-ec", script],
    )
    spec = pod(
        [client],
        section,
        deployment.name,
        CLIENT_TMP,
        [volume, scenario_volume],
        gets_token=True,
        restartPolicy="Never",
        terminationGracePeriodSeconds=STOP_S,
    )
    return _cron_job(deployment, schedule, spec, deadline_s + END_S)


def soak(scenario: Scenario, deployment: Deployment, schedule: str) -> Manifest:
    """The CronJob of a soak. The date determines the seeds of a night, so no seed runs twice."""
    section = KubernetesSection.of(scenario)
    volume, mount = claimed(runs_claim(deployment.name))
    scenario_volume, scenario_mount = with_scenario(deployment.name)
    shared_memory = {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": SHARED_MEMORY}}
    night = container(
        "soak",
        section,
        resources(section.driver.cpu, section.driver.memory, SCRATCH),
        [
            mount,
            scenario_mount,
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
    return _cron_job(deployment, schedule, spec, DEADLINE_S)


def _cron_job(deployment: Deployment, schedule: str, spec: Manifest, deadline_s: int) -> Manifest:
    """The CronJob that makes a pod at each time of a schedule, unless that of an earlier time goes on."""
    job = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": deadline_s,
        "ttlSecondsAfterFinished": TTL_S,
        "template": {"metadata": {"labels": labels_of(deployment, DRIVER)}, "spec": spec},
    }
    return make(
        "batch/v1",
        "CronJob",
        deployment.name,
        deployment,
        spec={
            "schedule": schedule,
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
    sweep = (*uploading(section, name), "stampede", "sweep", SCENARIO_PATH, *words)
    command = shlex.join(sweep) + allowing
    return (
        f"first=$(( $(date +%s) / 86400 * {SEEDS_A_NIGHT} ))\n"
        f'exec {command} --seeds "$first:$(( first + {SEEDS_A_NIGHT} ))" --out "runs/{name}-$first"\n'
    )
