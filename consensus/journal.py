"""The vote journal: the records with which a validator restarts without voting twice.

A record is one version byte followed by the encoding (:mod:`consensus.messages`) of

- a **vote** of this validator, written before the vote is sent. Its own proposal is journaled as the notarize vote that
  it carries: that names the view and the digest, and the body is stored with the blocks;
- a **certificate** that it knows (in HotStuff, timeout certificates too);
- its **pace**: the factor of its timeouts (:mod:`consensus.pacing`) from this event on. It is never sent. Without it a
  validator that restarts in a slow network would give up view after view while the others wait.

The order of the records carries meaning: a certificate precedes the votes of the views that it opened. Framing,
checksums and files belong to the driver, which performs :class:`~consensus.interface.Persist`. The journal is trusted:
the signatures of its certificates are not verified again.

:class:`VoteJournal` writes, and keeps the validator's own votes. :func:`recover` reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

import msgspec

from consensus.certificates import CertificateStore
from consensus.interface import Parent, Persist
from consensus.messages import (
    MAX_VALIDATORS,
    SIGNATURE_BYTES,
    AnyCertificate,
    Certificate,
    Message,
    MessageError,
    TimeoutCertificate,
    Vote,
    VoteKind,
    decode,
)
from consensus.pacing import MAX_FACTOR
from consensus.types import ConsensusError, Token, View

JOURNAL_VERSION: Final = 2
MAX_RECORD_BYTES: Final = 1024 + 2 * MAX_VALIDATORS * (SIGNATURE_BYTES + 16)
"""Upper bound of a record's size: a timeout certificate of the largest validator set, and the certificate in it."""


class Pace(msgspec.Struct, frozen=True, array_like=True, tag=32, forbid_unknown_fields=True):
    """A journal record of the factor by which the validator's timeouts are multiplied."""

    factor: Annotated[int, msgspec.Meta(ge=1, le=MAX_FACTOR)]


Record = Vote | Certificate | TimeoutCertificate | Pace

_VERSION: Final = bytes((JOURNAL_VERSION,))
_ENCODER: Final = msgspec.msgpack.Encoder()
_PACE_DECODER: Final = msgspec.msgpack.Decoder(Pace)
_PACES: Final = {_ENCODER.encode(Pace(factor)) for factor in range(1, MAX_FACTOR + 1)}


class JournalError(ConsensusError):
    """A journal that this validator cannot have written."""


def encode_record(record: Record) -> bytes:
    """The bytes of one record, whose fields must fit together."""
    return _VERSION + _ENCODER.encode(record)


def decode_record(encoded: bytes) -> Record:
    """Decode a record. Raises :class:`JournalError` for bytes that :func:`encode_record` does not make."""
    if not 1 < len(encoded) <= MAX_RECORD_BYTES:
        raise JournalError(f"journal record of {len(encoded)} bytes")
    if encoded[0] != JOURNAL_VERSION:
        raise JournalError(f"journal record of version {encoded[0]}, this program reads version {JOURNAL_VERSION}")
    if encoded[1:] in _PACES:
        return _PACE_DECODER.decode(encoded[1:])
    try:
        record = decode(encoded[1:])
    except MessageError as error:
        raise JournalError(f"journal record: {error}") from None
    if not isinstance(record, Record):
        raise JournalError(f"a {type(record).__name__} is no journal record")
    return record


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A vote of this validator that is being written to disk, and the message with which it is sent once durable."""

    token: Token
    vote: Vote
    message: Message


class VoteJournal:
    """The writer of the journal: keeps our votes, and the records not durable yet. Only durable votes are sent."""

    def __init__(self) -> None:
        self.own: dict[View, dict[VoteKind, Vote]] = {}
        """Our votes in the views above the newest final one, by view and kind."""
        self.unsynced: list[Outgoing] = []
        self.records: list[bytes] = []
        """Encoded records of the event that is being handled, until :meth:`flush`."""
        self.factor = 1
        """The newest factor of the timeouts in the journal."""
        self._body: bytes | None = None
        self._token = Token(0)

    def append(self, certificate: AnyCertificate) -> None:
        """Record a certificate."""
        self.records.append(encode_record(certificate))

    def pace(self, factor: int) -> None:
        """Record the factor of our timeouts if it has changed."""
        if factor != self.factor:
            self.factor = factor
            self.records.append(encode_record(Pace(factor)))

    def cast(self, own: dict[VoteKind, Vote], vote: Vote, message: Message, body: bytes | None = None) -> None:
        """Record our vote, and add it to ``own``, our votes of its view.

        ``message``, which carries the vote, is sent when the vote is durable. ``body`` becomes durable with it.
        """
        own[vote.kind] = vote
        self.own[vote.view] = own
        self.records.append(encode_record(vote))
        if body is not None:
            self._body = body
        self.unsynced.append(Outgoing(self._token, vote, message))

    def flush(self) -> Persist | None:
        """The effect that makes the records since the last flush durable; ``None`` if there are none."""
        if not self.records:
            return None
        persist = Persist(self._token, tuple(self.records), self._body)
        self._token = Token(self._token + 1)
        self.records, self._body = [], None
        return persist

    def cast_with(self, token: Token) -> list[Vote]:
        """The votes that become durable with ``token``."""
        return [outgoing.vote for outgoing in self.unsynced if outgoing.token == token]

    def synced(self, token: Token) -> list[Outgoing]:
        """Remove and return the votes that are durable with ``token``."""
        synced = [outgoing for outgoing in self.unsynced if outgoing.token <= token]
        self.unsynced = [outgoing for outgoing in self.unsynced if outgoing.token > token]
        return synced

    def prune(self, final_view: View) -> None:
        """Forget our votes in final views, where no rule casts votes any more."""
        for view in [view for view in self.own if view <= final_view]:
            del self.own[view]

    def snapshot(self, certificates: CertificateStore) -> tuple[bytes, ...]:
        """The records that replace the whole journal: the newest finalization, the pace, then those of each later view.

        The order within a view: our votes that need no certificate, the certificates, then our finalize vote, which is
        based on the notarization.
        """
        finalization = certificates.newest_finalization()
        records: list[Record] = [] if finalization is None else [finalization]
        records += [Pace(self.factor)] if self.factor > 1 else []
        for view in range(certificates.final.view + 1, certificates.view + 1):
            own = self.own.get(View(view), {})
            votes = [own[kind] for kind in VoteKind if kind in own]
            records += [vote for vote in votes if vote.kind != VoteKind.FINALIZE]
            records += certificates.of_view(View(view))
            records += [vote for vote in votes if vote.kind == VoteKind.FINALIZE]
        return tuple(encode_record(record) for record in records)


class Recovered(NamedTuple):
    """The records of a journal other than certificates."""

    votes: list[Vote]
    """Own votes in the order of the journal."""
    factor: int
    """The newest factor of the timeouts; 1 if none was recorded."""


def recover(journal: Iterable[bytes], certificates: CertificateStore) -> Recovered:
    """Load a journal's certificates into the given store, and return the journal's votes and factor.

    The store's current view and newest final block follow from the certificates. Raises :class:`JournalError`.
    """
    votes: list[Vote] = []
    factor = 1
    root = certificates.root
    newest = root.view
    for encoded in journal:
        record = decode_record(encoded)
        if isinstance(record, Vote):
            votes.append(record)
        elif isinstance(record, Pace):
            factor = record.factor
        elif record.kind not in certificates.kinds:
            raise JournalError(f"the journal holds a certificate of {record.kind.name}, which this protocol has not")
        elif record.view > root.view or _finalizes(record, root):
            certificates.add(record)
            newest = max(newest, record.view)
    if certificates.finalizations:
        final = certificates.finalizations[max(certificates.finalizations)]
        certificates.final = Parent(final.view, final.digest)
    certificates.view = View(newest + 1)
    return Recovered(votes, factor)


def _finalizes(certificate: AnyCertificate, root: Parent) -> bool:
    """Whether the certificate finalizes the root. It opened our first view, and peers may need it to catch up."""
    return (
        isinstance(certificate, Certificate)
        and certificate.kind == VoteKind.FINALIZE
        and (certificate.view, certificate.digest) == (root.view, root.digest)
    )
