"""The lock of a run's driver: who has it drives the run, and it goes with its process, however that ends.

The lock is one of the file system (``flock``), so that a driver that is stopped still has it. The file names its
process, for people and for a driver on another machine that shares the folder, where such locks may not hold: there the
age of the checkpoint says whether the driver lives (:mod:`cluster.live.handover.checkpoint`).
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput
from cluster.live.processes import processes
from cluster.live.processes.processes import Process

LOCK_FILE: Final = "driver.lock"
PATIENCE_S: Final = 2.0
"""A cleanup watchdog has the lock for a moment only, unless it cleans up."""
POLL_S: Final = 0.05


@contextmanager
def driving(folder: Path) -> Iterator[None]:
    """Be the driver of a run. Raises :class:`BadInput` if somebody else is, and :class:`OSError`."""
    path = folder / LOCK_FILE
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _locked(file):
            raise BadInput(f"{folder}: its driver is alive: {_describe(path)}; expected a run whose driver has died")
        myself = processes.own()
        page = {"pid": myself.pid, "started": myself.started, "machine": socket.gethostname()}
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(page).encode() + b"\n", 0)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(file)


def is_driven(folder: Path, dead: Process | None = None) -> bool:
    """Whether a process of this machine drives a run, another one than ``dead``.

    The lock of a process that was killed is held until the system has closed its files, and by children that have them.
    """
    path = folder / LOCK_FILE
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if _is_free(file):
            return False
    finally:
        os.close(file)
    page = _read(path)
    return dead is None or (page.get("pid"), page.get("started")) != (dead.pid, dead.started)


def _locked(file: int) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not _is_free(file):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _is_free(file: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _describe(path: Path) -> str:
    try:
        page = _read(path)
        return f"process {page['pid']} on {page['machine']}"
    except KeyError:
        return f"another process has the lock {path}"


def _read(path: Path) -> dict[str, Any]:
    """The process that the lock's file names; nothing while the file is written."""
    with suppress(OSError, ValueError):
        page = json.loads(path.read_text(encoding="utf-8"))
        return page if isinstance(page, dict) else {}
    return {}
