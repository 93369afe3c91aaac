"""The border between a consensus engine and whoever drives it.

An engine is a pure function of its inputs: ``handle(event)`` returns a list of effects, in the order in which they
must be performed. Slow things are effects with an answer:

=====================  ======================================  ===========================================
effect                 answer                                  meaning
=====================  ======================================  ===========================================
:class:`Propose`       :class:`BlockProposed`                  build a block on the given parent
:class:`Verify`        :class:`BlockVerified`                  execute a block against its header
:class:`Persist`       :class:`Durable`                        make journal records durable (one fsync)
:class:`StartTimer`    :class:`TimerExpired`                   wake the engine after a delay
=====================  ======================================  ===========================================

An answer may be late or may never come (no answer to :class:`Propose` means that there is nothing to build on); the
engine's timeouts cover that. The driver of the engine keeps block bodies and fetches missing ones; the engine only
keeps digests, and passes on the body that a proposal carries.

Messages cross the network as bytes made by :func:`consensus.messages.encode`; inside they are frozen structs, and so
are events and effects: they are made by the million, a struct in a third of a dataclass's time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from consensus.messages import MAX_BODY_BYTES, AnyCertificate, Certificate, Evidence, Message, Vote
from consensus.types import ConsensusError, Digest, Token, ValidatorIndex, View


class Parent(msgspec.Struct, frozen=True):
    """The block that a proposal builds on, with the view in which it was notarized."""

    view: View
    digest: Digest


class TimerKind(Enum):
    """The event whose absence a consensus timer notices."""

    LEADER = "leader"
    """The leader's proposal for the view."""
    ADVANCE = "advance"
    """A certificate that ends the view."""
    REBROADCAST = "rebroadcast"
    """The end of the view; until then our messages are repeated."""
    ALLOWANCE = "allowance"
    """Nothing: it ticks every ``rebroadcast_ms`` whatever the views do, and is always of view 0. With each tick peers
    may be answered anew."""


# --- events ---------------------------------------------------------------------------------------------------------


class Start(msgspec.Struct, frozen=True):
    """Begin, after the journal was replayed into the engine's constructor."""


class Received(msgspec.Struct, frozen=True):
    """A decoded message from a peer that proved its key; ``sender`` is the peer, not the signer."""

    sender: ValidatorIndex
    message: Message


class TimerExpired(msgspec.Struct, frozen=True):
    kind: TimerKind
    view: View


class BlockProposed(msgspec.Struct, frozen=True):
    """The answer to :class:`Propose`: a block that executes on the parent named there."""

    view: View
    parent: Parent
    digest: Digest
    body: bytes


class BlockVerified(msgspec.Struct, frozen=True):
    """The answer to :class:`Verify`."""

    view: View
    digest: Digest
    valid: bool


class Durable(msgspec.Struct, frozen=True):
    """The answer to :class:`Persist`: everything up to and including ``token`` is on disk."""

    token: Token


Event = Start | Received | TimerExpired | BlockProposed | BlockVerified | Durable


# --- effects --------------------------------------------------------------------------------------------------------


class Broadcast(msgspec.Struct, frozen=True):
    """Send to every other validator. The engine counts its own votes itself."""

    message: Message


class SendTo(msgspec.Struct, frozen=True):
    recipient: ValidatorIndex
    message: Message


class StartTimer(msgspec.Struct, frozen=True):
    """Start, or restart, the timer ``(kind, view)``. Timers of earlier views need no cancelling: they are ignored, but
    for that of the allowance."""

    kind: TimerKind
    view: View
    delay_ms: int


class Propose(msgspec.Struct, frozen=True):
    """Build a block for ``view`` on ``parent``; answered by :class:`BlockProposed`."""

    view: View
    parent: Parent


class Verify(msgspec.Struct, frozen=True):
    """Check that ``body`` has ``digest``, names ``view`` and ``parent``, and executes to its header.

    ``vote`` is the leader's, with a good signature: it answers for the block.
    """

    view: View
    parent: Parent
    digest: Digest
    body: bytes
    vote: Vote

    @property
    def proposer(self) -> ValidatorIndex:
        """The leader."""
        return self.vote.signer


class Persist(msgspec.Struct, frozen=True):
    """Append these journal records, in order, and make them durable; answered by :class:`Durable`.

    ``body`` is a block body that must be durable together with the records (or ``None``).
    """

    token: Token
    records: tuple[bytes, ...]
    body: bytes | None = None


class Notarized(msgspec.Struct, frozen=True):
    """A notarization certificate is known; ``digest`` may be built upon."""

    certificate: Certificate


class Nullified(msgspec.Struct, frozen=True):
    """A nullification (in HotStuff, a timeout certificate) is known for its view: it was given up by a quorum."""

    certificate: AnyCertificate


class Finalized(msgspec.Struct, frozen=True):
    """``certificate.digest`` and all its ancestors are final. Emitted once per certificate, views ascending."""

    certificate: Certificate


class ViewEntered(msgspec.Struct, frozen=True):
    view: View
    leader: ValidatorIndex


class Report(msgspec.Struct, frozen=True):
    """Proof of misbehaviour that a third party can verify."""

    evidence: Evidence


class Rejected(msgspec.Struct, frozen=True):
    """A message was dropped; ``reason`` is a short fixed word for counters, and ``sender`` may be scored for it."""

    sender: ValidatorIndex
    reason: str


Effect = (
    Broadcast
    | SendTo
    | StartTimer
    | Propose
    | Verify
    | Persist
    | Notarized
    | Nullified
    | Finalized
    | ViewEntered
    | Report
    | Rejected
)


# --- reasons of Rejected: why a message was dropped -------------------------------------------------------------------

MALFORMED: Final = "malformed"
OVERSIZED: Final = "oversized"
UNKNOWN_SIGNER: Final = "unknown_signer"
NOT_THE_SIGNER: Final = "not_the_signer"
NOT_THE_LEADER: Final = "not_the_leader"
NOT_A_MEMBER: Final = "not_a_member"
OWN_KEY: Final = "own_key"
BAD_SIGNATURE: Final = "bad_signature"
BAD_CERTIFICATE: Final = "bad_certificate"
CONFLICT: Final = "conflict"
FOREIGN: Final = "foreign"
UNPROVED: Final = "unproved"
FUTURE: Final = "future"
FLOOD: Final = "flood"
DUPLICATE: Final = "duplicate"
STALE: Final = "stale"

HARMLESS_REASONS: Final = (DUPLICATE, STALE, FUTURE, UNPROVED, FLOOD)
"""Reasons that lost, repeated and late messages of honest peers also cause, and requests of one that is far behind; no
peer should be scored for them.
"""


# --- configuration --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VotingConfig:
    """Timeouts and bounds of one engine. Validators may differ in them."""

    leader_timeout_ms: int = 2_000
    """From entering a view to its leader's proposal: two message delays and the time to build and execute a block."""
    advance_timeout_ms: int = 3_000
    """From entering a view to its certificate."""
    rebroadcast_ms: int = 500
    view_window: int = 16
    """Views ahead of the current one for which votes are kept."""
    proposal_window: int = 4
    """Views ahead of the current one for which a proposal, with its body, is kept."""
    retained_views: int = 64
    """Views behind the newest final one whose certificates are kept; views behind the current one whose votes are."""
    evidence_views: int = 8
    """Views behind the newest final one whose votes are kept, to find contradictions."""
    final_views: int = 16
    """Finalizations after which longer timeouts shrink: a step too early costs as many views as it takes to grow."""
    distrusted_views: int = 64
    """Views after a certificate that does not hold in which no other of that peer is looked at."""
    max_body_bytes: int = 1024 * 1024
    skip_views: int = 0
    """Simplex: views without a sign of a leader after which its views are nullified at once; 0: never."""

    def __post_init__(self) -> None:
        times = ("leader_timeout_ms", "advance_timeout_ms", "rebroadcast_ms")
        for name in (*times, "view_window", "retained_views", "final_views", "max_body_bytes"):
            if getattr(self, name) < 1:
                raise ConsensusError(f"{name} must be positive")
        for name in ("proposal_window", "evidence_views", "distrusted_views", "skip_views"):
            if getattr(self, name) < 0:
                raise ConsensusError(f"{name} must not be negative")
        if self.max_body_bytes > MAX_BODY_BYTES:
            raise ConsensusError(f"max_body_bytes must not exceed {MAX_BODY_BYTES}")
