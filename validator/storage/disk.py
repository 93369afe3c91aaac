"""The only interface through which a validator's bytes reach a disk.

A :class:`Disk` is one validator's data folder. The live testnet implements it with real files and fsync, the simulator
with memory that loses unsynced data, and crash tests with a disk that fails at a chosen operation. Every implementation
guarantees, and callers may rely on, only the rules of a POSIX file system:

- ``append`` and ``write`` may be lost, wholly or in part, unless a later ``sync`` of the same file returned;
- ``replace`` is atomic: after a crash the file holds either the old or the new content, and when it returns, the new
  content is durable;
- after a failed ``sync`` the state of all data written since the last successful one is unknown.

Names are plain file names or ``folder/name``; folders are created on demand.
"""

from __future__ import annotations

from typing import Protocol

from validator.primitives.types import ValidatorError


class DiskError(ValidatorError):
    """An operation on a file failed. The message names the file, the offset if there is one, and the cause."""


class Disk(Protocol):
    """One validator's data folder."""

    def names(self) -> list[str]:
        """The names of all files, sorted."""

    def size(self, name: str) -> int:
        """Size of the file in bytes; 0 if it does not exist."""

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Up to ``length`` bytes from ``offset`` (to the end if ``None``); empty if the file does not exist."""

    def append(self, name: str, data: bytes) -> int:
        """Add bytes at the end; returns their offset."""

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Overwrite bytes in place, extending the file if necessary."""

    def truncate(self, name: str, size: int) -> None:
        """Cut the file to ``size`` bytes, durably."""

    def sync(self, name: str) -> None:
        """Return once everything written to the file is durable."""

    def replace(self, name: str, data: bytes) -> None:
        """Make ``data`` the file's whole content, atomically and durably."""

    def remove(self, name: str) -> None:
        """Delete the file, durably; it need not exist."""

    def release(self, name: str) -> None:
        """Close the handle of a file whose writes were synced. The next use opens it again.

        It limits the number of open files.
        """


def used_bytes(disk: Disk) -> dict[str, int]:
    """Bytes on the disk, by folder or top-level file."""
    used: dict[str, int] = {}
    for name in disk.names():
        top = name.split("/")[0]
        used[top] = used.get(top, 0) + disk.size(name)
    return used
