"""Both disks against one contract, and what each has of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from cluster.disks.directory import DirectoryDisk
from cluster.disks.memory import FaultPlan, MemoryDisk, SimulatedCrash
from validator.storage.disk import Disk, DiskError


@pytest.fixture(params=["memory", "directory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "memory":
        yield MemoryDisk()
        return
    directory = DirectoryDisk(tmp_path / "node")
    yield directory
    directory.close()


def test_absent_files_are_empty(disk: Disk) -> None:
    assert disk.names() == []
    assert (disk.size("state/log"), disk.read("state/log"), disk.read("log", 5, 3)) == (0, b"", b"")
    disk.remove("log")
    disk.sync("log")
    disk.truncate("log", 0)
    assert disk.names() == []


def test_append_returns_the_offset(disk: Disk) -> None:
    assert [disk.append("log", b"abc"), disk.append("log", b""), disk.append("log", b"de")] == [0, 3, 3]
    assert (disk.size("log"), disk.read("log")) == (5, b"abcde")


def test_an_empty_append_makes_the_file(disk: Disk) -> None:
    disk.append("log", b"")
    assert (disk.names(), disk.size("log")) == (["log"], 0)


def test_reads_stop_at_the_end(disk: Disk) -> None:
    disk.append("log", b"abcde")
    assert [disk.read("log", 1, 2), disk.read("log", 3), disk.read("log", 4, 9), disk.read("log", 9, 1)] == [
        b"bc",
        b"de",
        b"e",
        b"",
    ]
    assert disk.read("log", 2, 0) == b""


def test_write_overwrites_and_extends(disk: Disk) -> None:
    disk.append("log", b"abcde")
    disk.write("log", 1, b"XY")
    disk.write("log", 4, b"Zz")
    disk.write("log", 8, b"!")
    assert disk.read("log") == b"aXYdZz\0\0!"
    assert disk.append("log", b"end") == 9


def test_truncate_cuts_and_never_extends(disk: Disk) -> None:
    disk.append("log", b"abcde")
    disk.truncate("log", 2)
    assert (disk.read("log"), disk.append("log", b"X")) == (b"ab", 2)
    with pytest.raises(DiskError, match="log: offset 4: truncate failed"):
        disk.truncate("log", 4)


def test_replace_and_remove(disk: Disk) -> None:
    disk.append("state/meta", b"a long old content")
    disk.sync("state/meta")
    disk.replace("state/meta", b"new")
    assert (disk.read("state/meta"), disk.append("state/meta", b"er")) == (b"new", 3)
    disk.replace("journal", b"")
    assert disk.names() == ["journal", "state/meta"]
    disk.remove("state/meta")
    assert (disk.names(), disk.size("state/meta")) == (["journal"], 0)
    disk.append("state/meta", b"again")
    assert disk.read("state/meta") == b"again"


def test_names_are_sorted(disk: Disk) -> None:
    for name in ("state/log", "a", "state-x", "state/a", "b"):
        disk.append(name, b"x")
    assert disk.names() == sorted(["state/log", "a", "state-x", "state/a", "b"])


def restart(directory: DirectoryDisk, path: Path) -> DirectoryDisk:
    directory.close()
    return DirectoryDisk(path)


def test_a_directory_keeps_everything_over_a_restart(tmp_path: Path) -> None:
    directory = DirectoryDisk(tmp_path)
    directory.append("log", b"abc")
    directory.sync("log")
    directory.replace("state/meta", b"1")
    directory = restart(directory, tmp_path)
    assert (directory.names(), directory.read("log"), directory.read("state/meta")) == (
        ["log", "state/meta"],
        b"abc",
        b"1",
    )
    directory.close()


def test_a_second_opener_is_refused_until_the_first_one_closes(tmp_path: Path) -> None:
    first = DirectoryDisk(tmp_path)
    with pytest.raises(DiskError, match="in use by another validator"):
        DirectoryDisk(tmp_path)
    first.append("log", b"still fine")
    restart(first, tmp_path).close()


def test_a_closed_directory_refuses_everything(tmp_path: Path) -> None:
    directory = DirectoryDisk(tmp_path)
    directory.append("log", b"abc")
    directory.close()
    directory.close()
    uses: list[Callable[[], object]] = [
        directory.names,
        lambda: directory.size("log"),
        lambda: directory.read("log"),
        lambda: directory.append("log", b"x"),
        lambda: directory.sync("log"),
        lambda: directory.replace("log", b"x"),
        lambda: directory.remove("log"),
    ]
    for use in uses:
        with pytest.raises(DiskError, match="closed"):
            use()


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/x", "a/b/c", ".lock", "a/.b", "a/", "a//b"])
def test_a_directory_refuses_names_outside_itself(tmp_path: Path, name: str) -> None:
    directory = DirectoryDisk(tmp_path / "node")
    for use in (directory.read, directory.remove, lambda name: directory.append(name, b"x")):
        with pytest.raises(DiskError, match="no file name"):
            use(name)
    assert [path.name for path in tmp_path.iterdir()] == ["node"]
    directory.close()


def test_an_interrupted_replace_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DirectoryDisk(tmp_path)
    directory.replace("meta", b"old")

    def no_rename(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", no_rename)
    with pytest.raises(DiskError, match="meta: offset 0: replace failed: No space left on device"):
        directory.replace("meta", b"new")
    monkeypatch.undo()
    assert (directory.read("meta"), directory.names()) == (b"old", ["meta"])
    directory.close()


def test_a_directory_syncs_the_file_and_the_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DirectoryDisk(tmp_path)
    synced: list[str] = []
    real = os.fsync

    def recorded(handle: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        real(handle)

    monkeypatch.setattr(os, "fsync", recorded)
    directory.append("state/log", b"x")
    assert synced == [tmp_path.name, "state"]
    directory.append("state/log", b"y")
    assert len(synced) == 2
    directory.sync("state/log")
    assert synced[2:] == ["log"]
    directory.replace("meta", b"z")
    assert synced[3:] == [".meta.tmp", tmp_path.name]
    directory.remove("meta")
    assert synced[5:] == [tmp_path.name]
    directory.close()


def test_a_failed_sync_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DirectoryDisk(tmp_path)
    directory.append("log", b"abc")

    def broken(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(DiskError, match=r"^log: offset 3: sync failed: Input/output error$"):
        directory.sync("log")
    monkeypatch.undo()
    directory.close()


def crashed(seed: int, scattered: bool = False) -> bytes:
    disk = MemoryDisk()
    disk.append("log", b"durable.")
    disk.sync("log")
    for part in (b"aaaa", b"bbbb", b"cccc"):
        disk.append("log", part)
    disk.crash(Random(seed), scattered)
    assert disk.size("log") == len(disk.read("log"))
    return disk.read("log")


def test_a_crash_keeps_a_prefix_of_what_was_not_synced() -> None:
    outcomes = {crashed(seed) for seed in range(300)}
    full = b"durable.aaaabbbbcccc"
    assert outcomes == {full[:end] for end in range(len(b"durable."), len(full) + 1)}


def test_a_scattering_crash_keeps_any_of_it() -> None:
    outcomes = {crashed(seed, scattered=True) for seed in range(300)}
    assert b"durable.\0\0\0\0\0\0\0\0cccc" in outcomes
    assert all(outcome.startswith(b"durable.") for outcome in outcomes)


def test_a_sync_makes_durable_what_was_written_when_it_began() -> None:
    outcomes = set()
    for seed in range(60):
        disk = MemoryDisk()
        disk.append("log", b"first ")
        begun = disk.written("log")
        disk.append("log", b"second")
        disk.sync("log", begun)
        assert disk.durable_size("log") == 6
        disk.crash(Random(seed))
        outcomes.add(disk.read("log"))
    assert outcomes == {b"first second"[:end] for end in range(6, 13)}


def test_what_is_durable_can_be_read_and_when_a_file_was_made_anew() -> None:
    disk = MemoryDisk()
    assert (disk.durable("log"), disk.replaced("log")) == (b"", (0, 0))
    disk.append("log", b"abc")
    disk.sync("log")
    disk.append("log", b"de")
    assert (disk.durable("log", 1), disk.replaced("log")) == (b"bc", (0, 0))
    disk.replace("log", b"xyz")
    disk.append("log", b"!")
    assert (disk.durable("log"), disk.replaced("log")) == (b"xyz", (disk.operations - 1, 3))


def test_syncs_end_in_any_order_and_after_other_changes() -> None:
    disk = MemoryDisk()
    disk.append("log", b"ab")
    first = disk.written("log")
    disk.append("log", b"cd")
    second = disk.written("log")
    disk.sync("log", second)
    disk.sync("log", first)
    assert disk.durable_size("log") == 4
    disk.append("log", b"ef")
    third = disk.written("log")
    disk.truncate("log", 4)
    disk.append("log", b"gh")
    disk.sync("log", third)
    assert disk.durable_size("log") == 4, "what was cut off had been the third write"
    disk.replace("log", b"new")
    disk.append("log", b"er")
    disk.sync("log", third)
    assert disk.durable_size("log") == 3
    disk.sync("log", disk.written("log"))
    assert disk.durable_size("log") == 5


def test_a_crash_is_drawn_from_its_random_source_alone() -> None:
    assert [crashed(seed, True) for seed in range(50)] == [crashed(seed, True) for seed in range(50)]


def test_a_file_never_synced_may_vanish() -> None:
    outcomes = set()
    for seed in range(50):
        disk = MemoryDisk()
        disk.append("log", b"x")
        disk.crash(Random(seed))
        outcomes.add(tuple(disk.names()))
    assert outcomes == {(), ("log",)}


def test_replace_truncate_and_remove_outlive_a_crash() -> None:
    disk = MemoryDisk()
    for name in ("a", "b", "c"):
        disk.append(name, b"content")
        disk.sync(name)
    disk.replace("a", b"new")
    disk.truncate("b", 3)
    disk.remove("c")
    disk.crash(Random(0))
    assert [disk.names(), disk.read("a"), disk.read("b")] == [["a", "b"], b"new", b"con"]


def test_a_truncate_does_not_save_what_was_not_synced() -> None:
    outcomes = set()
    for seed in range(60):
        disk = MemoryDisk()
        disk.append("log", b"ab")
        disk.sync("log")
        disk.append("log", b"cdef")
        disk.append("log", b"gh")
        disk.truncate("log", 4)
        disk.crash(Random(seed))
        outcomes.add(disk.read("log"))
    assert outcomes == {b"ab", b"abc", b"abcd"}


def test_what_a_failed_sync_covered_is_seen_but_never_durable() -> None:
    disk = MemoryDisk()
    disk.append("log", b"ab")
    disk.sync("log")
    disk.append("log", b"cd")
    disk.plan = FaultPlan(disk.operations + 1)
    with pytest.raises(DiskError, match="log: offset 4: sync failed"):
        disk.sync("log")
    disk.sync("log")
    assert disk.read("log") == b"abcd"
    disk.crash(Random(0))
    assert disk.read("log") == b"ab"


def test_planned_faults_happen_once_at_their_operation() -> None:
    disk = MemoryDisk(FaultPlan(2))
    disk.append("log", b"abcd")
    with pytest.raises(DiskError, match="log: offset 4: append failed"):
        disk.append("log", b"efgh")
    assert disk.read("log") == b"abcdef"
    disk.append("log", b"!")
    assert (disk.read("log"), disk.operations) == (b"abcdef!", 3)


def test_a_planned_crash_is_no_disk_error() -> None:
    disk = MemoryDisk(FaultPlan(2, crash=True))
    disk.append("log", b"abcd")
    with pytest.raises(SimulatedCrash):
        disk.sync("log")
    assert not issubclass(SimulatedCrash, DiskError)
    assert len({crashed_after_sync(seed) for seed in range(40)}) > 1


def crashed_after_sync(seed: int) -> bytes:
    disk = MemoryDisk(FaultPlan(2, crash=True))
    disk.append("log", b"abcd")
    with pytest.raises(SimulatedCrash):
        disk.sync("log")
    disk.crash(Random(seed))
    return disk.read("log")


def test_a_planned_fault_may_wait_for_a_file() -> None:
    disk = MemoryDisk(FaultPlan(1, verbs=frozenset({"sync"}), files="state"))
    disk.append("journal", b"a")
    disk.sync("journal")
    disk.append("state/log", b"b")
    with pytest.raises(DiskError, match="state/log: offset 1: sync failed"):
        disk.sync("state/log")
    disk.sync("state/log")
