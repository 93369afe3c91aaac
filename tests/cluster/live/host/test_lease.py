"""A host whose driver is silent ends, even one that did not run meanwhile; one that was paused on purpose does not."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.live.host import lease as lease_module
from cluster.live.host.lease import Lease
from cluster.live.processes import processes, resumption
from cluster.live.processes.processes import Process
from cluster.live.processes.signals import ProcessSignals
from tests.hangs import HANGS_AFTER_S

LEASE_S = 0.4
ENDED = 70
ROOT = Path(__file__).parents[4]

HOST = """
import os, sys
from pathlib import Path
from cluster.live.host import lease as lease_module

lease_module.LOOK_EVERY_S = 3600.0  # the check alone must find it
lease = lease_module.Lease(lambda length_s: os._exit(70), Path(sys.argv[2]))
print("ready", flush=True)
for line in sys.stdin:
    if line == "renew\\n":
        lease.renew(float(sys.argv[1]))
    elif "unchecked" not in sys.argv:
        lease.check()
    print("sent", flush=True)
"""
HOLDER = """
import sys
from pathlib import Path
from cluster.live.processes import processes
from cluster.live.processes.signals import ProcessSignals
print(ProcessSignals().pause(processes.find(int(sys.argv[1])), Path(sys.argv[2])), flush=True)
sys.stdin.read()
"""


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(Lease, "_watch", lambda self: None)
    return Clock()


def look(lease: Lease, clock: Clock, seconds: float, step_s: float = 0.5) -> list[bool]:
    found = []
    for _ in range(round(seconds / step_s)):
        clock.now_s += step_s
        found.append(lease.has_ended)
    return found


def test_a_lease_lasts_as_long_as_it_is_renewed(clock: Clock) -> None:
    lease = Lease(lambda length_s: None, now_s=clock)
    assert not any(look(lease, clock, 60.0)), "it has not begun"
    lease.renew(5.0)
    assert not any(look(lease, clock, 4.5))
    lease.renew(5.0)
    assert look(lease, clock, 5.0) == [False] * 9 + [True]


def test_time_in_which_the_host_did_not_run_counts(clock: Clock) -> None:
    lease = Lease(lambda length_s: None, now_s=clock)
    lease.renew(5.0)
    assert look(lease, clock, 60.0, step_s=60.0) == [True]


def test_a_renewal_counts_from_the_clock_that_the_driver_heard(clock: Clock) -> None:
    lease = Lease(lambda length_s: None, now_s=clock)
    heard_s = lease.renew(5.0)
    assert heard_s == 100.0
    clock.now_s += 4.0
    lease.renew(5.0, heard_s)  # it was four seconds on its way
    assert look(lease, clock, 1.0) == [False, True]


def test_a_process_that_was_started_since_the_driver_heard_has_a_whole_lease(clock: Clock) -> None:
    """Ray starts a killed host again under the same actor; on a busy machine that takes longer than a lease."""
    heard_s = Lease(lambda length_s: None, now_s=clock).renew(5.0)
    clock.now_s += 60.0
    lease = Lease(lambda length_s: None, now_s=clock)
    clock.now_s += 1.0
    lease.renew(5.0, heard_s)
    assert look(lease, clock, 4.0, step_s=2.0) == [False, True], "it counts from the start"


def test_a_renewal_from_another_machine_counts_from_now_on(clock: Clock) -> None:
    lease = Lease(lambda length_s: None, now_s=clock)
    lease.renew(5.0, 1e9)
    assert look(lease, clock, 5.0)[-2:] == [False, True]


def test_a_lease_that_has_ended_is_not_renewed(clock: Clock) -> None:
    class Gone(BaseException):
        """The process is."""

    def end(length_s: float) -> None:
        raise Gone

    lease = Lease(end, now_s=clock)
    lease.renew(5.0)
    clock.now_s += 30.0
    with pytest.raises(Gone):
        lease.renew(5.0)


def test_a_host_at_rest_does_not_end(clock: Clock) -> None:
    lease = Lease(lambda length_s: None, now_s=clock)
    lease.renew(5.0)
    lease.give_up()
    assert not any(look(lease, clock, 10.0))
    lease.renew(1.0)
    assert not any(look(lease, clock, 10.0))


def test_its_end_is_told_once_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "LOOK_EVERY_S", 0.01)
    ended = threading.Event()
    lengths: list[float] = []

    def end(length_s: float) -> None:
        lengths.append(length_s)
        ended.set()

    lease = Lease(end)
    lease.renew(0.01, resumption.boot_seconds())
    assert ended.wait(HANGS_AFTER_S)
    assert lengths == [0.01]


def test_a_note_from_before_the_machine_was_started_anew_counts_nothing(tmp_path: Path) -> None:
    file = resumption.note_file(tmp_path, 3)
    assert resumption.noted(file) is None
    resumption.note(file)
    assert 0 < (resumption.noted(file) or 0) <= resumption.boot_seconds()
    file.write_text("1e18\n", encoding="ascii")
    assert resumption.noted(file) is None
    file.write_text("soon\n", encoding="ascii")
    assert resumption.noted(file) is None


# --- real processes -------------------------------------------------------------------------------------------------


class Host:
    """A process that answers each line, if its lease lasts."""

    def __init__(self, note: Path, *options: str) -> None:
        command = [sys.executable, "-c", HOST, str(LEASE_S), str(note), *options]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=ROOT
        )
        assert self.read() == "ready\n"
        found = processes.find(self.process.pid)
        assert found is not None
        self.known: Process = found

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")


@pytest.fixture
def note(tmp_path: Path) -> Path:
    return resumption.note_file(tmp_path, 0)


@pytest.fixture
def start(note: Path) -> Iterator[Callable[..., Host]]:
    started: list[Host] = []

    def start(*options: str) -> Host:
        started.append(Host(note, *options))
        return started[-1]

    yield start
    for host in started:
        host.process.kill()
        host.process.communicate()


def wait_for_a_lease_to_end() -> None:
    """As long as a lease lasts that begins now."""
    ended = threading.Event()
    Lease(lambda length_s: ended.set()).renew(LEASE_S)
    assert ended.wait(HANGS_AFTER_S)


@pytest.mark.parametrize("options", [(), ("unchecked",)])
def test_a_host_that_was_stopped_beyond_its_lease_sends_nothing_any_more(
    start: Callable[..., Host], options: tuple[str, ...]
) -> None:
    """Without the check it would, next to its successor."""
    host = start(*options)
    host.tell("renew")
    assert host.read() == "sent\n"
    host.process.send_signal(signal.SIGSTOP)
    host.tell("an event that comes while it is stopped")
    wait_for_a_lease_to_end()
    host.process.send_signal(signal.SIGCONT)
    if options:
        assert host.read() == "sent\n"
    else:
        assert host.read() == ""
        assert host.process.wait(HANGS_AFTER_S) == ENDED


def test_a_host_that_was_paused_on_purpose_goes_on(start: Callable[..., Host], note: Path) -> None:
    host, signals = start(), ProcessSignals()
    host.tell("renew")
    assert host.read() == "sent\n"
    assert signals.pause(host.known, note)
    wait_for_a_lease_to_end()
    signals.close()
    host.tell("an event")
    assert host.read() == "sent\n", "its lease counts from its resumption"
    wait_for_a_lease_to_end()
    host.tell("an event")
    assert host.read() == ""
    assert host.process.wait(HANGS_AFTER_S) == ENDED, "and nobody renewed it since"


def test_a_host_that_is_resumed_since_its_driver_was_killed_ends(start: Callable[..., Host], note: Path) -> None:
    host = start()
    host.tell("renew")
    assert host.read() == "sent\n"
    command = [sys.executable, "-c", HOLDER, str(host.known.pid), str(note)]
    driver = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert driver.stdout is not None
    assert driver.stdout.readline() == "True\n"
    wait_for_a_lease_to_end()
    host.tell("an event")
    driver.kill()
    driver.communicate()
    assert host.read() == ""
    assert host.process.wait(HANGS_AFTER_S) == ENDED
