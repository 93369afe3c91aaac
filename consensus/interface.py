"""The interface between a consensus engine and its driver.

An engine is a pure function of its inputs: ``handle(event)`` returns a list of effects, in the order in which they must
be performed. Slow operations are effects with an answer:

=====================  ======================================  ===========================================
effect                 answer                                  meaning
=====================  ======================================  ===========================================
:class:`Propose`       :class:`BlockProposed`                  build a block on the given parent
:class:`Verify`        :class:`BlockVerified`                  execute a block against its header
:class:`Persist`       :class:`Durable`                        make journal records durable (one fsync)
:class:`StartTimer`    :class:`TimerExpired`                   wake the engine after a delay
=====================  ======================================  ===========================================

An answer may be late or may never come; the engine's timeouts cover that. (:class:`Propose` has no answer if there is
nothing to build on.) The driver keeps block bodies and fetches missing ones; the engine keeps only digests, and passes
on the body that a proposal carries.

On the network, messages are bytes made by :func:`consensus.messages.encode`. Inside, messages, events and effects are
frozen structs: they are created by the million, and a struct takes a third of a dataclass's time.
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
    """The purpose of a consensus timer."""

    LEADER = "leader"
    """Limits the wait for the leader's proposal for the view."""
    ADVANCE = "advance"
    """Limits the wait for a certificate that ends the view."""
    REBROADCAST = "rebroadcast"
    """Expires every ``rebroadcast_ms`` until the view ends. Messages that may be lost are then repeated."""
    ALLOWANCE = "allowance"
    """Expires every ``rebroadcast_ms``, whatever the view, and refills the peers' allowances. Its view is 0."""


# --- events ---------------------------------------------------------------------------------------------------------


class Start(msgspec.Struct, frozen=True):
    """The first event: the engine begins. Its constructor has replayed the journal before."""


class Received(msgspec.Struct, frozen=True):
    """A decoded message from an authenticated peer; ``sender`` is the peer, not the signer."""

    sender: ValidatorIndex
    message: Message
    is_checked: bool = False
    """Whether the message is known to be well-formed, as each is that :func:`consensus.messages.decode` returned."""


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
    """The answer to :class:`Verify`: whether the block is valid."""

    view: View
    digest: Digest
    valid: bool


class Durable(msgspec.Struct, frozen=True):
    """The answer to :class:`Persist`: everything up to and including ``token`` is on disk."""

    token: Token


Event = Start | Received | TimerExpired | BlockProposed | BlockVerified | Durable


# --- effects --------------------------------------------------------------------------------------------------------


class Broadcast(msgspec.Struct, frozen=True):
    """Send a message to every other validator. The sender does not get it: the engine counts its own votes itself."""

    message: Message


class SendTo(msgspec.Struct, frozen=True):
    recipient: ValidatorIndex
    message: Message


class StartTimer(msgspec.Struct, frozen=True):
    """Start, or restart, the timer ``(kind, view)``.

    Timers of earlier views need not be cancelled: they are ignored, except for the allowance timer.
    """

    kind: TimerKind
    view: View
    delay_ms: int


class Propose(msgspec.Struct, frozen=True):
    """Build a block for ``view`` on ``parent``; answered by :class:`BlockProposed`."""

    view: View
    parent: Parent


class Verify(msgspec.Struct, frozen=True):
    """Check that ``body`` has ``digest``, names ``view`` and ``parent``, and executes to its header.

    ``vote`` is the leader's vote, with a valid signature: the leader is accountable for the block.
    """

    view: View
    parent: Parent
    digest: Digest
    body: bytes
    vote: Vote

    @property
    def proposer(self) -> ValidatorIndex:
        """The leader that proposed the block: the signer of ``vote``."""
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
    """A nullification (in HotStuff, a timeout certificate) is known: a quorum gave its view up."""

    certificate: AnyCertificate


class Finalized(msgspec.Struct, frozen=True):
    """``certificate.digest`` and all its ancestors are final. Emitted once per certificate, in order of views."""

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

FAULT_REASONS: Final = (
    MALFORMED,
    OVERSIZED,
    UNKNOWN_SIGNER,
    NOT_THE_SIGNER,
    NOT_THE_LEADER,
    NOT_A_MEMBER,
    OWN_KEY,
    BAD_SIGNATURE,
    BAD_CERTIFICATE,
    CONFLICT,
    FOREIGN,
)
"""Reasons for which only messages that no honest peer sends are dropped."""

HARMLESS_REASONS: Final = (DUPLICATE, STALE, FUTURE, UNPROVED, FLOOD)
"""Reasons for which messages of honest peers are dropped too: messages are lost, repeated or late, and a peer that is
far behind sends many requests. No peer should be scored for them."""


# --- configuration --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VotingConfig:
    """Timeouts and bounds of one engine. Validators may differ in them."""

    leader_timeout_ms: int = 2_000
    """Longest wait for the leader's proposal after a view was entered. It has to cover two message delays and the time
    to build and execute a block."""
    advance_timeout_ms: int = 3_000
    """Longest wait for a certificate that ends the view after the view was entered."""
    rebroadcast_ms: int = 500
    view_window: int = 16
    """Number of views ahead of the current one for which votes are kept."""
    proposal_window: int = 4
    """Number of views ahead of the current one for which a proposal, with its body, is kept."""
    retained_views: int = 64
    """Certificates are kept for this many views behind the newest final one; votes for this many behind the current
    one."""
    evidence_views: int = 8
    """Number of views behind the newest final one whose votes are kept to find contradictions."""
    final_views: int = 16
    """Number of finalizations after which lengthened timeouts are halved. Halving them too early costs the failed views
    that it takes to double them again."""
    distrusted_views: int = 64
    """Number of views for which a peer's certificates are ignored after it sent an invalid one."""
    max_body_bytes: int = 1024 * 1024
    skip_views: int = 0
    """Simplex only: number of views without a vote of a leader after which the views that it leads are nullified at
    once. 0 disables this."""

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
