"""Records of the vote journal: what a validator must remember to restart and never vote twice.

A record is one version byte followed by the encoding (:mod:`consensus.messages`) of

- a **vote** of this validator, written before the vote is sent. A validator's own proposal is journaled as the notarize
  vote that it carries: that names the view and the digest, and the body lies with the blocks;
- a **certificate** that it knows, timeout certificates being HotStuff's.

The order of the records carries meaning: a certificate stands before the votes of the views that it opened. Framing,
checksums and files belong to whoever performs :class:`~consensus.interface.Persist`. What is read back is trusted: the
signatures of journaled certificates are not checked again.
"""

from __future__ import annotations

from typing import Final

from consensus.messages import (
    MAX_VALIDATORS,
    SIGNATURE_BYTES,
    Certificate,
    MessageError,
    TimeoutCertificate,
    Vote,
    decode,
    encode,
)
from consensus.types import ConsensusError

JOURNAL_VERSION: Final = 1
MAX_RECORD_BYTES: Final = 1024 + 2 * MAX_VALIDATORS * (SIGNATURE_BYTES + 16)
"""Larger than any record: a timeout certificate of the largest validator set, with the certificate within."""

Record = Vote | Certificate | TimeoutCertificate


class JournalError(ConsensusError):
    """A journal that this validator cannot have written."""


def encode_record(record: Record) -> bytes:
    """The bytes of one record."""
    return bytes((JOURNAL_VERSION,)) + encode(record)


def decode_record(encoded: bytes) -> Record:
    """The record that :func:`encode_record` made ``encoded`` of; raises :class:`JournalError` for any other bytes."""
    if not 1 < len(encoded) <= MAX_RECORD_BYTES:
        raise JournalError(f"journal record of {len(encoded)} bytes")
    if encoded[0] != JOURNAL_VERSION:
        raise JournalError(f"journal record of version {encoded[0]}, this program reads version {JOURNAL_VERSION}")
    try:
        record = decode(encoded[1:])
    except MessageError as error:
        raise JournalError(f"journal record: {error}") from None
    if not isinstance(record, Record):
        raise JournalError(f"a {type(record).__name__} is no journal record")
    return record
