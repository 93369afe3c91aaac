"""``stampede k8s logs``, ``report``, ``delete`` and ``inject``: for a deployment that is already in a cluster.

Scenarios take seconds to load: only what needs one imports them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.common.errors import BadInput, ExitCode
from cluster.common.interrupts import Interrupts
from cluster.common.strict_yaml import NoYaml, parse
from cluster.common.suggestions import unknown
from cluster.common.wording import printable
from cluster.record.folder import LATEST, run_folder
from kits.kubernetes.client import objects
from kits.kubernetes.client.cluster import Cluster, Object, Place, connect
from kits.kubernetes.client.errors import ClusterError
from kits.kubernetes.client.fetching import container_of, fetch_folder, print_report
from kits.kubernetes.client.progress import has_started, is_ready, newest, notice
from kits.kubernetes.client.watching import log_lines, plain
from kits.kubernetes.kinds import CLAIM, CONFIG_MAP, CRON_JOB, POD, RAY_JOB
from kits.kubernetes.names import (
    COMPONENT_LABEL,
    DRIVER,
    HOST_LABEL,
    RUNS_PATH,
    SCENARIO_FILE,
    SUBMITTER,
    runs_claim,
    scenario_config_map,
)
from kits.kubernetes.render.deployment import Deployment

if TYPE_CHECKING:
    from cluster.scenario import Scenario
    from kits.kubernetes.section import KubernetesSection

POLL_S = 1.0


def show_logs(
    place: Place, name: str, validator: str | None, host: int | None, follows: bool, previous: bool = False
) -> ExitCode:
    """Print the driver's output or, if ``validator`` or ``host`` is given, the log of the pod in which it runs.

    With ``follows``, waits for a pod that is still to come. With ``previous``, prints the log of the container before
    its last restart. Raises :class:`BadInput` if there is no such pod, and :class:`ClusterError`.
    """
    cluster = cluster_of(place, name, time.sleep)
    if validator is not None:
        host = _host_of(_scenario(cluster, place, name), validator)
    label = f"{COMPONENT_LABEL}={SUBMITTER}" if host is None else f"{HOST_LABEL}={host}"
    what = "driver" if host is None else f"host {host}"
    pod = _started_pod(cluster, place, name, label, what, waits=follows)
    container, more = container_of(cluster, place.namespace, pod), {"previous": "true"} if previous else {}
    for line in log_lines(container, threading.Event(), follows, more):
        print(plain(line), flush=follows)
    return ExitCode.PASS


def fetch_report(place: Place, name: str, out: Path | None) -> ExitCode:
    """Fetch the folder of a run that has ended and whose volumes were kept, or the newest one of a schedule.

    Raises :class:`BadInput` if the run has not ended, or if there are no volumes, and :class:`ClusterError`.
    """
    from kits.kubernetes.render.objects import results_pod
    from kits.kubernetes.section import KubernetesSection

    with Interrupts() as interrupts:
        cluster = cluster_of(place, name, interrupts.wait)
        objects.check_rights(cluster, place.namespace, "report")
        if cluster.get(CLAIM, place.namespace, runs_claim(name)) is None:
            raise BadInput(f"{name}: namespace {place.namespace} has no volumes of a run of this name")
        job = cluster.get(RAY_JOB, place.namespace, name)
        if job is not None and not objects.has_ended(job):
            raise BadInput(f"{name}: that run goes on: expected one that has ended")
        section = KubernetesSection.of(_scenario(cluster, place, name)) if job is None else _section_of(job)
        is_latest = (
            bool(objects.items_of(cluster, CRON_JOB, place.namespace, objects.selector(name)))
            if job is None
            else f"{RUNS_PATH}/{name}" not in job["spec"]["entrypoint"]
        )
        top = LATEST if is_latest else name
        pod = results_pod(section, Deployment(name, place.namespace))
        with run_folder(out, name) as folder:
            try:
                fetch_folder(cluster, place.namespace, pod, top, folder, interrupts.checkpoint)
            except OSError as error:
                raise ClusterError(f"{error.filename or folder}: {error.strerror or error}") from None
            finally:
                cluster.waiting_by(time.sleep).delete(POD, place.namespace, pod["metadata"]["name"])
    print_report(folder)
    return ExitCode.PASS


def delete(place: Place, name: str) -> ExitCode:
    """Delete all objects of a deployment, volumes included, and a namespace that a run made and no other one uses.

    Raises :class:`BadInput` if there are no objects.
    """
    cluster = cluster_of(place, name, time.sleep)
    objects.check_rights(cluster, place.namespace, "delete")
    count = objects.delete_all(cluster, place.namespace, name)
    if not count:
        raise objects.nothing_of(name, place.namespace)
    left = objects.wait_until_gone(cluster, place.namespace, name, RAY_JOB, POD, CLAIM)
    notice(objects.deletion_line(count, left))
    if objects.is_namespace_made(cluster, place.namespace):
        objects.delete_namespace(cluster, place.namespace)
    return ExitCode.PASS


def inject(place: Place, name: str, fault: str) -> ExitCode:
    """Add a fault to a running testnet, by running ``stampede inject`` in its driver's pod. Returns that exit code.

    Raises :class:`BadInput` for a wrong fault or if there is no such testnet, and :class:`ClusterError`.
    """
    from cluster.commands.run.commands import parse_fault

    parse_fault(fault)
    cluster = cluster_of(place, name, time.sleep)
    pod = _started_pod(cluster, place, name, f"{COMPONENT_LABEL}={DRIVER}", "driver")
    if not is_ready(pod):
        raise BadInput(f"{name}: the pod of its driver is not ready")
    output = bytearray()
    command = ["stampede", "inject", f"{RUNS_PATH}/{name}", fault]
    ended = container_of(cluster, place.namespace, pod).execute(command, output.extend, lambda: None)
    if output:
        notice(output.decode("utf-8", "replace").strip())
    if ended.errors:
        print(printable(ended.errors), file=sys.stderr)
    return ExitCode(ended.code) if ended.code in set(ExitCode) else ExitCode.INCONCLUSIVE


# --- parts ----------------------------------------------------------------------------------------------------------


def cluster_of(place: Place, name: str, wait: Callable[[float], None]) -> Cluster:
    """A client of the cluster of a deployment. Raises :class:`BadInput` for a name that no deployment can have."""
    Deployment(name, place.namespace)
    return connect(place.context, wait)


def _newest_pod(cluster: Cluster, place: Place, name: str, label: str) -> Object | None:
    query = {"labelSelector": f"{objects.selector(name)['labelSelector']},{label}"}
    return newest(cluster.list(POD, place.namespace, query).get("items") or [])


def _started_pod(cluster: Cluster, place: Place, name: str, label: str, what: str, waits: bool = False) -> Object:
    """The newest pod with a label, once it has started. Raises :class:`BadInput` if it has not, or never will."""
    while waits and (job := cluster.get(RAY_JOB, place.namespace, name)) is not None and not objects.has_ended(job):
        pod = _newest_pod(cluster, place, name, label)
        if pod is not None and has_started(pod):
            return pod
        cluster.wait(POLL_S)
    pod = _newest_pod(cluster, place, name, label)
    if pod is None:
        raise BadInput(f"{name}: namespace {place.namespace} has no pod of its {what}")
    if not has_started(pod):
        raise BadInput(f"{name}: the pod of its {what} has not started")
    return pod


def _section_of(job: Object) -> KubernetesSection:
    """What a pod needs to run as the driver of a job does: its image and where it may run."""
    from kits.kubernetes.section import KubernetesSection

    spec = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    (container, *_), secrets = spec["containers"], spec.get("imagePullSecrets") or []
    given = {
        "image": container["image"],
        "pull_policy": container["imagePullPolicy"],
        "pull_secret": next((each["name"] for each in secrets), None),
        "node_selector": spec.get("nodeSelector") or {},
    }
    return KubernetesSection().model_copy(update=given)  # the cluster has taken these values


def _scenario(cluster: Cluster, place: Place, name: str) -> Scenario:
    """The scenario of a deployment, read from the cluster. Raises :class:`BadInput` if there is none."""
    from pydantic import ValidationError

    from cluster.scenario import Scenario

    found = cluster.get(CONFIG_MAP, place.namespace, scenario_config_map(name))
    if found is None:
        raise BadInput(f"{name}: namespace {place.namespace} has no scenario of a deployment of this name")
    try:
        return Scenario.model_validate(parse(found["data"][SCENARIO_FILE]))
    except (KeyError, TypeError, ValidationError, NoYaml):
        raise BadInput(f"{scenario_config_map(name)}: holds no scenario of this version of stampede") from None


def _host_of(scenario: Scenario, validator: str) -> int:
    names = scenario.validators.names
    if validator not in names:
        raise BadInput(f"--validator: {unknown('validator', validator, names)}")
    return scenario.validators.host_of(names.index(validator))
