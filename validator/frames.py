"""Records in append-only files: length, checksum, payload; a torn tail is recognised and cut.

A frame is ``length[4, big-endian] ‖ checksum[8] ‖ payload``, the checksum being the first bytes of the payload's
BLAKE3 hash.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from blake3 import blake3

from validator.disk import Disk, DiskError

LENGTH_BYTES: Final = 4
CHECKSUM_BYTES: Final = 8
HEADER_BYTES: Final = LENGTH_BYTES + CHECKSUM_BYTES
MAX_PAYLOAD_BYTES: Final = 64 * 1024 * 1024


class Frame(NamedTuple):
    """A record and where its frame begins."""

    offset: int
    payload: bytes


def frame(payload: bytes) -> bytes:
    """A payload with its length and checksum."""
    return len(payload).to_bytes(LENGTH_BYTES, "big") + _checksum(payload) + payload


def split(data: bytes) -> tuple[list[Frame], int]:
    """The whole frames at the start of ``data``, and the offset at which they end."""
    frames: list[Frame] = []
    offset = 0
    while True:
        payload = _payload_at(data, offset)
        if payload is None:
            return frames, offset
        frames.append(Frame(offset, payload))
        offset += HEADER_BYTES + len(payload)


def recover(disk: Disk, name: str) -> list[Frame]:
    """The records of a file; what a crash left torn at its end is cut off, durably.

    A damaged record with whole records after it is no torn tail: raises :class:`DiskError` with file and offset.
    """
    data = disk.read(name)
    frames, end = split(data)
    if end < len(data):
        if _has_frame_after(data, end):
            raise DiskError(f"{name}: record at offset {end} is damaged, and whole records follow it")
        disk.truncate(name, end)
    return frames


def read_frame(disk: Disk, name: str, offset: int) -> bytes:
    """One record by the offset of its frame. Raises :class:`DiskError` where it is damaged."""
    length = int.from_bytes(disk.read(name, offset, LENGTH_BYTES), "big")
    payload = _payload_at(disk.read(name, offset, HEADER_BYTES + length), 0)
    if payload is None:
        raise DiskError(f"{name}: record at offset {offset} is damaged")
    return payload


def _payload_at(data: bytes, offset: int) -> bytes | None:
    body = offset + HEADER_BYTES
    if body > len(data):
        return None
    length = int.from_bytes(data[offset : offset + LENGTH_BYTES], "big")
    if length > MAX_PAYLOAD_BYTES or body + length > len(data):
        return None
    payload = data[body : body + length]
    return payload if _checksum(payload) == data[offset + LENGTH_BYTES : body] else None


def _has_frame_after(data: bytes, damaged: int) -> bool:
    """Whether the damaged frame's own length leads to a whole frame: then it rotted, it was not torn."""
    length = int.from_bytes(data[damaged : damaged + LENGTH_BYTES], "big")
    return _payload_at(data, damaged + HEADER_BYTES + length) is not None


def _checksum(payload: bytes) -> bytes:
    return blake3(payload).digest(length=CHECKSUM_BYTES)
