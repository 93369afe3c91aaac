"""The state store: updates, inserts, reads, proofs, opening, memory and disk, against three baselines.

All stores get the same work in the same run: keys of 21 bytes and values of 32, overwritten at random in batches, each
batch one block that is derived and committed with its fsync. The baselines are

- ``dict``: a plain dict, and a Merkle tree over all of it that is built anew for each batch;
- ``lmdb``: LMDB with a transaction and an fsync a batch, and no Merkle tree at all;
- ``plain``: the plain engine of the store, which hashes one node a call.

Inserts, proofs and opening are measured in seconds of the processor, whatever else it has to do; everything else in
seconds of the clock. Most proofs need a twig that none of the last 64 proofs needed. Opening reads the log of all that
was measured before: twice as many blocks as the inserts alone had.

The goals for memory and opening are for a million keys: in a ``--quick`` run what a batch takes weighs too much.
``--full`` adds a store of 10 million keys, which takes some minutes and about 3 GB on the disk.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter, process_time
from typing import Any, Final

import lmdb
from blake3 import blake3
from reporting import Metric, Size, run_benchmark

from cluster.disks.directory import DirectoryDisk
from validator.primitives.types import Height
from validator.state import LogStateStore
from validator.state.engines.packed import PackedEngine
from validator.state.engines.plain import PlainEngine
from validator.state.proofs.proof import verify

KEY_BYTES: Final = 21
VALUE_BYTES: Final = 32
FILL_BATCH: Final = 10_000
BATCH: Final = 10_000
BATCHES: Final = (100, 1_000, 10_000, 100_000)
ENTRIES_PER_MEASUREMENT: Final = 200_000
MAX_BATCHES: Final = 200
SMALL: Final = 10_000
READS: Final = 100_000
PROOFS: Final = 20_000
ROUNDS: Final = 15
PAGE_BYTES: Final = 4096
NEVER_PACKED: Final = 2**63
"""Each store keeps the engine that it is measured with."""

Batch = dict[bytes, bytes | None]


def key_of(number: int) -> bytes:
    """The key with a number; keys of neighbouring numbers lie apart."""
    return b"a" + blake2b(number.to_bytes(8, "big"), digest_size=KEY_BYTES - 1).digest()


def random_batches(rng: Random, keys: int, size: int, count: int) -> list[Batch]:
    return [{key_of(rng.randrange(keys)): rng.randbytes(VALUE_BYTES) for _ in range(size)} for _ in range(count)]


def batches_of(size: int) -> int:
    """How many batches of a size are measured."""
    return max(3, min(ENTRIES_PER_MEASUREMENT // size, MAX_BATCHES))


def resident_bytes() -> int:
    """The process's resident set."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


@contextmanager
def folder() -> Iterator[Path]:
    """A folder beside this file's repository or in the system's temporary one, removed afterwards."""
    path = Path(tempfile.mkdtemp(prefix="stampede-state-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


class Ours:
    """The store with one of its engines, on real files."""

    def __init__(self, path: Path, engine: Any) -> None:
        self.disk = DirectoryDisk(path)
        self.store = LogStateStore.open(self.disk, engine=engine, packed_keys=NEVER_PACKED)
        self.height = self.store.final.height

    def commit(self, batch: Batch) -> None:
        """One block."""
        self.height = Height(self.height + 1)
        self.store.commit(self.store.final.derive(self.height, batch))

    def close(self) -> None:
        """Let go of the files."""
        self.store.close()
        self.disk.close()


class PlainDict:
    """A dict, and a Merkle tree over its sorted items that is built anew for each batch."""

    def __init__(self) -> None:
        self.items: dict[bytes, bytes] = {}

    def commit(self, batch: Batch) -> None:
        """One block."""
        for key, value in batch.items():
            if value is None:
                self.items.pop(key, None)
            else:
                self.items[key] = value
        row = [blake3(key + self.items[key]).digest() for key in sorted(self.items)]
        while len(row) > 1:
            row = [blake3(b"".join(row[i : i + 2])).digest() for i in range(0, len(row), 2)]


class Lmdb:
    """LMDB: a transaction and an fsync a block."""

    def __init__(self, path: Path) -> None:
        self.environment = lmdb.open(str(path / "lmdb"), map_size=2**34)

    def commit(self, batch: Batch) -> None:
        """One block."""
        with self.environment.begin(write=True) as transaction:
            for key, value in batch.items():
                if value is None:
                    transaction.delete(key)
                else:
                    transaction.put(key, value)


def fill(store: Any, keys: int) -> float:
    """Insert so many keys; the seconds of the processor that the store took."""
    seconds = 0.0
    for first in range(0, keys, FILL_BATCH):
        numbers = range(first, min(first + FILL_BATCH, keys))
        batch: Batch = {key_of(number): number.to_bytes(VALUE_BYTES, "big") for number in numbers}
        started = process_time()
        store.commit(batch)
        seconds += process_time() - started
    return seconds


def timed(store: Any, batches: list[Batch]) -> float:
    """The seconds that a store takes for some blocks."""
    started = perf_counter()
    for batch in batches:
        store.commit(batch)
    return perf_counter() - started


def updates_per_second(store: Any, keys: int, size: int, count: int) -> float:
    """Overwrites a second: one batch goes ahead, so that nothing is measured that happens once."""
    rng = Random(size)
    timed(store, random_batches(rng, keys, size, 1))
    batches = random_batches(rng, keys, size, count)
    return sum(map(len, batches)) / timed(store, batches)


def measure_store(keys: int, is_large: bool) -> dict[str, float]:
    """Everything that is measured of the packed store with so many keys."""
    found: dict[str, float] = {}
    with folder() as path:
        gc.collect()
        before = resident_bytes()
        ours = Ours(path, PackedEngine())
        found["inserts"] = keys / fill(ours, keys)
        for _ in range(batches_of(BATCH)):  # one at a time: the memory of batches that wait is not the store's
            timed(ours, random_batches(Random(keys), keys, BATCH, 1))
        gc.collect()
        found["ram"] = (resident_bytes() - before) / keys - KEY_BYTES - VALUE_BYTES
        for size in BATCHES:
            if size <= 10 * keys:
                found[f"updates_{size}"] = updates_per_second(ours, keys, size, batches_of(size))
        found["disk"] = ours.store.log.size / keys
        if keys > SMALL:
            found["cost_ratio"] = cost_ratio(ours, keys)
        if not is_large:
            found.update(measure_reads(ours, keys))
        ours.close()
        started = process_time()
        again = Ours(path, PackedEngine())
        found["open"] = process_time() - started
        again.close()
    return found


def cost_ratio(ours: Ours, keys: int) -> float:
    """What a change costs in a large batch, against the same over few keys: medians, both stores in turns."""
    rng = Random(2)
    costs: tuple[list[float], list[float]] = ([], [])
    with folder() as path:
        small = Ours(path, PackedEngine())
        fill(small, SMALL)
        for _ in range(ROUNDS):
            for store, among, found in ((ours, keys, costs[0]), (small, SMALL, costs[1])):
                batches = random_batches(rng, among, BATCH, 2)
                timed(store, batches[:1])  # the other store's batch left nothing of this one in the caches
                found.append(timed(store, batches[1:]) / len(batches[1]))
        small.close()
    return median(costs[0]) / median(costs[1])


def measure_reads(ours: Ours, keys: int) -> dict[str, float]:
    """Reads, and proofs made and verified."""
    rng = Random(1)
    wanted = [key_of(rng.randrange(keys)) for _ in range(READS)]
    view = ours.store.final
    started = perf_counter()
    for key in wanted:
        view.get(key)
    reads = READS / (perf_counter() - started)
    started = process_time()
    proofs = [ours.store.prove(key) for key in wanted[:PROOFS]]
    made = PROOFS / (process_time() - started)
    started = process_time()
    for key, proof in zip(wanted, proofs, strict=False):
        verify(view.root, key, proof)
    verified = PROOFS / (process_time() - started)
    size = sum(map(len, proofs)) / PROOFS
    return {"reads": reads, "proofs_made": made, "proofs_verified": verified, "proof_bytes": size}


def measure_baselines(keys: int) -> dict[str, float]:
    """Updates a second of the baselines, at the same batch over the same keys."""
    found = {}
    with folder() as path:
        lmdb_store = Lmdb(path)
        fill(lmdb_store, keys)
        found["lmdb"] = updates_per_second(lmdb_store, keys, BATCH, 5)
        lmdb_store.environment.close()
    plain_dict = PlainDict()
    plain_dict.items = {key_of(number): bytes(VALUE_BYTES) for number in range(keys)}
    found["dict"] = updates_per_second(plain_dict, keys, BATCH, 1)
    del plain_dict
    with folder() as path:
        plain = Ours(path, PlainEngine())
        for first in range(0, keys, 20 * FILL_BATCH):
            plain.commit({key_of(n): bytes(VALUE_BYTES) for n in range(first, min(first + 20 * FILL_BATCH, keys))})
        found["plain"] = updates_per_second(plain, keys, BATCH, 2)
        plain.close()
    return found


def warm_up() -> None:
    """Compile, so that no measurement does."""
    engine = PackedEngine(slack=20)
    for height in range(1, 10):
        batch: Batch = {b"%d" % i: None if (i + height) % 3 == 0 else b"%d" % height for i in range(300)}
        step = engine.apply(Height(height), batch)
    engine.undo(step)
    with folder() as path:
        for _ in range(2):
            ours = Ours(path, PackedEngine())
            ours.commit({b"a": b"1", b"b": b"2"})
            ours.commit({b"a": None})
            ours.store.prove(b"a")
            ours.close()


def measure(size: Size) -> list[Metric]:
    """All metrics."""
    warm_up()
    keys = 200_000 if size.quick else 1_000_000
    large = measure_store(keys, is_large=False)
    small = measure_store(SMALL, is_large=True)
    figures = measure_baselines(keys)
    largest = measure_store(10_000_000, is_large=True) if size.full else large
    ours = large[f"updates_{BATCH}"]
    return [
        Metric("updates_per_second", ours, "1/s", 300_000),
        Metric("inserts_per_second", large["inserts"], "1/s", 215_000),
        Metric("commit_cost_ratio", large["cost_ratio"], "", 2, at_least=False),
        Metric("ram_bytes_per_key", large["ram"], "bytes", None if size.quick else 64, at_least=False),
        Metric("disk_bytes_per_key", large["disk"], "bytes"),
        *(Metric(f"updates_per_second_batch_{batch}", large[f"updates_{batch}"], "1/s") for batch in BATCHES),
        *(
            Metric(f"updates_per_second_batch_{size}_of_{SMALL}", small[f"updates_{size}"], "1/s")
            for size in BATCHES
            if f"updates_{size}" in small
        ),
        Metric("reads_per_second", large["reads"], "1/s"),
        Metric("proofs_made_per_second", large["proofs_made"], "1/s", 10_000),
        Metric("proofs_verified_per_second", large["proofs_verified"], "1/s", 60_000),
        Metric("proof_bytes", large["proof_bytes"], "bytes"),
        Metric("open_seconds", large["open"], "s", None if size.quick else 1.5, at_least=False),
        *(Metric(f"times_as_fast_as_{name}", ours / figure, "×") for name, figure in figures.items()),
        *(
            [
                Metric("commit_cost_ratio_10m", largest["cost_ratio"], "", 2, at_least=False),
                Metric("updates_per_second_10m", largest[f"updates_{BATCH}"], "1/s"),
                Metric("ram_bytes_per_key_10m", largest["ram"], "bytes", 64, at_least=False),
                Metric("open_seconds_10m", largest["open"], "s"),
            ]
            if size.full
            else []
        ),
    ]


def main() -> None:
    run_benchmark(__doc__, measure, full="a store of 10 million keys besides: some minutes, about 3 GB on the disk")


if __name__ == "__main__":
    main()
