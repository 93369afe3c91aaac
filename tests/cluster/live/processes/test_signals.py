"""Signals to real processes: held still, let go on, killed, and never left standing still."""

from __future__ import annotations

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
from cluster.live.processes.signals import Warden

WAIT_S = 30.0
ROOT = Path(__file__).parents[4]
HOLDER = """
import sys
from cluster.live.processes import processes
from cluster.live.processes.signals import Warden
print(Warden().hold(processes.find(int(sys.argv[1]))), flush=True)
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
def warden() -> Iterator[Warden]:
    warden = Warden()
    yield warden
    warden.close()


def test_a_process_is_held_and_goes_on(victim: Process, warden: Warden) -> None:
    assert not warden.is_still(victim)
    assert warden.hold(victim)
    assert warden.hold(victim), "twice is once"
    assert warden.is_still(victim) and warden.is_running(victim)
    warden.let_go(victim)
    assert not warden.is_still(victim) and warden.is_running(victim)
    warden.let_go(victim)


def test_a_process_that_is_held_can_be_killed(victim: Process, warden: Warden) -> None:
    warden.hold(victim)
    handle = os.pidfd_open(victim.pid)
    assert warden.kill(victim)
    assert select.select([handle], [], [], WAIT_S)[0], "it can be read when the process has ended"
    os.close(handle)
    assert not warden.is_running(victim)
    assert not warden.is_still(victim)
    assert not warden.kill(victim)
    assert not warden.hold(victim), "it is gone"
    warden.let_go(victim)


def test_an_id_that_was_given_away_again_is_left_alone(victim: Process, warden: Warden) -> None:
    another = Process(victim.pid, victim.started + 1)
    assert not warden.kill(another)
    assert not warden.hold(another)
    assert not warden.is_still(victim) and warden.is_running(victim)


def test_closing_lets_everything_go_on(victim: Process, warden: Warden) -> None:
    warden.hold(victim)
    warden.close()
    assert not warden.is_still(victim) and warden.is_running(victim)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_goes_on_when_its_holder_dies(
    started: subprocess.Popen[bytes], victim: Process, number: signal.Signals
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(victim.pid)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"True\n"
    assert processes.state(victim.pid) == "T"
    holder.send_signal(number)
    holder.communicate(timeout=WAIT_S)
    assert started.stdout is not None
    assert select.select([started.stdout], [], [], WAIT_S)[0]
    assert started.stdout.readline() == b"continued\n"
    assert processes.state(victim.pid) != "T"
    assert victim.is_running


def test_a_process_goes_on_though_its_keeper_was_killed(victim: Process, warden: Warden) -> None:
    warden.hold(victim)
    warden._keepers[victim].kill()
    assert warden.is_still(victim)
    warden.let_go(victim)
    assert not warden.is_still(victim)
