"""The durable part of a simulated validator's journal, read as it grows.

It is read from the disk's durable bytes, not from the validator's reports: a record counts once a sync covered it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from cluster.disks.memory import MemoryDisk
from consensus.journal import Record
from consensus.messages import Vote
from validator.chain.block import Block, header_hash
from validator.primitives.codec import CodecError, decode
from validator.storage.frames import FRAME_BYTES, length_at, payload_at
from validator.storage.journal import JOURNAL_FILE

REMEMBERED_RECORDS: Final = 1 << 12
"""Number of decoded records in the cache, which helps since each certificate is in every validator's journal."""
REMEMBERED_APPENDS: Final = 1 << 3
"""Number of appends whose votes are in the cache: the watches ask for them one after the other."""
REMEMBERED_FRAMES: Final = 1 << 8
"""Number of decoded frames in the cache: those that are not durable yet, and some more. A frame that was appended is
read again from the disk once it is durable."""
REMEMBERED_BODIES: Final = 1 << 6
"""Number of bodies in the cache of block digests. Each body is in every validator's journal soon after its proposal."""

_DECODER: Final = msgspec.msgpack.Decoder(Record)
_BATCHES: Final = msgspec.msgpack.Decoder(tuple[tuple[bytes, ...], tuple[bytes, ...]])
"""Decodes the bodies and the records of a batch."""


class DurableBatch(NamedTuple):
    """Consensus records that became durable together."""

    records: tuple[Record, ...]
    is_appended: bool
    """Whether the records were appended, so that their place tells their time. The records of a journal that was
    written whole are ordered by view, not by time."""


class _Batch(NamedTuple):
    """The decoded batch in one frame of a journal."""

    records: tuple[Record, ...]
    votes: tuple[Vote, ...]
    """The votes among the records."""
    digests: tuple[bytes, ...]
    """The digests of the blocks whose bodies are in the batch; empty for a body that is no block."""
    length: int
    """Number of bytes of the frame."""


@dataclass(slots=True)
class DurableJournal:
    """The votes and blocks in the durable part of one machine's journal. A new journal or disk replaces the content."""

    votes: set[Vote] = field(default_factory=set)
    digests: set[bytes] = field(default_factory=set)
    """The digests of the blocks whose bodies are in the journal."""
    _disk: MemoryDisk | None = None
    _replaced: tuple[int, int] = (0, 0)
    _end: int = 0
    """Number of bytes of the journal that were read so far."""

    def read(self, disk: MemoryDisk) -> list[DurableBatch]:
        """Read what became durable since the last call. Returns the new batches, in the journal's order.

        ``disk`` may be another one each time.
        """
        replaced = disk.replaced(JOURNAL_FILE)
        if disk is not self._disk or replaced != self._replaced:
            self._disk, self._replaced, self._end = disk, replaced, 0
            self.votes.clear()
            self.digests.clear()
        if disk.durable_size(JOURNAL_FILE) <= self._end:
            return []
        whole_bytes, found = replaced[1], list[DurableBatch]()
        for batch in _batches_in(disk.durable(JOURNAL_FILE, self._end)):
            found.append(DurableBatch(batch.records, self._end >= whole_bytes))
            self.votes.update(batch.votes)
            self.digests.update(batch.digests)
            self._end += batch.length
        return found


@lru_cache(REMEMBERED_APPENDS)
def votes_in(appended: bytes) -> tuple[Vote, ...]:
    """The votes in an append to a validator's journal, in order. Cached, since several watches ask for them."""
    return tuple([vote for batch in _batches_in(appended) for vote in batch.votes])


def _batches_in(data: bytes) -> list[_Batch]:
    """The batches in whole frames at the start of a journal's bytes."""
    offset, batches = 0, list[_Batch]()
    while offset < len(data) and (length := length_at(data, offset)) is not None:
        batch = _batch_in(data[offset : offset + FRAME_BYTES + length])
        if batch is None:
            break
        batches.append(batch)
        offset += batch.length
    return batches


@lru_cache(REMEMBERED_FRAMES)
def _batch_in(frame: bytes) -> _Batch | None:
    """The batch in a frame; ``None`` if the frame is not whole."""
    payload = payload_at(frame, 0)
    if payload is None:
        return None
    bodies, encoded = _BATCHES.decode(payload)
    records = tuple(map(_record, encoded))
    votes = tuple([record for record in records if type(record) is Vote])
    return _Batch(records, votes, tuple(map(_digest, bodies)), len(frame))


@lru_cache(REMEMBERED_RECORDS)
def _record(encoded: bytes) -> Record:
    """Decode a record, whose first byte is its version. The record is not validated: that is a restart's task."""
    return _DECODER.decode(memoryview(encoded)[1:])


@lru_cache(REMEMBERED_BODIES)
def _digest(body: bytes) -> bytes:
    """The digest of the block that ``body`` encodes; empty if it does not encode a block."""
    try:
        return header_hash(decode(body, Block).header)
    except CodecError:
        return b""
