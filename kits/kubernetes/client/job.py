"""One deployment in a cluster: creates its objects, follows and stops its job, fetches the run, deletes the objects."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput, ExitCode
from cluster.common.interrupts import Interrupts
from cluster.record.folder import ENDPOINTS_FILE
from kits.kubernetes.client import objects
from kits.kubernetes.client.cluster import Cluster, Object
from kits.kubernetes.client.errors import ClusterError
from kits.kubernetes.client.fetching import container_of, fetch_folder
from kits.kubernetes.client.progress import PodLines, has_started, is_ready, newest_of, pod_name
from kits.kubernetes.client.watching import Line, LogEnd, Seen, State, Watches, last_lines, plain
from kits.kubernetes.kinds import CLAIM, EVENT, POD, RAY_JOB
from kits.kubernetes.names import DRIVER, RUNS_PATH, SUBMITTER

SLICE_S: Final = 0.1
LOG_GRACE_S = 15.0
"""Time to wait for the rest of the log of a job that has ended, and for the end of an interrupted one whose log has
ended: the log and the job's state come over two connections, in any order."""
END_GRACE_S = 120.0
"""Time for the job to end after the driver's log has ended."""
STOP_TIMEOUT_S = 90.0
"""Time for an interrupted driver to write its folder."""
LAST_LINES: Final = 5
"""Lines of the log of a container that is started again."""
LOOK_S = 2.0
"""Interval between checks whether a testnet is up."""
REFUSED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
"""HTTP statuses of refusals that a retry cannot change."""
INTERRUPT: Final = """
import os, psutil, signal, sys
is_there = False
for process in psutil.process_iter(["cmdline"]):
    if sys.argv[1] in (process.info["cmdline"] or []) and process.pid != os.getpid():
        process.send_signal(signal.SIGINT)
        is_there = True
sys.exit(not is_there)
"""
"""Python program that interrupts the driver that writes a given run's folder, as Ctrl-C would. It runs in the driver's
pod, and exits with 1 if no such driver runs there."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The HTTP endpoint of a whole testnet (not of one validator): the driver's pod, and the port."""

    pod: str
    port: int


class Job:
    """A deployment in a namespace of a cluster, from the creation of its objects to their deletion."""

    def __init__(
        self, cluster: Cluster, namespace: str, name: str, interrupts: Interrupts, notice: Callable[[str], None]
    ) -> None:
        self._cluster, self._namespace, self._name = cluster, namespace, name
        self._interrupts, self._notice = interrupts, notice
        self._lines = PodLines(name, notice)
        self._watches = Watches(cluster, namespace)
        self._job: Object | None = None
        self._pods: dict[str, Object] | None = None
        """Pods of the deployment, keyed by name; ``None`` until the watch has listed them."""
        self._events: dict[str, Object] = {}
        self._log_ended_s: float | None = None
        self._owns_name = self._made_namespace = self._follows_log = self._has_driver_run = False

    @property
    def folder(self) -> str:
        """Path of the run's folder in the driver's pod."""
        return f"{RUNS_PATH}/{self._name}"

    @property
    def has_run(self) -> bool:
        """Whether the driver has ever run."""
        return self._has_driver_run or objects.has_driver_started(self._job or {})

    @property
    def exit_code(self) -> ExitCode | None:
        """The exit code of the driver; ``None`` if the job's status does not have one that the driver gives."""
        return objects.exit_code_of(self._job or {})

    @property
    def end(self) -> str:
        """How the job ended, as text for the user."""
        given = [str(self._status.get(field) or "") for field in ("jobStatus", "reason", "message")]
        return ", ".join(" ".join(text.split("\n")[0].split()) for text in given if text) or "unknown"

    # --- its course ---------------------------------------------------------------------------------------------------

    def create(self, manifests: Sequence[Object]) -> None:
        """Create all objects and start to watch them. Raises :class:`BadInput` if a name is taken."""
        self._made_namespace = objects.make_namespace(self._cluster, manifests)
        try:
            objects.create_all(self._cluster, manifests, self._namespace, self._name, self._own_name)
        except BadInput:
            self._owns_name = False
            raise
        self._watches.watch(RAY_JOB, {"fieldSelector": f"metadata.name={self._name}"})
        self._watches.watch(POD, objects.selector(self._name))
        self._watches.watch(EVENT, {"fieldSelector": "type=Warning"}, is_optional=True)

    def follow(self, start_timeout_s: float) -> None:
        """Print changes of the deployment's state and the driver's output, until the job has ended.

        Raises :class:`ClusterError` if the driver does not start in time, and :class:`KeyboardInterrupt`.
        """
        deadline = time.monotonic() + start_timeout_s
        while not self._has_ended():
            self._look()
            if not self._follows_log and time.monotonic() > deadline:
                raise self._too_late(start_timeout_s)
            if self._log_ended_s is not None and time.monotonic() > self._log_ended_s + END_GRACE_S:
                self._notice(f"the job does not end, although its driver has: {self.end}")
                return
        self._follow_end()

    def follow_until_up(self, start_timeout_s: float) -> Endpoint:
        """Print changes of the deployment's state and the driver's output, until the testnet is up.

        Raises :class:`ClusterError` if it does not come up in time, and :class:`KeyboardInterrupt`.
        """
        deadline, looked_at = time.monotonic() + start_timeout_s, 0.0
        while True:
            self._look()
            driver = self._pod(DRIVER)
            if driver is not None and is_ready(driver) and time.monotonic() - looked_at > LOOK_S:
                looked_at = time.monotonic()
                port = self._endpoint_port(driver)
                if port is not None:
                    return Endpoint(driver["metadata"]["name"], port)
            if self._has_ended():
                self._follow_end()
                raise ClusterError(f"{self._name}: the testnet has ended before it was up: {self.end}")
            if time.monotonic() > deadline:
                raise self._too_late(start_timeout_s)

    def stop(self) -> None:
        """Interrupt the driver, and wait at most :data:`STOP_TIMEOUT_S` until it has written its folder.

        If the driver has not started, it counts as never run, and there is no wait. Raises :class:`KeyboardInterrupt`
        at another signal.
        """
        driver = self._pod(DRIVER)
        if driver is None or not has_started(driver) or self._has_ended():
            return
        container = container_of(self._cluster, self._namespace, driver)
        command = ["python", "-c", INTERRUPT, self.folder]
        try:
            ended = container.execute(command, lambda _: None, self._interrupts.checkpoint)
        except ClusterError as error:
            self._notice(f"the driver cannot be interrupted: {error}")
            return
        if ended.code != 0 and not objects.has_driver_started(self._job or {}):
            self._has_driver_run = False
            return
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while not self._has_ended() and time.monotonic() < deadline:
            if self._log_ended_s is not None:
                deadline = min(deadline, self._log_ended_s + LOG_GRACE_S)
            self._look()
        self._follow_end()

    def fetch(self, pod: Object, target: Path) -> None:
        """Delete the job, which holds the volume, and fetch the run's folder through a reading pod.

        Raises :class:`ClusterError`, :class:`BadArchive`, :class:`OSError` and :class:`KeyboardInterrupt`.
        """
        self._watches.close()
        self._cluster.delete(RAY_JOB, self._namespace, self._name)
        fetch_folder(self._cluster, self._namespace, pod, self._name, target, self._interrupts.checkpoint)

    def delete(self, keeps_volumes: bool) -> None:
        """Delete all objects that were created. With ``keeps_volumes`` the volumes and the scenario stay."""
        self._watches.close()
        cluster = self._cluster.waiting_by(time.sleep)
        if self._owns_name:
            count = objects.delete_all(cluster, self._namespace, self._name, keeps_volumes)
            kinds = (RAY_JOB, POD) if keeps_volumes else (RAY_JOB, POD, CLAIM)
            left = objects.wait_until_gone(cluster, self._namespace, self._name, *kinds)
            self._notice(objects.deletion_line(count, left))
        if self._made_namespace and not objects.delete_namespace(cluster, self._namespace):
            self._notice(f"namespace {self._namespace} stays: it is not empty")

    def leave(self) -> None:
        """Stop watching."""
        self._watches.close()

    # --- parts --------------------------------------------------------------------------------------------------------

    @property
    def _status(self) -> dict[str, Any]:
        return {} if self._job is None else self._job.get("status") or {}

    def _own_name(self) -> None:
        """Note that an object was created. From then on, the objects of this name belong to this deployment."""
        self._owns_name = True

    def _too_late(self, timeout_s: float) -> ClusterError:
        status = self._status.get("jobDeploymentStatus")
        job = f"the job is {status}" if status else "the KubeRay operator has not taken the job"
        return ClusterError(f"{self._name}: not up after {timeout_s:g} s: {self._lines.trouble or job}")

    def _pod(self, component: str) -> Object | None:
        """The newest pod of a component of the deployment, such as the driver; ``None`` if there is none."""
        return newest_of((self._pods or {}).values(), component)

    def _has_ended(self) -> bool:
        return self._job is not None and objects.has_ended(self._job)

    def _follow_end(self) -> None:
        """Print the rest of the driver's log, for at most :data:`LOG_GRACE_S` after the job's end.

        The watch may report the job's end before its pods, so it waits for these, too.
        """
        deadline = time.monotonic() + LOG_GRACE_S
        while (self._follows_log or self._pods is None) and self._log_ended_s is None and time.monotonic() < deadline:
            self._look()

    def _look(self) -> None:
        """Process the next event of the watches, or return after a short time without one."""
        self._interrupts.checkpoint()
        with suppress(queue.Empty):
            self._take(self._watches.seen.get(timeout=SLICE_S))

    def _take(self, seen: Seen) -> None:
        if isinstance(seen, ClusterError):
            raise seen
        if isinstance(seen, Line):
            print(plain(seen.text), flush=True)
        elif isinstance(seen, LogEnd):
            self._log_ended_s = time.monotonic()
        else:
            self._take_state(seen)

    def _take_state(self, seen: State) -> None:
        if seen.kind == RAY_JOB:
            if self._job is not None and self._name not in seen.objects:
                raise ClusterError(f"{self._name}: the job was deleted by another client")
            self._job = seen.objects.get(self._name)
        elif seen.kind == POD:
            for pod in self._lines.pods(seen.objects):
                self._print_last_words(pod)
            self._pods = seen.objects
            submitter = self._pod(SUBMITTER)
            has_submitted = submitter is not None and has_started(submitter)
            self._has_driver_run = self._has_driver_run or has_submitted
            if submitter is not None and has_submitted and not self._follows_log:
                self._follows_log = True
                container = container_of(self._cluster, self._namespace, submitter)
                self._watches.follow(container.pod, container.name)
        else:
            self._events = seen.objects
        if self._job is not None:
            self._lines.events(self._events, self._job["metadata"]["creationTimestamp"])

    def _print_last_words(self, pod: Object) -> None:
        """Print the end of the log of a container that has ended and is started again."""
        for line in last_lines(container_of(self._cluster, self._namespace, pod), LAST_LINES, of_previous=True):
            self._notice(f"{pod_name(pod)} said: {line}")

    def _endpoint_port(self, driver: Object) -> int | None:
        """The port of the testnet's endpoint; ``None`` until all validators were started."""
        page = bytearray()
        command = ["cat", f"{self.folder}/{ENDPOINTS_FILE}"]
        container = container_of(self._cluster, self._namespace, driver)
        try:
            ended = container.execute(command, page.extend, self._interrupts.checkpoint)
        except ClusterError as error:
            if error.status in REFUSED:
                raise
            return None  # the caller asks again
        if ended.code != 0:
            return None
        url = str(json.loads(page)["testnet"]["url"])
        return int(url.rpartition(":")[2])
