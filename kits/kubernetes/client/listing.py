"""``stampede k8s list`` and ``status``: the deployments of a namespace, and how far they are."""

from __future__ import annotations

import re
import shlex
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cluster.commands.console.output import console, plain_table, print_line
from cluster.common.errors import ExitCode
from kits.kubernetes.client import objects
from kits.kubernetes.client.cluster import Cluster, Object, Place, Query, connect
from kits.kubernetes.client.fetching import container_of
from kits.kubernetes.client.inspecting import cluster_of
from kits.kubernetes.client.progress import has_started, newest_of, pod_name, state_of
from kits.kubernetes.client.watching import last_lines, plain
from kits.kubernetes.kinds import CLAIM, CRON_JOB, POD, RAY_JOB, Kind
from kits.kubernetes.names import (
    INSTANCE_LABEL,
    MANAGED_BY_LABEL,
    NAME_LABEL,
    STAMPEDE,
    SUBMITTER,
)

HEIGHT: Final = re.compile(r"· height ([\d,/]+)")
"""The height in a line of a driver's progress."""
LAST_LINES: Final = 20
OURS: Final[Query] = {"labelSelector": f"{NAME_LABEL}={STAMPEDE},{MANAGED_BY_LABEL}={STAMPEDE}"}
HEADINGS: Final = ("name", "work", "state", "height", "verdict", "volumes", "age")
VERDICTS: Final = {
    ExitCode.PASS: "pass",
    ExitCode.FAIL: "fail",
    ExitCode.BAD_INPUT: "bad input",
    ExitCode.INCONCLUSIVE: "inconclusive",
    ExitCode.CRASH: "crash",
}
UNKNOWN: Final = "-"
UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


@dataclass(frozen=True, slots=True)
class _Deployed:
    """The objects of one deployment."""

    name: str
    objects: dict[Kind, list[Object]]

    @property
    def job(self) -> Object:
        """Its RayJob or CronJob; empty if only the volumes are left."""
        return next((each for kind in (RAY_JOB, CRON_JOB) for each in self.objects[kind]), {})

    @property
    def work(self) -> str:
        """The driver's command without its options, such as ``drill outage``."""
        words = shlex.split(str(self.job.get("spec", {}).get("entrypoint", "")))
        words = words[words.index(STAMPEDE) + 1 :] if STAMPEDE in words else []
        return " ".join(words[: 2 if words[:1] == ["drill"] else 1]) or UNKNOWN

    @property
    def state(self) -> str:
        if not self.job:
            return "volumes kept"
        if "schedule" in self.job["spec"]:
            return f"scheduled {self.job['spec']['schedule']}"
        if objects.has_ended(self.job):
            return "ended"
        return "running" if objects.has_driver_started(self.job) else "starting"

    @property
    def verdict(self) -> str:
        code = objects.exit_code_of(self.job)
        return VERDICTS[code] if code is not None else UNKNOWN

    @property
    def created(self) -> str:
        """When its job was created or, without one, its oldest volume."""
        found = [self.job] if self.job else self.objects[CLAIM]
        return min(str(each["metadata"].get("creationTimestamp", "")) for each in found)


def show_list(place: Place) -> ExitCode:
    """Print a line for each deployment in the namespace. Raises :class:`ClusterError`."""
    cluster, output = connect(place.context, time.sleep), console()
    deployed = _deployed(cluster, place.namespace, OURS)
    if not deployed:
        print_line(output, f"namespace {place.namespace} has no deployment of {STAMPEDE}")
        return ExitCode.PASS
    table = plain_table(HEADINGS)
    for each in deployed:
        table.add_row(*_row(each, _output(cluster, place.namespace, each)))
    output.print(table)
    return ExitCode.PASS


def show_status(place: Place, name: str) -> ExitCode:
    """Print how far a deployment is, its volumes and pods, and the driver's last lines.

    Raises :class:`BadInput` if there is none of that name, and :class:`ClusterError`.
    """
    cluster, output = cluster_of(place, name, time.sleep), console()
    found = _deployed(cluster, place.namespace, objects.selector(name))
    if not found:
        raise objects.nothing_of(name, place.namespace)
    (deployed,) = found
    lines = _output(cluster, place.namespace, deployed)
    for heading, text in zip(HEADINGS, _row(deployed, lines), strict=True):
        if heading != "volumes":
            print_line(output, f"{heading:8} {text}")
    for claim in deployed.objects[CLAIM]:
        size, phase = claim["spec"]["resources"]["requests"]["storage"], (claim.get("status") or {}).get("phase", "")
        print_line(output, f"volume   {claim['metadata']['name']} {size} {phase}".rstrip())
    for pod in deployed.objects[POD]:
        print_line(output, f"pod      {pod_name(pod)} {state_of(pod).words}")
    if message := str((deployed.job.get("status") or {}).get("message") or ""):
        print_line(output, f"job      {plain(message)}")
    for line in lines:
        print_line(output, f"driver   {line}")
    return ExitCode.PASS


def _row(deployed: _Deployed, lines: Sequence[str]) -> Iterator[str]:
    heights = [height for line in lines for height in HEIGHT.findall(line)]
    yield deployed.name
    yield deployed.work
    yield deployed.state
    yield heights[-1] if heights else UNKNOWN
    yield deployed.verdict
    yield str(len(deployed.objects[CLAIM]))
    yield _age(deployed.created)


def _age(created: str) -> str:
    """The time since a ``creationTimestamp``, in the largest whole unit."""
    try:
        age_s = int((datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds())
    except ValueError:
        return UNKNOWN
    return next((f"{age_s // unit_s}{unit}" for unit_s, unit in UNITS if age_s >= unit_s), "0s")


def _deployed(cluster: Cluster, namespace: str, query: Query) -> list[_Deployed]:
    """The deployments whose objects the query selects, by name."""
    found: dict[str, dict[Kind, list[Object]]] = defaultdict(lambda: defaultdict(list))
    for kind in (RAY_JOB, CRON_JOB, CLAIM, POD):
        for each in objects.items_of(cluster, kind, namespace, query):
            found[each["metadata"]["labels"][INSTANCE_LABEL]][kind].append(each)
    deployed = [_Deployed(name, found[name]) for name in sorted(found)]
    return [each for each in deployed if each.job or each.objects[CLAIM]]


def _output(cluster: Cluster, namespace: str, deployed: _Deployed) -> list[str]:
    """The last lines of the driver's output; empty if there is none any more, or not yet."""
    pod = newest_of(deployed.objects[POD], SUBMITTER)
    if pod is None or not has_started(pod):
        return []
    return last_lines(container_of(cluster, namespace, pod), LAST_LINES)
