"""Snapshots: whoever begins with one has everybody's next roots; wrong chunks are refused, interrupted intakes go
on."""

from __future__ import annotations

from random import Random

import pytest

from cluster.disks.memory import FaultPlan, MemoryDisk, SimulatedCrash
from validator.primitives.types import Height
from validator.state import LogStateStore
from validator.state.engine import Engine
from validator.state.engines.packed import PackedEngine
from validator.state.engines.plain import PlainEngine
from validator.state.hashing import UPPER_NODE_KEY, hash_pairs
from validator.state.intake import SnapshotIntake
from validator.state.log import StateLog
from validator.state.proof import verify
from validator.state.snapshot import Manifest, SnapshotError, decode_chunk
from validator.storage.disk import DiskError

Batch = dict[bytes, bytes | None]
FOLDER = "state"
SLACK = 300
HEIGHTS = 60
FIRST_TWIG_END = 32
"""The lowest byte of the first twig's number in an encoded manifest."""
TAKEN_AT = Height(50)


def batch_of(height: int) -> Batch:
    rng = Random(height)
    batch: Batch = {
        b"%d" % rng.randrange(3000): None if rng.random() < 0.2 else rng.randbytes(rng.randrange(20))
        for _ in range(rng.choice([1, 20, 400]))
    }
    return {**batch, b"height": b"%d" % height}


def extend(store: LogStateStore, heights: int) -> None:
    for height in range(store.final.height + 1, store.final.height + heights + 1):
        store.commit(store.final.derive(Height(height), batch_of(height)))


@pytest.fixture(scope="module")
def source() -> LogStateStore:
    store = LogStateStore.open(MemoryDisk(), engine=PlainEngine(SLACK))
    extend(store, HEIGHTS)
    manifest = store.manifest(TAKEN_AT)
    assert manifest.first_twig >= 1, "the test wants pruned twigs"
    assert manifest.chunks >= 2
    return store


def take_in(source: LogStateStore, disk: MemoryDisk, height: Height = TAKEN_AT) -> None:
    intake = SnapshotIntake(disk, FOLDER, height, source.root_at(height))
    intake.take_manifest(source.manifest(height).encode())
    for chunk in intake.missing():
        intake.take_chunk(chunk, source.chunk(chunk, height))
    intake.install()


def open_joined(disk: MemoryDisk, engine: Engine | None = None) -> LogStateStore:
    return LogStateStore(StateLog.open(disk, FOLDER), engine or PlainEngine(SLACK))


@pytest.mark.parametrize("kind", [PlainEngine, PackedEngine])
@pytest.mark.parametrize("height", [2, 50, 60])
def test_a_joiner_has_everybodys_next_roots(source: LogStateStore, kind: type[PlainEngine], height: int) -> None:
    disk = MemoryDisk()
    take_in(source, disk, Height(height))
    joined = open_joined(disk, kind(SLACK))
    assert (joined.final.height, joined.final.root) == (height, source.root_at(Height(height)))
    for following in range(height + 1, HEIGHTS + 1):
        joined.commit(joined.final.derive(Height(following), batch_of(following)))
        assert joined.final.root == source.root_at(Height(following))
    again = open_joined(disk, kind(SLACK))
    assert again.final.root == source.final.root
    assert list(again.final.scan(b"")) == list(source.final.scan(b""))


def test_the_next_2000_roots_are_everybodys(source: LogStateStore) -> None:
    disk, other = MemoryDisk(), LogStateStore.open(MemoryDisk(), engine=PlainEngine(SLACK))
    extend(other, HEIGHTS)
    take_in(source, disk, Height(HEIGHTS))
    joined = open_joined(disk)
    joined_view, other_view = joined.final, other.final
    for number in range(2000):
        batch: Batch = {b"%d" % (number * 7 % 3000): b"%d" % number, b"%d" % (number * 11 % 3000): None}
        height = Height(HEIGHTS + 1 + number)
        joined_view, other_view = joined_view.derive(height, batch), other_view.derive(height, batch)
        assert joined_view.root == other_view.root
        if number % 50 == 0:
            joined.commit(joined_view)
            other.commit(other_view)


def test_a_joiner_proves_and_serves_snapshots_itself(source: LogStateStore) -> None:
    disk = MemoryDisk()
    take_in(source, disk)
    joined = open_joined(disk)
    for height in range(TAKEN_AT + 1, HEIGHTS + 1):
        joined.commit(joined.final.derive(Height(height), batch_of(height)))
    for height in (Height(TAKEN_AT), Height(TAKEN_AT + 5), Height(HEIGHTS)):
        for key in [b"height", b"absent", *(b"%d" % i for i in range(0, 3000, 100))]:
            assert joined.prove(key, height) == source.prove(key, height)
        assert joined.manifest(height) == source.manifest(height)
        for chunk in range(joined.manifest(height).chunks):
            assert joined.chunk(chunk, height) == source.chunk(chunk, height)
    assert verify(joined.final.root, b"height", joined.prove(b"height")) == b"%d" % HEIGHTS


def test_a_joiner_rewinds_to_where_it_joined(source: LogStateStore) -> None:
    disk = MemoryDisk()
    take_in(source, disk)
    joined = open_joined(disk)
    joined.commit(joined.final.derive(Height(TAKEN_AT + 1), batch_of(TAKEN_AT + 1)))
    assert joined.first_height == TAKEN_AT
    joined.rewind(TAKEN_AT)
    assert open_joined(disk).final.root == source.root_at(TAKEN_AT)


def test_a_pruned_snapshot_goes(source: LogStateStore) -> None:
    disk = MemoryDisk()
    take_in(source, disk)
    log = StateLog.open(disk, FOLDER)
    log.segment_bytes = 20_000
    joined = LogStateStore(log, PlainEngine(SLACK), retained=2)
    other = LogStateStore.open(MemoryDisk(), engine=PlainEngine(SLACK))
    extend(other, TAKEN_AT)
    for store in (joined, other):
        for height in range(TAKEN_AT + 1, TAKEN_AT + 80):
            store.commit(
                store.final.derive(Height(height), {b"%d" % i: b"%d" % height for i in range(height, 3000, 9)})
            )
    assert not [name for name in disk.names() if "chunk" in name or "manifest" in name]
    assert open_joined(disk).final.root == joined.final.root == other.final.root


@pytest.mark.slow
def test_every_flipped_byte_of_a_chunk_or_manifest_is_refused(source: LogStateStore) -> None:
    root = source.root_at(TAKEN_AT)
    encoded = source.manifest(TAKEN_AT).encode()
    manifest = Manifest.decode(encoded, TAKEN_AT, root)
    for i in range(len(encoded)):
        if i == FIRST_TWIG_END:
            continue  # another cut of the same tree, which :func:`test_a_manifest_that_leaves_out_live_keys` is about
        with pytest.raises(SnapshotError):
            Manifest.decode(encoded[:i] + bytes([encoded[i] ^ 1]) + encoded[i + 1 :], TAKEN_AT, root)
    chunk = source.chunk(0, TAKEN_AT)
    rng = Random(1)
    for i in [*range(600), *(rng.randrange(len(chunk)) for _ in range(200))]:
        with pytest.raises(SnapshotError):
            decode_chunk(manifest, 0, chunk[:i] + bytes([chunk[i] ^ 1 << i % 8]) + chunk[i + 1 :])
    for wrong in (b"", chunk[:-1], chunk + b"\0", source.chunk(1, TAKEN_AT), source.chunk(0, Height(HEIGHTS))):
        with pytest.raises(SnapshotError):
            decode_chunk(manifest, 0, wrong)


def test_an_interrupted_intake_goes_on_and_installs_whole_or_not_at_all(source: LogStateStore) -> None:
    clean = MemoryDisk()
    take_in(source, clean)
    for operation in range(1, clean.operations + 1):
        for stops in (False, True):
            disk = MemoryDisk(FaultPlan(operation, stops))
            with pytest.raises((DiskError, SimulatedCrash)):
                take_in(source, disk)
            disk.crash(Random(operation))
            disk.plan = None
            intake = SnapshotIntake(disk, FOLDER, TAKEN_AT, source.root_at(TAKEN_AT))
            arrived = intake.manifest.chunks - len(intake.missing()) if intake.manifest else 0
            assert arrived == max(min(operation - 2, source.manifest(TAKEN_AT).chunks), 0)
            take_in(source, disk)
            assert open_joined(disk).final.root == source.root_at(TAKEN_AT)


def test_rot_in_an_installed_snapshot_is_named(source: LogStateStore) -> None:
    disk = MemoryDisk()
    take_in(source, disk)
    name = "state/chunk-000001"
    content = disk.read(name)
    disk.replace(name, content[:300] + bytes([content[300] ^ 1]) + content[301:])
    with pytest.raises(DiskError, match=r"^state/chunk-000001: offset 0: "):
        open_joined(disk)


def test_a_manifest_that_leaves_out_live_keys_is_refused_in_the_end(source: LogStateStore) -> None:
    honest = source.manifest(TAKEN_AT)
    assert honest.first_twig == 1
    peak = hash_pairs(UPPER_NODE_KEY, [honest.peaks[0], honest.twig_roots[0]])
    forged = Manifest(TAKEN_AT, honest.next_position, honest.live, 2, tuple(peak), honest.twig_roots[1:])
    disk = MemoryDisk()
    intake = SnapshotIntake(disk, FOLDER, TAKEN_AT, source.root_at(TAKEN_AT))
    intake.take_manifest(forged.encode())
    prover, past = source._at(TAKEN_AT)
    for chunk in intake.missing():
        intake.take_chunk(chunk, b"".join(prover.encoded_twig(index, past) for index in forged.twigs_of(chunk)))
    with pytest.raises(SnapshotError, match="live keys of"):
        intake.install()
    assert disk.names() == []
    take_in(source, disk)
    assert open_joined(disk).final.root == source.root_at(TAKEN_AT)
