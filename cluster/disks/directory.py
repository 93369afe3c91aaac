"""A validator's data folder on a real disk.

Each file name of a caller is one file below the folder. Names that begin with a dot are internal: the lock, which keeps
other processes out of the folder while this one lives, and the temporary file of :meth:`DirectoryDisk.replace`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cluster.common.files import sync_folder
from validator.storage.disk import DiskError

LOCK_NAME: Final = ".lock"
TEMPORARY_SUFFIX: Final = ".tmp"
NAME_PARTS_LIMIT: Final = 2


class DirectoryDisk:
    """One validator's data folder: a :class:`~validator.storage.disk.Disk`, which describes the methods.

    The folder is made if it is missing. Raises :class:`DiskError` if another process holds it. One handle per file
    stays open until :meth:`release` or :meth:`close`.
    """

    def __init__(self, path: str | Path) -> None:
        self._folder = Path(path)
        self._handles: dict[str, int] = {}
        self._lock: int | None = None
        with _as_disk_error(LOCK_NAME, 0, "lock"):
            self._folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise DiskError(
                f"{self._folder}: the folder is in use by another validator (it holds {LOCK_NAME})"
            ) from None
        self._lock = lock

    def close(self) -> None:
        """Close every file and release the lock. Unsynced data may still reach the disk. Closing twice is fine."""
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def used_bytes(self) -> int:
        """Bytes in all files, including temporary ones; 0 if the folder is gone."""
        total = 0
        for folder, _, names in os.walk(self._folder):
            for name in names:
                with suppress(FileNotFoundError):  # renamed or removed meanwhile
                    total += os.stat(Path(folder) / name).st_size
        return total

    def names(self) -> list[str]:
        self._require_open("")
        with _as_disk_error(".", 0, "list"):
            found = [path.relative_to(self._folder) for path in self._folder.rglob("*") if path.is_file()]
        return sorted(path.as_posix() for path in found if not any(part.startswith(".") for part in path.parts))

    def size(self, name: str) -> int:
        """The file's length in bytes; 0 if there is no such file. Safe to call from any thread."""
        path = self._path(name)
        with _as_disk_error(name, 0, "size"), suppress(FileNotFoundError):
            return path.stat().st_size
        return 0

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        handle = self._handle(name, create=False)
        if handle is None:
            return b""
        end = self.size(name) if length is None else offset + length  # a file that ends before ends the loop
        parts = []
        with _as_disk_error(name, offset, "read"):
            while offset < end:
                part = os.pread(handle, end - offset, offset)
                if not part:
                    break
                parts.append(part)
                offset += len(part)
        return b"".join(parts)

    def append(self, name: str, data: bytes) -> int:
        offset = self.size(name)
        self.write(name, offset, data)
        return offset

    def write(self, name: str, offset: int, data: bytes) -> None:
        handle = self._handle(name, create=True)
        assert handle is not None
        with _as_disk_error(name, offset, "write"):
            self._write_file(name, handle, offset, data)

    def truncate(self, name: str, size: int) -> None:
        """Cut the file to ``size`` bytes, durably. Raises :class:`DiskError` if the file has fewer bytes."""
        if size > self.size(name):
            raise DiskError(f"{name}: offset {size}: truncate failed: the file ends at {self.size(name)}")
        handle = self._handle(name, create=False)
        if handle is not None:
            with _as_disk_error(name, size, "truncate"):
                os.ftruncate(handle, size)
                os.fsync(handle)

    def sync(self, name: str) -> None:
        handle = self._handle(name, create=False)
        if handle is not None:
            with _as_disk_error(name, os.fstat(handle).st_size, "sync"):
                self._sync_file(name, handle)

    def replace(self, name: str, data: bytes) -> None:
        path = self._path(name)
        temporary = path.with_name(f".{path.name}{TEMPORARY_SUFFIX}")
        with _as_disk_error(name, 0, "replace"):
            self._make_folder(path.parent)
            handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                self._write_file(name, handle, 0, data)
                os.fsync(handle)
            finally:
                os.close(handle)
            self._forget(name)
            os.replace(temporary, path)
            sync_folder(path.parent)

    def remove(self, name: str) -> None:
        path = self._path(name)
        with _as_disk_error(name, 0, "remove"):
            self._forget(name)
            if path.exists():
                path.unlink()
                sync_folder(path.parent)

    def release(self, name: str) -> None:
        self._forget(name)

    # --- operations that a disk with faults overrides ---------------------------------------------------------------

    def _write_file(self, name: str, handle: int, offset: int, data: bytes) -> None:
        """Write all bytes. Raises :class:`OSError`."""
        rest = memoryview(data)
        while rest:
            written = os.pwrite(handle, rest, offset)
            rest = rest[written:]
            offset += written

    def _sync_file(self, name: str, handle: int) -> None:
        """Make the written bytes durable. Raises :class:`OSError`."""
        os.fsync(handle)

    # --- files --------------------------------------------------------------------------------------------------------

    def _handle(self, name: str, create: bool) -> int | None:
        """The file's descriptor, opened if necessary; ``None`` if there is no such file and ``create`` is false."""
        self._require_open(name)
        if name in self._handles:
            return self._handles[name]
        path = self._path(name)
        with _as_disk_error(name, 0, "open"):
            if path.exists():
                self._handles[name] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            elif create:
                self._make_folder(path.parent)
                self._handles[name] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                sync_folder(path.parent)
        return self._handles.get(name)

    def _forget(self, name: str) -> None:
        if name in self._handles:
            os.close(self._handles.pop(name))

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)

    def _path(self, name: str) -> Path:
        self._require_open(name)
        parts = name.split("/")
        if len(parts) > NAME_PARTS_LIMIT or any(not part or part.startswith(".") for part in parts):
            raise DiskError(f"{name!r} is no file name: expected a name or folder/name, without leading dots")
        return self._folder.joinpath(*parts)

    def _require_open(self, name: str) -> None:
        if self._lock is None:
            raise DiskError(f"{name or self._folder}: the disk was closed")


@contextmanager
def _as_disk_error(name: str, offset: int, verb: str) -> Iterator[None]:
    """A context that turns an :class:`OSError` into a :class:`DiskError` with a message of one line."""
    try:
        yield
    except OSError as error:
        raise DiskError(f"{name}: offset {offset}: {verb} failed: {error.strerror or error}") from error
