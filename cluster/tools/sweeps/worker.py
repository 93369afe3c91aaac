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
from cluster.tools.sweeps.folders import packed

WORKER_MEMORY_MIB: Final = 2_048

T = TypeVar("T")
Run = Callable[[int, Path], T]
"""Runs a number. It may create the given folder and leave files there."""

_data_limit: list[int] = []
"""The memory limit that this process got with its first batch, in bytes. A process runs many batches."""


class Finished(NamedTuple):
    """The answer for one number."""

    number: int
    result: Any
    seconds: float


def run_batch(run: Run[Any], numbers: Sequence[int], folder: str | None, memory: int) -> Iterator[bytes | Finished]:
    """Run numbers one after the other. ``memory`` is the number of bytes that they may take in addition to those of an
    idle worker; beyond, Python raises :class:`MemoryError`.

    A number leaves its files in ``<folder>/seed-<number>``; without a folder they are sent in pieces before the answer.
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


def seed_folder(number: int) -> str:
    """The name of the folder in which a seed's run is kept."""
    return f"seed-{number}"


def free_memory() -> None:
    """Free the memory of the last seed's run: it has many reference cycles, and the next run needs the whole bound.

    Objects that survive the first run are modules, which no later collection needs to scan.
    """
    if gc.get_freeze_count():
        gc.collect()
    else:
        set_heap_apart()


def bound_memory(memory: int) -> None:
    """Bound the private writable memory of this process, once: to its current size plus ``memory`` bytes."""
    if not _data_limit:
        _data_limit.append(psutil.Process().memory_info().data + memory)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_data_limit[0], hard))
