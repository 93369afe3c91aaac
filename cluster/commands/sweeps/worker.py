"""The work of a sweep's worker process: a batch of numbers, each of them answered as soon as it ends."""

from __future__ import annotations

import gc
import resource
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import psutil

from cluster import set_heap_apart
from cluster.commands.sweeps.folders import packed
from cluster.record.folder import seed_folder

WORKER_MEMORY_MIB: Final = 2_048

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
