"""Append-only records: torn tails at every byte, flipped bits at every place, and the two files made of them."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.disks.memory import FaultPlan, MemoryDisk, SimulatedCrash
from validator.chain.block import BlockReceipts, Effects, TransactionReceipt
from validator.primitives.codec import encode, tagged_hash
from validator.primitives.types import Hash
from validator.storage.archive import ArchivedBlock, BlockArchive
from validator.storage.disk import DiskError
from validator.storage.frames import (
    FEW_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    SECTOR_BYTES,
    frame,
    payload_at,
    read_frame,
    recover,
    split,
)
from validator.storage.journal import JOURNAL_FILE, encode_batch, encode_journal, open_journal
from validator.storage.segments import ARCHIVE_FILE

FILE = "file"
PAYLOADS = [b"first", b"", b"x" * 300, bytes(1_100), b"last"]


def disk_with(data: bytes, name: str = FILE) -> MemoryDisk:
    disk = MemoryDisk()
    disk.replace(name, data)
    return disk


def payloads(disk: MemoryDisk) -> list[bytes]:
    return [found.payload for found in recover(disk, FILE)]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.binary(max_size=50), max_size=8))
def test_frames_come_back(given_payloads: list[bytes]) -> None:
    data = b"".join(map(frame, given_payloads))
    frames, end = split(data)
    assert [found.payload for found in frames] == given_payloads
    assert end == len(data)
    disk = disk_with(data)
    assert [read_frame(disk, FILE, found.offset) for found in frames] == given_payloads


@pytest.mark.parametrize("size", [0, 1, 100, FEW_BYTES, FEW_BYTES + 1])
def test_few_bytes_are_framed_as_many_are(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = bytes(place % 251 for place in range(size))
    framed = frame(payload)
    for most in (-1, size):
        monkeypatch.setattr("validator.storage.frames.FEW_BYTES", most)
        assert frame(payload) == framed
        assert payload_at(framed, 0) == payload


def test_a_torn_tail_is_cut_at_every_byte() -> None:
    data = b"".join(map(frame, PAYLOADS))
    borders = [end for _, end in (split(data[:size]) for size in range(len(data) + 1))]
    for size in range(len(data) + 1):
        disk = disk_with(data[:size])
        whole = [payload for payload, end in zip(PAYLOADS, ends(), strict=True) if end <= size]
        assert payloads(disk) == whole
        assert disk.size(FILE) == borders[size] == sum(FRAME_BYTES + len(payload) for payload in whole)
        disk.append(FILE, frame(b"next"))
        assert payloads(disk) == [*whole, b"next"], "what is written after the cut is found again"


def ends() -> list[int]:
    found, offset = [], 0
    for payload in PAYLOADS:
        offset += FRAME_BYTES + len(payload)
        found.append(offset)
    return found


@pytest.mark.parametrize("shift", [0, 1, 477, 495, SECTOR_BYTES - 1])
def test_a_flipped_bit_is_damage_and_nothing_is_cut(shift: int) -> None:
    """Lengths and the last record included, wherever the frames stand in their sectors: what was synced is no tear."""
    before = frame(b"y" * shift)
    data = before + b"".join(map(frame, PAYLOADS))
    starts = [0, *(len(before) + offset for offset in [0, *ends()[:-1]])]
    for place in range(len(before), len(data)):
        start = max(offset for offset in starts if offset <= place)
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        disk = disk_with(bytes(flipped))
        with pytest.raises(DiskError, match=f"{FILE}: record at offset {start} is damaged"):
            list(recover(disk, FILE))
        assert disk.read(FILE) == flipped
        with pytest.raises(DiskError, match=f"offset {start}"):
            read_frame(disk, FILE, start)


def test_a_flipped_bit_in_content_of_zeros_is_no_tear() -> None:
    """A user chooses what a payload holds, and could prepare a sector of zeros."""
    data = frame(bytes(3_000)) + frame(b"vote")
    for place in range(0, len(data), 7):
        flipped = bytearray(data)
        flipped[place] ^= 1
        with pytest.raises(DiskError, match="is damaged"):
            list(recover(disk_with(bytes(flipped)), FILE))


def test_a_flipped_length_is_no_tear_where_the_checksum_ends_in_the_next_sector() -> None:
    payload = next(p for p in (b"%d" % i for i in range(10_000)) if frame(p)[HEADER_BYTES - 1] == 0)
    before = frame(b"y" * (SECTOR_BYTES - HEADER_BYTES + 1 - FRAME_BYTES))
    for bit in range(8):
        flipped = bytearray(before + frame(payload) + frame(b"vote"))
        flipped[len(before) + 4] ^= 1 << bit
        with pytest.raises(DiskError, match=f"offset {len(before)} is damaged"):
            list(recover(disk_with(bytes(flipped)), FILE))


@pytest.mark.parametrize("last", PAYLOADS)
def test_zeros_where_the_last_record_was_to_be_are_a_torn_tail(last: bytes) -> None:
    whole = b"".join(map(frame, PAYLOADS[:-1]))
    for kept in range(len(frame(last))):
        torn = whole + frame(last)[:kept] + bytes(len(frame(last)) - kept)
        assert payloads(disk_with(torn)) == PAYLOADS[:-1]


@pytest.mark.parametrize("torn", range(len(PAYLOADS)))
def test_whole_frames_behind_a_torn_one_are_cut_with_it(torn: int) -> None:
    """Several appends were not synced, and the disk wrote a later one first."""
    frames = list(map(frame, PAYLOADS))
    for kept in range(len(frames[torn])):
        beginning = frames[torn][:kept]
        frames_left = [*frames[:torn], beginning + bytes(len(frames[torn]) - kept), *frames[torn + 1 :]]
        disk = disk_with(b"".join(frames_left))
        assert payloads(disk) == PAYLOADS[:torn]
        assert disk.size(FILE) == sum(map(len, frames[:torn]))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.binary(min_size=1, max_size=1_500), min_size=1, max_size=6), st.integers(0, 600), st.data())
def test_any_sectors_that_never_reached_the_disk_are_a_tear(
    unsynced: list[bytes], synced: int, draw: st.DataObject
) -> None:
    """What was synced stays, and the rest up to the first frame that lost something."""
    before = frame(b"s" * synced)
    data = before + b"".join(map(frame, unsynced))
    sectors = -(-len(data) // SECTOR_BYTES)
    lost = draw.draw(st.sets(st.integers(len(before) // SECTOR_BYTES, sectors - 1)))
    left = bytearray(data)
    for sector in lost:
        begin = max(len(before), sector * SECTOR_BYTES)
        end = min(len(data), (sector + 1) * SECTOR_BYTES)
        left[begin:end] = bytes(end - begin)
    kept, offset = [b"s" * synced], len(before)
    for payload in unsynced:
        end = offset + FRAME_BYTES + len(payload)
        if left[offset:end] != data[offset:end]:
            break
        kept.append(payload)
        offset = end
    assert payloads(disk_with(bytes(left))) == kept


def test_what_could_not_be_read_back_is_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by an archive: the validator stops, and its file is as it was."""
    disk = MemoryDisk()
    archive = filled(disk, 2)
    before = disk.read(ARCHIVE_FILE)
    monkeypatch.setattr("validator.storage.frames.MAX_PAYLOAD_BYTES", len(encode(archived(3))) - 1)
    with pytest.raises(DiskError, match=r"a record of [0-9,]+ bytes: expected at most"):
        archive.append(archived(3), receipts(3))
    assert disk.read(ARCHIVE_FILE) == before
    monkeypatch.undo()
    require_archive(filled(disk, 3), 3)


@pytest.mark.slow
def test_a_record_of_any_length_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame of more than 64 MiB was once written and then not read: the last one was cut off as torn."""
    large = bytes(64 * 1024 * 1024 + 1)
    disk = disk_with(frame(b"first") + frame(large))
    assert payloads(disk) == [b"first", large]
    assert read_frame(disk, FILE, len(frame(b"first"))) == large
    monkeypatch.setattr("validator.storage.frames.MAX_PAYLOAD_BYTES", 3)
    disk.append(FILE, frame(b"new"))
    assert payloads(disk) == [b"first", large, b"new"], "what is there is read, whatever is written now"


# --- archive --------------------------------------------------------------------------------------------------------


def receipts(height: int) -> BlockReceipts:
    digest = tagged_hash(b"t", bytes([height]))
    receipt = TransactionReceipt(digest, bytes(20), True, "", 1, 2, b"", b"", Effects())
    return BlockReceipts(height, bytes(20), (receipt,) * (height % 3), (), (), (), (), 0, b"")


def archived(height: int) -> ArchivedBlock:
    return ArchivedBlock(b"block %d" % height, encode(receipts(height)), b"certificate", bytes([height]) * 32)


def filled(disk: MemoryDisk, count: int) -> BlockArchive:
    archive = BlockArchive(disk)
    for height in range(archive.height + 1, count + 1):
        archive.append(archived(height), receipts(height))
    return archive


def require_archive(archive: BlockArchive, height: int) -> None:
    assert archive.height == height
    assert [archive.get(at) for at in range(1, height + 1)] == [archived(at) for at in range(1, height + 1)]
    assert archive.get(0) is archive.get(height + 1) is None
    found = {at: archive.find_receipt(Hash(tagged_hash(b"t", bytes([at])))) for at in range(1, height + 1)}
    assert {at for at, placed in found.items() if placed is not None} == {at for at in found if at % 3}
    assert all(placed is None or placed.place.height == at for at, placed in found.items())


def test_an_archive_reopens_as_it_was() -> None:
    disk = MemoryDisk()
    require_archive(filled(disk, 5), 5)
    require_archive(BlockArchive(disk), 5)
    require_archive(filled(disk, 7), 7)
    with pytest.raises(AssertionError):
        BlockArchive(disk).append(archived(9), receipts(9))


def test_an_archive_is_torn_at_every_byte_and_goes_on() -> None:
    whole = MemoryDisk()
    filled(whole, 4)
    data = whole.read(ARCHIVE_FILE)
    complete = [end for end, size in ((split(data[:size])[1], size) for size in range(len(data) + 1)) if end == size]
    for size in range(complete[-2], len(data) + 1):
        disk = disk_with(data[:size], ARCHIVE_FILE)
        require_archive(BlockArchive(disk), 4 if size == len(data) else 3)
        require_archive(filled(disk, 5), 5)


def test_an_appended_block_is_durable() -> None:
    for seed in range(20):
        for operation in range(1, 9):
            disk = MemoryDisk(FaultPlan(operation, crash=True))
            done = 0
            with suppress(SimulatedCrash):
                archive = BlockArchive(disk)
                for height in range(1, 5):
                    archive.append(archived(height), receipts(height))
                    done = height
            disk.crash(Random(seed))
            assert done <= BlockArchive(disk).height <= done + 1


def test_rot_in_an_archived_block_is_reported_when_it_is_read() -> None:
    disk = MemoryDisk()
    archive = filled(disk, 3)
    data = bytearray(disk.read(ARCHIVE_FILE))
    data[HEADER_BYTES + 5] ^= 1
    disk.replace(ARCHIVE_FILE, bytes(data))
    with pytest.raises(DiskError, match="offset 0 is damaged"):
        archive.get(1)
    assert archive.get(2) == archived(2)
    with pytest.raises(DiskError, match="offset 0 is damaged"):
        BlockArchive(disk)


# --- journal --------------------------------------------------------------------------------------------------------


def test_a_journal_gives_back_records_and_bodies_in_order() -> None:
    disk = MemoryDisk()
    disk.append(JOURNAL_FILE, encode_batch([b"one", b"two"], [b"body"]))
    disk.append(JOURNAL_FILE, encode_batch([b"three"], []))
    disk.append(JOURNAL_FILE, encode_batch([], [b"another", b""]))
    content = open_journal(disk)
    assert content.records == (b"one", b"two", b"three")
    assert content.bodies == (b"body", b"another", b"")
    assert open_journal(MemoryDisk()) == ((), ())
    disk.replace(JOURNAL_FILE, encode_journal(content.records, content.bodies))
    assert open_journal(disk) == content


def test_an_append_torn_in_any_way_is_gone_whole_and_nothing_before_it_is() -> None:
    """Cut short, or with zeros for its rest, and with another append behind it that reached the disk before it."""
    before, torn = encode_batch([b"earlier"], []), encode_batch([b"vote"], [b"a body of some length"])
    behind = encode_batch([b"later"], [])
    for first in range(len(torn)):
        zeros = bytes(len(torn) - first)
        for content in (torn[:first], torn[:first] + zeros, torn[:first] + zeros + behind):
            assert open_journal(disk_with(before + content, JOURNAL_FILE)) == ((b"earlier",), ())
    assert open_journal(disk_with(before + torn, JOURNAL_FILE)).records == (b"earlier", b"vote")
