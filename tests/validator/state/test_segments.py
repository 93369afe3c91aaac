"""Segments, pruning and rewinds: the same roots as without them, and what a fault at any operation leaves."""

from __future__ import annotations

from random import Random

import pytest

from cluster.disks.memory import FaultPlan, MemoryDisk, SimulatedCrash
from validator.primitives.types import Hash, Height
from validator.state import HistoryError, LogStateStore
from validator.state.engines.plain import PlainEngine
from validator.state.log import BASE_NAME, StateLog
from validator.state.proof import verify
from validator.state.prover import PastState, Prover
from validator.storage.disk import DiskError

Batch = dict[bytes, bytes | None]
FOLDER = "state"
KEYS = 2048
RETAINED = 2


def open_store(disk: MemoryDisk, segment_bytes: int = 300, retained: int = RETAINED) -> LogStateStore:
    """A store whose log begins a new segment after almost each commit, and which compacts at once."""
    log = StateLog.open(disk, FOLDER)
    log.segment_bytes = segment_bytes
    return LogStateStore(log, PlainEngine(slack=0), retained)


def batch_of(height: int) -> Batch:
    """First a twig full of keys, then all but a few go, so that the twig empties out and can be pruned."""
    if height == 1:
        return {b"%d" % i: b"v" for i in range(KEYS)}
    if height == 2:
        return {b"%d" % i: None for i in range(4, KEYS)}
    return {b"%d" % (height % 4): b"%d" % height, b"height": b"%d" % height}


def roots(heights: int) -> list[Hash]:
    """The roots that a store without segments and pruning goes through."""
    store = open_store(MemoryDisk(), segment_bytes=2**40, retained=1000)
    found = [store.final.root]
    for height in range(1, heights + 1):
        store.commit(store.final.derive(Height(height), batch_of(height)))
        found.append(store.final.root)
    return found


HEIGHTS = 10
ROOTS = roots(HEIGHTS)


def run(disk: MemoryDisk, heights: int = HEIGHTS) -> int:
    """Open, and commit until the end or the disk's planned fault; returns the last height that was committed."""
    done = -1
    try:
        store = open_store(disk)
        done = store.final.height
        for height in range(done + 1, heights + 1):
            store.commit(store.final.derive(Height(height), batch_of(height)))
            done = height
    except (SimulatedCrash, DiskError):
        pass
    return done


def test_pruning_leaves_the_roots_and_drops_the_files() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for height in range(1, HEIGHTS + 1):
        store.commit(store.final.derive(Height(height), batch_of(height)))
        assert store.final.root == ROOTS[height]
    assert store.log.base.first_twig == 1
    assert "state/log-000001" not in disk.names()
    assert "state/log-000002" not in disk.names()
    again = open_store(disk)
    assert (again.final.height, again.final.root) == (HEIGHTS, ROOTS[HEIGHTS])
    for each in (store, again):
        each.commit(each.final.derive(Height(HEIGHTS + 1), {b"a": b"1"}))
    assert again.final.root == store.final.root
    assert verify(again.final.root, b"a", again.prove(b"a")) == b"1"
    assert verify(ROOTS[HEIGHTS - 1], b"height", again.prove(b"height", Height(HEIGHTS - 1))) == b"%d" % (HEIGHTS - 1)


def test_a_commit_whose_pruning_fails_is_done_and_the_last_one_until_reopened() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    store.commit(store.final.derive(Height(1), batch_of(1)))
    disk.plan = FaultPlan(0, verbs=frozenset({"remove"}))
    second = store.final.derive(Height(2), batch_of(2))
    with pytest.raises(DiskError, match="remove failed"):
        store.commit(second)
    reached = 2
    assert (store.final, store.final.root, store.final.get(b"0")) == (second, ROOTS[reached], b"v")
    following = store.final.derive(Height(reached + 1), batch_of(reached + 1))
    with pytest.raises(DiskError, match="open the store again"):
        store.commit(following)
    disk.plan = None
    again = open_store(disk)
    assert (again.final.height, again.final.root) == (reached, ROOTS[reached])
    again.commit(again.final.derive(Height(reached + 1), batch_of(reached + 1)))
    assert again.final.root == ROOTS[reached + 1]


@pytest.mark.slow
def test_every_fault_at_every_operation_recovers_what_was_committed() -> None:
    clean = MemoryDisk()
    assert run(clean) == HEIGHTS
    wrong = []
    for operation in range(1, clean.operations + 1):
        for stops in (False, True):
            rng = Random(operation)
            disk = MemoryDisk(FaultPlan(operation, stops))
            least = run(disk)
            disk.crash(rng, scattered=rng.random() < 0.5)
            disk.plan = None
            store = open_store(disk)
            reached = store.final.height
            if store.final.root != ROOTS[reached] or not max(least, 0) <= reached <= least + 1:
                wrong.append(f"operation {operation}, crash {stops}: {least} had returned, recovery reached {reached}")
            if run(disk) != HEIGHTS:
                wrong.append(f"operation {operation}, crash {stops}: it does not go on")
    assert wrong == []


def test_a_rotten_or_missing_base_is_an_error() -> None:
    disk = MemoryDisk()
    run(disk)
    name = f"{FOLDER}/{BASE_NAME}"
    content = disk.read(name)
    for offset in range(len(content)):
        disk.replace(name, content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :])
        with pytest.raises(DiskError, match=r"^state/base: offset 0: "):
            open_store(disk)
    disk.remove(name)
    with pytest.raises(DiskError, match=r"^state/log-\d+: offset \d+: "):
        open_store(disk)


def test_a_missing_segment_is_an_error() -> None:
    disk = MemoryDisk()
    run(disk)
    segments = [name for name in disk.names() if "log-" in name]
    for name in segments[:-1]:
        content = disk.read(name)
        disk.remove(name)
        with pytest.raises(DiskError, match="offset"):
            open_store(disk)
        disk.replace(name, content)
    assert open_store(disk).final.root == ROOTS[HEIGHTS]


def chain(disk: MemoryDisk, heights: int) -> LogStateStore:
    """A store of small blocks, two of them a commit."""
    log = StateLog.open(disk, FOLDER)
    log.segment_bytes = 9_000
    store = LogStateStore(log, PlainEngine(slack=20))
    for height in range(1, heights, 2):
        first = store.final.derive(Height(height), {b"%d" % (height % 5): b"%d" % height})
        store.commit(first.derive(Height(height + 1), {b"%d" % (height % 3): None, b"x": b"%d" % height}))
    return store


@pytest.mark.parametrize("target", [0, 1, 2, 5, 6, 11, 12])
def test_rewind_leads_to_the_state_of_then_and_the_same_future(target: int) -> None:
    disk, heights = MemoryDisk(), 12
    store = chain(disk, heights)
    before = {height: store.root_at(Height(height)) for height in range(1, heights + 1)}
    if target == 0:
        with pytest.raises(HistoryError, match="height 0 is not retained"):
            store.rewind(Height(target))
        return
    view = store.final
    store.rewind(Height(target))
    with pytest.raises(Exception, match="closed"):
        view.get(b"x")
    again = LogStateStore(StateLog.open(disk, FOLDER), PlainEngine(slack=20))
    assert (again.final.height, again.final.root) == (target, before[target])
    assert chain(disk, 1).final.root == before[target]
    again.commit(again.final.derive(Height(target + 1), {b"new": b"1"}))
    assert LogStateStore(StateLog.open(disk, FOLDER), PlainEngine(slack=20)).final.get(b"new") == b"1"


def test_a_fault_at_any_operation_of_a_rewind_leads_to_a_state_that_was_committed() -> None:
    heights, target = 12, 5
    clean = MemoryDisk()
    store = chain(clean, heights)
    allowed = {store.root_at(Height(height)) for height in (4, target, heights)}
    begun = clean.operations
    store.rewind(Height(target))
    seen = set()
    for operation in range(begun + 1, clean.operations + 1):
        for stops in (False, True):
            for seed in range(3):
                disk = MemoryDisk()
                store = chain(disk, heights)
                disk.plan = FaultPlan(operation, stops)
                with pytest.raises((DiskError, SimulatedCrash)):
                    store.rewind(Height(target))
                disk.crash(Random(seed), scattered=seed % 2 == 1)
                disk.plan = None
                seen.add(chain(disk, 1).final.root)
    assert seen <= allowed
    assert len(seen) > 1


def test_what_was_pruned_is_not_retained_after_a_rewind() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for first in range(1, HEIGHTS, 3):
        view = store.final
        for height in range(first, first + 3):
            view = view.derive(Height(height), batch_of(height))
        store.commit(view)
    assert store.log.base.first_twig == 1
    for _ in range(3):
        oldest = store.first_height
        store.rewind(oldest)
        store = open_store(disk)
        assert store.final.root == ROOTS[oldest]
        for height in range(store.first_height, oldest + 1):
            proof = store.prove(b"height", Height(height))
            assert verify(ROOTS[height], b"height", proof) == b"%d" % height
    assert store.first_height == store.final.height, "there is nothing before it any more"


def test_retained_heights_keep_their_segments_where_nothing_changes() -> None:
    disk = MemoryDisk()
    store = open_store(disk, segment_bytes=8192 + 300, retained=8)
    for height in range(1, 20):
        store.commit(store.final.derive(Height(height), {}))
        assert store.root_at(store.first_height) == store.final.root
    assert store.log.base.first_segment > 1, "the test wants pruned segments"
    oldest = store.first_height
    store.rewind(oldest)
    assert open_store(disk, retained=8).final.height == oldest


def coming_and_going(height: int) -> Batch:
    """Keys that are there every now and then, and some that stay."""
    random = Random(height)
    return {b"%d" % random.randrange(60): random.choice([None, b"%d" % height]) for _ in range(20)}


def test_states_of_before_are_remembered_while_the_chain_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said of a height stays the same, and is looked up in the whole log once."""
    store = open_store(MemoryDisk(), retained=100)
    fresh: list[int] = []
    past = Prover.past

    def counted(prover: Prover, height: Height) -> PastState:
        fresh.append(height)
        return past(prover, height)

    keys = [b"%d" % key for key in range(60)]
    asked = [Height(8), Height(13), Height(16)]
    for height in range(1, 17):
        store.commit(store.final.derive(Height(height), coming_and_going(height)))
    expected = {at: ([store.prove(key, at) for key in keys], store.chunk(0, at), store.manifest(at)) for at in asked}
    monkeypatch.setattr(Prover, "past", counted)
    for height in range(17, 60):
        store.commit(store.final.derive(Height(height), coming_and_going(height)))
        for at in asked if height % 3 else asked[:1]:
            told = [store.prove(key, at) for key in keys], store.chunk(0, at), store.manifest(at)
            assert told == expected[at]
    assert fresh == []
    store.commit(store.final.derive(store.final.height, {b"1": b"again"}))
    assert verify(store.final.root, b"1", store.prove(b"1")) == b"again", "the same height, and another state"
