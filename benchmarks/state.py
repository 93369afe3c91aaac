"""The state store: updates, inserts, reads, proofs, opening, memory and disk, against two baselines.

All stores get the same work in the same run: keys of 21 bytes and values of 32, overwritten at random in batches, each
batch one block that is derived and committed with its fsync. The baselines are

- ``lmdb``: LMDB with a transaction and an fsync a batch, and no Merkle tree at all;
- ``plain``: the plain engine of the store, which hashes one node a call.

Inserts, proofs and opening are measured in seconds of the processor, whatever else it has to do; everything else in
seconds of the clock. Most proofs need a twig that none of the last 64 proofs needed. Opening reads the log of all that
was measured before: twice as many blocks as the inserts alone had.

``_10m`` metrics are of a store of 10 million keys, which ``--full`` adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter, process_time
from typing import Any, Final

import lmdb
from reporting import Lane, Metric, Size, Unavailable, folder, resident_bytes, run_benchmark

from cluster.disks.directory import DirectoryDisk
from validator.primitives.types import Height
from validator.state import LogStateStore
from validator.state.engines.packed import PackedEngine
from validator.state.engines.plain import PlainEngine
from validator.state.proof import verify

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
NEVER_PACKED: Final = 2**63
"""Each store keeps the engine that it is measured with."""

Batch = dict[bytes, bytes]


def key_of(number: int) -> bytes:
    """The key with a number; keys of neighbouring numbers lie apart."""
    return b"a" + blake2b(number.to_bytes(8, "big"), digest_size=KEY_BYTES - 1).digest()


def random_batches(rng: Random, keys: int, size: int, count: int) -> list[Batch]:
    return [{key_of(rng.randrange(keys)): rng.randbytes(VALUE_BYTES) for _ in range(size)} for _ in range(count)]


def batches_of(size: int, part: int) -> int:
    """How many batches of a size are measured."""
    return max(3, min(ENTRIES_PER_MEASUREMENT // part // size, MAX_BATCHES))


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


class Lmdb:
    """LMDB: a transaction and an fsync a block."""

    def __init__(self, path: Path) -> None:
        self.environment = lmdb.open(str(path / "lmdb"), map_size=2**34)

    def commit(self, batch: Batch) -> None:
        """One block."""
        with self.environment.begin(write=True) as transaction:
            for key, value in batch.items():
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


def measure_store(keys: int, is_large: bool, part: int) -> Iterator[tuple[str, float]]:
    """Everything that is measured of the packed store with this many keys, by name.

    Batches are ``part`` times smaller than their names say, and so is how much is measured.
    """
    with folder() as path:
        before = resident_bytes()
        ours = Ours(path, PackedEngine())
        yield "inserts_per_second", keys / fill(ours, keys)
        batch = BATCH // part
        for _ in range(batches_of(batch, part)):  # one at a time: the memory of batches that wait is not the store's
            timed(ours, random_batches(Random(keys), keys, batch, 1))
        yield "ram_bytes_per_key", (resident_bytes() - before) / keys - KEY_BYTES - VALUE_BYTES
        for size in BATCHES:
            count = batches_of(size // part, part)
            yield f"updates_per_second_batch_{size}", updates_per_second(ours, keys, size // part, count)
        yield "disk_bytes_per_key", ours.store.log.size / keys
        yield "commit_cost_ratio", cost_ratio(ours, keys, part)
        if not is_large:
            yield from measure_reads(ours, keys, part)
        ours.close()
        started = process_time()
        again = Ours(path, PackedEngine())
        yield "open_seconds", process_time() - started
        again.close()


def cost_ratio(ours: Ours, keys: int, part: int) -> float:
    """What a change costs in a large batch, against the same over few keys: medians, both stores in turns."""
    rng = Random(2)
    costs: tuple[list[float], list[float]] = ([], [])
    with folder() as path:
        small = Ours(path, PackedEngine())
        fill(small, SMALL)
        for _ in range(ROUNDS):
            for store, among, found in ((ours, keys, costs[0]), (small, SMALL, costs[1])):
                batches = random_batches(rng, among, BATCH // part, 2)
                timed(store, batches[:1])  # the other store's batch left nothing of this one in the caches
                found.append(timed(store, batches[1:]) / len(batches[1]))
        small.close()
    return median(costs[0]) / median(costs[1])


def measure_reads(ours: Ours, keys: int, part: int) -> Iterator[tuple[str, float]]:
    """Reads, and proofs made and verified."""
    rng, count = Random(1), PROOFS // part
    wanted = [key_of(rng.randrange(keys)) for _ in range(READS // part)]
    view = ours.store.final
    started = perf_counter()
    for key in wanted:
        view.get(key)
    yield "reads_per_second", len(wanted) / (perf_counter() - started)
    started = process_time()
    proofs = [ours.store.prove(key) for key in wanted[:count]]
    yield "proofs_made_per_second", count / (process_time() - started)
    started = process_time()
    for key, proof in zip(wanted, proofs, strict=False):
        verify(view.root, key, proof)
    yield "proofs_verified_per_second", count / (process_time() - started)


def lmdb_updates(keys: int, size: int) -> float:
    """Updates a second of LMDB, at the same batch over the same keys; so the other baselines."""
    with folder() as path:
        store = Lmdb(path)
        fill(store, keys)
        try:
            return updates_per_second(store, keys, size, 5)
        finally:
            store.environment.close()


def plain_updates(keys: int, size: int) -> float:
    with folder() as path:
        store = Ours(path, PlainEngine())
        for first in range(0, keys, 20 * FILL_BATCH):
            store.commit({key_of(n): bytes(VALUE_BYTES) for n in range(first, min(first + 20 * FILL_BATCH, keys))})
        try:
            return updates_per_second(store, keys, size, 2)
        finally:
            store.close()


BASELINES: Final = {"lmdb": lmdb_updates, "plain": plain_updates}


def warm_up() -> None:
    """Compile, so that no measurement does."""
    engine = PackedEngine(slack=20)
    for height in range(1, 10):
        batch = {b"%d" % i: None if (i + height) % 3 == 0 else b"%d" % height for i in range(300)}
        step = engine.apply(Height(height), batch)
    engine.undo(step)
    with folder() as path:
        for _ in range(2):
            ours = Ours(path, PackedEngine())
            ours.commit({b"a": b"1"})
            ours.store.prove(b"a")
            ours.close()


class Stores:
    """The lanes: the store with some numbers of keys, then the baselines against the first of these."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.keys, self.part = size.of(20_000, 1_000_000), size.of(100, 1)
        self.rate: float | None = None
        """Updates a second of the first store."""

    def lanes(self) -> list[Lane]:
        return [
            self.store_lane("", self.keys, FIGURES, Size.QUICK),
            self.store_lane("_10m", 10_000_000, MANY_KEYS, Size.FULL),
            *(
                Lane(partial(self.times_as_fast, updates), [Metric(f"times_as_fast_as_{name}", "×")])
                for name, updates in BASELINES.items()
            ),
        ]

    def store_lane(self, suffix: str, keys: int, figures: Sequence[Metric], least: Size) -> Lane:
        def measured() -> Iterator[float]:
            warm_up()
            wanted = {metric.name for metric in figures}
            for name, figure in measure_store(keys, suffix != "", self.part):
                if name == USUAL_BATCH and not suffix:
                    self.rate = figure
                if name in wanted:
                    yield figure

        return Lane(measured, [metric._replace(name=metric.name + suffix) for metric in figures], least)

    def times_as_fast(self, updates: Callable[[int, int], float]) -> float:
        if self.rate is None:
            raise Unavailable("the store has no figure")
        return self.rate / updates(self.keys, BATCH // self.part)


USUAL_BATCH: Final = f"updates_per_second_batch_{BATCH}"
FIGURES: Final = [
    Metric("inserts_per_second", "1/s", 215_000),
    Metric("ram_bytes_per_key", "bytes", 64, at_least=False),
    *(Metric(f"updates_per_second_batch_{size}", "1/s", 300_000 if size == BATCH else None) for size in BATCHES),
    Metric("disk_bytes_per_key", "bytes"),
    Metric("commit_cost_ratio", "×", 2, at_least=False),
    Metric("reads_per_second", "1/s"),
    Metric("proofs_made_per_second", "1/s", 10_000),
    Metric("proofs_verified_per_second", "1/s", 60_000),
    Metric("open_seconds", "s", 1.5, at_least=False),
]
"""In the order in which :func:`measure_store` has them."""
MANY_KEYS: Final = [
    Metric("ram_bytes_per_key", "bytes", 64, at_least=False),
    Metric(USUAL_BATCH, "1/s"),
    Metric("commit_cost_ratio", "×", 2, at_least=False),
    Metric("open_seconds", "s"),
]


def lanes(size: Size) -> list[Lane]:
    return Stores(size).lanes()


def main() -> None:
    run_benchmark(__doc__, lanes, minutes=3, full="a store of 10 million keys, too; about 10 min, 3 GB on the disk")


if __name__ == "__main__":
    main()
