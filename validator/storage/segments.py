"""Segments: the files of the archive. Blocks are appended to the newest one. Earlier ones are complete and indexed.

The first segment has the archive's name; later names also have the height below the first block. A complete segment is
never written again. It has an index file, which is durable before the next segment begins. The index has the offsets of
the segment's records, the first bytes of the hashes of its transactions and ended timers, and the segment's checksum.
Opening an archive checks every byte of it, but decodes only the newest segment.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec
from blake3 import blake3

from validator.primitives.codec import decode, encode
from validator.storage.disk import Disk, DiskError
from validator.storage.frames import frame, read_frame

ARCHIVE_FILE: Final = "blocks/archive"
"""The file name of the first segment, and the prefix of the names of later segments."""
INDEX_FILE: Final = "blocks/index"
"""The file name of the first segment's index, and the prefix of the names of later indices."""
HEIGHT_DIGITS: Final = 12
READ_BYTES: Final = 1024 * 1024
"""Bytes of a segment that are in memory at once while it is checked."""


class SegmentIndex(msgspec.Struct, frozen=True, array_like=True):
    """The content of an index file."""

    size: int
    """Size of the segment in bytes."""
    checksum: bytes
    """BLAKE3 of the segment."""
    offsets: tuple[int, ...]
    """Offsets of the segment's records, in the order of the heights. The first height is one above the base."""
    transactions: tuple[bytes, ...]
    """For each block, the first bytes of its transactions' hashes (:func:`validator.storage.places.keys_of`)."""
    ended: tuple[bytes, ...]
    """For each block, the first bytes of the ids of the timers that ended in it."""


@dataclass(slots=True)
class Segment:
    """One file of the archive, with the data for its index."""

    base: int
    """Height below the segment's first block."""
    name: str
    size: int = 0
    """Total size of the segment's complete records in bytes."""
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    hasher: blake3 | None = field(default_factory=blake3)
    """Hash over the segment's bytes so far; ``None`` once the segment is complete."""
    transactions: list[bytes] = field(default_factory=list)
    """The field ``transactions`` of the index to be written; empty once the index is written."""
    ended: list[bytes] = field(default_factory=list)

    @property
    def last(self) -> int:
        """Height of the segment's last block."""
        return self.base + len(self.offsets)

    @property
    def index_name(self) -> str:
        return INDEX_FILE + self.name.removeprefix(ARCHIVE_FILE)

    @property
    def is_complete(self) -> bool:
        return self.hasher is None

    def add(self, record: bytes, transactions: bytes, ended: bytes) -> None:
        """Update the segment's data for a framed record that was appended to the file."""
        assert self.hasher is not None, "a complete segment takes no block"
        self.offsets.append(self.size)
        self.hasher.update(record)
        self.size += len(record)
        self.transactions.append(transactions)
        self.ended.append(ended)

    def complete(self, disk: Disk) -> None:
        """Complete the segment: write its index, durably."""
        assert self.hasher is not None, "a segment is completed once"
        index = SegmentIndex(
            self.size, self.hasher.digest(), tuple(self.offsets), tuple(self.transactions), tuple(self.ended)
        )
        disk.replace(self.index_name, frame(encode(index)))
        self.hasher = None
        self.transactions, self.ended = [], []
        disk.release(self.name)
        disk.release(self.index_name)

    def open_complete(self, disk: Disk) -> SegmentIndex:
        """Open a complete segment: read its index, and check its checksum. Raises :class:`DiskError`."""
        index = decode(read_frame(disk, self.index_name, 0), SegmentIndex)
        disk.release(self.index_name)
        self.size, self.hasher = index.size, None
        self.offsets.extend(index.offsets)
        if disk.size(self.name) != index.size or checksum_of(disk, self.name, index.size) != index.checksum:
            self._require_records(disk)
            raise DiskError(f"{self.name}: does not fit the checksum in {self.index_name}")
        disk.release(self.name)
        return index

    def read(self, disk: Disk, height: int) -> bytes:
        """The record of a block. Raises :class:`DiskError` if it is damaged."""
        record = read_frame(disk, self.name, self.offsets[height - 1 - self.base])
        if self.is_complete:
            disk.release(self.name)
        return record

    def remove(self, disk: Disk) -> None:
        disk.remove(self.name)
        disk.remove(self.index_name)

    def _require_records(self, disk: Disk) -> None:
        """Raise :class:`DiskError` with the offset of the first damaged record, if there is one."""
        for offset in self.offsets:
            read_frame(disk, self.name, offset)


def segment_name(base: int, first: bool) -> str:
    """The file name of the segment whose first block is one above ``base``.

    ``first`` says that it is the first segment of the archive.
    """
    return ARCHIVE_FILE if first else f"{ARCHIVE_FILE}-{base:0{HEIGHT_DIGITS}}"


def bases(names: Iterable[str], prefix: str, first: int) -> list[int]:
    """The bases of the segments, or of the indices, among some file names, ascending.

    A base is the height below the first block of a segment. ``prefix`` selects segments or indices. ``first`` is the
    base of the first segment, whose name has none.
    """
    pattern = re.compile(re.escape(prefix) + rf"(?:-([0-9]{{{HEIGHT_DIGITS}}}))?")
    found = filter(None, map(pattern.fullmatch, names))
    return sorted(first if match[1] is None else int(match[1]) for match in found)


def checksum_of(disk: Disk, name: str, size: int) -> bytes:
    """BLAKE3 of a file's first bytes."""
    hasher = blake3()
    for offset in range(0, size, READ_BYTES):
        hasher.update(disk.read(name, offset, min(READ_BYTES, size - offset)))
    return hasher.digest()
