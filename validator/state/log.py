"""The log on disk: segments with a frame per commit and two alternating meta records at the head of each.

``docs/state.md`` gives the layout. One commit is: append the frame to the newest segment, write the meta record into
the slot of the record before last, sync once. Frame and record are in the same file, so one sync covers both, and
recovery is correct for every order in which an interrupted sync may have written them:

- a record is valid only if its own checksum matches *and* the frame that it names exists with the checksum that it
  names; otherwise the other record counts, which an earlier sync made durable, and the file is cut to its end;
- the frames of a valid record's predecessors were durable before, so one that does not match its checksum is bit rot:
  an error that names the offset, never a reason to fall back;
- opening first writes the last commit's bytes again and syncs, so that data recovered from a file whose sync had failed
  is durable before the next commit overwrites the older record.

A full segment is followed by a new one, created durably in one atomic step, which begins with the record of the state
that it continues. Old segments are removed as a whole, after the *base* file summarises them.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from blake3 import blake3

from validator.primitives.types import Hash, Height
from validator.state.engine import POSITION, SECTION_HEAD, SectionHead
from validator.state.hashing import EMPTY_ROOT, GROUP_ENTRIES, NODE_BYTES, domain_key, entry_bytes
from validator.storage.disk import Disk, DiskError

SLOT_BYTES: Final = 4096
"""Size of the slot of a meta record: one page, so that a torn write of one record leaves the other one intact."""

SLOTS: Final = 2
FRAMES_OFFSET: Final = SLOTS * SLOT_BYTES
SEGMENT_BYTES: Final = 32 * 1024 * 1024
"""Size at which a segment takes no further frame."""

REMEMBERED_FRAMES: Final = 4096
"""Number of frames whose offsets of entry groups are cached after a read. They take a quarter of a byte per entry, and
about 400 bytes per frame."""

CHECKSUM_BYTES: Final = 32
NO_CHECKSUM: Final = bytes(CHECKSUM_BYTES)

META_KEY: Final = domain_key("meta")
FRAME_KEY: Final = domain_key("frame")
BASE_KEY: Final = domain_key("base")
META_MAGIC: Final = b"STPDMETA"
FRAME_MAGIC: Final = b"STPDFRAM"
BASE_MAGIC: Final = b"STPDBASE"
REWIND_MAGIC: Final = b"STPDBACK"

SEGMENT_PREFIX: Final = "log-"
CHUNK_PREFIX: Final = "chunk-"
MANIFEST_NAME: Final = "manifest"
NO_HEIGHT: Final = Height(0)
NO_SNAPSHOT: Final = Hash(bytes(NODE_BYTES))
BASE_NAME: Final = "base"
REWIND_NAME: Final = "rewind"

_META: Final = struct.Struct(">8sQQ32sQQQ32s")
_FRAME: Final = struct.Struct(">8sQQQ")
_BASE: Final = struct.Struct(">8sQQ32sQQ")
_REWIND: Final = struct.Struct(">8sQ")

META_BYTES: Final = _META.size + CHECKSUM_BYTES
FRAME_HEADER_BYTES: Final = _FRAME.size + CHECKSUM_BYTES


EndsOf = Callable[[memoryview, int], Sequence[int]]
"""Finds the ends of encoded entries: the method :meth:`validator.state.engine.Engine.entry_ends` of an engine."""


@dataclass(frozen=True)
class Meta:
    """A meta record: the state after one commit, and the position of its frame in the file."""

    generation: int
    height: Height
    root: Hash
    next_position: int
    frame_offset: int
    """Offset of the commit's frame. It equals ``log_bytes`` if the frame is in the segment before."""
    log_bytes: int
    """Size of the segment's file up to and including the commit's frame."""
    frame_checksum: bytes

    @property
    def slot_offset(self) -> int:
        """Offset of the record's slot in the segment's file."""
        return self.generation % SLOTS * SLOT_BYTES

    @property
    def has_frame(self) -> bool:
        """Whether the commit's frame is in the same segment as the record."""
        return self.frame_offset < self.log_bytes

    def encode(self) -> bytes:
        """The encoded record, with its checksum."""
        record = _META.pack(
            META_MAGIC,
            self.generation,
            self.height,
            self.root,
            self.next_position,
            self.frame_offset,
            self.log_bytes,
            self.frame_checksum,
        )
        return record + _checksum(META_KEY, record)

    @staticmethod
    def decode(data: bytes) -> Meta | None:
        """The record; ``None`` if it is missing or damaged."""
        record, checksum = data[: _META.size], data[_META.size : META_BYTES]
        if len(data) < META_BYTES or _checksum(META_KEY, record) != checksum:
            return None
        magic, generation, height, root, next_position, frame_offset, log_bytes, frame_checksum = _META.unpack(record)
        if magic != META_MAGIC:
            return None
        return Meta(generation, Height(height), Hash(root), next_position, frame_offset, log_bytes, frame_checksum)

    def at_head_of_segment(self) -> Meta:
        """The record of the same commit with which the next segment begins, where the commit has no frame."""
        return Meta(
            self.generation, self.height, self.root, self.next_position, FRAMES_OFFSET, FRAMES_OFFSET, NO_CHECKSUM
        )


EMPTY_META: Final = Meta(0, Height(0), EMPTY_ROOT, 0, FRAMES_OFFSET, FRAMES_OFFSET, NO_CHECKSUM)
"""The record of a store without commits."""


@dataclass(frozen=True)
class Base:
    """The summary of the segments that were removed."""

    first_segment: int = 1
    first_twig: int = 0
    """The first twig with an entry that a retained height needs."""
    peaks: tuple[bytes, ...] = ()
    """Upper nodes over the pruned twigs, as :func:`validator.state.merkle.pruned_peaks` orders them."""
    snapshot: Hash = NO_SNAPSHOT
    """State root of the snapshot with which the log begins; :data:`NO_SNAPSHOT` without one."""
    snapshot_height: Height = NO_HEIGHT

    def encode(self) -> bytes:
        """The content of the base file, with its checksum."""
        numbers = (self.first_segment, self.first_twig, self.snapshot, self.snapshot_height, len(self.peaks))
        record = _BASE.pack(BASE_MAGIC, *numbers) + b"".join(self.peaks)
        return record + _checksum(BASE_KEY, record)

    @staticmethod
    def decode(data: bytes, name: str) -> Base:
        """Decode the content of the base file ``name``. Raises :class:`DiskError` if it is damaged."""
        record, checksum = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
        if len(record) < _BASE.size or _checksum(BASE_KEY, record) != checksum or not record.startswith(BASE_MAGIC):
            raise DiskError(f"{name}: offset 0: the base record does not fit its checksum")
        _, first_segment, first_twig, snapshot, height, count = _BASE.unpack_from(record)
        peaks = tuple(record[_BASE.size + i * NODE_BYTES : _BASE.size + (i + 1) * NODE_BYTES] for i in range(count))
        return Base(first_segment, first_twig, peaks, Hash(snapshot), Height(height))


@dataclass(frozen=True)
class Recovery:
    """What was found when the log was opened. It informs operators, and does not affect the store."""

    meta: Meta
    dropped_bytes: int
    """Bytes after the valid record's end that were cut off."""
    reason: str
    """Why a newer meta record was not valid; empty if there is no sign of one."""


class Section(NamedTuple):
    """One block's section of the log, read back."""

    head: SectionHead
    first_position: int
    data: memoryview

    def entries(self) -> Iterator[tuple[int, bytes]]:
        """Iterate over the section's entries: the position and the encoding of each."""
        cursor = SECTION_HEAD.size
        for position in range(self.first_position, self.first_position + self.head.entries):
            end = cursor + entry_bytes(self.data, cursor)
            yield position, bytes(self.data[cursor:end])
            cursor = end

    def deleted(self) -> list[int]:
        """Positions of the entries whose keys the block removed."""
        start = len(self.data) - self.head.deleted * POSITION.size
        return [POSITION.unpack_from(self.data, at)[0] for at in range(start, len(self.data), POSITION.size)]


class _Marks(NamedTuple):
    """The offsets of one block's entries in the segment's file, at the boundaries of groups."""

    first: int
    """Position of the first entry."""
    after: int
    """Position after the last entry."""
    offsets: array[int]
    """Offsets of the first entry, of each entry that begins a group, and of the end of the last entry."""

    def offset(self, position: int) -> int:
        """Offset of the entry at a position. It must begin a group, or be ``first`` or ``after``."""
        if position == self.after:
            return self.offsets[-1]
        assert position == self.first or not position % GROUP_ENTRIES, "a position within a group is not marked"
        return self.offsets[position // GROUP_ENTRIES - self.first // GROUP_ENTRIES]


@dataclass
class _Segment:
    """The frames of one segment: their offsets, the positions of their first entries, and their last heights."""

    number: int
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    positions: array[int] = field(default_factory=lambda: array("Q"))
    heights: array[int] = field(default_factory=lambda: array("Q"))
    log_bytes: int = FRAMES_OFFSET

    def add(self, offset: int, position: int, height: int, log_bytes: int) -> None:
        self.offsets.append(offset)
        self.positions.append(position)
        self.heights.append(height)
        self.log_bytes = log_bytes


class StateLog:
    """The open log of the state. Its owner calls :meth:`replay` once, then :meth:`commit` for each commit."""

    def __init__(self, disk: Disk, folder: str, number: int, base: Base, recovery: Recovery) -> None:
        self.recovery = recovery
        self.base = base
        self.origin = EMPTY_META
        """The meta record of the state with which the log begins, the empty state or a snapshot's. It is used only
        while the first segment exists."""
        self.segment_bytes = SEGMENT_BYTES
        self.disk = disk
        self.folder = folder
        self._number = number
        self._meta = recovery.meta
        self._segments: list[_Segment] = []
        self._frame_marks: OrderedDict[tuple[int, int], list[_Marks]] = OrderedDict()
        self._usable = True

    @classmethod
    def open(cls, disk: Disk, folder: str) -> StateLog:
        """Open or create the log, and cut off data that no valid meta record covers. Raises :class:`DiskError`."""
        base = _read_base(disk, folder)
        _finish_rewind(disk, folder)
        numbers = _segment_numbers(disk, folder)
        if not numbers:
            if base != Base():
                raise DiskError(f"{folder}/{BASE_NAME}: offset 0: the log's segments are missing")
            disk.replace(segment_name(folder, 1), EMPTY_META.encode().ljust(FRAMES_OFFSET, b"\0"))
            numbers = [1]
        for number in numbers:
            if number < base.first_segment:
                disk.remove(segment_name(folder, number))
        if base != Base() and base.snapshot == NO_SNAPSHOT:
            drop_snapshot(disk, folder)
        name = segment_name(folder, numbers[-1])
        if numbers[-1] < base.first_segment:
            raise DiskError(f"{folder}/{BASE_NAME}: offset 0: the log's segments are missing")
        meta, reason = _believed_meta(disk, name)
        dropped = disk.size(name) - meta.log_bytes
        if dropped < 0:
            raise DiskError(
                f"{name}: offset {disk.size(name)}: the file ends before {meta.log_bytes}, as its meta has it"
            )
        if dropped:
            disk.truncate(name, meta.log_bytes)
            reason = reason or f"offset {meta.log_bytes}: a frame without a valid meta record"
        return cls(disk, folder, numbers[-1], base, Recovery(meta, dropped, reason))

    @property
    def name(self) -> str:
        """The segment of the next commit."""
        return segment_name(self.folder, self._number)

    @property
    def meta(self) -> Meta:
        """The record of the last commit."""
        return self._meta

    @property
    def segments(self) -> int:
        """Number of segments."""
        return self._number - self.base.first_segment + 1

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        return sum(segment.log_bytes for segment in self._segments)

    @property
    def first_height(self) -> Height:
        """The oldest height to which the log can be cut back. Valid only after the first frame was replayed."""
        return self.origin.height if self.base.first_segment == 1 else self._first_height(0)

    # --- replay -------------------------------------------------------------------------------------------------------

    def replay(self) -> Iterator[Section]:
        """Iterate over the sections of the log, oldest first. Raises :class:`DiskError` if a frame is damaged."""
        self._segments = []
        generation = -1
        for number in range(self.base.first_segment, self._number + 1):
            segment = _Segment(number)
            self._segments.append(segment)
            name = segment_name(self.folder, number)
            content = memoryview(self.disk.read(name))
            limit = self._meta.log_bytes if number == self._number else len(content)
            offset = FRAMES_OFFSET
            while offset < limit:
                frame = _check_frame(content[:limit], offset, generation + 1 if generation >= 0 else None)
                if isinstance(frame, str):
                    raise DiskError(f"{name}: offset {offset}: {frame}")
                generation = frame.generation
                end = offset + FRAME_HEADER_BYTES + len(frame.payload)
                sections = list(split_frame(frame, f"{name}: offset {offset}"))
                segment.add(offset, frame.first_position, sections[-1].head.height, end)
                yield from sections
                offset = end
        if generation not in (-1, self._meta.generation) or (generation == -1 and self._meta.generation):
            raise DiskError(
                f"{self.name}: offset {self._meta.slot_offset}: the log ends with commit {generation},"
                f" its meta record is of commit {self._meta.generation}"
            )

    def confirm(self, root: Hash, next_position: int) -> None:
        """Check that the replay led to the state of the last meta record, and make the log durable.

        Raises :class:`DiskError` if it did not.
        """
        meta, disk, name = self._meta, self.disk, self.name
        if (root, next_position) != (meta.root, meta.next_position):
            raise DiskError(
                f"{name}: offset {meta.slot_offset}: the log gives root {root.hex()} and {next_position} entries,"
                f" its meta record {meta.root.hex()} and {meta.next_position}"
            )
        if meta.has_frame:
            disk.write(name, meta.frame_offset, disk.read(name, meta.frame_offset, meta.log_bytes - meta.frame_offset))
        disk.write(name, meta.slot_offset, meta.encode())
        disk.sync(name)

    # --- commits ------------------------------------------------------------------------------------------------------

    def commit(self, height: Height, root: Hash, next_position: int, sections: Sequence[bytes]) -> None:
        """Append one frame with these sections and make it durable. Raises :class:`DiskError`.

        After an error the file's end is unknown: further commits are refused until the log is opened again.
        """
        self._require_usable()
        self._usable = False
        if self._meta.log_bytes >= self.segment_bytes:
            self._roll()
        first = self._meta.next_position
        frame, checksum = _encode_frame(self._meta.generation + 1, first, b"".join(sections))
        start = self._meta.log_bytes
        meta = Meta(self._meta.generation + 1, height, root, next_position, start, start + len(frame), checksum)
        self._write(frame, meta)
        self._segments[-1].add(start, first, height, meta.log_bytes)
        self._meta = meta
        self._usable = True

    def _write(self, frame: bytes, meta: Meta) -> None:
        """Write a commit to the newest segment: append the frame, write the meta record, sync."""
        name = self.name
        offset = self.disk.append(name, frame)
        if offset != meta.frame_offset:
            raise DiskError(f"{name}: offset {offset}: expected the file to end at {meta.frame_offset}")
        self.disk.write(name, meta.slot_offset, meta.encode())
        self.disk.sync(name)

    def _roll(self) -> None:
        """Begin a new segment, which is durable before anything is appended to it."""
        meta = self._meta.at_head_of_segment()
        head = bytes(meta.slot_offset) + meta.encode()
        self.disk.replace(segment_name(self.folder, self._number + 1), head.ljust(FRAMES_OFFSET, b"\0"))
        self._number += 1
        self._segments.append(_Segment(self._number))
        self._meta = meta

    def _require_usable(self) -> None:
        if not self._usable:
            raise DiskError(
                f"{self.name}: offset {self._meta.log_bytes}: an earlier commit failed; open the store again"
            )

    # --- pruning ------------------------------------------------------------------------------------------------------

    def prunable_segments(self, first_position: int, first_height: Height) -> int:
        """Number of the oldest segments that can be removed.

        They hold no entry from ``first_position`` on, and no commit that a rewind to ``first_height`` needs. The newest
        two segments always stay.
        """
        count = 0
        while (
            count < len(self._segments) - 2
            and self._first_position(count + 1) <= first_position
            and self._first_height(count + 1) <= first_height
        ):
            count += 1
        return count

    def prune(self, count: int, first_twig: int, peaks: Sequence[bytes]) -> None:
        """Remove the ``count`` oldest segments, after writing the base file that summarises them.

        Raises :class:`DiskError`. All commits stay valid then, but some of the files may be removed. Further commits
        are refused until the log is opened again.
        """
        self._require_usable()
        self._usable = False
        base = Base(self._segments[count].number, first_twig, tuple(peaks))
        self.disk.replace(f"{self.folder}/{BASE_NAME}", base.encode())
        if self.base.snapshot != NO_SNAPSHOT:
            drop_snapshot(self.disk, self.folder)
        self.base = base
        for segment in self._segments[:count]:
            self.disk.remove(segment_name(self.folder, segment.number))
        del self._segments[:count]
        self._usable = True

    def _first_position(self, index: int) -> int:
        """Position of the first entry of the segment at an index of ``_segments``."""
        positions = self._segments[index].positions
        return positions[0] if positions else self._meta.next_position

    def _first_height(self, index: int) -> Height:
        """Height of the first commit in or after the segment at an index of ``_segments``."""
        heights = (segment.heights[0] for segment in self._segments[index:] if segment.heights)
        return Height(next(heights, self._meta.height))

    # --- reading back -------------------------------------------------------------------------------------------------

    def entries(self, first: int, after: int, ends_of: EndsOf) -> bytes:
        """Read the encoded entries from position ``first`` up to ``after`` (exclusive), concatenated.

        Each of the two positions must be a boundary of a group or a block. Checksums are not verified again. Raises
        :class:`DiskError` if the log no longer holds the entries.
        """
        pieces: list[bytes] = []
        position = first
        for segment in self._segments[self._segment_of(first) :]:
            if position >= after:
                break
            name = segment_name(self.folder, segment.number)
            for frame in range(max(bisect_right(segment.positions, position) - 1, 0), len(segment.offsets)):
                if position >= after or segment.positions[frame] > position:
                    break
                for marks in self._marks(segment, frame, ends_of):
                    if marks.first <= position < min(after, marks.after):
                        end = min(after, marks.after)
                        start = marks.offset(position)
                        pieces.append(self.disk.read(name, start, marks.offset(end) - start))
                        position = end
        if position < after:
            raise DiskError(f"{self.folder}: the log no longer holds the entries {first} to {after}")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _marks(self, segment: _Segment, frame: int, ends_of: EndsOf) -> list[_Marks]:
        """Offsets of a frame's entries, block by block; cached for the last frames read."""
        key = (segment.number, segment.offsets[frame])
        found = self._frame_marks.pop(key, None)
        if found is None:
            found, cursor = [], segment.offsets[frame] + FRAME_HEADER_BYTES
            for section in self._read(segment, frame):
                begin, first, count = cursor + SECTION_HEAD.size, section.first_position, section.head.entries
                ends = ends_of(section.data[SECTION_HEAD.size :], count)
                inner = ends[GROUP_ENTRIES - 1 - first % GROUP_ENTRIES :: GROUP_ENTRIES]
                offsets = array("Q", [begin, *(begin + end for end in inner), begin + section.head.entries_bytes])
                found.append(_Marks(first, first + count, offsets))
                cursor += len(section.data)
        self._frame_marks[key] = found
        if len(self._frame_marks) > REMEMBERED_FRAMES:
            self._frame_marks.popitem(last=False)
        return found

    def sections_above(self, height: Height) -> Iterator[Section]:
        """The blocks above a height, newest commit first. Raises :class:`DiskError`."""
        for segment in reversed(self._segments):
            for frame in range(len(segment.offsets) - 1, -1, -1):
                if segment.heights[frame] <= height:
                    return
                sections = [section for section in self._read(segment, frame) if section.head.height > height]
                yield from reversed(sections)

    def head_at(self, height: Height) -> SectionHead | None:
        """The head of the newest block at or below a height; ``None`` if the log begins above it."""
        for segment in reversed(self._segments):
            for frame in range(len(segment.offsets) - 1, -1, -1):
                if frame and segment.heights[frame - 1] > height:
                    continue
                heads = [section.head for section in self._read(segment, frame) if section.head.height <= height]
                if heads:
                    return heads[-1]
        return None

    def _segment_of(self, position: int) -> int:
        index = len(self._segments) - 1
        while index and self._first_position(index) > position:
            index -= 1
        return index

    def _read(self, segment: _Segment, frame: int) -> list[Section]:
        """Read the sections of one frame, and check its checksum. Raises :class:`DiskError`."""
        name, offset = segment_name(self.folder, segment.number), segment.offsets[frame]
        end = segment.offsets[frame + 1] if frame + 1 < len(segment.offsets) else segment.log_bytes
        found = _check_frame(memoryview(self.disk.read(name, offset, end - offset)), 0, None)
        if isinstance(found, str):
            raise DiskError(f"{name}: offset {offset}: {found}")
        return list(split_frame(found, f"{name}: offset {offset}"))

    # --- rewind -------------------------------------------------------------------------------------------------------

    def rewind(self, height: Height) -> list[bytes]:
        """Cut the log back to the newest commit that ends at or below a height, durably and atomically.

        The next commit may have blocks at or below the height too. Their sections are returned, and the caller commits
        them again. The log must be opened again afterwards, also after an error. Raises :class:`DiskError`.
        """
        self._require_usable()
        self._usable = False
        for index in range(len(self._segments) - 1, -1, -1):
            segment = self._segments[index]
            kept = bisect_right(segment.heights, height)
            if kept:
                return self._cut(segment, kept, height, self._meta_of(segment, kept - 1))
        if self.base.first_segment != 1 or height < self.origin.height:
            raise DiskError(f"{self.name}: offset {FRAMES_OFFSET}: the log does not reach back to height {height}")
        return self._cut(self._segments[0], 0, height, self.origin)

    def _cut(self, segment: _Segment, kept: int, height: Height, meta: Meta) -> list[bytes]:
        """Cut the log after ``kept`` frames of a segment. Returns the next frame's sections up to ``height``."""
        rest = self._partial(segment, kept, height)
        record = _REWIND.pack(REWIND_MAGIC, segment.number) + meta.encode()
        self.disk.replace(f"{self.folder}/{REWIND_NAME}", record + _checksum(BASE_KEY, record))
        _finish_rewind(self.disk, self.folder)
        return rest

    def _partial(self, segment: _Segment, frame: int, height: Height) -> list[bytes]:
        """The sections up to a height of the frame at an index, which may be the first one of the next segment."""
        if frame == len(segment.offsets):
            following = [each for each in self._segments if each.number == segment.number + 1 and each.offsets]
            if not following:
                return []
            segment, frame = following[0], 0
        return [bytes(section.data) for section in self._read(segment, frame) if section.head.height <= height]

    def _meta_of(self, segment: _Segment, frame: int) -> Meta:
        """The record of a frame's commit."""
        name, offset = segment_name(self.folder, segment.number), segment.offsets[frame]
        last = self._read(segment, frame)[-1].head
        header = self.disk.read(name, offset, FRAME_HEADER_BYTES)
        _, generation, _, length = _FRAME.unpack_from(header)
        end = offset + FRAME_HEADER_BYTES + length
        return Meta(generation, last.height, last.root, last.next_position, offset, end, header[_FRAME.size :])


def segment_name(folder: str, number: int) -> str:
    """The file of a segment."""
    return f"{folder}/{SEGMENT_PREFIX}{number:06d}"


def chunk_name(folder: str, chunk: int) -> str:
    """The file of a chunk of the snapshot with which a log begins."""
    return f"{folder}/{CHUNK_PREFIX}{chunk:06d}"


def snapshot_meta(height: Height, root: Hash, next_position: int) -> Meta:
    """The record of a store that begins with a snapshot."""
    return Meta(0, height, root, next_position, FRAMES_OFFSET, FRAMES_OFFSET, NO_CHECKSUM)


def begin_with_snapshot(disk: Disk, folder: str, meta: Meta, first_twig: int, peaks: Sequence[bytes]) -> None:
    """Create a log that begins with the snapshot whose manifest and chunks are on the disk, in one atomic step."""
    disk.replace(segment_name(folder, 1), meta.encode().ljust(FRAMES_OFFSET, b"\0"))
    disk.replace(f"{folder}/{BASE_NAME}", Base(1, first_twig, tuple(peaks), meta.root, meta.height).encode())


def drop_snapshot(disk: Disk, folder: str) -> None:
    """Remove the files of a snapshot."""
    for name in disk.names():
        if name == f"{folder}/{MANIFEST_NAME}" or name.startswith(f"{folder}/{CHUNK_PREFIX}"):
            disk.remove(name)


def log_bytes(disk: Disk, folder: str) -> int:
    """Size of the segments in a folder, in bytes; 0 without a log."""
    return sum(disk.size(segment_name(folder, number)) for number in _segment_numbers(disk, folder))


def _segment_numbers(disk: Disk, folder: str) -> list[int]:
    prefix = f"{folder}/{SEGMENT_PREFIX}"
    numbers = [name.removeprefix(prefix) for name in disk.names() if name.startswith(prefix)]
    return sorted(int(number) for number in numbers if number.isdecimal())


def _read_base(disk: Disk, folder: str) -> Base:
    name = f"{folder}/{BASE_NAME}"
    content = disk.read(name)
    return Base.decode(content, name) if content else Base()


def _finish_rewind(disk: Disk, folder: str) -> None:
    """Cut the log back as the rewind file requests, and then remove the file. A repetition after a crash is safe."""
    name = f"{folder}/{REWIND_NAME}"
    content = disk.read(name)
    if not content:
        return
    record, checksum = content[:-CHECKSUM_BYTES], content[-CHECKSUM_BYTES:]
    meta = Meta.decode(record[_REWIND.size :])
    if _checksum(BASE_KEY, record) != checksum or not record.startswith(REWIND_MAGIC) or meta is None:
        raise DiskError(f"{name}: offset 0: the rewind record does not fit its checksum")
    number = _REWIND.unpack_from(record)[1]
    for later in reversed(_segment_numbers(disk, folder)):
        if later > number:
            disk.remove(segment_name(folder, later))
    target = segment_name(folder, number)
    disk.write(target, meta.slot_offset, meta.encode())
    disk.write(target, SLOT_BYTES - meta.slot_offset, bytes(META_BYTES))
    disk.sync(target)
    disk.truncate(target, meta.log_bytes)
    disk.remove(name)


def _believed_meta(disk: Disk, name: str) -> tuple[Meta, str]:
    """The newest valid meta record of a segment, and the reason why a newer one is not valid (or an empty text).

    Raises :class:`DiskError` if there is no valid record.
    """
    found = [Meta.decode(disk.read(name, slot * SLOT_BYTES, META_BYTES)) for slot in range(SLOTS)]
    records = sorted((meta for meta in found if meta), key=lambda meta: meta.generation, reverse=True)
    if not records:
        raise DiskError(f"{name}: offset 0: neither of the two meta records is valid")
    newest, older = records[0], records[1] if len(records) > 1 else None
    problem = _frame_problem(disk, name, newest)
    if not problem:
        return newest, ""
    reason = f"offset {newest.frame_offset}: {problem}"
    if older is None or (older.generation + 1, older.log_bytes) != (newest.generation, newest.frame_offset):
        raise DiskError(f"{name}: {reason}, and there is no older meta record to fall back to")
    return older, reason


def _frame_problem(disk: Disk, name: str, meta: Meta) -> str:
    """The reason why the frame that a meta record names is missing or damaged; an empty text if it is sound."""
    if not meta.has_frame:
        return ""
    content = memoryview(disk.read(name, meta.frame_offset, meta.log_bytes - meta.frame_offset))
    frame = _check_frame(content, 0, meta.generation)
    if isinstance(frame, str):
        return frame
    if frame.checksum != meta.frame_checksum:
        return "a frame does not fit its checksum"
    if meta.frame_offset + FRAME_HEADER_BYTES + len(frame.payload) != meta.log_bytes:
        return "the frame's length is not what its meta record says"
    return ""


class _Frame(NamedTuple):
    generation: int
    first_position: int
    checksum: bytes
    payload: memoryview


def _encode_frame(generation: int, first_position: int, payload: bytes) -> tuple[bytes, bytes]:
    """A frame, and its checksum."""
    head = _FRAME.pack(FRAME_MAGIC, generation, first_position, len(payload))
    checksum = blake3(head, key=FRAME_KEY).update(payload).digest()
    return b"".join((head, checksum, payload)), checksum


def _check_frame(content: memoryview, offset: int, generation: int | None) -> _Frame | str:
    """The frame at an offset, or a text with its problem."""
    header = bytes(content[offset : offset + FRAME_HEADER_BYTES])
    if len(header) < FRAME_HEADER_BYTES:
        return "the file ends within a frame's header"
    head, checksum = header[: _FRAME.size], header[_FRAME.size :]
    magic, found_generation, first_position, length = _FRAME.unpack(head)
    if magic != FRAME_MAGIC or generation not in (None, found_generation):
        return f"no frame of commit {generation}"
    payload = content[offset + FRAME_HEADER_BYTES : offset + FRAME_HEADER_BYTES + length]
    if len(payload) < length:
        return "the file ends within a frame"
    if blake3(head, key=FRAME_KEY).update(payload).digest() != checksum:
        return "a frame does not fit its checksum"
    return _Frame(found_generation, first_position, checksum, payload)


def split_frame(frame: _Frame, place: str) -> Iterator[Section]:
    """Iterate over the sections in a frame's payload. Raises :class:`DiskError` with a message about ``place``."""
    payload, cursor, position = frame.payload, 0, frame.first_position
    try:
        while cursor < len(payload):
            head = SectionHead.decode(payload, cursor)
            end = cursor + SECTION_HEAD.size + head.bytes_after
            if end > len(payload) or position + head.entries != head.next_position:
                raise DiskError(f"{place}: a frame with a valid checksum does not parse: its sections do not fit")
            yield Section(head, position, payload[cursor:end])
            cursor, position = end, head.next_position
    except struct.error as error:
        raise DiskError(f"{place}: a frame with a valid checksum does not parse: {error}") from None


def _checksum(key: bytes, data: bytes) -> bytes:
    return blake3(data, key=key).digest()
