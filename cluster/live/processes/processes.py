"""Processes of this machine: found, watched and ended, never by name alone.

A process is identified by its id, its start time, and its pid namespace, so that no other process with the same id is
taken for it: not one that got the id later, and not one of another machine or container. Two containers of a machine
have the same boot time, and the same few ids. Thread ids are not process ids: :func:`find` refuses them, though the
kernel would deliver signals to them.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import psutil

POLL_S: Final = 0.05
ATTEMPTS: Final = 5
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
"""Identifies this boot of the machine; the same in all its containers."""


def _namespace_of(pid: int | str) -> str:
    """The pid namespace of a process with a local id: different on every machine and after every boot.

    Raises :class:`OSError` if the process has ended, or belongs to another user.
    """
    return f"{BOOT_ID} {os.readlink(f'/proc/{pid}/ns/pid')}"


NAMESPACE: Final = _namespace_of("self")
"""Namespace of this process, and of all that it sees except processes in containers."""


class Process(NamedTuple):
    """A process that runs, or ran. It is looked up, and signalled, only in its own namespace."""

    pid: int
    started: int
    """When it started, in clock ticks since boot. Every reader gets the same number, even if the clock was set."""
    namespace: str = NAMESPACE
    """The namespace in which ``pid`` is its id."""

    @property
    def is_running(self) -> bool:
        """Whether the process still runs; a zombie does not."""
        return find(self.pid) == self

    @property
    def is_stopped(self) -> bool:
        """Whether the process runs and is stopped (state T)."""
        with suppress(psutil.Error):
            return self.is_running and psutil.Process(self.pid).status() == psutil.STATUS_STOPPED
        return False

    def send(self, number: signal.Signals) -> bool:
        """Send a signal. Returns whether the process still ran."""
        with self.handle() as descriptor:
            if descriptor is None:
                return False
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)
                return True
        return False

    @contextmanager
    def handle(self) -> Iterator[int | None]:
        """A descriptor of exactly this process, even if its id is reused; ``None`` if it does not run."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:  # no such process, or the id of a thread
            yield None
            return
        try:
            yield descriptor if self.is_running else None  # what runs still is what was opened
        finally:
            os.close(descriptor)


class Use(NamedTuple):
    """The resources that a process uses."""

    memory_bytes: int
    """Resident memory."""
    cpu_seconds: float
    """Processor time of all its threads, since it started."""
    open_files: int
    """Number of file descriptors."""


def own_use() -> Use:
    myself = psutil.Process()
    times = myself.cpu_times()
    return Use(myself.memory_info().rss, times.user + times.system, myself.num_fds())


def find(pid: int) -> Process | None:
    """The running process that has an id here now; ``None`` if there is none, or if the id is a thread's."""
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


def of_python(text: str) -> set[Process]:
    """Like :func:`with_argument`, but only processes of this Python or of Ray: no editor or pager of a user's."""
    return _identified(handle for handle in psutil.process_iter() if _is_of_python(handle, text))


def using(folder: Path) -> set[Process]:
    """The processes of the Ray that has this folder, except this process.

    They are those that have files below the folder open for writing, and those of Ray or of this Python that have the
    folder in their command line. A process that only reads there, such as a pager, is not included.
    """
    return _identified(handle for handle in psutil.process_iter() if _uses(handle, folder))


def command(process: Process) -> str:
    """The name of the program that a process runs; empty if it has ended."""
    with suppress(psutil.Error):
        return psutil.Process(process.pid).name()
    return ""


def with_descendants(roots: Iterable[Process]) -> set[Process]:
    """Processes with all their descendants."""
    found = set(roots)
    for root in list(found):
        with suppress(psutil.Error):
            if root.is_running:
                found |= _identified(psutil.Process(root.pid).children(recursive=True))
    return found


def end(processes: Iterable[Process], patience_s: float) -> list[Process]:
    """Wait until all processes are gone, then kill the rest. Returns those that had to be killed."""
    left = [process for process in processes if process.is_running]
    deadline = time.monotonic() + patience_s
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        left = [process for process in left if process.is_running]
    for process in left:
        process.send(signal.SIGKILL)
    return left


def end_all(find: Callable[[], Iterable[Process]], patience_s: float) -> set[Process]:
    """End what ``find`` returns, with all descendants, until it returns nothing. Returns all that it returned.

    One look is not enough: a process may start another one, which no longer has it for a parent when it is killed.
    """
    found = set[Process]()
    for _ in range(ATTEMPTS):
        if not (left := with_descendants(find())):
            break
        end(left, patience_s)
        found |= left
    return found


def end_of(process: Process, patience_s: float) -> bool:
    """Wait for the end of a process that need not be a child. Returns whether it has ended."""
    deadline = time.monotonic() + patience_s
    while process.is_running and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return not process.is_running


def end_and_remove(folder: Path, patience_s: float) -> bool:
    """End the processes that use a folder, including new ones, and remove it. Returns whether it is gone."""
    for _ in range(ATTEMPTS):
        end(using(folder), patience_s)
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return True
    return False


def _started(handle: psutil.Process) -> int:
    return round((handle.create_time() - psutil.boot_time()) * TICKS_PER_SECOND)


def _uses(handle: psutil.Process, folder: Path) -> bool:
    with suppress(psutil.Error):
        return _is_of_python(handle, str(folder)) or any(
            file.mode != "r" and Path(file.path).is_relative_to(folder) for file in handle.open_files()
        )
    return False


def _is_of_python(handle: psutil.Process, text: str) -> bool:
    with suppress(psutil.Error):
        return _has_argument(handle, text) and _is_rays(Path(handle.exe()))
    return False


def _is_rays(program: Path) -> bool:
    """Whether a program is this Python, or comes with Ray."""
    found = importlib.util.find_spec("ray")
    folders = [] if found is None else list(found.submodule_search_locations or ())
    return program == Path(sys.executable).resolve() or any(map(program.is_relative_to, folders))


def _has_argument(handle: psutil.Process, text: str) -> bool:
    with suppress(psutil.Error):
        return any(text in argument for argument in handle.cmdline())
    return False


def _identified(handles: Iterable[psutil.Process]) -> set[Process]:
    """The processes of these handles, without this one, those of other namespaces, and those that have ended."""
    found = {find(handle.pid) for handle in handles if handle.pid != os.getpid() and _is_here(handle.pid)}
    return {process for process in found if process is not None}


def _is_here(pid: int) -> bool:
    """Whether a process is in the namespace of this one: processes in containers are visible from outside, too."""
    with suppress(OSError):  # it ended, or belongs to another user
        return _namespace_of(pid) == NAMESPACE
    return False
