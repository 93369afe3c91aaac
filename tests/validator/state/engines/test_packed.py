"""The packed engine against the plain one: the same bytes for the same calls; its hashes against the package's."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from blake3 import blake3

from cluster.disks.memory import MemoryDisk
from validator.primitives.types import Height
from validator.state import LogStateStore
from validator.state.engine import Engine, SectionHead, Step
from validator.state.engines import kernels
from validator.state.engines.packed import FULL_MASK, PackedEngine
from validator.state.engines.plain import PlainEngine

Batch = dict[bytes, bytes | None]
COLLIDING = 0xF << 60
"""Only 4 bits of each hash count in the index, so that most neighbours are told apart by their whole hashes."""


def random_batch(rng: Random, keys: int, is_wild: bool) -> Batch:
    batch: Batch = {}
    for _ in range(rng.choice([0, 1, 3, keys // 4, keys])):
        key = b"k%d" % rng.randrange(keys)
        key = key.ljust(300, b"x") if rng.random() < 0.02 else key
        size = rng.choice([0, 1, 5, 40, 100]) if not is_wild or rng.random() < 0.95 else rng.choice([3_000, 70_000])
        batch[key] = None if rng.random() < 0.3 else bytes([rng.randrange(3)]) * size
    return batch


def assert_equal(plain: Engine, packed: Engine, rng: Random, keys: int) -> None:
    assert packed.root == plain.root
    assert (packed.live, packed.oldest, packed.next_position) == (plain.live, plain.oldest, plain.next_position)
    for _ in range(10):
        key, place = b"k%d" % rng.randrange(keys), rng.randbytes(32)
        assert packed.get(key) == plain.get(key)
        assert packed.position(key) == plain.position(key)
        assert packed.predecessor(place) == plain.predecessor(place)
    assert packed.items(b"k1") == plain.items(b"k1")
    for twig in range(plain.oldest >> 11, (plain.next_position >> 11) + 1):
        assert packed.tree.twig(twig) == plain.tree.twig(twig)
        assert packed.tree.upper_node(1, twig >> 1) == plain.tree.upper_node(1, twig >> 1)


@pytest.mark.parametrize(
    ("seed", "mask", "slack", "keys", "steps"),
    [
        (0, FULL_MASK, 20, 10, 40),
        (1, FULL_MASK, 20, 60, 120),
        (2, FULL_MASK, 0, 60, 120),
        (3, COLLIDING, 20, 60, 120),
        (4, FULL_MASK, 4096, 3_000, 50),
    ],
)
def test_engines_give_the_same_bytes_forwards_and_backwards(
    seed: int, mask: int, slack: int, keys: int, steps: int
) -> None:
    rng = Random(seed)
    plain, packed = PlainEngine(slack), PackedEngine(slack, mask)
    stack: list[tuple[Step, Step]] = []
    for height in range(1, steps):
        if stack and rng.random() < 0.3:
            first, second = stack.pop()
            assert packed.before(second) == plain.before(first)
            plain.undo(first)
            packed.undo(second)
        else:
            batch = random_batch(rng, keys, is_wild=keys > 1000)
            first, second = plain.apply(Height(height), batch), packed.apply(Height(height), batch)
            assert second.section == first.section
            stack.append((first, second))
        if rng.random() < 0.2 or height == steps - 1:
            assert_equal(plain, packed, rng, keys)


@pytest.mark.parametrize("mask", [FULL_MASK, COLLIDING])
def test_engines_replay_the_same_log_from_anywhere(mask: int) -> None:
    rng = Random(5)
    source = PlainEngine(20)
    steps, starts = [], []
    for height in range(1, 200):
        starts.append(source.next_position)
        steps.append(source.apply(Height(height), random_batch(rng, 300, is_wild=False)))
    assert source.oldest >> 11 >= 1, "the test wants pruned twigs"
    for skipped in (0, next(i for i, start in enumerate(starts) if start > 100)):
        plain, packed = PlainEngine(20), PackedEngine(20, mask)
        peaks = [source.tree.upper_node(0, 0)] if skipped else []
        for engine in (plain, packed):
            engine.seed(len(peaks), peaks)
            for step, start in list(zip(steps, starts, strict=True))[skipped:]:
                engine.replay(memoryview(step.section), SectionHead.decode(step.section, 0), start)
            engine.finish()
            assert engine.root == source.root
        batch = random_batch(rng, 300, is_wild=False)
        assert plain.apply(Height(200), batch).section == packed.apply(Height(200), batch).section
        assert_equal(plain, packed, rng, 300)


def test_what_is_out_of_bounds_is_refused_and_changes_nothing() -> None:
    engine = PackedEngine()
    engine.apply(Height(1), {b"a": b"1"})
    root = engine.root
    for batch in ({b"": b"v"}, {bytes(513): b"v"}, {b"b": b"v", b"k": bytes(2**24 + 1)}):
        with pytest.raises(ValueError, match=r"key|value"):
            engine.apply(Height(2), batch)
    assert (engine.root, engine.get(b"b")) == (root, None)


def test_a_store_moves_between_engines() -> None:
    disk = MemoryDisk()
    store = LogStateStore.open(disk, engine=PackedEngine())
    for height in range(1, 6):
        batch: Batch = {b"%d" % i: b"%d" % height if (i + height) % 3 else None for i in range(100)}
        final, fork = store.final.derive(Height(height), batch), store.final.derive(Height(height), {b"1": b"fork"})
        assert (fork.get(b"1"), final.get(b"1")) == (b"fork", batch[b"1"])
        store.commit(final)
    root, items = store.final.root, list(store.final.scan(b""))
    store.close()
    for engine in (PlainEngine(), PackedEngine()):
        again = LogStateStore.open(disk, engine=engine)
        assert (again.final.root, list(again.final.scan(b""))) == (root, items)


def test_hashes_are_those_of_the_package() -> None:
    rng, key = Random(7), bytes(range(32))
    messages = [rng.randbytes(size) for size in [*range(130), 191, 192, 193, 288, 512, 1023, 1024]]
    starts = np.cumsum([0, *map(len, messages[:-1])])
    out = np.zeros((len(messages), 8), dtype=np.uint32)
    kernels.hash_messages(
        np.frombuffer(b"".join(messages), dtype=np.uint8),
        starts,
        np.array([len(message) for message in messages], dtype=np.int64),
        np.frombuffer(key, dtype=np.uint32),
        out,
        np.arange(len(messages)),
        PackedEngine()._table.arrays.lanes,
    )
    assert [row.tobytes() for row in out] == [blake3(message, key=key).digest() for message in messages]


def test_a_growing_state_moves_into_the_packed_engine_and_keeps_its_views() -> None:
    disk = MemoryDisk()
    growing, plain = LogStateStore.open(disk, packed_keys=150), LogStateStore.open(MemoryDisk(), packed_keys=2**63)
    kinds, seen = [], list[Any]()
    for store in (growing, plain):
        for height in range(1, 9):
            batch: Batch = {b"%d" % i: b"%d" % height for i in range(0, 40 * height, 1 + height % 2)}
            final = store.final.derive(Height(height), batch)
            child = final.derive(Height(height + 1), {b"2": None, b"new": b"child"})
            store.final.derive(Height(height), {b"2": b"fork"})
            store.commit(final)
            kinds.append(type(store.engine))
            assert (child.get(b"new"), child.get(b"2"), final.get(b"2")) == (b"child", None, b"%d" % height)
            grandchild = child.derive(Height(height + 2), {b"0": None})
            seen.append((final.root, child.root, grandchild.root, list(child.scan(b""))))
        seen.append(store.prove(b"2", Height(2)))
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    assert kinds[0] is PlainEngine
    assert kinds[7] is PackedEngine
    growing.close()
    again = LogStateStore.open(disk, packed_keys=150)
    assert (type(again.engine), again.final.root) == (PackedEngine, plain.final.root)
