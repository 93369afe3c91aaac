"""A real disk with injected faults: it becomes full, its sync fails, or it is slow.

A full disk takes half of the next write; the rest is written to ``/dev/full``, so that the kernel itself reports that
no space is left. No kernel fails a sync on demand without privileges, so that error is raised here. Before that, the
unsynced bytes are taken back: added bytes are cut off, and overwritten bytes get their old content again. Without this,
the process that starts after a kill would read them.

Two threads write files, each its own; faults are set by a third one.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.disks import PLANNED_FAILURE, Trap
from cluster.disks.directory import DirectoryDisk

FULL_DEVICE: Final = "/dev/full"


@dataclass(slots=True)
class _Unsynced:
    """What is needed to undo the unsynced writes to a file when a sync fails."""

    size: int
    """The file's size at the last sync."""
    overwritten: list[tuple[int, bytes]]
    """Offsets below that size, and the bytes that were there."""


class FaultyDisk(DirectoryDisk):
    """A :class:`DirectoryDisk` that fails at planned operations."""

    def __init__(self, path: str | Path, usual_sync_ms: int = 0, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(path)
        self.usual_sync_ms = usual_sync_ms
        self.sync_ms = usual_sync_ms
        """The least duration of each sync."""
        self.slow_syncs = 0
        """Syncs that took longer than usual."""
        self._sleep = sleep
        self._orders = threading.Lock()
        self._trap: Trap | None = None
        self._keeps_old = False
        self._unsynced: dict[str, _Unsynced] = {}

    def lay_trap(self, trap: Trap | None) -> None:
        """Make the next operation that the fault concerns fail, once. ``None`` cancels a pending failure."""
        with self._orders:
            self._trap = trap
            self._keeps_old = self._keeps_old or (trap is not None and trap.fails == "sync")

    def truncate(self, name: str, size: int) -> None:
        super().truncate(name, size)
        self._unsynced.pop(name, None)

    def _forget(self, name: str) -> None:
        super()._forget(name)
        self._unsynced.pop(name, None)

    def _write_file(self, name: str, handle: int, offset: int, data: bytes) -> None:
        if self._springs("write", name):
            kept = len(data) // 2
            super()._write_file(name, handle, offset, data[:kept])
            with open(FULL_DEVICE, "wb", buffering=0) as device:
                device.write(data[kept:] or b"\0")
        if self._keeps_old:
            self._keep_old(name, handle, offset, len(data))
        super()._write_file(name, handle, offset, data)

    def _sync_file(self, name: str, handle: int) -> None:
        if self.sync_ms:
            self.slow_syncs += self.sync_ms != self.usual_sync_ms
            self._sleep(self.sync_ms / MILLISECONDS_PER_SECOND)
        if self._springs("sync", name):
            self._take_back(name, handle)
            raise OSError(errno.EIO, f"{os.strerror(errno.EIO)} ({PLANNED_FAILURE})")
        super()._sync_file(name, handle)
        self._unsynced.pop(name, None)

    def _springs(self, operation: str, name: str) -> bool:
        """Whether an operation must fail: the pending trap concerns it and this file. If so, remove the trap."""
        with self._orders:
            trap = self._trap
            if trap is None or trap.fails != operation or not name.startswith(trap.files):
                return False
            self._trap = None
            return True

    def _keep_old(self, name: str, handle: int, offset: int, size: int) -> None:
        """Keep the bytes needed to undo a write."""
        unsynced = self._unsynced.get(name)
        if unsynced is None:
            unsynced = self._unsynced[name] = _Unsynced(os.fstat(handle).st_size, [])
        if offset < unsynced.size:
            unsynced.overwritten.append((offset, os.pread(handle, min(size, unsynced.size - offset), offset)))

    def _take_back(self, name: str, handle: int) -> None:
        """Undo the writes since the last sync, as far as they are known."""
        unsynced = self._unsynced.pop(name, None)
        if unsynced is not None:
            for offset, old in reversed(unsynced.overwritten):
                os.pwrite(handle, old, offset)
            os.ftruncate(handle, unsynced.size)


def flip_bit(path: Path, offset: int, bit: int) -> None:
    """Flip one bit (0 to 7) of the byte at an offset of a file, durably. Raises :class:`OSError`."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ (1 << bit)]))
        file.flush()
        os.fsync(file.fileno())
