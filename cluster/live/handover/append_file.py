"""A file to which rows are appended, of which none is lost if the disk is full for a while."""

from __future__ import annotations

import os
from pathlib import Path


class AppendFile:
    """Rows wait in memory until :meth:`flush` could write them."""

    def __init__(self, path: Path, keep_bytes: int = 0) -> None:
        """Go on behind so many bytes of a file; what follows them is removed. Raises :class:`OSError`."""
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
        """Bytes, those that wait included."""
        return self._written + len(self._waiting)

    def add(self, row: bytes) -> None:
        self._waiting += row

    def flush(self) -> None:
        """From now on the rows outlive this process. Raises :class:`OSError`; then those that are left wait."""
        while self._waiting:
            count = os.write(self._descriptor, self._waiting)
            del self._waiting[:count]
            self._written += count

    def sync(self) -> None:
        """From now on they outlive the machine's power. Raises :class:`OSError`."""
        self.flush()
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Rows that wait are dropped."""
        os.close(self._descriptor)
