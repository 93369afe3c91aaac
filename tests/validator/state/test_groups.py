"""The roots of groups that engines keep for proofs: right after forks, pruning and moves, and never believed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from cluster.disks.memory import MemoryDisk
from validator.primitives.types import Hash, Height
from validator.state import LogStateStore
from validator.state.engine import SECTION_HEAD, Engine
from validator.state.engines.packed import PackedEngine
from validator.state.engines.plain import PlainEngine
from validator.state.hashing import ENTRY_NODE_KEY, GROUP_ENTRIES, NODE_BYTES, TWIG_ENTRIES, entry_hash, hash_pairs
from validator.state.log import StateLog
from validator.state.merkle import Tree
from validator.state.proof import verify
from validator.storage.disk import DiskError

Batch = dict[bytes, bytes | None]
ENGINES = [PlainEngine, PackedEngine]
NEVER = 2**63
KEYS = 600
SMALL_SEGMENT = 32 * 1024
LARGE_SEGMENT = 2**25


def key_of(number: int) -> bytes:
    return b"key/%d" % number


def random_batch(rng: Random, size: int) -> Batch:
    return {
        key_of(rng.randrange(KEYS)): None if rng.random() < 0.2 else rng.randbytes(rng.choice([0, 3, 40]))
        for _ in range(size)
    }


def open_store(engine: Engine, disk: MemoryDisk | None = None, segment_bytes: int = LARGE_SEGMENT) -> LogStateStore:
    log = StateLog.open(disk or MemoryDisk(), "state")
    log.segment_bytes = segment_bytes
    return LogStateStore(log, engine, retained=8, packed_keys=NEVER)


def commit(store: LogStateStore, batch: Batch) -> None:
    store.commit(store.final.derive(Height(store.final.height + 1), batch))


def require_all_proofs(store: LogStateStore, height: Height, root: Hash, items: dict[bytes, bytes]) -> None:
    for number in range(0, KEYS + 5, 3):
        key = key_of(number)
        assert verify(root, key, store.prove(key, height)) == items.get(key)


def grow(store: LogStateStore, seed: int, blocks: int) -> None:
    """Commit blocks, each beside a fork that is larger and left again; prove keys at old and new heights meanwhile."""
    rng = Random(seed)
    past: dict[Height, tuple[Hash, dict[bytes, bytes]]] = {}
    for _ in range(blocks):
        height = Height(store.final.height + 1)
        fork = store.final.derive(height, random_batch(rng, 250))
        fork.derive(Height(height + 1), random_batch(rng, 90))
        commit(store, random_batch(rng, rng.choice([1, 50, 200])))
        past[height] = store.final.root, dict(store.final.scan(b""))
        if height % 10 == 0:
            for each in past.keys() & {height, store.first_height}:
                require_all_proofs(store, each, *past[each])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("segment_bytes", [pytest.param(SMALL_SEGMENT, marks=pytest.mark.slow), LARGE_SEGMENT])
def test_proofs_hold_while_the_chain_grows_beside_forks(engine: Callable[[int], Engine], segment_bytes: int) -> None:
    store = open_store(engine(20), segment_bytes=segment_bytes)
    grow(store, 1, 60)
    assert store.stand_at_final().next_position > 2 * TWIG_ENTRIES
    assert (store.log.base.first_twig > 0) == (segment_bytes == SMALL_SEGMENT), "pruned, or not"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_group_roots_are_those_of_the_entries(engine: Callable[[int], Engine]) -> None:
    disk = MemoryDisk()
    store = open_store(engine(20), disk)
    grow(store, 2, 40)
    reopened = open_store(engine(20), disk)
    for each in (store, reopened):
        standing = each.stand_at_final()
        full = standing.next_position // GROUP_ENTRIES
        found, expected = list[bytes](), list[bytes]()
        for group in range(full):
            first = group * GROUP_ENTRIES
            at = first % TWIG_ENTRIES // GROUP_ENTRIES * NODE_BYTES
            found.append(standing.tree.group_roots(first // TWIG_ENTRIES)[at : at + NODE_BYTES])
            data = each.log.entries(first, first + GROUP_ENTRIES, standing.entry_ends)
            ends = [0, *standing.entry_ends(data, GROUP_ENTRIES)]
            row = [entry_hash(data[ends[i] : ends[i + 1]]) for i in range(GROUP_ENTRIES)]
            while len(row) > 1:
                row = hash_pairs(ENTRY_NODE_KEY, row)
            expected += row
        assert full > 64
        assert found == expected


def test_a_state_that_moves_into_the_packed_engine_takes_its_groups_along() -> None:
    store = LogStateStore.open(MemoryDisk(), packed_keys=NEVER)
    grow(store, 3, 30)
    store._packed_keys = 1
    commit(store, {b"moves": b"now"})
    assert isinstance(store.engine, PackedEngine)
    require_all_proofs(store, store.final.height, store.final.root, dict(store.final.scan(b"")))
    grow(store, 4, 30)


@pytest.mark.parametrize("sizes", [(1023, 1024, 1025), (970, 971, 5_000), (100_000,)])
def test_engines_prove_entries_of_any_length_alike(sizes: tuple[int, ...]) -> None:
    proofs = []
    for engine in ENGINES:
        store = open_store(engine(20))
        for height in range(1, 5):
            commit(store, {key_of(i): bytes(sizes[i % len(sizes)] + height) for i in range(0, 70, height)})
        told = {key_of(i): store.prove(key_of(i)) for i in range(75)}
        for key, proof in told.items():
            assert verify(store.final.root, key, proof) == dict(store.final.scan(b"")).get(key)
        proofs.append(told)
    assert proofs[0] == proofs[1]


# --- planted faults -------------------------------------------------------------------------------------------------


class KeepsTheFirst(Tree):
    """A group's root stays what it was first, though its entries were taken back and others came."""

    def _keep_groups(self, first: int, roots: Any) -> None:
        before = {index: bytes(found) for index, found in self._groups.items()}
        super()._keep_groups(first, roots)
        for index, found in before.items():
            for at in range(0, len(found), NODE_BYTES):
                if any(found[at : at + NODE_BYTES]):
                    self._groups[index][at : at + NODE_BYTES] = found[at : at + NODE_BYTES]


def keeps_the_first(engine: Engine) -> None:
    assert isinstance(engine, PlainEngine)
    engine.tree = KeepsTheFirst()


def stale_after_undo(engine: Engine) -> None:
    """The packed engine keeps the groups of a branch that it has left."""
    assert isinstance(engine, PackedEngine)
    apply, undo = engine.apply, engine.undo
    stale: list[Any] = []

    def noted_undo(step: Any) -> None:
        stale[:] = [engine._table.arrays.groups.copy()]
        undo(step)

    def stale_apply(height: Height, batch: Any) -> Any:
        step = apply(height, batch)
        if stale:
            groups = stale.pop()
            engine._table.arrays.groups[: len(groups)] = groups
        return step

    engine.apply, engine.undo = stale_apply, noted_undo  # type: ignore[method-assign]


def forgets_without_moving(engine: Engine) -> None:
    """The packed engine's groups stay where they were when twigs before them are pruned."""
    assert isinstance(engine, PackedEngine)
    forget = engine.tree.forget

    def forgets_twigs_alone(first_twig: int) -> None:
        groups = engine._table.arrays.groups.copy()
        forget(first_twig)
        engine._table.arrays.groups[:] = groups

    engine.tree.forget = forgets_twigs_alone  # type: ignore[method-assign]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "plant"),
    [(PlainEngine, keeps_the_first), (PackedEngine, stale_after_undo), (PackedEngine, forgets_without_moving)],
)
def test_groups_that_are_stale_are_noticed(engine: Callable[[int], Engine], plant: Callable[[Engine], None]) -> None:
    faulty = engine(20)
    plant(faulty)
    with pytest.raises(DiskError, match="no longer holds the entries"):
        grow(open_store(faulty, segment_bytes=SMALL_SEGMENT), 1, 60)


def spoil_group(engine: Engine, number: int) -> None:
    """Change a bit of a group's root."""
    if isinstance(engine, PackedEngine):
        engine._table.arrays.groups[number, 3] ^= 4
    else:
        assert isinstance(engine, PlainEngine)
        engine.tree._groups[number // 64][number % 64 * NODE_BYTES] ^= 4


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("number", [0, 7, 65])
def test_a_group_root_that_is_wrong_gives_no_proof(engine: Callable[[int], Engine], number: int) -> None:
    """Not of a key in its group, and not of another one in its twig."""
    store = open_store(engine(20))
    commit(store, {key_of(i): b"" for i in range(3_000)})
    places = [(store.stand_at_final().position(key_of(i)) or 0, key_of(i)) for i in range(3_000)]
    spoil_group(store.engine, number)
    inside = next(key for position, key in places if position // GROUP_ENTRIES == number)
    beside = next(key for position, key in places if position // GROUP_ENTRIES == number + 1)
    elsewhere = next(key for position, key in places if (position >> 11) != number // 64)
    for key in (inside, beside):
        with pytest.raises(DiskError, match="no longer holds the entries"):
            store.prove(key)
    assert verify(store.final.root, elsewhere, store.prove(elsewhere)) == b""


@pytest.mark.parametrize("engine", ENGINES)
def test_rot_in_a_frame_that_was_read_before_is_noticed(engine: Callable[[int], Engine]) -> None:
    """Wherever it is: in a length, a compiled loop would read beyond the end."""
    disk = MemoryDisk()
    store = open_store(engine(20), disk)
    commit(store, {key_of(i): b"" for i in range(200)})
    standing = store.stand_at_final()
    by_position = sorted((standing.position(key_of(i)) or 0, key_of(i)) for i in range(200))
    store.prove(by_position[0][1])
    content = disk.read("state/log-000001")
    for position, key in by_position[40::32]:
        start = content.index(key + bytes(7))  # the next entry's height follows
        for at in (start - 54 + 8, start - 6, start - 4, start - 1, start):
            for value in (b"\0", b"\xff"):
                if content[at : at + 1] == value:
                    continue
                disk.write("state/log-000001", at, value)
                store._forget_past()
                with pytest.raises(DiskError, match="state"):
                    store.prove(key)
                disk.write("state/log-000001", at, content[at : at + 1])
        store._forget_past()
        assert verify(store.final.root, key, store.prove(key)) == b"", position


def test_bytes_that_are_no_group_are_refused() -> None:
    entries = PlainEngine().apply(Height(1), {b"a": b"1", b"b": b"2"}).section[SECTION_HEAD.size :]
    for engine in ENGINES:
        ends, nodes = engine().group_nodes(entries, 2)
        assert (list(ends), len(nodes)) == ([len(entries) // 2, len(entries)], 63 * NODE_BYTES)
        assert nodes[:NODE_BYTES] == entry_hash(entries[: ends[0]])
        for data, count in ((entries, 1), (entries, 3), (entries[:-1], 2), (entries + b"x", 2), (entries[:20], 1)):
            with pytest.raises(ValueError, match=f"{len(data)} bytes are not {count} entries"):
                engine().group_nodes(data, count)
