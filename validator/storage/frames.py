"""Frames: the encoding of records in append-only files. A torn record at the end is detected and cut off.

A frame is ``mark[1] ‖ length[4, big-endian] ‖ check[4] ‖ checksum[8] ‖ masked payload ‖ mark[1]``: check and checksum
are the first bytes of the BLAKE3 hashes of the length and of the payload; the mask, by exclusive or, is the extended
BLAKE3 hash of length, check and checksum.

A crash may tear data written since the last sync, in only two ways: the file ends early, or zeros replace bytes that
never reached the disk, from some byte to the end of one write or over whole sectors of 512 bytes. Both are visible in a
frame: it begins and ends with a non-zero byte, and masked content never contains a sector of zeros, so that missing
parts do not look like content. Nothing after a torn frame was synced, and the file is cut there, with complete frames
after it: the order of writes is not the order in which they reach the disk. All other mismatches, in lengths and in the
last frame too, are bit rot, which is never cut silently. A sector that reads as zeros long after it was synced has
rotted too, but cannot be distinguished from a tear.

Everything that is written can be read back: the only limit of reads is that of a length's four bytes, and a longer
payload is refused before any of it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from blake3 import blake3

from validator.storage.disk import Disk, DiskError

MARK: Final = b"\xa6"
"""The byte at both ends of a frame. Flipping one of its bits does not make it zero."""
LENGTH_BYTES: Final = 4
CHECK_BYTES: Final = 4
CHECKSUM_BYTES: Final = 8
HEADER_BYTES: Final = len(MARK) + LENGTH_BYTES + CHECK_BYTES + CHECKSUM_BYTES
FRAME_BYTES: Final = HEADER_BYTES + len(MARK)
"""Size of a frame without its payload."""
FEW_BYTES: Final = 512
"""Maximum size of a payload that is masked as an integer. Above it, an array is faster."""
SECTOR_BYTES: Final = 512
"""The smallest unit that a disk writes whole or not at all."""
MAX_PAYLOAD_BYTES: Final = 2 ** (8 * LENGTH_BYTES) - 1
"""Maximum size of a payload. It is many times the maximum size of a block with its receipts
(:mod:`validator.transition.receipt_bound`)."""

REMEMBERED_CHECKS: Final = 4096
"""Number of lengths whose checks are kept."""


class Frame(NamedTuple):
    """A record and the offset of its frame."""

    offset: int
    payload: bytes


def frame(payload: bytes) -> bytes:
    """Encode a payload as a frame. Raises :class:`DiskError` if it is longer than :data:`MAX_PAYLOAD_BYTES`."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise DiskError(f"a record of {len(payload):,} bytes: expected at most {MAX_PAYLOAD_BYTES:,}")
    length = len(payload).to_bytes(LENGTH_BYTES, "big")
    head = length + _check_of(length) + _hash(payload, CHECKSUM_BYTES)
    return MARK + head + _masked(payload, head) + MARK


def split(data: bytes) -> tuple[list[Frame], int]:
    """The whole frames at the start of ``data``, and the offset at which they end."""
    frames: list[Frame] = []
    offset = 0
    while True:
        payload = payload_at(data, offset)
        if payload is None:
            return frames, offset
        frames.append(Frame(offset, payload))
        offset += FRAME_BYTES + len(payload)


def recover(disk: Disk, name: str) -> Iterator[Frame]:
    """Iterate over the records of a file up to the first torn one.

    At its end, the iterator cuts off the torn record and everything after it, durably. Raises :class:`DiskError`, with
    file and offset, for a record that is damaged in another way.
    """
    offset, size = 0, disk.size(name)
    while offset < size:
        data = _frame_bytes(disk, name, offset)
        payload = payload_at(data, 0)
        if payload is None:
            if not is_torn(data, offset):
                raise DiskError(f"{name}: record at offset {offset} is damaged")
            disk.truncate(name, offset)
            return
        yield Frame(offset, payload)
        offset += FRAME_BYTES + len(payload)


def read_frame(disk: Disk, name: str, offset: int) -> bytes:
    """One record by its frame's offset. Raises :class:`DiskError` if it is damaged."""
    payload = payload_at(_frame_bytes(disk, name, offset), 0)
    if payload is None:
        raise DiskError(f"{name}: record at offset {offset} is damaged")
    return payload


def _frame_bytes(disk: Disk, name: str, offset: int) -> bytes:
    """Read the bytes of the frame at an offset. Only the header's bytes are read if the header is damaged."""
    head = disk.read(name, offset, HEADER_BYTES)
    length = length_at(head, 0)
    return head if length is None else disk.read(name, offset, FRAME_BYTES + length)


def length_at(data: bytes, offset: int) -> int | None:
    """The payload's length from a frame's header; ``None`` if the header is incomplete or damaged."""
    begin = offset + len(MARK)
    length = data[begin : begin + LENGTH_BYTES]
    check = data[begin + LENGTH_BYTES : begin + LENGTH_BYTES + CHECK_BYTES]
    if offset + HEADER_BYTES > len(data) or data[offset:begin] != MARK or check != _check_of(length):
        return None
    return int.from_bytes(length, "big")


def payload_at(data: bytes, offset: int) -> bytes | None:
    """The payload of the frame at an offset; ``None`` if the frame is not whole."""
    length = length_at(data, offset)
    if length is None:
        return None
    body = offset + HEADER_BYTES
    end = body + length
    payload = _masked(data[body:end], data[offset + len(MARK) : body])
    checksum = data[body - CHECKSUM_BYTES : body]
    is_whole = data[end : end + len(MARK)] == MARK and checksum == _hash(payload, CHECKSUM_BYTES)
    return payload if is_whole else None


def is_torn(data: bytes, offset: int) -> bool:
    """Whether a crash can have torn the frame at a file's ``offset``, rather than bit rot damaged it.

    ``data`` are the bytes from there on, which do not begin with a whole frame.
    """
    length = length_at(data, 0)
    end = HEADER_BYTES if length is None else FRAME_BYTES + length
    if end > len(data):
        return True
    if length is None:  # zeros from before the checksum on, or up to a place after the mark
        return not any(data[end - CHECKSUM_BYTES : end]) or not any(data[: len(MARK)])
    is_cut_off = not any(data[end - len(MARK) : end])
    sectors = _sectors(offset, offset + end)
    return is_cut_off or any(not any(data[begin - offset : until - offset]) for begin, until in sectors)


def _sectors(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Split the range between two offsets of a file at the boundaries of the disk's sectors."""
    while begin < end:
        until = min(end, (begin // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield begin, until
        begin = until


def _masked(data: bytes, head: bytes) -> bytes:
    """Apply the mask to a payload, or remove it from a masked one: an exclusive or with a hash of ``head``."""
    mask = blake3(head).digest(length=len(data))
    if len(data) <= FEW_BYTES:
        return (int.from_bytes(data) ^ int.from_bytes(mask)).to_bytes(len(data))
    return (np.frombuffer(data, np.uint8) ^ np.frombuffer(mask, np.uint8)).tobytes()


@lru_cache(REMEMBERED_CHECKS)
def _check_of(length: bytes) -> bytes:
    """The check of a frame's length: a function of four bytes, which few frames do not share with others."""
    return _hash(length, CHECK_BYTES)


def _hash(data: bytes, size: int) -> bytes:
    return blake3(data).digest(length=size)
