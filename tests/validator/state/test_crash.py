"""Crashes at every operation, every torn byte, every flipped bit; and stores that are broken on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from cluster.disks.memory import FaultPlan, MemoryDisk, SimulatedCrash
from tests.validator.state.naive_state import NaiveState
from validator.primitives.types import Hash, Height
from validator.state import LogStateStore, log
from validator.state.log import FRAME_HEADER_BYTES, FRAMES_OFFSET, META_BYTES, SLOT_BYTES, Meta, StateLog, segment_name
from validator.storage.disk import DiskError

FOLDER = "state"
NAME = segment_name(FOLDER, 1)
COMMITS = 4
SEEDS = 40

Contents = dict[bytes, dict[bytes, bytes]]
"""What a store holds, by root."""


def batches(commit: int) -> list[dict[bytes, bytes | None]]:
    """Two blocks a commit: inserts, updates and deletes."""
    first: dict[bytes, bytes | None] = {bytes([i]): bytes([commit, i]) for i in range(commit, commit + 4)}
    second: dict[bytes, bytes | None] = {bytes([commit]): None, b"height": str(commit).encode()}
    return [first, second]


def history() -> Iterator[tuple[int, NaiveState]]:
    """The state after each commit, the empty one first."""
    model = NaiveState()
    yield 0, model
    for commit in range(1, COMMITS + 1):
        for block, batch in enumerate(batches(commit)):
            model = model.apply(batch, 2 * commit + block)
        yield commit, model


MODELS = dict(history())


def open_store(disk: MemoryDisk, kind: type[StateLog] = StateLog) -> LogStateStore:
    return LogStateStore(kind.open(disk, FOLDER))


def commit_one(store: LogStateStore, commit: int) -> None:
    view = store.final
    for block, batch in enumerate(batches(commit)):
        view = view.derive(Height(2 * commit + block), batch)
    store.commit(view)


def reached(store: LogStateStore) -> int:
    """The commit whose state the store holds, whole."""
    for commit, model in MODELS.items():
        if store.final.root == model.root:
            assert dict(store.final.scan(b"")) == model.items
            return commit
    raise AssertionError(f"root {store.final.root.hex()} was never committed")


def run_to_the_fault(disk: MemoryDisk, kind: type[StateLog]) -> int:
    """Open, and commit until the disk's planned fault; returns the last commit that returned."""
    done = -1
    try:
        store = open_store(disk, kind)
        done = reached(store)
        for commit in range(done + 1, COMMITS + 1):
            commit_one(store, commit)
            done = commit
    except (SimulatedCrash, DiskError):
        pass
    return done


def wrong_recoveries(kind: type[StateLog], kill_only: bool = False) -> list[str]:
    """Fail or crash at every operation of a run, twice in a row, and say where recovery led elsewhere than it must."""
    clean = MemoryDisk()
    run_to_the_fault(clean, kind)
    wrong = []
    for operation in range(1, clean.operations + 1):
        for stops in (False, True):
            for seed in range(SEEDS):
                problem = _two_faults(kind, FaultPlan(operation, stops), Random(seed), kill_only)
                if problem:
                    wrong.append(f"operation {operation}, crash {stops}, seed {seed}: {problem}")
    return wrong


def _two_faults(kind: type[StateLog], plan: FaultPlan, rng: Random, kill_only: bool) -> str:
    """One planned fault, with or without losing what was not synced, a second one soon after, then power loss."""
    disk = MemoryDisk(plan)
    least = run_to_the_fault(disk, kind)
    if not kill_only and rng.random() < 0.7:
        disk.crash(rng, scattered=rng.random() < 0.5)
    disk.plan = FaultPlan(disk.operations + rng.randint(1, 6), True)
    least = max(least, run_to_the_fault(disk, kind))
    disk.crash(rng, scattered=rng.random() < 0.5)
    disk.plan = None
    try:
        commit = reached(open_store(disk, kind))
    except (DiskError, AssertionError) as error:
        return str(error)
    return "" if least <= commit <= least + 1 else f"commit {least} had returned, recovery reached {commit}"


@pytest.mark.slow
def test_every_fault_at_every_operation_recovers_what_was_committed() -> None:
    assert wrong_recoveries(StateLog) == []


class WithoutSync(StateLog):
    """Broken: says that a commit is durable without having asked."""

    def _write(self, frame: bytes, meta: Meta) -> None:
        self.disk.append(self.name, frame)
        self.disk.write(self.name, meta.slot_offset, meta.encode())


class OneSlot(StateLog):
    """Broken: overwrites the only valid record."""

    def _write(self, frame: bytes, meta: Meta) -> None:
        self.disk.append(self.name, frame)
        self.disk.write(self.name, 0, meta.encode())
        self.disk.write(self.name, SLOT_BYTES, bytes(META_BYTES))
        self.disk.sync(self.name)


class MetaBeforeLog(StateLog):
    """Broken: the record is durable before the frame that it names, and recovery believes records blindly."""

    def _write(self, frame: bytes, meta: Meta) -> None:
        self.disk.write(self.name, meta.slot_offset, meta.encode())
        self.disk.sync(self.name)
        self.disk.append(self.name, frame)
        self.disk.sync(self.name)


class UnsyncedRecovery(StateLog):
    """Broken: goes on from what a killed process had left in the page cache, without making it durable."""

    def confirm(self, root: Hash, next_position: int) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("kind", [WithoutSync, OneSlot, UnsyncedRecovery])
def test_broken_stores_are_caught(kind: type[StateLog]) -> None:
    assert wrong_recoveries(kind)


@pytest.mark.slow
def test_a_record_durable_before_its_frame_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong_recoveries(MetaBeforeLog) == [], "recovery checks the frame, so that even this order is harmless"
    monkeypatch.setattr(log, "_frame_problem", lambda disk, name, meta: "")
    assert any("offset" in problem for problem in wrong_recoveries(MetaBeforeLog))
    assert wrong_recoveries(StateLog), "believing records blindly loses to a disk that reorders"


@pytest.mark.slow
def test_syncing_without_writing_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class SyncOnly(StateLog):
        def confirm(self, root: Hash, next_position: int) -> None:
            self.disk.sync(self.name)

    assert wrong_recoveries(SyncOnly, kill_only=True), "a failed sync leaves bytes that a later sync does not save"
    assert wrong_recoveries(StateLog, kill_only=True) == []


def images() -> tuple[bytes, bytes]:
    """The file before and after the last commit."""
    disk = MemoryDisk()
    store = open_store(disk)
    for commit in range(1, COMMITS):
        commit_one(store, commit)
    before = disk.read(NAME)
    commit_one(store, COMMITS)
    return before, disk.read(NAME)


def recover(content: bytes) -> LogStateStore:
    disk = MemoryDisk()
    disk.replace(NAME, content)
    return open_store(disk)


def test_every_torn_byte_of_a_commit() -> None:
    before, after = images()
    slot = COMMITS % 2 * SLOT_BYTES
    for end in range(len(before), len(after) + 1):
        whole = end == len(after)
        with_record = after[:FRAMES_OFFSET] + after[FRAMES_OFFSET:end]
        without_record = before[:FRAMES_OFFSET] + after[FRAMES_OFFSET:end]
        assert reached(recover(with_record)) == (COMMITS if whole else COMMITS - 1)
        assert reached(recover(without_record)) == COMMITS - 1
    for end in range(META_BYTES + 1):
        torn = before[:slot] + after[slot : slot + end] + before[slot + end : FRAMES_OFFSET]
        assert reached(recover(torn + after[FRAMES_OFFSET:])) in (COMMITS - 1, COMMITS)
        assert reached(recover(torn + before[FRAMES_OFFSET:])) == COMMITS - 1


def test_every_flipped_byte_is_an_error_or_a_committed_root() -> None:
    before, after = images()
    newest = COMMITS % 2 * SLOT_BYTES
    for offset in [*range(META_BYTES), *range(SLOT_BYTES, SLOT_BYTES + META_BYTES), *range(FRAMES_OFFSET, len(after))]:
        damaged = bytearray(after)
        damaged[offset] ^= 1 << offset % 8
        if FRAMES_OFFSET <= offset < len(before):
            with pytest.raises(DiskError, match=f"^{NAME}: offset [0-9]+: "):
                recover(bytes(damaged))
            continue
        store = recover(bytes(damaged))
        is_newest_hit = newest <= offset < newest + META_BYTES or offset >= len(before)
        assert reached(store) == (COMMITS - 1 if is_newest_hit else COMMITS)
        assert bool(store.recovery.reason) == is_newest_hit
        assert store.recovery.dropped_bytes == (len(after) - len(before) if is_newest_hit else 0)


def test_a_damaged_frame_is_named_by_its_offset() -> None:
    _, after = images()
    damaged = bytearray(after)
    damaged[FRAMES_OFFSET + FRAME_HEADER_BYTES + 20] ^= 1
    with pytest.raises(DiskError, match=f"^{NAME}: offset {FRAMES_OFFSET}: a frame does not fit its checksum$"):
        recover(bytes(damaged))


def test_a_file_cut_below_the_older_record_is_an_error() -> None:
    before, _ = images()
    assert reached(recover(before[:-1])) == COMMITS - 2
    for content in (before[:FRAMES_OFFSET], before[: SLOT_BYTES + 10], b"x"):
        with pytest.raises(DiskError, match=f"^{NAME}: offset [0-9]+: "):
            recover(content)


def test_both_records_damaged_is_an_error() -> None:
    _, after = images()
    with pytest.raises(DiskError, match="neither of the two meta records"):
        recover(bytes(FRAMES_OFFSET) + after[FRAMES_OFFSET:])


def test_a_log_that_gives_another_root_than_its_record_is_an_error() -> None:
    _, after = images()
    slot = COMMITS % 2 * SLOT_BYTES
    meta = Meta.decode(after[slot : slot + META_BYTES])
    assert meta is not None
    forged = Meta(
        meta.generation,
        meta.height,
        Hash(bytes(32)),
        meta.next_position,
        meta.frame_offset,
        meta.log_bytes,
        meta.frame_checksum,
    ).encode()
    with pytest.raises(DiskError, match=f"^{NAME}: offset {slot}: the log gives root"):
        recover(after[:slot] + forged + after[slot + META_BYTES :])


def test_a_stale_record_does_not_speak_for_a_later_frame() -> None:
    """A record whose frame was lost stays behind; the next commit of that generation must not be taken for it."""
    before, after = images()
    disk = MemoryDisk()
    disk.replace(NAME, after[: len(before)])
    store = open_store(disk)
    assert reached(store) == COMMITS - 1
    view = store.final
    for block, batch in enumerate(batches(COMMITS)):
        other = {key: value and bytes(len(value)) for key, value in batch.items()}
        view = view.derive(Height(2 * COMMITS + block), other)
    disk.plan = FaultPlan(disk.operations + 2, True)
    with pytest.raises(SimulatedCrash):
        store.commit(view)
    torn = after[:FRAMES_OFFSET] + disk.read(NAME)[FRAMES_OFFSET:]
    assert len(torn) == len(after) and torn != after
    recovered = recover(torn)
    assert reached(recovered) == COMMITS - 1
    assert "checksum" in recovered.recovery.reason


def test_only_the_record_just_before_is_fallen_back_to() -> None:
    """An older record than that would give up commits that were durable."""
    disk = MemoryDisk()
    store = open_store(disk)
    commit_one(store, 1)
    ancient = disk.read(NAME, SLOT_BYTES, META_BYTES)
    _, after = images()
    damaged = after[:SLOT_BYTES] + ancient + after[SLOT_BYTES + META_BYTES : -1]
    with pytest.raises(DiskError, match="no older meta record to fall back to"):
        recover(damaged)
