"""The Ray cluster of one run: started for the run and ended with it, or joined if ``RAY_ADDRESS`` names one.

A Ray that the run starts (a Ray of our own) has a private folder with a short path, since paths of Unix sockets are
limited. It has a private token in place of the one in the user's home. It has no dashboard, no idle workers, and little
memory: it carries control and results, not messages between validators. When it is closed, its processes are waited
for, and killed if they do not end; its folder is removed.

A Ray that was joined belongs to another party: only our own actors are killed there.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import chdir, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from cluster.common.checkout import (
    CLOCK_VARIABLE,
    HASH_SEED_VARIABLE,
    RAYS,
    ROOT,
    check_working_directory,
    without_kept_out,
)
from cluster.common.errors import BadInput, HarnessError, TestnetError
from cluster.common.wording import readable
from cluster.live.host.host import ValidatorHost
from cluster.live.nodes import loopback_node
from cluster.live.nodes.ray_nodes import KeptRay, Place, RayNode, read_nodes
from cluster.live.nodes.ray_worker import UNUSED, load_later
from cluster.live.processes import processes
from cluster.live.processes.cleanup_watchdog import SLACK_S
from cluster.live.processes.processes import Process
from cluster.live.processes.signals import NodeSignals, ProcessSignals
from cluster.live.processes.steady_clock import CLOCK
from cluster.live.web.addresses import LOOPBACK, PORTS_VARIABLE, ports_from
from cluster.scenario.sections.faults import Release
from validator.primitives.types import ValidatorError
from validator.primitives.user_file import UserFileError

ADDRESS_VARIABLE: Final = "RAY_ADDRESS"
LOCAL_ADDRESS: Final = "local"
"""The address that means a new Ray on this machine."""
TOKEN_VARIABLE: Final = "RAY_AUTH_TOKEN"
MODE_VARIABLE: Final = "RAY_AUTH_MODE"
"""Environment variable that turns tokens on. The library does so by itself, the command that starts a node does not."""
SETTINGS: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
"""Environment of a Ray of our own: no usage reports, no messages on the terminal, and workers that run as this process
does, also below ``uv run``."""

SKIPPED_LINES_VARIABLE: Final = "RAY_DEDUP_LOGS_SKIP_REGEX"
"""Environment variable with a pattern of lines that are not printed; Ray reads it when it is imported."""
SKIPPED_LINES: Final = "A worker died or was killed while executing a task|The node with node id|Raylet is terminated"

OBJECT_STORE_BYTES: Final = 80 * 1024 * 1024
"""Size of Ray's object store: about the least that Ray accepts."""
STARTING_CPUS: Final = 2
"""The number of workers that start at a time; hosts themselves request no CPU."""
SYSTEM_CONFIG: Final = {"prestart_worker_first_driver": False, "worker_niceness": 0}
"""Ray's internal settings: no workers are started ahead, and workers run with normal priority.

Each host has a separate environment, so workers started ahead would never be used. Ray's default niceness of workers is
15: next to a busy load generator that leaves validators a thirtieth of a processor.
"""
SPARE_RESTARTS: Final = 3
"""Restarts of a host beyond those that the scenario plans. A host that crashes more often is not restarted."""
HOST_CONCURRENCY: Final = 8
"""Calls that a host answers at a time."""
ADDRESS_FILE: Final = "ray_current_cluster"
"""The file in a Ray's folder that has the address of its head."""
CORE_PROCESSES: Final = {"gcs_server": "", "raylet": "--head"}
"""The programs of a Ray's head, without which it cannot continue, each with an argument that only the head's has."""
FOLDER_PREFIX: Final = "st-"
SHORT_TEMPORARY_FOLDER: Final = Path("/tmp")
SHUTDOWN_PATIENCE_S: Final = 5.0
PROBE_TIMEOUT_S: Final = 5.0
SIGNAL_TIMEOUT_S: Final = 15.0
NODE_TIMEOUT_S: Final = 60.0
"""A node of a Ray of our own is up within this time."""
HASH_SEEDS: Final = 2**32
FIRST_RELEASE: Final = Release()
EXPECTED_OF_ACTORS: Final = (HarnessError, ValidatorError, UserFileError, OSError)
"""Exceptions of an actor's call that the driver handles as the failure of a host."""

_token = secrets.token_hex(32)
"""Token of every Ray that this process starts: the library reads it once."""


class RemoteProcessSignals:
    """Signals to the processes of another node, sent by an actor there (:class:`ProcessSignals`).

    Each call has a timeout. A node that does not answer is not asked again for a while; meanwhile the state of its
    processes is unknown.
    """

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray = ray
        self._actor = actor
        self._silent_until = 0.0
        """Time until which the actor is not asked again, since it did not answer (monotonic seconds)."""

    def kill(self, process: Process) -> bool:
        return bool(self._ask("kill", False, process))

    def pause(self, process: Process, resumed: Path | None = None) -> bool:
        return bool(self._ask("pause", False, process, resumed))

    def resume(self, process: Process) -> None:
        self._ask("resume", None, process)

    def is_running(self, process: Process) -> bool:
        """Whether the process is not known to be gone."""
        return bool(self._ask("is_running", True, process))

    def end_node(self, kills: bool) -> bool | None:
        """Have the node end (:meth:`NodeSignals.end_node`). Returns whether its processes are known to be gone.

        ``None`` if there was no answer: the node may not end at all.
        """
        answer = self._ask("end_node", None, kills)
        return None if answer is None else bool(answer)

    def close(self) -> None:
        self._ask("close", None)

    def _ask(self, method: str, otherwise: object, *arguments: object) -> object:
        if time.monotonic() < self._silent_until:
            return otherwise
        errors = self._ray.exceptions
        try:
            return self._ray.get(getattr(self._actor, method).remote(*arguments), timeout=SIGNAL_TIMEOUT_S)
        except (errors.RayError, errors.GetTimeoutError):
            self._silent_until = time.monotonic() + SIGNAL_TIMEOUT_S
            return otherwise


def relocated_host(code: str) -> type:
    """The actor class of a host whose code is taken from another folder.

    Ray puts the driver's own folders in front of ``PYTHONPATH``. So this class is pickled by value, and it puts the
    folder first before any of our modules is imported there.
    """

    class RelocatedHost:
        def __init__(self, *arguments: Any) -> None:
            import importlib
            import sys

            sys.path.insert(0, code)
            self._host = importlib.import_module("cluster.live.host.host").ValidatorHost(*arguments)

    def passed_on(method: str) -> Any:
        def call(self: RelocatedHost, *arguments: Any) -> Any:
            return getattr(self._host, method)(*arguments)

        return call

    for method in vars(ValidatorHost):
        if not method.startswith("_"):
            setattr(RelocatedHost, method, passed_on(method))
    return RelocatedHost


def _runtime_of(code: str | None, environment: dict[str, str]) -> dict[str, Any]:
    """The environment of a worker whose code is taken from a folder, as Ray wants it."""
    if code is not None:
        environment = environment | {
            "PYTHONPATH": os.pathsep.join(filter(None, (code, os.environ.get("PYTHONPATH")))),
        }
    return {"env_vars": environment}


def _relocated_warm_up(code: str) -> Callable[[], None]:
    """A task that compiles the code of a folder. Like the class of :func:`relocated_host`, it is pickled by value."""

    def warm_up() -> None:
        import runpy
        import sys

        sys.path.insert(0, code)
        runpy.run_module("cluster.commands.cli.warm_up")["warm_up"]()

    return warm_up


class RaySession:
    """The connection of this process to Ray. :meth:`start` makes one; :meth:`close` ends it, and a Ray of our own."""

    def __init__(self, ray: Any, folder: Path | None, kept: KeptRay | None = None) -> None:
        self.ray = ray
        self.kept = kept
        """How another process finds this Ray, if the hosts are to outlive this process."""
        self._folder = folder
        """Folder of a Ray of our own; ``None`` if it was joined."""
        self._actors: list[Any] = []
        self._tasks: list[Any] = []
        self._disconnects = True
        self._core: dict[Process, str] = {}
        """Processes without which a Ray of our own cannot continue, and their names."""
        self._joining: list[subprocess.Popen[bytes]] = []
        """Processes of the nodes, except the head, that this process added to a Ray of our own."""
        self._has_nodes = False
        """Whether a Ray of our own has nodes in addition to its head."""

    @property
    def is_ours(self) -> bool:
        return self._folder is not None

    def check(self) -> None:
        """Raise :class:`TestnetError` if a Ray of our own broke down; Ray itself would take a minute to report it."""
        for process, name in self._core.items():
            if not process.is_running:
                raise TestnetError(f"Ray broke down: its {name}, process {process.pid}, ended")

    # --- start --------------------------------------------------------------------------------------------------------

    @staticmethod
    def start(
        cpus: int = STARTING_CPUS,
        on_folder: Callable[[Path], None] = lambda folder: None,
        nodes: int = 1,
        lease_s: float | None = None,
    ) -> RaySession:
        """Start a Ray of our own, or join the one that the environment names.

        A Ray of our own has a head with ``cpus`` processors for tasks. If ``nodes`` is above 1, that many nodes for
        hosts are added to the head. ``on_folder`` gets the Ray's folder before there is any process. With ``lease_s``
        hosts, and a Ray of our own, outlive this process, and hosts end themselves this long after they last heard from
        a driver.

        Raises :class:`TestnetError`, and :class:`~cluster.common.errors.BadInput` if ``STAMPEDE_PORTS`` holds no ports,
        or the working directory modules that workers of a joined Ray would import instead of ours.
        """
        try:
            ports_from(os.environ)
        except ValueError as error:
            raise BadInput(str(error)) from None
        ray = _import_ray()

        if ray.is_initialized():
            if lease_s is not None:
                raise BadInput("a run that another driver may take over cannot use a Ray that this process has joined")
            session = RaySession(ray, None)
            session._disconnects = False
            return session
        if is_joining():
            return _join(ray, os.environ[ADDRESS_VARIABLE], lease_s)
        session = _start_own(ray, cpus, on_folder) if lease_s is None else _start_kept(ray, cpus, on_folder, lease_s)
        if nodes > 1:
            session._has_nodes = True
            session.kept = session.kept and session.kept._replace(nodes=nodes)
            try:
                session._add_nodes(nodes)
            except BaseException:
                session.close([])
                raise
        return session

    @staticmethod
    def take_over(kept: KeptRay) -> RaySession:
        """Connect to the Ray of a driver that died, if that is there (:func:`why_gone`).

        Raises :class:`BadInput` if it cannot be joined.
        """
        address = _address_of(kept)
        ray = _import_ray()
        folder = None if kept.folder is None else Path(kept.folder)
        if folder is None:
            check_working_directory(Path.cwd())
        with _environment(os.environ if folder is None else _own_rays(kept.token, is_kept=True)):
            _read_environment(ray)
            failure = f"{address}: that Ray cannot be joined"
            options = {} if folder is None else {"job_config": _own_job(ray)}
            with loopback_node.joining(address):
                _connect(ray, BadInput, failure, address=address, namespace=kept.namespace, **options)
        session = RaySession(ray, folder, kept)
        session._has_nodes = kept.nodes > 1
        if folder is not None:
            session._core = core_of(folder)
        return session

    def find_host(self, name: str) -> Any:
        """The handle of a host that outlived its driver; ``None`` if it has ended for good."""
        try:
            actor = self.ray.get_actor(name)
        except ValueError:
            return None
        self._actors.append(actor)
        return actor

    def rejoin(self, runtime_env: dict[str, Any]) -> bool:
        """Join the cluster again, with an environment for all further tasks. No task or actor may run meanwhile.

        Returns ``False`` if that is impossible: for a Ray of our own, and for one that the caller's program had joined.
        Raises :class:`BadInput`.
        """
        if self.is_ours or not self._disconnects:
            return False
        self.ray.shutdown()
        _join(self.ray, os.environ[ADDRESS_VARIABLE], runtime_env=runtime_env)
        return True

    def replace_node(self) -> None:
        """Start a node in place of a lost one, if this is a Ray of our own; it joins after a while.

        A cluster that was joined replaces its nodes itself.
        """
        if self._has_nodes:
            self._joining.append(self._start_node())

    def _add_nodes(self, count: int) -> None:
        """Add nodes one after the other: started at the same time, they would take each other's ports.

        Raises :class:`TestnetError`.
        """
        for _ in range(count):
            self._joining.append(node := self._start_node())
            said, _ = node.communicate(timeout=NODE_TIMEOUT_S)
            if node.returncode:
                *_, last = ["", *said.decode(errors="replace").strip().splitlines()]
                raise TestnetError(f"a Ray node cannot be started: {last}")

    def _start_node(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", loopback_node.MODULE, "start", "--disable-usage-stats"]
        command += [f"--address={self.ray.get_runtime_context().gcs_address}", f"--node-ip-address={LOOPBACK}"]
        command += [f"--num-cpus={STARTING_CPUS}", f"--object-store-memory={OBJECT_STORE_BYTES}"]
        with _environment(_own_rays()), _hang_ups_held_back():
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, MODE_VARIABLE: "token"},
            )

    def have_ended(self, ended: Iterable[Process]) -> bool:
        """Whether processes of a lost node are gone for certain. Processes on other machines cannot be checked."""
        return self.is_ours and not any(process.is_running for process in ended)

    def nodes(self) -> list[RayNode]:
        """All nodes, lost ones too."""
        return read_nodes(self.ray)

    def start_host(
        self,
        place: Place,
        planned_restarts: int,
        hash_seed: int,
        arguments: tuple[Any, ...],
        release: Release = FIRST_RELEASE,
        name: str = "",
        lease_s: float | None = None,
    ) -> Any:
        """Create a host's actor, which stays on its node because of its data; returns its handle at once.

        ``release`` is the code that it runs, from another folder if it names one. ``name`` is the actor's, if it
        outlives this process. With ``lease_s`` each of its processes begins with a lease, which the caller renews.
        """
        given = {name: os.environ[name] for name in (PORTS_VARIABLE,) if name in os.environ}
        environment = {HASH_SEED_VARIABLE: str(hash_seed % HASH_SEEDS), CLOCK_VARIABLE: CLOCK.reading, **given}
        actor_class: type = ValidatorHost
        if release.code is not None:
            actor_class = relocated_host(release.code)
        options = self.options_on(place.node_id) | {"max_restarts": planned_restarts + SPARE_RESTARTS}
        more: tuple[Any, ...] = ()
        if self.kept is not None:
            options |= {"name": name, "lifetime": "detached"}
            more = (self.kept.lease_s,)
        elif lease_s is not None and release.code is None:  # code of another folder may not support it
            more = (None, lease_s)
        actor = (
            self.ray.remote(actor_class)
            .options(**options, max_concurrency=HOST_CONCURRENCY, runtime_env=_runtime_of(release.code, environment))
            .remote(*arguments, release.version, release.mutant, *more)
        )
        self._actors.append(actor)
        return actor

    def warm_up(self, place: Place, code: str) -> Any:
        """Have a node compile the code of another folder beforehand. Returns the pending answer."""
        # With a separate environment, no worker does it that has imported our modules for something else.
        options = self.options_on(place.node_id) | {"max_calls": 1, "max_retries": 0}
        options |= {"runtime_env": _runtime_of(code, {})}
        task = self.ray.remote(**options)(_relocated_warm_up(code)).remote()
        self._tasks.append(task)
        return task

    def signals(self, place: Place) -> ProcessSignals | RemoteProcessSignals:
        """The sender of signals to processes of a place: this process for a Ray of our own, else an actor there."""
        if self.is_ours:
            return ProcessSignals()
        return self.node_signals(place)

    def node_signals(self, place: Place) -> RemoteProcessSignals:
        """An actor that signals processes of a place, and may end its node."""
        return RemoteProcessSignals(self.ray, self.actor_on(place.node_id, NodeSignals))

    def actor_on(self, node_id: str, actor_class: type, *arguments: Any, **options: Any) -> Any:
        """Create an actor on a node. It reserves no CPU, and ends with this session."""
        actor = self.ray.remote(actor_class).options(**self.options_on(node_id), **options).remote(*arguments)
        self._actors.append(actor)
        return actor

    def call_on(self, node_id: str, function: Callable[[], Any]) -> Any:
        """Call a function on a node, reserving no CPU. Returns the pending answer."""
        return self.ray.remote(function).options(**self.options_on(node_id), max_retries=0).remote()

    def outlast(self, node_id: str, seconds: float) -> Any:
        """Start a task on a node that only waits, to find out whether the node lives this long.

        Returns the pending answer, which is an error if the node ends earlier.
        """

        def stay() -> None:
            time.sleep(seconds)

        return self.call_on(node_id, stay)

    def options_on(self, node_id: str) -> dict[str, Any]:
        """The options of a task or actor on a node that reserves no CPU."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)}

    def request_nodes(self, resource: str, count: int) -> None:
        """Have the cluster's autoscaler add and keep nodes with a custom resource. Replaces the previous request."""
        from ray.autoscaler.sdk import request_resources

        request_resources(bundles=[{resource: 1}] * count)

    # --- end ----------------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Disconnect without ending anything."""
        if self._disconnects:
            self.ray.shutdown()

    def forget(self, actor: Any) -> None:
        """Kill an actor for good: Ray does not start it again anywhere."""
        self.ray.kill(actor, no_restart=True)
        self._actors = [each for each in self._actors if each is not actor]

    def close(self, hosts: Iterable[tuple[Place, Process]]) -> list[str]:
        """Kill our actors; end a Ray of our own with all its processes and its folder. Returns the problems.

        ``hosts`` are the processes of our hosts that may still run. Those on this node are gone afterwards. On another
        node the same ids belong to other processes: those are never signalled.
        """
        ours = {process for place, process in hosts if self._is_here(place)}
        if self._folder is not None:
            ours |= processes.with_descendants(processes.using(self._folder))
        else:
            for actor in self._actors:
                self.ray.kill(actor, no_restart=True)
            for task in self._tasks:
                self.ray.cancel(task, force=True)
        for node in self._joining:
            node.kill()
            node.communicate()
        try:
            if self._disconnects:
                self.ray.shutdown()
        finally:
            if self._has_nodes or self.kept is not None:  # no other process ends these
                for process in ours:
                    process.send(signal.SIGTERM)
            stubborn = processes.end(ours, SHUTDOWN_PATIENCE_S)
            is_left = self._folder is not None and not processes.end_and_remove(self._folder, SHUTDOWN_PATIENCE_S)
            notices = [f"{self._folder} could not be removed"] if is_left else []
        return [f"process {process.pid} did not end by itself and was killed" for process in stubborn] + notices

    @property
    def own_node_id(self) -> str:
        """Id of the Ray node of this process."""
        return str(self.ray.get_runtime_context().get_node_id())

    def _is_here(self, place: Place) -> bool:
        """Whether a place is on the node of this process."""
        return self.is_ours or place.node_id == self.own_node_id

    def keep_logs(self, target: Path) -> None:
        """Copy the logs of a Ray of our own, to diagnose a failed start."""
        if self._folder is not None:
            shutil.copytree(self._folder / "session_latest" / "logs", target, dirs_exist_ok=True)


def is_joining() -> bool:
    """Whether the environment names a cluster to join."""
    return os.environ.get(ADDRESS_VARIABLE, LOCAL_ADDRESS) not in ("", LOCAL_ADDRESS)


def _join(ray: Any, address: str, lease_s: float | None = None, **options: Any) -> RaySession:
    check_working_directory(Path.cwd())
    _probe(address)
    namespace = _new_namespace()
    failure = f"{ADDRESS_VARIABLE}={address}: that Ray cannot be joined"
    with loopback_node.joining(address):
        _connect(ray, BadInput, failure, address=address, namespace=namespace, **options)
    if lease_s is None:
        return RaySession(ray, None)
    return RaySession(ray, None, KeptRay(str(ray.get_runtime_context().gcs_address), namespace, lease_s))


def _new_namespace() -> str:
    return f"stampede-{uuid.uuid4().hex}"


def _probe(address: str) -> None:
    """Raise :class:`BadInput` if no process listens at ``host:port``; Ray would wait for minutes."""
    if problem := _unanswered(address):
        raise BadInput(
            f"{ADDRESS_VARIABLE}={address}: no Ray answers there: {problem}; expected the address of a"
            f" cluster's head, or no {ADDRESS_VARIABLE} for a Ray of this run's own"
        )


def _unanswered(address: str) -> str:
    """Why ``host:port`` does not answer; empty if it does, or if it is another kind of address."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or "://" in address:
        return ""
    try:
        socket.create_connection((host, int(port)), PROBE_TIMEOUT_S).close()
    except (OSError, OverflowError, ValueError) as error:
        return one_line(error)
    return ""


def _address_of(kept: KeptRay) -> str:
    return kept.address if kept.folder else os.environ.get(ADDRESS_VARIABLE, kept.address)


def core_of(folder: Path) -> dict[Process, str]:
    """The processes without which the Ray with a folder cannot continue, and their names."""
    return {
        process: name
        for name, argument in CORE_PROCESSES.items()
        for process in processes.with_argument(str(folder)) & processes.with_argument(argument)
        if processes.command(process) == name
    }


def why_gone(kept: KeptRay, silent_s: float, is_here: bool) -> str:
    """Why the Ray of a driver that died is gone for certain; empty if it answers.

    ``silent_s`` is how long ago that driver wrote a checkpoint, and ``is_here`` whether it was on this machine. Raises
    :class:`BadInput` if Ray does not answer, but may still be there.
    """
    if kept.folder is not None and is_here and not core_of(Path(kept.folder)):
        return "no process of its Ray is left"
    problem = _unanswered(address := _address_of(kept))
    if not problem:
        return ""
    is_lease_over = silent_s > kept.lease_s + SLACK_S
    if is_lease_over and not (kept.folder is not None and is_here):
        return f"{address}: no Ray answers there: {problem}; its lease of {kept.lease_s:g} s is over"
    where = "its processes are there" if is_here else "it may be there, or where its driver was"
    raise BadInput(f"{address}: no Ray answers there: {problem}; {where}: try again")


def _new_folder(on_folder: Callable[[Path], None]) -> Path:
    """The folder of a Ray of our own, whose path is short, told before there is any process."""
    parent = SHORT_TEMPORARY_FOLDER if os.access(SHORT_TEMPORARY_FOLDER, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent))
    on_folder(folder)
    return folder


def _start_own(ray: Any, cpus: int, on_folder: Callable[[Path], None]) -> RaySession:
    folder = _new_folder(on_folder)
    session = RaySession(ray, folder)
    with _environment(_own_rays()), _hang_ups_held_back():
        try:
            with loopback_node.small_node():
                _connect(
                    ray,
                    TestnetError,
                    "Ray cannot be started",
                    address=LOCAL_ADDRESS,
                    num_cpus=cpus,
                    include_dashboard=False,
                    job_config=_own_job(ray),
                    object_store_memory=OBJECT_STORE_BYTES,
                    _node_ip_address=LOOPBACK,
                    _temp_dir=str(folder),
                    _system_config=dict(SYSTEM_CONFIG),  # a copy: Ray writes into it, also this session's folder
                )
        except BaseException:
            session.close([])
            raise
    session._core = core_of(folder)
    return session


class _OwnPlaces(list[str]):
    """The folders that a Ray's workers import from first. Ray adds nothing to them."""

    def extend(self, places: Iterable[str]) -> None:
        """Leave out the driver's working directory, whose modules would hide those that a host imports."""


def _own_job(ray: Any) -> Any:
    job = ray.job_config.JobConfig()
    job._py_driver_sys_path = _OwnPlaces([str(ROOT)])
    return job


def _start_kept(ray: Any, cpus: int, on_folder: Callable[[Path], None], lease_s: float) -> RaySession:
    """Start a Ray of our own that outlives this process.

    A command starts it: one that the library starts would end with this process.
    """
    folder = _new_folder(on_folder)
    session, namespace = RaySession(ray, folder), _new_namespace()
    command = [sys.executable, "-m", loopback_node.MODULE, "start", "--head", "--port=0", "--disable-usage-stats"]
    command += [f"--node-ip-address={LOOPBACK}", f"--temp-dir={folder}", "--include-dashboard=false"]
    command += [f"--num-cpus={cpus}", f"--object-store-memory={OBJECT_STORE_BYTES}"]
    command += [f"--system-config={json.dumps(SYSTEM_CONFIG)}"]
    with _environment(_own_rays(is_kept=True)), _hang_ups_held_back():
        try:
            started = subprocess.run(
                command,
                capture_output=True,
                timeout=NODE_TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
            if started.returncode:
                *_, last = ["", *(started.stdout + started.stderr).decode(errors="replace").strip().splitlines()]
                raise TestnetError(f"Ray cannot be started: {last}")
            address = (folder / ADDRESS_FILE).read_text(encoding="utf-8").strip()
            _read_environment(ray)
            with loopback_node.loopback_stays():
                options = {"address": address, "namespace": namespace, "job_config": _own_job(ray)}
                _connect(ray, TestnetError, "Ray cannot be started", **options)
        except (OSError, subprocess.TimeoutExpired) as error:
            session.close([])
            raise TestnetError(f"Ray cannot be started: {one_line(error)}") from error
        except BaseException:
            session.close([])
            raise
        token = os.environ.get(TOKEN_VARIABLE)
    session.kept = KeptRay(address, namespace, lease_s, str(folder), token)
    session._core = core_of(folder)
    return session


@contextmanager
def _hang_ups_held_back() -> Iterator[None]:
    """Inside the block SIGHUP is blocked, so that processes started there never get it.

    A terminal that is closed sends SIGHUP to all processes of its group. Those of Ray must keep answering until we end
    them. A SIGHUP to this process is delivered after the block.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _connect(ray: Any, kind: type[HarnessError], failure: str, **options: Any) -> None:
    try:
        with _named_in_utf8(ray):
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # Ray raises a plain one if its node is not up in time
        raise kind(f"{failure}: {one_line(error)}") from error


@contextmanager
def _named_in_utf8(ray: Any) -> Iterator[None]:
    """Have Ray see a folder and a command line of this process that are UTF-8 inside the block. It takes no others."""
    here, utils = str(Path.cwd()), ray._private.utils
    command_line = utils.get_entrypoint_name
    utils.get_entrypoint_name = lambda: readable(command_line())
    try:
        with nullcontext() if readable(here) == here else chdir(Path.cwd().anchor):
            yield
    finally:
        utils.get_entrypoint_name = command_line


class ActorCrash(Exception):
    """An exception in an actor's code that was not expected: a bug of ours."""


def raise_bug(error: Exception) -> None:
    """Raise :class:`ActorCrash` if a call of an actor failed by an exception that the actor's code did not expect.

    Other failures, such as a lost process or a full disk, are for the caller to handle.
    """
    from ray.exceptions import RayTaskError

    if isinstance(error, RayTaskError) and not isinstance(error.cause, EXPECTED_OF_ACTORS):
        raise ActorCrash(one_line(error)) from error


def one_line(error: BaseException) -> str:
    """The first line of an error's message, or its type's name. If an actor raised the error, its cause counts."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        error = cause
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


def _import_ray() -> Any:
    """Import Ray, without its terminal message about killed processes: the driver reports them, with the reason."""
    with _environment({SKIPPED_LINES_VARIABLE: SKIPPED_LINES, **os.environ} if is_joining() else _own_rays()):
        load_later(*UNUSED)
        import ray
    return ray


def _read_environment(ray: Any) -> None:
    """Have the library read its settings again: when it was imported, there was no token yet."""
    ray._raylet.Config.initialize("")


def _own_rays(token: str | None = None, is_kept: bool = False) -> dict[str, str]:
    """The environment of a Ray of our own: Ray's variables are ours alone, and so are those of other libraries.

    With ``is_kept`` the Ray outlives its driver: it is started by a command, or another driver started it with this
    ``token``.
    """
    own = {name: value for name, value in without_kept_out().items() if not name.startswith(RAYS)}
    own |= {**SETTINGS, SKIPPED_LINES_VARIABLE: SKIPPED_LINES, TOKEN_VARIABLE: token or _token}
    return own | {MODE_VARIABLE: "token"} if is_kept else own


@contextmanager
def _environment(inside: Mapping[str, str]) -> Iterator[None]:
    """Give this process an environment inside the block, and its own again afterwards."""
    before = dict(os.environ)
    _set_environment(inside)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(wanted: Mapping[str, str]) -> None:
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)
