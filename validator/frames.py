"""Records in append-only files: length, checksums, payload; a torn tail is recognised and cut.

A frame is ``length[4, big-endian] ‖ check[4] ‖ checksum[8] ‖ payload``: the first bytes of the BLAKE3 hashes of the
length and of the payload. A crash leaves at most the last frame torn: cut short, or zeros where it was to be. Anything
else that does not check has rotted, lengths included, and is never cut in silence.

What is written can be read back: reading knows no limit but that of a length's four bytes, and a longer payload is
refused before a byte of it is on disk.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from blake3 import blake3

from validator.disk import Disk, DiskError

LENGTH_BYTES: Final = 4
CHECK_BYTES: Final = 4
CHECKSUM_BYTES: Final = 8
HEADER_BYTES: Final = LENGTH_BYTES + CHECK_BYTES + CHECKSUM_BYTES
MAX_PAYLOAD_BYTES: Final = 2 ** (8 * LENGTH_BYTES) - 1
"""Many times what a block with its receipts can come to (:mod:`validator.receipt_bound`)."""


class Frame(NamedTuple):
    """A record and where its frame begins."""

    offset: int
    payload: bytes


def frame(payload: bytes) -> bytes:
    """A payload with its length and checksums. Raises :class:`DiskError` for one that could not be read back."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise DiskError(f"a record of {len(payload):,} bytes: expected at most {MAX_PAYLOAD_BYTES:,}")
    length = len(payload).to_bytes(LENGTH_BYTES, "big")
    return length + _hash(length, CHECK_BYTES) + _hash(payload, CHECKSUM_BYTES) + payload


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

    Raises :class:`DiskError`, with file and offset, for a record that is damaged in any other way.
    """
    data = disk.read(name)
    frames, end = split(data)
    if end < len(data):
        if not _is_torn(data, end):
            raise DiskError(f"{name}: record at offset {end} is damaged")
        disk.truncate(name, end)
    return frames


def read_frame(disk: Disk, name: str, offset: int) -> bytes:
    """One record by the offset of its frame. Raises :class:`DiskError` where it is damaged."""
    length = _length_at(disk.read(name, offset, HEADER_BYTES), 0)
    payload = None if length is None else _payload_at(disk.read(name, offset, HEADER_BYTES + length), 0)
    if payload is None:
        raise DiskError(f"{name}: record at offset {offset} is damaged")
    return payload


def _length_at(data: bytes, offset: int) -> int | None:
    """The payload's length by a frame's header, ``None`` where the header is not whole or does not check."""
    length = data[offset : offset + LENGTH_BYTES]
    check = data[offset + LENGTH_BYTES : offset + LENGTH_BYTES + CHECK_BYTES]
    if offset + HEADER_BYTES > len(data) or check != _hash(length, CHECK_BYTES):
        return None
    return int.from_bytes(length, "big")


def _payload_at(data: bytes, offset: int) -> bytes | None:
    length = _length_at(data, offset)
    body = offset + HEADER_BYTES
    if length is None or body + length > len(data):
        return None
    payload = data[body : body + length]
    return payload if data[body - CHECKSUM_BYTES : body] == _hash(payload, CHECKSUM_BYTES) else None


def _is_torn(data: bytes, offset: int) -> bool:
    """Whether what stands at ``offset``, and is no whole frame, can be what a crash left of the last one."""
    rest = len(data) - offset
    if rest < HEADER_BYTES or not any(data[offset:]):
        return True
    length = _length_at(data, offset)
    return length is not None and rest <= HEADER_BYTES + length


def _hash(data: bytes, size: int) -> bytes:
    return blake3(data).digest(length=size)
