"""A real disk that gets full, whose sync fails, that is slow, that rots: what the kernel and the file say of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.disks import Trap
from cluster.disks.faulty import FaultyDisk, flip_bit
from cluster.faults.kinds.disk_full import DiskFullFault
from cluster.faults.kinds.failed_sync import FailedSyncFault
from validator.storage.disk import DiskError


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def disk(tmp_path: Path, slept: list[float]) -> Iterator[FaultyDisk]:
    disk = FaultyDisk(tmp_path / "node", sleep=slept.append)
    yield disk
    disk.close()


def full() -> Trap:
    return DiskFullFault(kind="disk_full", target=["a"], at_height=1).trap


def failed(of: Any = None) -> Trap:
    return FailedSyncFault(kind="failed_sync", target=["a"], at_height=1, of=of).trap


def test_a_full_disk_takes_half_and_the_kernel_says_why(disk: FaultyDisk) -> None:
    disk.append("journal", b"before")
    disk.lay_trap(full())
    with pytest.raises(DiskError, match=r"^journal: offset 6: write failed: No space left on device$"):
        disk.append("journal", b"12345678")
    assert disk.read("journal") == b"before1234"
    disk.append("journal", b"!")
    assert disk.read("journal") == b"before1234!", "once"


def test_a_full_disk_does_not_replace_a_file(disk: FaultyDisk) -> None:
    disk.replace("base", b"old")
    disk.lay_trap(full())
    with pytest.raises(DiskError, match="base: offset 0: replace failed: No space left"):
        disk.replace("base", b"newer")
    assert disk.read("base") == b"old"


def test_a_failed_sync_takes_back_what_it_covered(disk: FaultyDisk) -> None:
    disk.append("state/log-1", b"0123456789")
    disk.sync("state/log-1")
    disk.lay_trap(failed())
    disk.write("state/log-1", 8, b"abcd")
    disk.write("state/log-1", 2, b"XY")
    disk.write("state/log-1", 2, b"Z")
    with pytest.raises(DiskError, match=r"sync failed: Input/output error \(planned fault\)"):
        disk.sync("state/log-1")
    assert disk.read("state/log-1") == b"0123456789"
    disk.append("state/log-1", b"!")
    disk.sync("state/log-1")
    assert disk.read("state/log-1") == b"0123456789!", "once"


def test_a_failed_sync_is_of_the_files_that_it_names(disk: FaultyDisk) -> None:
    disk.lay_trap(failed("state"))
    disk.append("journal", b"kept")
    disk.sync("journal")
    disk.append("state/log-1", b"lost")
    with pytest.raises(DiskError, match="state/log-1"):
        disk.sync("state/log-1")
    assert (disk.read("journal"), disk.read("state/log-1")) == (b"kept", b"")


def test_what_was_replaced_or_cut_is_durable_whatever_was_written_before(disk: FaultyDisk) -> None:
    disk.lay_trap(failed("state"))
    disk.append("state/log-1", b"a")
    disk.replace("state/log-1", b"whole")
    disk.append("state/log-2", b"12345")
    disk.truncate("state/log-2", 3)
    with pytest.raises(DiskError):
        disk.sync("state/log-1")
    disk.lay_trap(failed("state"))
    with pytest.raises(DiskError):
        disk.sync("state/log-2")
    assert (disk.read("state/log-1"), disk.read("state/log-2")) == (b"whole", b"123")


def test_a_trap_may_be_taken_away(disk: FaultyDisk) -> None:
    disk.lay_trap(full())
    disk.lay_trap(None)
    disk.append("journal", b"fits")


def test_a_slow_disk_sleeps_for_each_sync(disk: FaultyDisk, slept: list[float]) -> None:
    disk.append("journal", b"a")
    disk.sync("journal")
    disk.sync_ms = 40
    disk.sync("journal")
    disk.sync("journal")
    assert slept == [0.04, 0.04]
    assert disk.slow_syncs == 2


def test_what_is_usual_does_not_count_as_slow(tmp_path: Path, slept: list[float]) -> None:
    disk = FaultyDisk(tmp_path / "slow", 7, slept.append)
    disk.append("journal", b"a")
    disk.sync("journal")
    assert (slept, disk.slow_syncs) == ([0.007], 0)
    disk.close()


def test_one_bit_flips(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    path.write_bytes(b"\x00\x0f\xff")
    flip_bit(path, 1, 7)
    assert path.read_bytes() == b"\x00\x8f\xff"
    flip_bit(path, 1, 7)
    assert path.read_bytes() == b"\x00\x0f\xff"
