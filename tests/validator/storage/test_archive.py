"""The archive in several files: compared with a plain list, crashed at every change of the disk, rotten, pruned."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.disks.bit_rot import may_rot
from cluster.disks.directory import DirectoryDisk
from cluster.disks.memory import FaultPlan, MemoryDisk, SimulatedCrash
from validator.chain.block import BlockReceipts, DestroyedReceipt, Effects, Event, TransactionReceipt
from validator.primitives.codec import decode, encode, tagged_hash
from validator.primitives.types import Hash, Height, TimerId
from validator.storage.archive import (
    PRUNED_FILE,
    START_FILE,
    ArchivedBlock,
    ArchiveStart,
    BlockArchive,
    begin_archive,
)
from validator.storage.disk import Disk, DiskError, used_bytes
from validator.storage.frames import frame, read_frame
from validator.storage.segments import ARCHIVE_FILE, INDEX_FILE, SegmentIndex

SEGMENT_BYTES = 1_000
"""Some three blocks."""


def transaction_of(height: int, number: int = 0) -> Hash:
    return tagged_hash(b"transaction", b"%d %d" % (height, number))


def timer_of(height: int) -> TimerId:
    return TimerId(tagged_hash(b"timer", b"%d" % height))


def receipts(height: int) -> BlockReceipts:
    transactions = tuple(
        TransactionReceipt(transaction_of(height, number), bytes(20), True, "", 1, 2, b"", b"", Effects())
        for number in range(height % 3)
    )
    destroyed = DestroyedReceipt(timer_of(height), "expired", Event("Expired", bytes(20), ()))
    return BlockReceipts(height, bytes(20), transactions, (), (destroyed,), (), (), 0, b"")


def archived(height: int) -> ArchivedBlock:
    return ArchivedBlock(b"block %d" % height, encode(receipts(height)), b"certificate", bytes([height % 256]) * 32)


def opened(disk: Disk, segment_bytes: int = SEGMENT_BYTES) -> BlockArchive:
    return BlockArchive(disk, segment_bytes)


def fill(archive: BlockArchive, height: int) -> BlockArchive:
    for at in range(archive.height + 1, height + 1):
        archive.append(archived(at), receipts(at))
    return archive


def filled(height: int, disk: Disk | None = None) -> Disk:
    disk = MemoryDisk() if disk is None else disk
    fill(opened(disk), height)
    return disk


def require(archive: BlockArchive, first: int, height: int) -> None:
    """The archive has exactly the blocks above ``first`` and up to ``height``, and what is in them."""
    assert (archive.first_height, archive.height) == (first, height)
    for at in range(max(first - 5, 0), height + 2):
        is_here = first < at <= height
        assert archive.get(at) == (archived(at) if is_here else None)
        receipt = archive.find_receipt(transaction_of(at))
        assert (receipt is not None) == (is_here and at % 3 > 0)
        assert receipt is None or (receipt.place.height, receipt.receipt) == (at, receipts(at).transactions[0])
        end = archive.find_end(timer_of(at))
        assert (None if end is None else end.height) == (at if is_here else None)


def segments(disk: Disk, prefix: str = ARCHIVE_FILE) -> list[str]:
    return [name for name in disk.names() if name.startswith(prefix)]


# --- files ------------------------------------------------------------------------------------------------------------


def test_an_archive_of_several_files_reopens_as_it_was() -> None:
    disk = filled(20)
    assert len(segments(disk)) > 4
    assert segments(disk)[0] == ARCHIVE_FILE
    assert len(segments(disk, INDEX_FILE)) == len(segments(disk)) - 1, "the newest file needs none"
    require(opened(disk), 0, 20)
    require(fill(opened(disk), 25), 0, 25)
    require(opened(disk), 0, 25)
    assert all(disk.size(name) < SEGMENT_BYTES + 500 for name in segments(disk))


def test_the_file_of_an_older_version_is_the_first_one() -> None:
    """It may be of any size, and has no index."""
    disk = MemoryDisk()
    disk.replace(ARCHIVE_FILE, b"".join(frame(encode(archived(height))) for height in range(1, 41)))
    archive = opened(disk)
    require(archive, 0, 40)
    require(fill(archive, 41), 0, 41)
    assert segments(disk) == [ARCHIVE_FILE, f"{ARCHIVE_FILE}-000000000040"]
    require(opened(disk), 0, 41)


def test_another_size_of_files_is_nothing_to_an_archive() -> None:
    disk = filled(20)
    require(fill(opened(disk, 100), 30), 0, 30)
    require(fill(opened(disk, 10**6), 40), 0, 40)
    require(opened(disk), 0, 40)


def test_an_archive_behind_a_snapshot_has_its_first_file_there() -> None:
    disk = MemoryDisk()
    begin_archive(disk, ArchiveStart(100, archived(100), 7))
    archive = fill(opened(disk), 120)
    assert segments(disk)[0] == ARCHIVE_FILE
    for each in (archive, opened(disk)):
        assert (each.joined_height, each.first_height, each.height, each.abstain_through) == (100, 100, 120, 7)
        assert each.get(100) == archived(100)
        assert each.get(99) is None
        assert [each.get(height) for height in range(101, 121)] == [archived(height) for height in range(101, 121)]
    archive.prune(110)
    first = archive.first_height
    assert 100 < first <= 110
    for each in (archive, opened(disk)):
        require(each, first, 120)
        assert (each.joined_height, each.abstain_through) == (100, 7), "that outlives the blocks"
    assert disk.names().count(START_FILE) == 1


def test_few_files_are_open_however_many_there_are(tmp_path: Path) -> None:
    disk, process = DirectoryDisk(tmp_path), psutil.Process()
    try:
        filled(60, disk)
        archive = opened(disk)
        require(archive, 0, 60)
        assert len(segments(disk)) > 12
        assert len([each for each in process.open_files() if each.path.startswith(str(tmp_path))]) <= 3
    finally:
        disk.close()


def test_the_bytes_on_a_disk_are_counted_by_folder() -> None:
    disk = filled(20)
    disk.replace("journal", b"12345")
    blocks = sum(disk.size(name) for name in disk.names() if name.startswith("blocks/"))
    assert used_bytes(disk) == {"blocks": blocks, "journal": 5}


# --- pruning ----------------------------------------------------------------------------------------------------------


def test_whole_files_go_and_no_block_above_the_height() -> None:
    for height in range(31):
        disk = filled(30)
        archive = opened(disk)
        archive.prune(height)
        first = archive.first_height
        assert first <= height or not first
        require(archive, first, 30)
        require(opened(disk), first, 30)
        require(fill(opened(disk), 40), first, 40)
        if height > 5:
            assert height - first <= 4, "as much as fits into a file is kept beyond what must be"
    assert len(segments(disk)) >= 1, "the newest file stays"
    assert used_bytes(disk)["blocks"] < 7 * SEGMENT_BYTES


def test_a_bounded_archive_stays_bounded() -> None:
    disk = MemoryDisk()
    archive = opened(disk)
    for height in range(10, 500, 10):
        fill(archive, height)
        archive.prune(height - 10)
        assert len(segments(disk)) <= 6
    require(archive, archive.first_height, 490)


def test_a_file_that_was_pruned_too_early_is_missed() -> None:
    """A planted fault: files go, and nothing says that they had to."""
    for names in (segments(filled(20))[:1], segments(filled(20))[:2], segments(filled(20))[1:2]):
        disk = filled(20)
        for name in names:
            disk.remove(name)
        with pytest.raises(DiskError, match=r"blocks/archive[-0-9]*: is missing although blocks/index"):
            opened(disk)
        for name in names:
            disk.remove(INDEX_FILE + name.removeprefix(ARCHIVE_FILE))
        with pytest.raises(
            DiskError, match=r"blocks/archive-0000000000\d\d: expected the blocks above height \d+ before"
        ):
            opened(disk)


def test_a_pruned_archive_does_not_lose_its_first_file() -> None:
    disk = filled(20)
    opened(disk).prune(10)
    for name in (*segments(disk), *segments(disk, INDEX_FILE)):
        disk.remove(name)
    with pytest.raises(DiskError, match=r"^blocks/archive-0000000000\d\d: is missing$"):
        opened(disk)


# --- crashes ----------------------------------------------------------------------------------------------------------


def crashed(work: Callable[[MemoryDisk], None], check: Callable[[MemoryDisk], None], disk: MemoryDisk) -> int:
    """Do some work on copies of a disk, each time with a crash at another change; returns how many there were."""
    for operation in range(1, 200):
        for seed in range(6):
            copy = copied(disk)
            copy.plan = FaultPlan(copy.operations + operation, crash=True)
            is_over = True
            try:
                work(copy)
            except SimulatedCrash:
                is_over = False
            copy.crash(Random(seed), scattered=seed % 2 == 1)
            copy.plan = None
            check(copy)
        if is_over:
            return operation
    raise AssertionError("the work has no end")


def copied(disk: MemoryDisk) -> MemoryDisk:
    copy = MemoryDisk()
    for name in disk.names():
        copy.replace(name, disk.read(name))
    return copy


def test_a_crash_between_two_steps_of_pruning_loses_nothing_that_is_kept() -> None:
    disk = filled(30)
    assert isinstance(disk, MemoryDisk)
    pruned = copied(disk)
    opened(pruned).prune(20)
    first = opened(pruned).first_height

    def check(copy: MemoryDisk) -> None:
        archive = opened(copy)
        require(archive, archive.first_height, 30)
        assert archive.first_height in (0, first)
        archive.prune(20)
        require(archive, first, 30)
        assert copy.names() == pruned.names(), "nothing of what was pruned is left"

    steps = crashed(lambda copy: opened(copy).prune(20), check, disk)
    assert steps > 10, "a record, then a file and its index each"


@pytest.mark.slow
def test_a_crash_anywhere_loses_no_block_that_was_appended() -> None:
    """New files begin meanwhile, and old ones go."""
    done = [0, 0]

    def work(copy: MemoryDisk) -> None:
        done[:] = 8, 0
        archive = opened(copy)
        for height in range(archive.height + 1, 24):
            archive.append(archived(height), receipts(height))
            done[0] = height
            done[1] = max(height - 6, done[1])
            archive.prune(height - 6)

    def check(copy: MemoryDisk) -> None:
        archive = opened(copy)
        assert done[0] <= archive.height <= done[0] + 1
        assert archive.first_height <= done[1]
        require(archive, archive.first_height, archive.height)
        require(fill(archive, 26), archive.first_height, 26)

    disk = filled(8)
    assert isinstance(disk, MemoryDisk)
    assert crashed(work, check, disk) > 40


def test_a_torn_tail_of_the_newest_file_is_cut_at_every_byte() -> None:
    disk = filled(14)
    assert isinstance(disk, MemoryDisk)
    newest = segments(disk)[-1]
    content = disk.read(newest)
    begin = content.rindex(frame(encode(archived(14))))
    for size in range(begin, len(content) + 1):
        torn = copied(disk)
        torn.replace(newest, content[:size])
        require(opened(torn), 0, 14 if size == len(content) else 13)
        require(fill(opened(torn), 18), 0, 18)


def test_a_block_that_was_read_is_durable() -> None:
    """A process was killed between writing and syncing; the machine stops later, when the state has the block."""
    disk = filled(4)
    assert isinstance(disk, MemoryDisk)
    disk.append(segments(disk)[-1], frame(encode(archived(5))))
    require(opened(disk), 0, 5)
    disk.crash(Random(0))
    require(opened(disk), 0, 5)


def test_a_full_disk_while_a_file_is_completed_or_pruned_is_only_an_error() -> None:
    whole = filled(12)
    assert isinstance(whole, MemoryDisk)
    for operation in range(1, 30):
        disk = copied(whole)
        archive = opened(disk)
        disk.plan = FaultPlan(disk.operations + operation)
        with suppress(DiskError):
            fill(archive, 20)
            archive.prune(12)
        disk.plan = None
        disk.crash(Random(operation))
        again = opened(disk)
        assert again.height >= 12
        require(again, again.first_height, again.height)


# --- rot --------------------------------------------------------------------------------------------------------------


def test_a_bit_that_rots_anywhere_keeps_the_archive_from_opening() -> None:
    """In front of the last blocks of the newest file, where it cannot be a torn write. The error names the file."""
    disk, random = filled(20), Random(1)
    assert isinstance(disk, MemoryDisk)
    opened(disk).prune(8)
    newest = segments(disk)[-1]
    kinds = {ARCHIVE_FILE: 0, INDEX_FILE: 0, PRUNED_FILE: 0}
    for name in disk.names():
        assert may_rot(name)
        for offset in random.sample(range(disk.size(name)), 40 if disk.size(name) > 40 else disk.size(name)):
            rotten = copied(disk)
            rotten.flip_bit(name, offset, random.randrange(8))
            with pytest.raises(DiskError, match=rf"^{name}: .*(damaged|does not fit)"):
                opened(rotten)
            kinds[next(kind for kind in kinds if name.startswith(kind))] += name != newest
    assert all(kinds.values()), kinds


def test_sectors_of_zeros_in_a_complete_file_are_no_torn_write() -> None:
    """In the newest file they cannot be distinguished from one."""
    disk = filled(20)
    name = segments(disk)[1]
    content = bytearray(disk.read(name))
    content[512:1024] = bytes(512)
    disk.replace(name, bytes(content))
    with pytest.raises(DiskError, match=rf"^{name}: record at offset \d+ is damaged"):
        opened(disk)


def test_an_index_that_names_a_wrong_offset_is_found_when_a_block_is_read() -> None:
    """A planted fault: index and blocks fit their checksums, and each other not."""
    disk = filled(20)
    name = segments(disk, INDEX_FILE)[1]
    index = decode(read_frame(disk, name, 0), SegmentIndex)
    first, second, *rest = index.offsets
    for offsets, words in (((second, first, *rest), "is of height"), ((first + 1, second, *rest), "is damaged")):
        disk.replace(name, frame(encode(msgspec.structs.replace(index, offsets=tuple(offsets)))))
        archive = opened(disk)
        height = int(name[-12:]) + 1
        with pytest.raises(DiskError, match=rf"blocks/archive-\d+: record at offset \d+ {words}"):
            archive.get(height)
        assert archive.get(20) == archived(20)


def test_an_index_of_another_file_does_not_fit() -> None:
    disk = filled(20)
    one, other = segments(disk, INDEX_FILE)[1:3]
    disk.replace(one, disk.read(other))
    with pytest.raises(DiskError, match=r"blocks/archive-\d+: (does not fit the checksum in|record at offset)"):
        opened(disk)


def test_a_missing_index_is_damage() -> None:
    disk = filled(20)
    disk.remove(segments(disk, INDEX_FILE)[1])
    with pytest.raises(DiskError, match=r"blocks/index-\d+: is missing"):
        opened(disk)


# --- a plain list -----------------------------------------------------------------------------------------------------


STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "prune", "reopen", "crash"]), st.integers(0, 12)), min_size=1, max_size=25
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(STEPS, st.sampled_from([1, 400, 1_000, 10**6]))
def test_whatever_is_done_it_has_what_a_list_would_have(steps: list[tuple[str, int]], segment_bytes: int) -> None:
    disk, height, first = MemoryDisk(), 0, 0
    archive = opened(disk, segment_bytes)
    for number, (step, amount) in enumerate(steps):
        match step:
            case "append":
                height += amount
                fill(archive, height)
            case "prune":
                archive.prune(height - amount)
                assert first <= archive.first_height <= max(height - amount, first)
                first = archive.first_height
            case "reopen":
                archive = opened(disk, segment_bytes)
            case _:
                disk.crash(Random(number), scattered=True)
                archive = opened(disk, segment_bytes)
        require(archive, first, height)
    assert archive.height == Height(height)
