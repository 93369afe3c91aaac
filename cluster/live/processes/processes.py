"""Processes of this machine: found, watched and ended, never by name alone.

A process is known by its id and its start time, so that no other process that got the same id is taken for it. The ids
of threads are not ids of processes: :func:`find` refuses them, though the kernel would deliver signals to them.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import psutil

POLL_S: Final = 0.05
REMOVAL_ATTEMPTS: Final = 5
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """A process that runs, or ran."""

    pid: int
    started: int
    """Clock ticks since boot: unlike a time since the epoch, the same in every process, even if the clock is set."""

    @property
    def is_running(self) -> bool:
        """Whether it still runs; a process that ended and was not waited for does not."""
        return find(self.pid) == self

    @property
    def is_stopped(self) -> bool:
        """Whether it runs and is stopped (state T)."""
        with suppress(psutil.Error):
            return self.is_running and psutil.Process(self.pid).status() == psutil.STATUS_STOPPED
        return False

    def send(self, number: signal.Signals) -> bool:
        """Send a signal. Returns whether the process still ran."""
        with suppress(psutil.NoSuchProcess):
            handle = psutil.Process(self.pid)
            if self.is_running:
                handle.send_signal(number)
                return True
        return False


class Use(NamedTuple):
    """The resources that a process uses."""

    memory_bytes: int
    """Resident."""
    cpu_seconds: float
    """Of all its threads, since it started."""
    open_files: int
    """File descriptors."""


def own_use() -> Use:
    myself = psutil.Process()
    times = myself.cpu_times()
    return Use(myself.memory_info().rss, times.user + times.system, myself.num_fds())


def find(pid: int) -> Process | None:
    """The running process that has an id now; ``None`` if there is none, or if the id is a thread's."""
    with suppress(psutil.Error):
        if psutil.pid_exists(pid):
            found = psutil.Process(pid)
            if found.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                return Process(pid, _started(found))
    return None


def own() -> Process:
    return Process(os.getpid(), _started(psutil.Process()))


def with_argument(text: str) -> set[Process]:
    """The processes whose command line contains a text, except this one."""
    return _identified(handle for handle in psutil.process_iter() if _has_argument(handle, text))


def using(folder: Path) -> set[Process]:
    """The processes that have a folder in their command line, or a file open below it; except this one."""
    return _identified(handle for handle in psutil.process_iter() if _uses(handle, folder))


def command(process: Process) -> str:
    """The name of the program that a process runs; empty if it has ended."""
    with suppress(psutil.Error):
        return psutil.Process(process.pid).name()
    return ""


def with_descendants(roots: Iterable[Process]) -> set[Process]:
    """Processes, and all that they started, directly or not."""
    found = set(roots)
    for root in list(found):
        with suppress(psutil.Error):
            if root.is_running:
                found |= _identified(psutil.Process(root.pid).children(recursive=True))
    return found


def end(processes: Iterable[Process], patience_s: float) -> list[Process]:
    """Wait until all of them are gone, and kill those that still run then. Returns those that had to be killed."""
    left = [process for process in processes if process.is_running]
    deadline = time.monotonic() + patience_s
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        left = [process for process in left if process.is_running]
    for process in left:
        process.send(signal.SIGKILL)
    return left


def end_of(process: Process, patience_s: float) -> bool:
    """Wait for the end of a process that may not be ours. Returns whether it has ended."""
    deadline = time.monotonic() + patience_s
    while process.is_running and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return not process.is_running


def end_and_remove(folder: Path, patience_s: float) -> bool:
    """End the processes that use a folder, including new ones, and remove it. Returns whether it is gone."""
    for _ in range(REMOVAL_ATTEMPTS):
        end(using(folder), patience_s)
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return True
    return False


def _started(handle: psutil.Process) -> int:
    return round((handle.create_time() - psutil.boot_time()) * TICKS_PER_SECOND)


def _uses(handle: psutil.Process, folder: Path) -> bool:
    """Whether a process has a folder in its command line, or a file open below it, as far as we may look."""
    with suppress(psutil.Error):
        if _has_argument(handle, str(folder)):
            return True
        return any(Path(file.path).is_relative_to(folder) for file in handle.open_files())
    return False


def _has_argument(handle: psutil.Process, text: str) -> bool:
    with suppress(psutil.Error):
        return any(text in argument for argument in handle.cmdline())
    return False


def _identified(handles: Iterable[psutil.Process]) -> set[Process]:
    """Those that run, without this one."""
    found = {find(handle.pid) for handle in handles if handle.pid != os.getpid()}
    return {process for process in found if process is not None}
