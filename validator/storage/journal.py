"""The validator's journal: consensus records and block bodies, in one append-only file.

A frame (:mod:`validator.storage.frames`) holds a batch of records that are appended and become durable together, so
that a torn append is lost as a whole. Everything that a vote depends on is durable in the journal before the vote is
sent: the vote itself and, for a notarize vote, the block's body. Once blocks are in the archive, the journal is
replaced by the records that are still needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from validator.primitives.codec import decode, encode
from validator.storage.disk import Disk
from validator.storage.frames import frame, recover

JOURNAL_FILE: Final = "journal"


class JournalContent(NamedTuple):
    """The content of a journal."""

    records: tuple[bytes, ...]
    bodies: tuple[bytes, ...]


class _Batch(msgspec.Struct, frozen=True, array_like=True):
    bodies: tuple[bytes, ...]
    records: tuple[bytes, ...]


def encode_batch(records: Iterable[bytes], bodies: Iterable[bytes]) -> bytes:
    """Encode consensus records and block bodies as one frame, which becomes durable as a whole."""
    return frame(encode(_Batch(tuple(bodies), tuple(records))))


def encode_journal(records: Iterable[bytes], bodies: Iterable[bytes]) -> bytes:
    """Encode a whole journal file, to replace the former one: one frame per body, then one frame with the records."""
    return b"".join([*(encode_batch((), (body,)) for body in bodies), encode_batch(records, ())])


def decode_batch(payload: bytes) -> JournalContent:
    """Decode the batch in a frame's payload. Raises :class:`~validator.primitives.codec.CodecError`."""
    batch = decode(payload, _Batch)
    return JournalContent(batch.records, batch.bodies)


def has_journal(disk: Disk) -> bool:
    """Whether the journal file exists. The validator creates it at its first start, even if it is empty."""
    return JOURNAL_FILE in disk.names()


def open_journal(disk: Disk) -> JournalContent:
    """Read the journal, cut a torn end off, and make the rest durable.

    A killed process or a failed sync may have left data that can be read now but is not durable. So the data is written
    again: the validator may repeat a vote that it read, and the next start must know that vote.
    """
    found = list(recover(disk, JOURNAL_FILE))
    disk.replace(JOURNAL_FILE, disk.read(JOURNAL_FILE))
    batches = [decode_batch(each.payload) for each in found]
    return JournalContent(
        records=tuple(record for batch in batches for record in batch.records),
        bodies=tuple(body for batch in batches for body in batch.bodies),
    )
