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

Messages cross the network as bytes made by :func:`consensus.messages.encode`; inside they are frozen structs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from consensus.types import Digest, Token, ValidatorIndex, View

if TYPE_CHECKING:
    from consensus.messages import AnyCertificate, Certificate, Evidence, Message


@dataclass(frozen=True, slots=True)
class Parent:
    """The block that a proposal builds on, with the view in which it was notarized."""

    view: View
    digest: Digest


class TimerKind(Enum):
    """What a consensus timer waits for."""

    LEADER = "leader"
    """The leader's proposal for the view."""
    ADVANCE = "advance"
    """A certificate that ends the view."""
    REBROADCAST = "rebroadcast"
    """The next repetition of what we last said, while the view does not end."""


# --- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Begin, after the journal was replayed into the engine's constructor."""


@dataclass(frozen=True, slots=True)
class Received:
    """A decoded message from a peer that proved its key; ``sender`` is the peer, not the signer."""

    sender: ValidatorIndex
    message: Message


@dataclass(frozen=True, slots=True)
class TimerExpired:
    kind: TimerKind
    view: View


@dataclass(frozen=True, slots=True)
class BlockProposed:
    """The answer to :class:`Propose`: a block that executes on the parent named there."""

    view: View
    parent: Parent
    digest: Digest
    body: bytes


@dataclass(frozen=True, slots=True)
class BlockVerified:
    """The answer to :class:`Verify`."""

    view: View
    digest: Digest
    valid: bool


@dataclass(frozen=True, slots=True)
class Durable:
    """The answer to :class:`Persist`: everything up to and including ``token`` is on disk."""

    token: Token


Event = Start | Received | TimerExpired | BlockProposed | BlockVerified | Durable


# --- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Send to every other validator. The engine counts its own votes itself."""

    message: Message


@dataclass(frozen=True, slots=True)
class SendTo:
    recipient: ValidatorIndex
    message: Message


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Start, or restart, the timer ``(kind, view)``. Timers of earlier views need no cancelling: they are ignored."""

    kind: TimerKind
    view: View
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Propose:
    """Build a block for ``view`` on ``parent``; answered by :class:`BlockProposed`."""

    view: View
    parent: Parent


@dataclass(frozen=True, slots=True)
class Verify:
    """Check that ``body`` has ``digest``, names ``view`` and ``parent``, and executes to its header."""

    view: View
    parent: Parent
    digest: Digest
    body: bytes
    proposer: ValidatorIndex


@dataclass(frozen=True, slots=True)
class Persist:
    """Append these journal records, in order, and make them durable; answered by :class:`Durable`.

    ``body`` is a block body that must be durable together with the records (or ``None``).
    """

    token: Token
    records: tuple[bytes, ...]
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Notarized:
    """A notarization certificate is known; ``digest`` may be built upon."""

    certificate: Certificate


@dataclass(frozen=True, slots=True)
class Nullified:
    """A nullification (in HotStuff, a timeout certificate) is known for its view: it was given up by a quorum."""

    certificate: AnyCertificate


@dataclass(frozen=True, slots=True)
class Finalized:
    """``certificate.digest`` and all its ancestors are final. Emitted once per certificate, views ascending."""

    certificate: Certificate


@dataclass(frozen=True, slots=True)
class ViewEntered:
    view: View
    leader: ValidatorIndex


@dataclass(frozen=True, slots=True)
class Report:
    """Proof of misbehaviour that a third party can verify."""

    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Rejected:
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


class Engine(Protocol):
    """What Simplex and HotStuff have in common."""

    @property
    def view(self) -> View:
        """The current view."""

    @property
    def final_view(self) -> View:
        """The newest view that a finalization is known for."""

    def handle(self, event: Event) -> Sequence[Effect]:
        """Take one event; return the effects that follow, in order."""

    @property
    def final(self) -> Parent:
        """The newest final block."""

    def certificate_for(self, view: View) -> AnyCertificate | None:
        """The finalization of ``view``, else its notarization, else what says that it was given up, while retained."""

    def journal_snapshot(self) -> tuple[bytes, ...]:
        """The records that replace the whole journal: what is still needed to restart and never vote twice."""
