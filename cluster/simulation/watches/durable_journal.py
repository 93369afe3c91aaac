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
from validator.storage.frames import split
from validator.storage.journal import JOURNAL_FILE, JournalContent, decode_batch

REMEMBERED_RECORDS: Final = 1 << 12
"""Number of decoded records in the cache, which helps since each certificate is in every validator's journal."""
REMEMBERED_APPENDS: Final = 1 << 5
"""Number of appends in the caches: those that are not durable yet, and some more."""
REMEMBERED_BODIES: Final = 1 << 6
"""Number of bodies in the cache of block digests. Each body is in every validator's journal soon after its proposal."""

_DECODER: Final = msgspec.msgpack.Decoder(Record)


class DurableRecord(NamedTuple):
    """A consensus record that became durable."""

    record: Record
    is_appended: bool
    """Whether the record was appended, so that its place tells its time. The records of a journal that was written
    whole are ordered by view, not by time."""


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

    def read(self, disk: MemoryDisk) -> list[DurableRecord]:
        """Read what became durable since the last call. Returns the new records, in the journal's order.

        ``disk`` may be another one each time.
        """
        replaced = disk.replaced(JOURNAL_FILE)
        if disk is not self._disk or replaced != self._replaced:
            self._disk, self._replaced, self._end = disk, replaced, 0
            self.votes.clear()
            self.digests.clear()
        if disk.durable_size(JOURNAL_FILE) <= self._end:
            return []
        began, whole_bytes = self._end, replaced[1]
        batches, length = _batches_in(disk.durable(JOURNAL_FILE, began))
        self._end += length
        found: list[DurableRecord] = []
        for offset, batch in batches:
            for encoded in batch.records:
                record = _record(encoded)
                found.append(DurableRecord(record, began + offset >= whole_bytes))
                if isinstance(record, Vote):
                    self.votes.add(record)
            for body in batch.bodies:
                self.digests.add(_digest(body))
        return found


@lru_cache(REMEMBERED_APPENDS)
def votes_in(appended: bytes) -> tuple[Vote, ...]:
    """The votes in an append to a validator's journal, in order. Cached, since several watches ask for them."""
    batches, _ = _batches_in(appended)
    records = [_record(encoded) for _, batch in batches for encoded in batch.records]
    return tuple(record for record in records if isinstance(record, Vote))


@lru_cache(REMEMBERED_APPENDS)
def _batches_in(data: bytes) -> tuple[tuple[tuple[int, JournalContent], ...], int]:
    """The batches in whole frames of a journal, each with its frame's offset, and the number of bytes of the frames.

    Cached, since what is appended is read again from the disk once it is durable.
    """
    frames, length = split(data)
    return tuple((frame.offset, decode_batch(frame.payload)) for frame in frames), length


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
