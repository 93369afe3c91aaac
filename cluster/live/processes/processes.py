"""Processes of this machine, as ``/proc`` shows them: found, watched and ended, never by name alone.

A process is its id together with the moment at which it started, so that an id that was given away again is not taken
for the process that had it before.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")
POLL_S: Final = 0.05
REMOVAL_ATTEMPTS: Final = 5
_STATE, _PARENT, _STARTED = 0, 1, 19
"""Fields of ``/proc/<pid>/stat`` after the command name."""


class Process(NamedTuple):
    """A process that runs, or ran."""

    pid: int
    started: int
    """Clock ticks since boot."""

    @property
    def is_running(self) -> bool:
        """Whether it still runs; one that ended and was not waited for does not."""
        return find(self.pid) == self


class Use(NamedTuple):
    """What a process uses."""

    memory_bytes: int
    """Resident."""
    cpu_seconds: float
    """Of all its threads, since it started."""
    open_files: int
    """File descriptors."""


def own_use() -> Use | None:
    """What this process uses, or ``None`` where the operating system has no ``/proc`` that tells."""
    try:
        pages = int((PROC / "self" / "statm").read_text(encoding="ascii").split()[1])
        open_files = len(os.listdir(PROC / "self" / "fd"))
    except OSError:
        return None
    times = os.times()
    return Use(pages * os.sysconf("SC_PAGE_SIZE"), times.user + times.system, open_files)


def find(pid: int) -> Process | None:
    """The process that has an id now, or ``None``."""
    fields = _stat(pid)
    return None if fields is None or fields[_STATE] in "ZX" else Process(pid, int(fields[_STARTED]))


def state(pid: int) -> str:
    """What the kernel calls the state of a process, such as ``S`` or ``T``; empty where there is none."""
    fields = _stat(pid)
    return "" if fields is None else fields[_STATE]


def with_argument(text: str) -> set[Process]:
    """The processes whose command line holds a text, this one left out."""
    found = set()
    for pid in _pids():
        with contextlib.suppress(OSError):
            if pid != os.getpid() and text.encode() in (PROC / str(pid) / "cmdline").read_bytes():
                found.add(find(pid))
    return {process for process in found if process is not None}


def using(folder: Path) -> set[Process]:
    """The processes that have a folder in their command line, or a file open below it; this one left out."""
    found = with_argument(str(folder))
    for pid in _pids():
        if pid != os.getpid() and _has_open_below(pid, folder):
            process = find(pid)
            found |= set() if process is None else {process}
    return found


def command(process: Process) -> str:
    """The name of the program that a process runs; empty where it is gone."""
    try:
        return (PROC / str(process.pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def with_descendants(roots: Iterable[Process]) -> set[Process]:
    """Processes, and all that they started, directly or not."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        fields = _stat(pid)
        if fields is not None:
            children.setdefault(int(fields[_PARENT]), []).append(pid)
    found: set[Process] = set()
    waiting = list(roots)
    while waiting:
        process = waiting.pop()
        if process not in found:
            found.add(process)
            waiting.extend(child for pid in children.get(process.pid, ()) if (child := find(pid)) is not None)
    return found


def end(processes: Iterable[Process], patience_s: float) -> list[Process]:
    """Wait until all of them are gone; kill what still runs then. Returns what had to be killed."""
    left = [process for process in processes if process.is_running]
    deadline = time.monotonic() + patience_s
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        left = [process for process in left if process.is_running]
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    return left


def end_and_remove(folder: Path, patience_s: float) -> bool:
    """End whoever uses a folder (also those that are being started meanwhile), and remove it; whether it is gone."""
    for _ in range(REMOVAL_ATTEMPTS):
        end(using(folder), patience_s)
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return True
    return False


def _pids() -> list[int]:
    return [int(path.name) for path in PROC.iterdir() if path.name.isdecimal()]


def _has_open_below(pid: int, folder: Path) -> bool:
    """Whether a process has a file open below a folder; what may not be looked at has not."""
    try:
        handles = list((PROC / str(pid) / "fd").iterdir())
    except OSError:
        return False
    for handle in handles:
        with contextlib.suppress(OSError):
            if Path(os.readlink(handle)).is_relative_to(folder):
                return True
    return False


def _stat(pid: int) -> list[str] | None:
    """The fields of a process' status line behind its name, which may hold anything."""
    try:
        line = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return line.rpartition(")")[2].split()
