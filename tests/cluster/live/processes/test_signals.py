"""Signals to real processes: held still, let go on, killed, and never left standing still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
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


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        os.sched_yield()


@pytest.fixture
def victim() -> Iterator[Process]:
    """A process that does nothing until its input ends."""
    command = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
    started = subprocess.Popen(command, stdin=subprocess.PIPE)
    process = processes.find(started.pid)
    assert process is not None
    yield process
    started.kill()
    started.communicate()


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
    assert warden.kill(victim)
    wait_until(lambda: not warden.is_running(victim))
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
def test_a_process_goes_on_when_its_holder_dies(victim: Process, number: signal.Signals) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(victim.pid)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"True\n"
    assert processes.state(victim.pid) == "T"
    holder.send_signal(number)
    holder.communicate(timeout=WAIT_S)
    wait_until(lambda: processes.state(victim.pid) != "T")
    assert victim.is_running


def test_a_process_goes_on_though_its_keeper_was_killed(victim: Process, warden: Warden) -> None:
    warden.hold(victim)
    warden._keepers[victim].kill()
    assert warden.is_still(victim)
    warden.let_go(victim)
    assert not warden.is_still(victim)
