"""The log on disk: one append-only file with a frame per commit, and two alternating meta records at its head.

``docs/state.md`` gives the layout. One commit is: append the frame, write the meta record into the slot that the record
before last holds, one sync. Frame and record stand in the same file, so one sync covers both, and none of the orders in
which an interrupted sync may leave them can mislead:

- a record is believed only when its own checksum fits *and* the frame that it names is there with the checksum that it
  names; otherwise the other record, made durable by an earlier sync, counts, and the file is cut to where it ends;
- what a believed record's predecessors point to was durable before, so a frame below that does not fit its checksum is
  rot, and is an error that names the offset, never a reason to fall back;
- opening writes the last commit's bytes again and syncs before anything else, so that what was recovered from a file
  whose sync had failed is durable before the next commit overwrites the older record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from blake3 import blake3

from validator.disk import Disk, DiskError
from validator.state.merkle import Tree, domain_key
from validator.types import Hash, Height

SLOT_BYTES: Final = 4096
"""Distance of the meta slots: a page each, so that a torn write of one leaves the other alone."""

SLOTS: Final = 2
FRAMES_OFFSET: Final = SLOTS * SLOT_BYTES
CHECKSUM_BYTES: Final = 32
NO_CHECKSUM: Final = bytes(CHECKSUM_BYTES)

META_KEY: Final = domain_key("stampede/state/1/meta")
FRAME_KEY: Final = domain_key("stampede/state/1/frame")
META_MAGIC: Final = b"STPDMETA"
FRAME_MAGIC: Final = b"STPDFRAM"

_META: Final = struct.Struct(">8sQQ32sQQQ32s")
_FRAME: Final = struct.Struct(">8sQQQ")
_SECTION: Final = struct.Struct(">QII")
_ENTRY: Final = struct.Struct(">QHI")
_KEY: Final = struct.Struct(">H")

META_BYTES: Final = _META.size + CHECKSUM_BYTES
FRAME_HEADER_BYTES: Final = _FRAME.size + CHECKSUM_BYTES

NO_POSITION: Final = 2**64 - 1
"""Previous position of an entry whose key was absent."""


def encode_entry(key: bytes, value: bytes, previous: int) -> bytes:
    """An entry as it is hashed and logged; ``previous`` is :data:`NO_POSITION` where the key was absent."""
    return _ENTRY.pack(previous, len(key), len(value)) + key + value


def encode_section(height: Height, entries: Sequence[bytes], deleted: Sequence[bytes]) -> bytes:
    """What one block adds to the log: its encoded entries, then the keys that it deleted."""
    head = _SECTION.pack(height, len(entries), len(deleted))
    return b"".join((head, *entries, *(_KEY.pack(len(key)) + key for key in deleted)))


@dataclass(frozen=True)
class Section:
    """One block's part of the log, read back."""

    height: Height
    entries: list[bytes]
    deleted: list[bytes]


@dataclass(frozen=True)
class Meta:
    """A meta record: the state that one commit led to, and where in the file its frame stands."""

    generation: int
    height: Height
    root: Hash
    next_position: int
    frame_offset: int
    log_bytes: int
    """Size of the file up to and with this commit's frame."""
    frame_checksum: bytes

    @property
    def slot_offset(self) -> int:
        """Where in the file this record belongs."""
        return self.generation % SLOTS * SLOT_BYTES

    def encode(self) -> bytes:
        """The record and its checksum."""
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
        """The record, or ``None`` where there is none or it is damaged."""
        record, checksum = data[: _META.size], data[_META.size : META_BYTES]
        if len(data) < META_BYTES or _checksum(META_KEY, record) != checksum:
            return None
        magic, generation, height, root, next_position, frame_offset, log_bytes, frame_checksum = _META.unpack(record)
        if magic != META_MAGIC:
            return None
        return Meta(generation, Height(height), Hash(root), next_position, frame_offset, log_bytes, frame_checksum)


EMPTY_META: Final = Meta(0, Height(0), Tree().root, 0, FRAMES_OFFSET, FRAMES_OFFSET, NO_CHECKSUM)
"""The record of a store in which nothing was committed yet."""


@dataclass(frozen=True)
class Recovery:
    """What opening found, for operators: nothing of it changes what the store then does."""

    meta: Meta
    dropped_bytes: int
    """Bytes behind the believed record's end that were cut off."""
    reason: str
    """Why a newer record was not believed; empty where there was no sign of one."""


class StateLog:
    """The open file. Its owner replays :meth:`sections` once, then calls :meth:`commit` once a commit."""

    def __init__(self, disk: Disk, name: str, recovery: Recovery) -> None:
        self.recovery = recovery
        self._disk = disk
        self._name = name
        self._meta = recovery.meta
        self._usable = True

    @classmethod
    def open(cls, disk: Disk, name: str) -> StateLog:
        """Open the file, or make it. Cuts off what no believed record covers. Raises :class:`DiskError`."""
        if disk.size(name) == 0:
            disk.replace(name, EMPTY_META.encode().ljust(FRAMES_OFFSET, b"\0"))
        meta, reason = _believed_meta(disk, name)
        dropped = disk.size(name) - meta.log_bytes
        if dropped < 0:
            raise DiskError(
                f"{name}: offset {disk.size(name)}: the file ends before {meta.log_bytes}, as its meta has it"
            )
        if dropped:
            disk.truncate(name, meta.log_bytes)
            reason = reason or f"offset {meta.log_bytes}: a frame without a valid meta record"
        return cls(disk, name, Recovery(meta, dropped, reason))

    def sections(self) -> Iterator[Section]:
        """Every block's part of the log, oldest first. Raises :class:`DiskError` where a frame does not fit."""
        offset, generation = FRAMES_OFFSET, 0
        while offset < self._meta.log_bytes:
            generation += 1
            payload = self._payload(offset, generation)
            yield from _decode_sections(payload, f"{self._name}: offset {offset}")
            offset += FRAME_HEADER_BYTES + len(payload)
        if offset != self._meta.log_bytes or generation != self._meta.generation:
            raise DiskError(f"{self._name}: offset {offset}: {generation} frames, but {self._meta.generation} commits")

    def confirm(self, root: Hash, next_position: int) -> None:
        """Check what the replay led to, and make it durable. Raises :class:`DiskError`."""
        meta, disk, name = self._meta, self._disk, self._name
        if (root, next_position) != (meta.root, meta.next_position):
            raise DiskError(
                f"{name}: offset {meta.slot_offset}: the log gives root {root.hex()} and {next_position} entries,"
                f" its meta record {meta.root.hex()} and {meta.next_position}"
            )
        frame = disk.read(name, meta.frame_offset, meta.log_bytes - meta.frame_offset)
        if frame:
            disk.write(name, meta.frame_offset, frame)
        disk.write(name, meta.slot_offset, meta.encode())
        disk.sync(name)

    def commit(self, height: Height, root: Hash, next_position: int, sections: Sequence[bytes]) -> None:
        """Append one frame with these sections and make it durable. Raises :class:`DiskError`.

        After an error nothing is known about the file's end: further commits are refused until it is opened again.
        """
        if not self._usable:
            raise DiskError(
                f"{self._name}: offset {self._meta.log_bytes}: an earlier commit failed; open the store again"
            )
        self._usable = False
        frame, checksum = _encode_frame(self._meta.generation + 1, self._meta.next_position, b"".join(sections))
        start = self._meta.log_bytes
        meta = Meta(self._meta.generation + 1, height, root, next_position, start, start + len(frame), checksum)
        self._write(frame, meta)
        self._meta = meta
        self._usable = True

    def _write(self, frame: bytes, meta: Meta) -> None:
        """The three operations of a commit."""
        offset = self._disk.append(self._name, frame)
        if offset != meta.frame_offset:
            raise DiskError(f"{self._name}: offset {offset}: expected the file to end at {meta.frame_offset}")
        self._disk.write(self._name, meta.slot_offset, meta.encode())
        self._disk.sync(self._name)

    def _payload(self, offset: int, generation: int) -> bytes:
        """The payload of the frame at an offset, checked."""
        payload, problem = _read_frame(self._disk, self._name, offset, generation, self._meta.log_bytes)
        if problem:
            raise DiskError(f"{self._name}: offset {offset}: {problem}")
        return payload


def _believed_meta(disk: Disk, name: str) -> tuple[Meta, str]:
    """The newest meta record that fits its frame, and why a newer one was not believed (or nothing)."""
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
    """Why the frame that a meta record names is not there, or nothing."""
    if meta.generation == 0:
        return ""
    payload, problem = _read_frame(disk, name, meta.frame_offset, meta.generation, meta.log_bytes, meta.frame_checksum)
    if not problem and meta.frame_offset + FRAME_HEADER_BYTES + len(payload) != meta.log_bytes:
        problem = "the frame's length is not what its meta record says"
    return problem


def _encode_frame(generation: int, first_position: int, payload: bytes) -> tuple[bytes, bytes]:
    """A frame, and its checksum."""
    head = _FRAME.pack(FRAME_MAGIC, generation, first_position, len(payload))
    checksum = _checksum(FRAME_KEY, head + payload)
    return b"".join((head, checksum, payload)), checksum


def _read_frame(
    disk: Disk, name: str, offset: int, generation: int, limit: int, expected_checksum: bytes | None = None
) -> tuple[bytes, str]:
    """The payload of the frame at an offset, and what is wrong with it (or nothing)."""
    header = disk.read(name, offset, FRAME_HEADER_BYTES)
    if len(header) < FRAME_HEADER_BYTES:
        return b"", "the file ends within a frame's header"
    head, checksum = header[: _FRAME.size], header[_FRAME.size :]
    magic, found_generation, _, length = _FRAME.unpack(head)
    if magic != FRAME_MAGIC or found_generation != generation:
        return b"", f"no frame of commit {generation}"
    if offset + FRAME_HEADER_BYTES + length > limit:
        return b"", "a frame longer than the log"
    payload = disk.read(name, offset + FRAME_HEADER_BYTES, length)
    if len(payload) < length:
        return b"", "the file ends within a frame"
    if _checksum(FRAME_KEY, head + payload) != checksum or expected_checksum not in (None, checksum):
        return b"", "a frame does not fit its checksum"
    return payload, ""


def _decode_sections(payload: bytes, place: str) -> Iterator[Section]:
    """The sections in a frame's payload. ``place`` begins the message of an error."""
    cursor = 0
    try:
        while cursor < len(payload):
            height, entry_count, deleted_count = _SECTION.unpack_from(payload, cursor)
            cursor += _SECTION.size
            section = Section(Height(height), [], [])
            for _ in range(entry_count):
                _, key_bytes, value_bytes = _ENTRY.unpack_from(payload, cursor)
                start, cursor = cursor, cursor + _ENTRY.size + key_bytes + value_bytes
                section.entries.append(payload[start:cursor])
            for _ in range(deleted_count):
                start, cursor = cursor + _KEY.size, cursor + _KEY.size + _KEY.unpack_from(payload, cursor)[0]
                section.deleted.append(payload[start:cursor])
            yield section
    except struct.error as error:
        raise DiskError(f"{place}: a frame with a valid checksum does not parse: {error}") from None
    if cursor != len(payload):
        raise DiskError(f"{place}: a frame with a valid checksum does not parse: it ends within an entry")


def decode_entry(encoded: bytes) -> tuple[bytes, bytes, int]:
    """Key, value and previous position of an encoded entry."""
    previous, key_bytes, _ = _ENTRY.unpack_from(encoded)
    middle = _ENTRY.size + key_bytes
    return encoded[_ENTRY.size : middle], encoded[middle:], previous


def _checksum(key: bytes, data: bytes) -> bytes:
    return blake3(data, key=key).digest()
