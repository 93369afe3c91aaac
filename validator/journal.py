"""The validator's journal: consensus records and block bodies, in one append-only file.

A frame (:mod:`validator.frames`) holds one kind byte and a record. Everything that a vote depends on is in the journal
before the vote leaves: the block's body before its notarize vote, the vote itself before it is sent. Once blocks are
in the archive, the journal is replaced by what is still needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from validator.disk import Disk
from validator.frames import frame, recover

JOURNAL_FILE: Final = "journal"
CONSENSUS_RECORD: Final = b"c"
BLOCK_BODY: Final = b"b"


class JournalContent(NamedTuple):
    """What a journal held."""

    records: tuple[bytes, ...]
    bodies: tuple[bytes, ...]


def encode_entries(records: Iterable[bytes], bodies: Iterable[bytes]) -> bytes:
    """Frames for block bodies and consensus records, bodies first."""
    frames = [frame(BLOCK_BODY + body) for body in bodies]
    frames.extend(frame(CONSENSUS_RECORD + record) for record in records)
    return b"".join(frames)


def open_journal(disk: Disk) -> JournalContent:
    """Read the journal, cutting what a crash left torn at its end."""
    records: list[bytes] = []
    bodies: list[bytes] = []
    for entry in recover(disk, JOURNAL_FILE):
        kind, payload = entry.payload[:1], entry.payload[1:]
        (bodies if kind == BLOCK_BODY else records).append(payload)
    return JournalContent(tuple(records), tuple(bodies))
