"""A file to which rows are appended without loss, even if the disk is full for a while."""

from __future__ import annotations

import os
from pathlib import Path


class AppendFile:
    """A file to which rows are appended. Rows wait in memory until :meth:`flush` has written them."""

    def __init__(self, path: Path, keep_bytes: int = 0) -> None:
        """Keep the first ``keep_bytes`` of a file, and append after them. Raises :class:`OSError`."""
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._waiting = bytearray()
        self._written = keep_bytes
        try:
            os.ftruncate(self._descriptor, keep_bytes)
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Size in bytes, waiting rows included."""
        return self._written + len(self._waiting)

    def add(self, row: bytes) -> None:
        self._waiting += row

    def flush(self) -> None:
        """Write the rows, so that they outlive this process. Raises :class:`OSError`; the remaining rows still wait."""
        while self._waiting:
            count = os.write(self._descriptor, self._waiting)
            del self._waiting[:count]
            self._written += count

    def sync(self) -> None:
        """Sync the rows, so that they survive a power failure. Raises :class:`OSError`."""
        self.flush()
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; waiting rows are dropped."""
        os.close(self._descriptor)
