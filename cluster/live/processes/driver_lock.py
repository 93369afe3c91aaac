"""The lock of a run's driver: its holder drives the run, and the lock ends with its process, however that ends.

It is a file system lock (``flock``), so that a driver that is stopped still holds it. The file names its process, for
users and for a driver on another machine that shares the folder, where such locks may not work. So a heartbeat thread
of the driver increments a counter in the file, even while the driver is busy. A driver that finds the file of another
machine watches it for a while: a counter that increases means a live driver. No clocks are compared.

The file is removed at the end. A process that had opened it before holds a lock on a removed file, and opens it again.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput
from cluster.live.processes import processes
from cluster.live.processes.processes import NAMESPACE, Process
from cluster.record.folder import is_at, is_locked, takes_lock

LOCK_FILE: Final = "driver.lock"
PATIENCE_S: Final = 2.0
"""Time to wait for the lock. A cleanup watchdog holds it only for a moment, unless it cleans up."""
POLL_S: Final = 0.05
PAGE_BYTES: Final = 512
"""Length of the file's content (a page), constant so that a new page overwrites the previous one."""
BEAT_S: Final = 2.0
"""Interval of the driver's heartbeats in the file."""
FRESH_S: Final = 15.0
"""A driver of another machine without a heartbeat for this long is dead."""


@contextmanager
def driving(folder: Path) -> Iterator[float]:
    """Hold the lock of a run inside the block. Yields the time of the previous driver's last heartbeat.

    That time is in seconds since the epoch, and 0.0 if there was no driver.

    Raises :class:`BadInput` if another process drives the run, and :class:`OSError`.
    """
    path = folder / LOCK_FILE
    file = _take(folder, path)
    try:
        before = _read(path)
        if _is_elsewhere(before) and _counts(path, before):
            raise _alive(folder, path)
        heartbeat, is_refused = _Heartbeat(file), True
        try:
            yield float(before.get("at_s", 0.0))
            is_refused = False
        finally:
            heartbeat.close()
            if is_refused and before:
                _write(file, before)  # the next driver needs it, too
            elif is_at(file, path):
                path.unlink(missing_ok=True)
    finally:
        os.close(file)


class _Heartbeat:
    """Increments the counter in the lock's file, from a separate thread."""

    def __init__(self, file: int) -> None:
        """Write the first heartbeat into the lock's open ``file``, and start the thread. Raises :class:`OSError`."""
        self._file = file
        self._count = 0
        os.ftruncate(file, 0)
        self._beat()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(BEAT_S):
            with suppress(OSError):  # the disk is full, or unavailable: the next beat may succeed
                self._beat()

    def _beat(self) -> None:
        myself = processes.own()
        page = {"pid": myself.pid, "started": myself.started, "machine": socket.gethostname()}
        page |= {"namespace": myself.namespace, "count": self._count, "at_s": round(time.time(), 3)}
        self._count += 1
        _write(self._file, page)


def is_driven(folder: Path, dead: Process | None = None) -> bool:
    """Whether a process of this machine, other than ``dead``, drives a run.

    The lock of a killed process is held until the system has closed its files, or by children that inherited them.
    """
    path = folder / LOCK_FILE
    if not is_locked(path, os.O_RDWR):
        return False
    page = _read(path)
    return dead is None or (page.get("pid"), page.get("started")) != (dead.pid, dead.started)


def _take(folder: Path, path: Path) -> int:
    """Take the lock. Returns the descriptor of its file. Raises :class:`BadInput` and :class:`OSError`."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            is_free = takes_lock(file)
            if is_free and is_at(file, path):
                return file
            if not is_free and time.monotonic() > deadline:
                raise _alive(folder, path)
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        if not is_free:
            time.sleep(POLL_S)


def _is_elsewhere(page: Mapping[str, Any]) -> bool:
    """Whether the driver that a lock's file names is on another machine, where locks may not hold."""
    return page.get("namespace", NAMESPACE) != NAMESPACE


def _counts(path: Path, before: Mapping[str, Any]) -> bool:
    """Whether the content of the lock's file changes within :data:`FRESH_S`: a live driver increments its counter."""
    deadline = time.monotonic() + FRESH_S
    while time.monotonic() < deadline:
        time.sleep(POLL_S)
        if _read(path) != before:
            return True
    return False


def _alive(folder: Path, path: Path) -> BadInput:
    try:
        page = _read(path)
        who = f"process {page['pid']} on {page['machine']}"
    except KeyError:
        who = f"another process has the lock {path}"
    return BadInput(f"{folder}: its driver is alive: {who}; expected a run whose driver has died")


def _write(file: int, page: Mapping[str, Any]) -> None:
    os.pwrite(file, json.dumps(page).encode().ljust(PAGE_BYTES) + b"\n", 0)


def _read(path: Path) -> dict[str, Any]:
    """The content of the lock's file, which names the process; empty while the file is written."""
    with suppress(OSError, ValueError):
        page = json.loads(path.read_text(encoding="utf-8"))
        return page if isinstance(page, dict) else {}
    return {}
