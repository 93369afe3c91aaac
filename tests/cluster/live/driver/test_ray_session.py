"""Ray that does not start, and the end of a Ray session: which processes it may signal."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import ray
import yaml

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from cluster.live.driver import ray_session
from cluster.live.driver.ray_session import SIGNAL_TIMEOUT_S, RaySession, RemoteProcessSignals
from cluster.live.nodes.ray_nodes import KeptRay, Place
from cluster.live.processes import processes
from cluster.live.processes.processes import Process
from cluster.scenario.sections.faults import Release
from tests.hangs import HANGS_AFTER_S

HERE, ELSEWHERE = Place("here", "127.0.0.1"), Place("elsewhere", "127.0.0.2")


class JoinedRay:
    """Somebody else's Ray, on two nodes."""

    def __init__(self) -> None:
        self.is_joined = True

    def get_runtime_context(self) -> Any:
        assert self.is_joined
        return SimpleNamespace(get_node_id=lambda: HERE.node_id)

    def shutdown(self) -> None:
        self.is_joined = False


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> RaySession:
    monkeypatch.setattr(ray_session, "SHUTDOWN_PATIENCE_S", 0.0)
    return RaySession(JoinedRay(), None)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as started:
        yield started


@pytest.mark.parametrize(
    ("kept_s", "lease_s", "code", "told"),
    [
        (None, None, None, ()),
        (None, 7.0, None, (None, 7.0)),
        (9.0, 9.0, None, (9.0,)),
        (None, 7.0, "/elsewhere", ()),
    ],
)
def test_a_host_is_told_of_its_lease_when_it_is_created(
    kept_s: float | None, lease_s: float | None, code: str | None, told: tuple[float | None, ...]
) -> None:
    """So that each process that Ray starts of it has one at once."""
    given: list[tuple[Any, ...]] = []
    created = SimpleNamespace(remote=lambda *arguments: given.append(arguments))
    ray: Any = SimpleNamespace(remote=lambda actor_class: SimpleNamespace(options=lambda **options: created))
    kept = None if kept_s is None else KeptRay("127.0.0.1:9", "stampede-1", kept_s)
    release = Release("2", code)
    RaySession(ray, None, kept).start_host(Place("ab" * 28, "127.0.0.1"), 0, 1, ("folder",), release, "host-0", lease_s)
    assert given == [("folder", "2", None, *told)]


def process_of(child: subprocess.Popen[bytes]) -> Process:
    process = processes.find(child.pid)
    assert process is not None
    return process


def test_a_host_on_this_node_is_gone_afterwards(session: RaySession, child: subprocess.Popen[bytes]) -> None:
    (notice,) = session.close([(HERE, process_of(child))])
    assert str(child.pid) in notice
    assert child.wait(HANGS_AFTER_S) == -9


def test_a_process_with_the_id_of_a_host_elsewhere_is_left_alone(
    session: RaySession, child: subprocess.Popen[bytes]
) -> None:
    process = process_of(child)
    strangers = [(ELSEWHERE, process), (HERE, process._replace(started=process.started - 1))]
    assert session.close(strangers) == []
    child.communicate(timeout=HANGS_AFTER_S)
    assert child.returncode == 0


def test_a_ray_that_is_not_up_in_time_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def times_out(**_: Any) -> None:
        raise Exception("The current node timed out during startup.\nThis could happen on a slow machine.")

    scenario = tmp_path / "tiny.yaml"
    scenario.write_text(yaml.safe_dump({"name": "tiny", "stop": {"height": 3}}), encoding="utf-8")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", times_out)
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(scenario), "--backend", "live"]) == ExitCode.INCONCLUSIVE
    *_, complaint = capfd.readouterr().err.splitlines()
    assert complaint == "stampede: Ray cannot be started: The current node timed out during startup."


class SilentNode:
    """Answers after some silence."""

    exceptions = SimpleNamespace(RayError=ConnectionError, GetTimeoutError=TimeoutError)

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.is_running = self.kill = self.pause = self.resume = self.close = self.end_node = self
        self.asked = 0

    def remote(self, *_: object) -> None:
        self.asked += 1

    def get(self, _: None, timeout: float) -> object:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize(("nodes", "lease_s"), [(1, None), (2, 60.0)])
def test_a_ray_of_our_own_listens_on_loopback_alone(nodes: int, lease_s: float | None) -> None:
    folders: list[Path] = []
    session = RaySession.start(on_folder=folders.append, nodes=nodes, lease_s=lease_s)
    try:
        session.ray.get(session.ray.remote(lambda: None).remote())
        ours = processes.with_descendants(processes.using(folders[0]))
        lines = [" ".join(psutil.Process(process.pid).cmdline()) for process in ours]
        listening = {
            (processes.command(process), connection.laddr.ip)
            for process in ours
            for connection in psutil.Process(process.pid).net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
        assert {node.address for node in session.nodes()} == {"127.0.0.1"}
    finally:
        session.close([])
    assert {name for name, _ in listening} >= {"gcs_server", "raylet"}
    assert [line for line in lines if re.search(r"(monitor|dashboard)\.py|::DashboardAgent", line)] == [], (
        "nothing unused"
    )
    idle = [line for line in lines if line.startswith(f"{sys.executable} -I -S ") and "idle_agent.py" in line]
    assert len(idle) == nodes + (nodes > 1), "of each node, in place of Ray's own"
    assert [found for found in sorted(listening) if not ip_address(found[1].removeprefix("::ffff:")).is_loopback] == []
    assert not processes.using(folders[0]) and not folders[0].exists()


def test_of_processes_of_a_silent_node_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    node, process = SilentNode(ConnectionError("it is cut off"), TimeoutError(), False), Process(7, 1)
    signals = RemoteProcessSignals(node, node)
    assert signals.is_running(process), "it is not known to be gone"
    assert (signals.kill(process), signals.pause(process), signals.end_node(True)) == (False, False, None)
    signals.resume(process)
    signals.close()
    assert node.asked == 1, "a look at the hosts takes no longer for it"
    now_s[0] += SIGNAL_TIMEOUT_S
    assert signals.is_running(process)
    now_s[0] += SIGNAL_TIMEOUT_S
    assert not signals.is_running(process)
    assert node.asked == 3
