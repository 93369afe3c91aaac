"""The archive of blocks after many heights: what a start costs, and what is asked of it while it runs.

The blocks are made up, of 50 kB each with their receipts, 24 transactions and 40 fires. Starts are whole ones of an
executor, in a process of its own each: the archive is checked, the state is opened, the scheduler's index is rebuilt.

- ``start_seconds``, ``start_cpu_seconds``, ``start_memory_mb``: after 20,000 heights (100,000 with ``--full``), all
  blocks kept; the memory is the whole process's, at its highest. The files are in the system's cache.
- ``pruned_start_seconds``: the same after nine tenths of the blocks were pruned; ``prune_seconds`` of that pruning.
- ``append_ms``: a block becomes durable, with fsync. ``misses_per_second``: receipts asked for that are not there.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import NamedTuple

from reporting import Lane, Metric, Size, folder, peak_memory_mb, run_benchmark

from cluster.disks.directory import DirectoryDisk
from validator.chain.block import (
    Block,
    BlockReceipts,
    Effects,
    Event,
    FireReceipt,
    Header,
    Movement,
    TransactionReceipt,
)
from validator.chain.genesis import Genesis
from validator.node.executor.executor import Executor
from validator.primitives.codec import encode, tagged_hash
from validator.primitives.types import Hash, Height
from validator.state.store import LogStateStore
from validator.storage.archive import SEGMENT_BYTES, ArchivedBlock, BlockArchive

HEIGHTS, QUICK_HEIGHTS, FULL_HEIGHTS = 20_000, 500, 100_000
KEPT_SHARE = 10
TRANSACTIONS, FIRES = 24, 40
WIRE_BYTES = 350
ADDRESS = bytes(range(20))
EFFECTS = Effects(
    movements=(Movement(ADDRESS, ADDRESS, b"\x01\x02\x03"),) * 3,
    events=(Event("Transferred", ADDRESS, (("to", ADDRESS.hex()), ("amount", "1234567890"), ("memo", "x" * 350))),) * 1,
)
GENESIS = Genesis("benchmark", (bytes(32),))
APPENDED = 200
ASKED = 20_000


class UnsyncedDisk(DirectoryDisk):
    """For the set-up, which no crash interrupts."""

    def _sync_file(self, name: str, handle: int) -> None:
        pass


class Start(NamedTuple):
    """The cost of a start."""

    seconds: float
    cpu_seconds: float
    memory_mb: float


def main() -> None:
    run_benchmark(__doc__, lanes, minutes=1, full=f"{FULL_HEIGHTS:,} heights, 5.4 GB; about 10 min")


def lanes(size: Size) -> list[Lane]:
    heights = size.of(QUICK_HEIGHTS, HEIGHTS, FULL_HEIGHTS)
    metrics = [
        Metric("archive_gb", f"GB after {heights:,} heights"),
        Metric("start_seconds", "s", 10, at_least=False),
        Metric("start_cpu_seconds", "s"),
        Metric("start_memory_mb", "MB", 300, at_least=False),
        Metric("append_ms", "ms a block, median"),
        Metric("misses_per_second", "receipts/s"),
        Metric("prune_seconds", "s (nine tenths of the blocks at once)"),
        Metric("pruned_start_seconds", f"s ({heights // KEPT_SHARE:,} blocks kept)"),
        Metric("pruned_start_memory_mb", "MB"),
    ]
    return [Lane(partial(_figures, heights), metrics)]


def _figures(heights: int) -> Iterator[float]:
    segment_bytes = min(SEGMENT_BYTES, heights * 2_000)  # so that nine tenths of the blocks fill files
    with filled_folder(heights, segment_bytes) as path:
        yield sum(path.stat().st_size for path in (path / "blocks").iterdir()) / 1e9
        yield from start(path)
        yield from _use(path, heights)
        yield _prune(path, heights - heights // KEPT_SHARE)
        pruned = start(path)
        yield pruned.seconds
        yield pruned.memory_mb


@contextmanager
def filled_folder(heights: int, segment_bytes: int = SEGMENT_BYTES) -> Iterator[Path]:
    """A validator's data folder after so many heights; removed at the end."""
    with folder() as path:
        disk = UnsyncedDisk(path)
        Executor(disk, GENESIS).close()
        store, archive = LogStateStore.open(disk), BlockArchive(disk, segment_bytes)
        final = store.final.derive(Height(heights), {})
        for height in range(1, heights + 1):
            archive.append(*_block(height, final.root))
        store.commit(final)
        store.close()
        disk.close()
        yield path


def start(path: Path) -> Start:
    """Start an executor in a new process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_started, path).result()


def _started(path: Path) -> Start:
    disk, began, cpu_began = DirectoryDisk(path), time.perf_counter(), time.process_time()
    executor = Executor(disk, GENESIS)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    assert executor.recovered_height and not executor.replayed_blocks
    return Start(seconds, cpu_seconds, peak_memory_mb())


def _use(path: Path, height: int) -> tuple[float, float]:
    """Milliseconds an appended block, and receipts a second that are asked for in vain."""
    disk = DirectoryDisk(path)
    archive = BlockArchive(disk)
    assert archive.find_receipt(_hash(height, 0)) is not None, "the newest is found"
    names = [_hash(0, number) for number in range(ASKED)]
    began = time.process_time()
    assert all(archive.find_receipt(name) is None for name in names)
    misses = ASKED / (time.process_time() - began)
    disk.close()
    times = []
    probe_disk = DirectoryDisk(path / "probe")
    probe = BlockArchive(probe_disk)
    for each in range(1, APPENDED + 1):
        block = _block(each, Hash(bytes(32)))
        began = time.perf_counter()
        probe.append(*block)
        times.append((time.perf_counter() - began) * 1_000)
    probe_disk.close()
    shutil.rmtree(path / "probe")
    return median(times), misses


def _prune(path: Path, height: int) -> float:
    disk = DirectoryDisk(path)
    archive = BlockArchive(disk)
    began = time.perf_counter()
    archive.prune(height)
    seconds = time.perf_counter() - began
    assert archive.first_height > height - height // KEPT_SHARE
    disk.close()
    return seconds


# --- blocks -----------------------------------------------------------------------------------------------------------


def _hash(height: int, number: int) -> Hash:
    return tagged_hash(b"benchmark", height.to_bytes(8, "big") + number.to_bytes(8, "big"))


def _block(height: int, state_root: Hash) -> tuple[ArchivedBlock, BlockReceipts]:
    """A made-up final block, as an archive takes it."""
    names = [_hash(height, number) for number in range(TRANSACTIONS + FIRES)]
    transactions = tuple(
        TransactionReceipt(name, ADDRESS, True, "", 1_000, 100, b"\x01\x02", b"\x03", EFFECTS)
        for name in names[:TRANSACTIONS]
    )
    fires = tuple(
        FireReceipt(name, ADDRESS, height, 1, ADDRESS, True, "", 1_000, 100, b"\x01\x02", b"\x03", b"\x01", EFFECTS)
        for name in names[TRANSACTIONS:]
    )
    receipts = BlockReceipts(height, ADDRESS, transactions, fires, (), (), (), 0, b"")
    roots = (bytes(32), bytes(32), state_root)
    prices = (b"\x01", b"\x01", b"\x01")
    header = Header(GENESIS.chain_id, height, height, bytes(32), 0, *roots, *prices, 0, 0, 0, 0)
    block = Block(header, tuple(name * (WIRE_BYTES // len(name)) for name in names[:TRANSACTIONS]))
    return ArchivedBlock(encode(block), encode(receipts), b"certificate" * 40, state_root), receipts


if __name__ == "__main__":
    main()
