"""The only way by which a validator's bytes reach a disk.

A :class:`Disk` is one validator's data folder. The live testnet gives it real files with fsync, the simulator gives it
memory that loses what was not synced, and crash tests give it a disk that fails at a chosen operation. The rules that
every implementation keeps, and that callers may rely on, are those of a POSIX file system and no more:

- ``append`` and ``write`` may be lost, wholly or in part, unless a later ``sync`` of the same file returned;
- ``replace`` is atomic: afterwards the file holds the old or the new content whole, and the new one is durable;
- a failed ``sync`` means that nothing is known about what was written since the last one that succeeded.

Names are plain file names or ``folder/name``; folders need not be made first.
"""

from __future__ import annotations

from typing import Protocol

from validator.primitives.types import ValidatorError


class DiskError(ValidatorError):
    """An operation on a file failed. The message names the file, the offset if there is one, and the cause."""


class Disk(Protocol):
    """One validator's data folder."""

    def names(self) -> list[str]:
        """The files there are, sorted."""

    def size(self, name: str) -> int:
        """Bytes in the file; 0 if there is none."""

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Up to ``length`` bytes from ``offset`` (to the end if ``None``); empty if there is no such file."""

    def append(self, name: str, data: bytes) -> int:
        """Add bytes at the end; returns the offset at which they begin."""

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Overwrite bytes in place, extending the file if it ends before."""

    def truncate(self, name: str, size: int) -> None:
        """Cut the file to ``size`` bytes, durably."""

    def sync(self, name: str) -> None:
        """Return once everything written to the file is durable."""

    def replace(self, name: str, data: bytes) -> None:
        """Make ``data`` the file's whole content, atomically and durably."""

    def remove(self, name: str) -> None:
        """Delete the file, durably; nothing happens if there is none."""

    def release(self, name: str) -> None:
        """Hold nothing for the file, whose writes were synced, until it is used again: there are many like it."""


def used_bytes(disk: Disk) -> dict[str, int]:
    """Bytes on the disk, by folder or plain file."""
    used: dict[str, int] = {}
    for name in disk.names():
        top = name.split("/")[0]
        used[top] = used.get(top, 0) + disk.size(name)
    return used
