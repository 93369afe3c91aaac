"""The entries of the newest blocks: what is kept for the next question says what the log says."""

from __future__ import annotations

from random import Random

import pytest

from cluster.disks.memory import MemoryDisk
from validator.primitives.types import Height
from validator.state import LogStateStore, prover
from validator.state.engines.plain import PlainEngine
from validator.state.hashing import NO_POSITION, decode_entry, key_hash
from validator.state.interface import Batch
from validator.state.log import StateLog
from validator.state.prover import BlockEntries, NewestBlocks, Prover
from validator.storage.disk import DiskError


def changes(random: Random) -> Batch:
    """A few keys that come, change and go."""
    return {b"%d" % random.randrange(30): random.choice([None, b"%d" % random.randrange(100)]) for _ in range(6)}


def genesis(slack: int = 4_096) -> LogStateStore:
    """A store with a few keys at height 0."""
    store = LogStateStore.open(MemoryDisk(), engine=PlainEngine(slack))
    store.commit(store.final.derive(Height(0), {b"%d" % key: b"" for key in range(5)}))
    return store


def grow(store: LogStateStore, random: Random, blocks: int) -> None:
    """Commit so many blocks; some commits have two, and some heights too."""
    for _ in range(blocks):
        view = store.final
        for _ in range(random.randint(1, 2)):
            view = view.derive(Height(view.height + random.choice([0, 1, 1])), changes(random))
        store.commit(view)


def read(log: StateLog, height: Height) -> list[BlockEntries]:
    """The blocks above a height, as the log has them."""
    found = []
    for section in log.sections_above(height):
        entries = [decode_entry(encoded) for _, encoded in section.entries()]
        places, previous = tuple(key_hash(entry.key) for entry in entries), tuple(entry.previous for entry in entries)
        deleted = tuple(section.deleted())
        found.append(BlockEntries(section.head, section.first_position, places, previous, deleted))
    return found[::-1]


@pytest.mark.parametrize("most", [12, 40, 65_536])
def test_kept_blocks_are_those_of_the_log(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prover, "REMEMBERED_ENTRIES", most)
    for seed in range(6):
        random, store = Random(seed), genesis()
        blocks = NewestBlocks(store.log)
        for _ in range(25):
            before, known = store.final.height, len(read(store.log, Height(0)))
            grow(store, random, random.randint(1, 3))
            if [block.head.height for block in read(store.log, Height(0))[known : known + 1]] == [before]:
                blocks.forget()  # a height that was read got another block
            height = Height(random.randint(max(0, store.final.height - 12), store.final.height))
            assert list(blocks.above(height)) == read(store.log, height)
            assert blocks.head_at(height) == store.log.head_at(height)
            assert sum(len(block.places) for block in blocks._blocks) <= most
            for block in read(store.log, Height(0)):
                for offset, place in enumerate(block.places):
                    assert blocks.place_of(block.first_position + offset) in (place, None)


def test_each_block_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store, random = genesis(), Random(1)
    grow(store, random, 20)
    seen: list[int] = []
    of = BlockEntries.of
    monkeypatch.setattr(BlockEntries, "of", lambda section: seen.append(section.head.next_position) or of(section))
    for _ in range(8):
        for back in (8, 4, 2):
            store.prove(b"1", Height(store.final.height - back))
        store.commit(store.final.derive(Height(store.final.height + 1), changes(random)))
    assert seen and len(set(seen)) == len(seen)


class RemembersAll(NewestBlocks):
    """A planted fault: blocks are kept though their height got another one."""

    def forget(self) -> None: ...


class MixesUp(NewestBlocks):
    """A planted fault: the key of an entry is that of its neighbour."""

    def place_of(self, position: int) -> bytes | None:
        return super().place_of(position ^ 1)


@pytest.mark.parametrize("fault", [NewestBlocks, RemembersAll, MixesUp])
def test_proofs_of_every_height_are_those_of_a_new_prover(fault: type[NewestBlocks]) -> None:
    differing = 0
    for seed in range(12):
        random, store = Random(seed), genesis(slack=10)
        for _ in range(30):
            grow(store, random, 1)
            if store._prover is not None and type(store._prover._blocks) is not fault:
                store._prover._blocks = fault(store.log)
            height, key = Height(random.randint(0, store.final.height)), b"%d" % random.randrange(30)
            prover = Prover(store.stand_at_final(), store.log)
            expected = prover.prove(key, prover.past(height)).encode()
            try:
                differing += store.prove(key, height) != expected
            except (
                AssertionError,
                DiskError,
                IndexError,
            ):  # another root, or entries that are nowhere
                differing += 1
    assert bool(differing) == (fault is not NewestBlocks)


def test_a_key_without_an_entry_before_has_no_previous_one() -> None:
    store = LogStateStore.open(MemoryDisk())
    store.commit(store.final.derive(Height(1), {b"a": b"1"}))
    store.commit(store.final.derive(Height(2), {b"a": b"2"}))
    first, second = NewestBlocks(store.log).above(Height(0))
    assert (list(first.previous), list(second.previous)) == ([NO_POSITION], [0])
