"""The work of a sweep's worker process: a batch of numbers, each of them answered as soon as it ends.

The folder of a number is sent from the node where it ran: packed, in pieces, and unpacked whole or not at all.
"""

from __future__ import annotations

import gc
import resource
import shutil
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, TypeVar

import psutil

from cluster import set_heap_apart
from cluster.record.folder import seed_folder

WORKER_MEMORY_MIB: Final = 2_048
MAX_FOLDER_BYTES: Final = 256 * 2**20
"""Maximum total size of a folder's files. Beyond it the largest are left out, and :data:`LEFT_OUT_FILE` names them."""
CHUNK_BYTES: Final = 2 * 2**20
LEFT_OUT_FILE: Final = "left-out.txt"

T = TypeVar("T")
Run = Callable[[int, Path], T]
"""A function that does the work for a number (a seed) and returns its result. It may create the given folder and leave
files there."""

_data_limit: list[int] = []
"""The memory limit of this process in bytes, as a list of one item; empty before the first batch sets it. Later batches
in the process keep the limit."""


class Finished(NamedTuple):
    """The answer of a worker for one number: its result and its run time in seconds."""

    number: int
    result: Any
    seconds: float


def run_batch(run: Run[Any], numbers: Sequence[int], folder: str | None, memory: int) -> Iterator[bytes | Finished]:
    """Call ``run`` for each number, one after the other; yields each answer.

    ``memory`` is the number of bytes that the process may use in addition to those of an idle worker. If it needs more,
    Python raises :class:`MemoryError`. A number leaves its files in ``<folder>/seed-<number>``. If ``folder`` is
    ``None``, the files are yielded in pieces before the answer.
    """
    bound_memory(memory)
    for number in numbers:
        started = time.monotonic()
        name = seed_folder(number)
        if folder is not None:
            result = run(number, Path(folder) / name)
            seconds = time.monotonic() - started
        else:
            leaves = Path(tempfile.gettempdir()) / f"stampede-{name}-{uuid.uuid4().hex}"
            try:
                result = run(number, leaves)
                seconds = time.monotonic() - started
                yield from packed(leaves)
            finally:
                _remove(leaves)
        free_memory()
        yield Finished(number, result, seconds)


def _remove(folder: Path) -> None:
    """Remove a folder, even if Ray cancels the task meanwhile, which it does at most once."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def free_memory() -> None:
    """Free the memory of the last seed's run, so that the next run has all of the process's memory limit.

    A run leaves many reference cycles, which the garbage collector must free. The first call also excludes all objects
    that exist by then, mostly modules, from later collections.
    """
    if gc.get_freeze_count():
        gc.collect()
    else:
        set_heap_apart()


def bound_memory(memory: int) -> None:
    """Limit the private writable memory of this process to its size at the first call plus ``memory`` bytes.

    Later calls keep the limit of the first.
    """
    if not _data_limit:
        _data_limit.append(psutil.Process().memory_info().data + memory)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_data_limit[0], hard))


def packed(folder: Path, max_bytes: int = MAX_FOLDER_BYTES) -> Iterator[bytes]:
    """Pack a folder, and yield the zip file in pieces; yields nothing if the folder does not exist."""
    if not folder.is_dir():
        return
    kept, left_out = _bounded(folder, max_bytes)
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in kept:
                archive.write(path, path.relative_to(folder).as_posix())
            if left_out:
                lines = [f"{path.relative_to(folder).as_posix()} {path.stat().st_size:,} bytes\n" for path in left_out]
                archive.writestr(LEFT_OUT_FILE, "".join(lines))
        file.seek(0)
        while piece := file.read(CHUNK_BYTES):
            yield piece


def _bounded(folder: Path, max_bytes: int) -> tuple[list[Path], list[Path]]:
    """The files to send, and the files to leave out: the largest, until the rest fits into ``max_bytes``."""
    kept = sorted(path for path in folder.rglob("*") if path.is_file())
    left_out = []
    while sum(path.stat().st_size for path in kept) > max_bytes:
        left_out.append(max(kept, key=lambda path: path.stat().st_size))
        kept.remove(left_out[-1])
    return kept, left_out


class Arriving:
    """A folder that arrives in pieces. :meth:`finish` unpacks it at its target, :meth:`drop` discards the pieces."""

    def __init__(self) -> None:
        self._pieces: IO[bytes] = tempfile.SpooledTemporaryFile(CHUNK_BYTES)  # noqa: SIM115 (it lives as long as this)
        self._is_empty = True

    def add(self, piece: bytes) -> None:
        """Append the next piece."""
        self._pieces.write(piece)
        self._is_empty = False

    def drop(self) -> None:
        """Discard the pieces received so far, because no further pieces will arrive."""
        self._pieces.seek(0)
        self._pieces.truncate()
        self._is_empty = True

    def finish(self, target: Path) -> None:
        """Unpack the folder as a whole, replacing an older one. Does nothing if no piece came."""
        if self._is_empty:
            return
        new = target.with_name(f".{target.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        try:
            with zipfile.ZipFile(self._pieces) as archive:
                archive.extractall(new)
            if target.exists():
                shutil.rmtree(target)
            new.rename(target)
        finally:
            shutil.rmtree(new, ignore_errors=True)
            self.drop()
