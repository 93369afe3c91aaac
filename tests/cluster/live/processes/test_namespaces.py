"""No process outside of the run gets a signal: neither one of another container with the same id, nor a thread."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from cluster.live.driver.hosts import Hosts
from cluster.live.driver.node_watch import NodeWatch
from cluster.live.driver.ray_session import RaySession
from cluster.live.driver.supervised_host import Host
from cluster.live.host.host import HostView
from cluster.live.nodes.ray_nodes import Place
from cluster.live.processes import cleanup_watchdog, processes
from cluster.live.processes.history import Phase
from cluster.live.processes.processes import Process
from cluster.live.processes.signals import ProcessSignals
from cluster.record.folder import LOAD_PLAN_FILE
from tests.cluster.live.pods import UNSHARE, why_no_pods
from tests.hangs import HANGS_AFTER_S

ROOT: Final = Path(__file__).parents[4]
NEAR_TICKS: Final = 60 * processes.TICKS_PER_SECOND
HERE: Final = Place("here", "127.0.0.1")
WAITS: Final = "import sys; sys.stdin.read()"
IN_A_POD: Final = """
import json, sys
from cluster.live.processes import processes
print(json.dumps(processes.own()), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """That of a Ray, as a process in a pod may have it in its command line, too."""
    folder = tmp_path / "ray"
    folder.mkdir()
    return folder


@pytest.fixture
def pod(folder: Path) -> Iterator[Process]:
    """A process as it reports itself from a pod of this machine."""
    if reason := why_no_pods():
        pytest.skip(reason)
    command = [*UNSHARE, sys.executable, "-c", IN_A_POD, str(folder), str(folder.with_name(LOAD_PLAN_FILE))]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        yield Process(*json.loads(started.stdout.readline()))
        assert started.poll() is None, "it got a signal"
        started.communicate(timeout=HANGS_AFTER_S)
    assert started.returncode == 0


@pytest.fixture
def bystander() -> Iterator[Process]:
    """A process of this machine that is no part of a run."""
    with subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE) as started:
        found = processes.find(started.pid)
        assert found is not None
        yield found
        assert started.poll() is None and not found.is_stopped, "it got a signal"
        started.communicate(timeout=HANGS_AFTER_S)
    assert started.returncode == 0


@pytest.fixture
def planted(pod: Process, bystander: Process) -> Process:
    """A process of the pod that has the id of the bystander, and even its start time."""
    return bystander._replace(namespace=pod.namespace)


def test_a_pod_has_ids_and_start_times_that_exist_outside(pod: Process) -> None:
    """The case is real: id 1 is always there, and the ticks count from the boot of the machine for all."""
    assert pod.pid == 1 and processes.find(1) is not None
    assert 0 <= time.clock_gettime(time.CLOCK_BOOTTIME) * processes.TICKS_PER_SECOND - pod.started < NEAR_TICKS
    assert pod.namespace != processes.NAMESPACE
    assert pod.namespace.partition(" ")[0] == processes.NAMESPACE.partition(" ")[0], "one machine"


def test_a_process_of_a_pod_is_not_looked_for_outside(planted: Process) -> None:
    assert not planted.is_running and not planted.is_stopped
    assert not planted.send(signal.SIGKILL)
    assert processes.end([planted], 0.0) == []
    assert processes.end_of(planted, 0.0)
    signals = ProcessSignals()
    assert not signals.kill(planted) and not signals.pause(planted) and not signals.is_running(planted)
    signals.resume(planted)
    signals.close()


def test_descendants_of_its_namesake_are_left_alone(pod: Process) -> None:
    own = processes.own()._replace(namespace=pod.namespace)
    assert processes.with_descendants([own]) == {own}, "this process has children"


class _Ray:
    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: HERE.node_id)

    def shutdown(self) -> None:
        pass


def test_the_end_of_a_session_signals_none_of_a_pod(planted: Process) -> None:
    assert RaySession(_Ray(), None).close([(HERE, planted)]) == []


def test_a_host_that_went_to_the_drivers_node_has_left_no_id_there(bystander: Process) -> None:
    """Not even one of this namespace: the process of that id was lost with its node."""
    host = Host(number=0, place=Place("elsewhere", ""), validators=[0])
    host.actor, host.phase, host.processes.current = "actor", Phase.UP, bystander
    host.lose_place(is_certain=False)
    host.move(HERE)
    host.actor = "another actor"
    assert host.processes.last == bystander, "it is still told who was there"
    assert host.processes.known == []


def test_the_driver_knows_a_host_by_its_namespace(planted: Process, bystander: Process) -> None:
    session: Any = SimpleNamespace(ray=None)
    nodes = NodeWatch(session, lambda hosts, node, reason: None, lambda notice: None, lambda seconds: None)
    ignore: Any = lambda *_: None  # noqa: E731
    hosts = Hosts(session, ignore, ignore, ignore, ignore, nodes)
    host = Host(number=0, place=HERE, validators=[0])
    host.actor = "actor"
    hosts.all.append(host)
    hosts._take_view(host, HostView(planted.pid, [], planted.started, planted.namespace))
    assert {process for _, process in hosts.processes} == {planted} != {bystander}
    assert RaySession(_Ray(), None).close(hosts.processes) == []


def test_the_watchdog_of_a_run_signals_none_of_a_pod(pod: Process, folder: Path, tmp_path: Path) -> None:
    """Its command line is that of the run's load, too."""
    assert processes.with_argument(str(tmp_path / LOAD_PLAN_FILE)), "the one that started the pod"
    cleanup_watchdog._clean_up(str(tmp_path), {}, str(folder))
    assert not folder.exists(), "that of its Ray"


def test_a_pods_process_that_names_the_folder_is_not_of_its_ray(pod: Process, folder: Path) -> None:
    """From outside the processes of a pod can be seen."""
    assert len(processes.with_argument(str(folder))) == 1, "the one that started the pod"
    assert processes.using(folder) == set()
    assert processes.end_and_remove(folder, 0.0)


def test_whoever_only_reads_in_a_rays_folder_is_no_part_of_it(folder: Path) -> None:
    log = folder / "raylet.out"
    log.write_text("a line\n", encoding="ascii")
    with subprocess.Popen(["tail", "-f", str(log)], stdout=subprocess.PIPE) as pager:
        assert pager.stdout is not None
        assert pager.stdout.readline() == b"a line\n"
        assert processes.using(folder) == set()
        assert processes.end_and_remove(folder, 0.0)
        assert pager.poll() is None
        pager.terminate()


def test_neither_a_thread_nor_its_process_gets_a_signal() -> None:
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        os.kill(thread.native_id, 0)  # the kernel would deliver it
        forged = Process(thread.native_id, processes.own().started)
        with forged.handle() as descriptor:
            assert descriptor is None
        signals = ProcessSignals()
        assert not signals.kill(forged) and not signals.pause(forged)
        assert RaySession(_Ray(), None).close([(HERE, forged)]) == []
    finally:
        is_over.set()
        thread.join()
