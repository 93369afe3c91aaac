"""Views, commits, scans, bounds, determinism."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from cluster.disks.directory import DirectoryDisk
from cluster.disks.memory import FaultPlan, MemoryDisk
from tests.validator.state.naive_state import NaiveState
from validator.primitives.types import Height, ValidatorError
from validator.state import LogStateStore, StaleViewError, StateStore, TreelessStore, View
from validator.state.store import record_of, repeat, section_of
from validator.storage.disk import DiskError

REPOSITORY = Path(__file__).resolve().parents[3]


def heights(start: int = 1) -> list[Height]:
    return [Height(height) for height in range(start, start + 10)]


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def store(disk: MemoryDisk) -> LogStateStore:
    return LogStateStore.open(disk)


def test_an_empty_folder_is_an_empty_state(store: LogStateStore) -> None:
    protocol: StateStore = store
    assert protocol.final.height == 0
    assert protocol.final.root == NaiveState().root
    assert protocol.final.get(b"a") is None
    assert list(protocol.final.scan(b"")) == []


def test_children_do_not_change_their_parent_or_each_other(store: LogStateStore) -> None:
    parent = store.final.derive(Height(1), {b"a": b"1", b"b": b"1"})
    left = parent.derive(Height(2), {b"a": b"2", b"c": b"2"})
    right = parent.derive(Height(2), {b"a": None})
    assert [view.get(b"a") for view in (parent, left, right)] == [b"1", b"2", None]
    assert [list(view.scan(b"")) for view in (parent, left, right)] == [
        [(b"a", b"1"), (b"b", b"1")],
        [(b"a", b"2"), (b"b", b"1"), (b"c", b"2")],
        [(b"b", b"1")],
    ]
    assert parent.derive(Height(2), {b"a": b"2", b"c": b"2"}).root == left.root


def test_order_and_repetition_of_the_caller_do_not_matter(store: LogStateStore) -> None:
    pairs = [(bytes([i]), bytes([i])) for i in range(50)]
    forward, backward = dict(pairs), dict(reversed(pairs))
    assert store.final.derive(Height(1), forward).root == store.final.derive(Height(1), backward).root


def test_what_changes_nothing_leaves_the_root(store: LogStateStore) -> None:
    view = store.final.derive(Height(1), {b"a": b"1", b"b": b""})
    assert view.derive(Height(2), {b"a": b"1", b"b": b"", b"absent": None}).root == view.root
    assert view.derive(Height(2), {}).root == view.root
    assert view.derive(Height(2), {b"b": None}).root != view.root


def test_writing_a_value_back_is_another_root(store: LogStateStore) -> None:
    view = store.final.derive(Height(1), {b"a": b"1"})
    back = view.derive(Height(2), {b"a": b"2"}).derive(Height(3), {b"a": b"1"})
    assert list(back.scan(b"")) == list(view.scan(b""))
    assert back.root != view.root


def test_views_over_the_committed_one_live_on(store: LogStateStore) -> None:
    one, two, three, four, *_ = heights()
    first = store.final.derive(one, {b"a": b"1", b"b": b"1"})
    second = first.derive(two, {b"a": b"2", b"b": None})
    third = second.derive(three, {b"c": b"3"})
    fourth = third.derive(four, {b"a": None})
    before = [(view.root, list(view.scan(b""))) for view in (second, third, fourth)]
    store.commit(second)
    assert store.final is second
    assert [(view.root, list(view.scan(b""))) for view in (second, third, fourth)] == before
    sibling = third.derive(four, {b"a": None})
    assert sibling.root == fourth.root
    store.commit(fourth)
    assert (fourth.root, list(fourth.scan(b""))) == before[2]


def test_stale_views_raise_on_every_use(store: LogStateStore) -> None:
    one, two, three, *_ = heights()
    genesis = store.final
    first = genesis.derive(one, {b"a": b"1"})
    second = first.derive(two, {b"a": b"2"})
    sibling = first.derive(two, {b"a": b"3"})
    nephew = sibling.derive(three, {b"b": b"3"})
    other = genesis.derive(one, {})
    store.commit(second)
    for view in (genesis, first, sibling, nephew, other):
        assert view.height <= 3 and len(view.root) == 32
        for use in (
            lambda v: v.get(b"a"),
            lambda v: v.scan(b""),
            lambda v: v.derive(Height(9), {}),
            store.commit,
        ):
            with pytest.raises(StaleViewError, match="height 2 became final"):
                use(view)
    assert issubclass(StaleViewError, ValidatorError)
    assert second.get(b"a") == b"2"


def test_dropped_views_and_their_descendants_raise(store: LogStateStore) -> None:
    kept = store.final.derive(Height(1), {b"a": b"1"})
    dropped = kept.derive(Height(2), {b"a": b"2"})
    child = dropped.derive(Height(3), {})
    store.drop(dropped)
    for view in (dropped, child):
        with pytest.raises(StaleViewError, match="dropped"):
            view.get(b"a")
    assert kept.get(b"a") == b"1"
    with pytest.raises(ValueError, match="final"):
        store.drop(store.final)


def test_a_closed_store_serves_no_view(store: LogStateStore) -> None:
    final, child = store.final, store.final.derive(Height(1), {b"a": b"1"})
    store.close()
    for view in (final, child):
        with pytest.raises(StaleViewError, match="closed"):
            view.get(b"a")
    with pytest.raises(StaleViewError, match="closed"):
        store.commit(child)


def test_foreign_views_are_refused(store: LogStateStore) -> None:
    foreign = LogStateStore.open(MemoryDisk()).final
    with pytest.raises(ValueError, match="own"):
        store.commit(foreign)
    with pytest.raises(ValueError, match="own"):
        store.drop(foreign)


def test_committing_the_final_view_again_writes_nothing(store: LogStateStore, disk: MemoryDisk) -> None:
    store.commit(store.final.derive(Height(1), {b"a": b"1"}))
    operations = disk.operations
    store.commit(store.final)
    assert disk.operations == operations


def test_a_commit_is_one_append_one_record_and_one_sync(store: LogStateStore, disk: MemoryDisk) -> None:
    operations = disk.operations
    view = store.final.derive(Height(1), {b"a": b"1"}).derive(Height(2), {b"b": b"1"})
    assert disk.operations == operations
    store.commit(view)
    assert disk.operations == operations + 3


@pytest.mark.parametrize(
    ("height", "batch"),
    [
        (1, {b"": b"v"}),
        (1, {bytes(513): b"v"}),
        (1, {b"k": bytes(2**24 + 1)}),
        (0, {}),
        (2**63, {}),
    ],
)
def test_what_is_out_of_bounds_is_refused(store: LogStateStore, height: int, batch: dict[bytes, bytes]) -> None:
    view = store.final.derive(Height(1), {})
    with pytest.raises(ValueError, match=r"height|key|value"):
        view.derive(Height(height), batch)


def test_the_largest_key_and_value_survive(store: LogStateStore, disk: MemoryDisk) -> None:
    key, value = bytes(range(256)) * 2, bytes(2**24)
    store.commit(store.final.derive(Height(1), {key: value}))
    assert LogStateStore.open(disk).final.get(key) == value


def test_genesis_is_a_batch_at_height_0(store: LogStateStore, disk: MemoryDisk) -> None:
    store.commit(store.final.derive(Height(0), {b"a": b"1"}))
    reopened = LogStateStore.open(disk)
    assert (reopened.final.height, reopened.final.get(b"a")) == (0, b"1")


def test_scan_takes_its_prefix_from_every_layer(store: LogStateStore) -> None:
    store.commit(store.final.derive(Height(1), {b"a": b"", b"ab": b"1", b"ac": b"1", b"b": b"1", b"\xff\xff": b"1"}))
    view = store.final.derive(Height(2), {b"ac": b"2", b"ad": b"2", b"b": None}).derive(Height(3), {b"ab": None})
    assert list(view.scan(b"a")) == [(b"a", b""), (b"ac", b"2"), (b"ad", b"2")]
    assert list(view.scan(b"\xff")) == [(b"\xff\xff", b"1")]
    assert list(view.scan(b"b")) == []
    scan = view.scan(b"a")
    store.commit(view)
    assert len(list(scan)) == 3
    assert list(store.final.scan(b"a")) == [(b"a", b""), (b"ac", b"2"), (b"ad", b"2")]


def test_a_failed_commit_leaves_the_views_and_refuses_another(store: LogStateStore, disk: MemoryDisk) -> None:
    view = store.final.derive(Height(1), {b"a": b"1"})
    disk.plan = FaultPlan(disk.operations + 3)
    with pytest.raises(DiskError, match="state/log-000001: offset"):
        store.commit(view)
    assert (view.get(b"a"), store.final.height) == (b"1", 0)
    with pytest.raises(DiskError, match="open the store again"):
        store.commit(view)


def test_a_log_that_somebody_else_wrote_to_is_noticed(store: LogStateStore, disk: MemoryDisk) -> None:
    end = disk.append("state/log-000001", b"foreign") + len(b"foreign")
    with pytest.raises(DiskError, match=f"state/log-000001: offset {end}: expected the file to end at "):
        store.commit(store.final.derive(Height(1), {b"a": b"1"}))
    assert LogStateStore.open(disk).final.height == 0


def test_reopening_gives_the_same_root_and_the_same_future(store: LogStateStore, disk: MemoryDisk) -> None:
    model = NaiveState()
    for height in range(1, 8):
        batch = {bytes([i]): bytes([height]) if (i + height) % 5 else None for i in range(height * 9)}
        model = model.apply(batch, height)
        store.commit(store.final.derive(Height(height), batch))
    reopened = LogStateStore.open(disk)
    assert (reopened.final.height, reopened.final.root) == (7, model.root)
    assert dict(reopened.final.scan(b"")) == model.items
    future = {bytes([i]): b"future" for i in range(0, 90, 7)}
    assert reopened.final.derive(Height(8), future).root == model.apply(future, 8).root
    assert reopened.recovery.dropped_bytes == 0 and reopened.recovery.reason == ""


def test_a_store_on_real_files_reopens(tmp_path: Path) -> None:
    disk = DirectoryDisk(tmp_path)
    store = LogStateStore.open(disk, "chain")
    store.commit(store.final.derive(Height(1), {b"a": b"1"}))
    root = store.final.root
    store.close()
    disk.close()
    again = DirectoryDisk(tmp_path)
    assert again.names() == ["chain/log-000001"]
    assert LogStateStore.open(again, "chain").final.root == root
    again.close()


def test_memory_of_a_view_follows_its_changes_not_the_state(store: LogStateStore) -> None:
    store.commit(store.final.derive(Height(1), {i.to_bytes(4, "big"): b"v" * 20 for i in range(20_000)}))
    batch: dict[bytes, bytes | None] = {i.to_bytes(4, "big"): b"w" for i in range(0, 20_000, 2000)}
    for _ in range(2):  # the first call of each compiled loop loads it
        store.final.derive(Height(2), batch)
    tracemalloc.start()
    view = store.final.derive(Height(2), batch)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < len(batch) * 2048
    assert view.get((2000).to_bytes(4, "big")) == b"w"


HASH_SEED_PROGRAM = """
from cluster.disks.memory import MemoryDisk
from validator.state import LogStateStore

store = LogStateStore.open(MemoryDisk())
for height in range(1, 5):
    keys = {f"key {i}".encode() for i in range(100 * height)}
    gone = {key for key in keys if key.endswith(b"7")} if height % 2 else set()
    batch = {key: None if key in gone else key + bytes([height]) for key in keys}
    store.commit(store.final.derive(height, batch))
print(store.final.root.hex())
"""


def test_roots_do_not_depend_on_the_hash_seed() -> None:
    roots = set()
    for seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(
            [sys.executable, "-c", HASH_SEED_PROGRAM], env=environment, capture_output=True, text=True, check=True
        )
        roots.add(done.stdout.strip())
    assert len(roots) == 1 and len(roots.pop()) == 64


# --- what another store derived -------------------------------------------------------------------------------------


def everything(store: LogStateStore, view: View) -> list[object]:
    """All that a store answers of a view that it makes final, and what it has on disk."""
    found = [view.height, view.root, list(view.scan(b"")), section_of(view)]
    store.commit(view)
    disk = store.log.disk
    return [*found, store.prove(b"a"), store.prove(b"absent"), {name: disk.read(name) for name in disk.names()}]


def test_a_view_of_another_store_is_repeated() -> None:
    first, other = (LogStateStore.open(MemoryDisk()) for _ in range(2))
    for number in range(1, 30):
        batch = {b"%d" % (number * at % 40): b"%d" % number for at in range(5)} | {b"%d" % number: None, b"a": b"1"}
        view = first.final.derive(Height(number), batch)
        record = record_of(view)
        assert record is not None
        other.final.derive(Height(number), {b"on another branch": b"%d" % number})
        again = repeat(other.final, record)
        assert again is not None
        if number % 2:
            other.final.derive(Height(number), {})  # the engine leaves the repeated view, and comes back
        assert everything(other, again) == everything(first, view)


def test_what_cannot_be_repeated(store: LogStateStore) -> None:
    first = LogStateStore.open(MemoryDisk())
    assert record_of(first.final) is None, "it was not derived"
    left, right = first.final.derive(Height(1), {b"a": b"1"}), first.final.derive(Height(1), {b"a": b"2"})
    assert record_of(left) is None, "the engine has left it"
    record = record_of(right)
    assert record is not None
    parent = store.final.derive(Height(1), {b"a": b"0"})
    assert repeat(parent, record) is None, "a changed key has another value there"
    assert parent.derive(Height(1), {}).root == parent.root
    dropped = store.final.derive(Height(1), {})
    store.drop(dropped)
    with pytest.raises(StaleViewError):
        repeat(dropped, record)
    assert repeat(TreelessStore().final, record) is None


def test_a_packed_state_makes_no_record_and_repeats_none() -> None:
    packed, plain = LogStateStore.open(MemoryDisk(), packed_keys=1), LogStateStore.open(MemoryDisk())
    for store in (packed, plain):
        store.commit(store.final.derive(Height(1), {b"a": b"1"}))
    assert record_of(packed.final.derive(Height(2), {b"a": b"2"})) is None
    record = record_of(plain.final.derive(Height(2), {b"a": b"2"}))
    assert record is not None
    assert repeat(packed.final, record) is None
