"""Signals to real processes: held still, let go on, killed, and never left standing still."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.live.processes import processes
from cluster.live.processes.processes import Process
from cluster.live.processes.signals import ProcessSignals
from tests.hangs import HANGS_AFTER_S

ROOT = Path(__file__).parents[4]
HOLDER = """
import sys
from cluster.live.processes import processes
from cluster.live.processes.signals import ProcessSignals
print(ProcessSignals().pause(processes.find(int(sys.argv[1]))), flush=True)
sys.stdin.read()
"""


VICTIM = """
import signal, sys
signal.signal(signal.SIGCONT, lambda *_: print("continued", flush=True))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def started() -> Iterator[subprocess.Popen[bytes]]:
    """A process that says when it is continued, and does nothing else until its input ends."""
    command = [sys.executable, "-I", "-S", "-c", VICTIM]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert started.stdout is not None
    assert started.stdout.readline() == b"ready\n"
    yield started
    started.kill()
    started.communicate()


@pytest.fixture
def victim(started: subprocess.Popen[bytes]) -> Process:
    process = processes.find(started.pid)
    assert process is not None
    return process


@pytest.fixture
def signals() -> Iterator[ProcessSignals]:
    signals = ProcessSignals()
    yield signals
    signals.close()


def test_a_process_is_held_and_goes_on(victim: Process, signals: ProcessSignals) -> None:
    assert not victim.is_stopped
    assert signals.pause(victim)
    assert signals.pause(victim), "twice is once"
    assert victim.is_stopped and signals.is_running(victim)
    signals.resume(victim)
    assert not victim.is_stopped and signals.is_running(victim)
    signals.resume(victim)


def test_a_process_that_is_held_can_be_killed(victim: Process, signals: ProcessSignals) -> None:
    signals.pause(victim)
    handle = os.pidfd_open(victim.pid)
    assert signals.kill(victim)
    assert select.select([handle], [], [], HANGS_AFTER_S)[0], "it can be read when the process has ended"
    os.close(handle)
    assert not signals.is_running(victim)
    assert not victim.is_stopped
    assert not signals.kill(victim)
    assert not signals.pause(victim), "it is gone"
    signals.resume(victim)


def test_an_id_that_was_given_away_again_is_left_alone(victim: Process, signals: ProcessSignals) -> None:
    another = Process(victim.pid, victim.started + 1)
    assert not signals.kill(another)
    assert not signals.pause(another)
    assert not victim.is_stopped and signals.is_running(victim)


def test_closing_lets_everything_go_on(victim: Process, signals: ProcessSignals) -> None:
    signals.pause(victim)
    signals.close()
    assert not victim.is_stopped and signals.is_running(victim)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_goes_on_when_its_holder_dies(
    started: subprocess.Popen[bytes], victim: Process, number: signal.Signals
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(victim.pid)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"True\n"
    assert victim.is_stopped
    holder.send_signal(number)
    holder.communicate(timeout=HANGS_AFTER_S)
    assert started.stdout is not None
    assert select.select([started.stdout], [], [], HANGS_AFTER_S)[0]
    assert started.stdout.readline() == b"continued\n"
    assert not victim.is_stopped
    assert victim.is_running


def test_a_process_goes_on_though_its_pause_holder_was_killed(victim: Process, signals: ProcessSignals) -> None:
    signals.pause(victim)
    signals._pause_holders[victim].kill()
    assert victim.is_stopped
    signals.resume(victim)
    assert not victim.is_stopped


NODE = """
import json, subprocess, sys
fate, sys.executable = sys.argv[1:]
asked = '''
import json, sys
from cluster.live.processes.signals import NodeSignals
signals = NodeSignals()
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps(signals.end_node(%s)), flush=True)
sys.stdin.read()
''' % (fate == "kills")
other = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
worker = subprocess.Popen([sys.executable, "-c", asked], stdin=0, stdout=1)
print(json.dumps([other.pid, worker.pid]), flush=True)
worker.wait()
"""


def start_node(fate: str, program: Path) -> subprocess.Popen[str]:
    """A process with two children stands for a raylet with two workers; ``program`` is what it is called."""
    program.symlink_to(Path(sys.executable).resolve())
    command = [str(program), "-c", NODE, fate, sys.executable]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask_to_end(node: subprocess.Popen[str], is_adopted: bool = False) -> tuple[list[int], bool | None]:
    """The ids of both children, and what the worker says of the end of its node; another may adopt it before."""
    assert node.stdin is not None and node.stdout is not None
    pids = json.loads(node.stdout.readline())
    assert node.stdout.readline() == "ready\n"
    if is_adopted:
        node.send_signal(signal.SIGUSR1)
        assert node.stdout.readline() == "adopted\n"
    node.stdin.write("go\n")
    node.stdin.flush()
    return pids, json.loads(node.stdout.readline())


@pytest.mark.parametrize("fate", ["kills", "terminates"])
def test_a_node_is_ended_by_one_of_its_workers_which_says_whether_the_others_are_gone(
    fate: str, tmp_path: Path
) -> None:
    with start_node(fate, tmp_path / "raylet") as raylet:
        (other, worker), is_gone = ask_to_end(raylet)
        if fate == "kills":
            assert is_gone is True
            assert processes.find(other) is None
        else:
            assert is_gone is False, "Ray does that"
        raylet.wait(HANGS_AFTER_S)
    assert raylet.returncode == (-signal.SIGKILL if fate == "kills" else -signal.SIGTERM)
    assert processes.end(filter(None, map(processes.find, (other, worker))), HANGS_AFTER_S) == []


@pytest.mark.parametrize("fate", ["kills", "terminates"])
def test_a_worker_whose_raylet_is_gone_ends_nothing(fate: str, tmp_path: Path) -> None:
    """Its parent is another process then, and all that this one started is no part of the node."""
    with start_node(fate, tmp_path / "init") as init:
        (other, worker), is_gone = ask_to_end(init)
        assert is_gone is None
        assert None not in map(processes.find, (init.pid, other, worker))
        init.communicate(timeout=HANGS_AFTER_S)
    assert init.returncode == 0, "it ended with its input"
    assert processes.end(filter(None, map(processes.find, (other, worker))), HANGS_AFTER_S) == []


ADOPTS = """
import ctypes, os, signal, subprocess, sys
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
raylet = subprocess.Popen(sys.argv[1:], stdin=0, stdout=1)
signal.sigwait({signal.SIGUSR1})
raylet.kill()
raylet.wait()
print("adopted", flush=True)
os.wait()
"""


def test_a_worker_whose_raylet_is_gone_does_not_take_another_rays_for_it(tmp_path: Path) -> None:
    """A raylet adopts what the processes below it leave behind: a whole Ray may have been started there."""
    names = [tmp_path / folder / "raylet" for folder in ("outer", "inner")]
    for name in names:
        name.parent.mkdir()
        name.symlink_to(Path(sys.executable).resolve())
    outer, inner = map(str, names)
    command = [outer, "-c", ADOPTS, inner, "-c", NODE, "kills", sys.executable]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as adopts:
        pids, is_gone = ask_to_end(adopts, is_adopted=True)
        assert is_gone is None
        other, worker = map(processes.find, pids)
        assert worker is not None
        adopts.communicate(timeout=HANGS_AFTER_S)
    assert adopts.returncode == 0, "nobody ended it"
    assert processes.end(filter(None, (other, worker)), HANGS_AFTER_S) == []
