"""The interface between a validator and its driver: events in, effects out.

``Node.handle(event)`` returns effects, in the order in which they must be performed. The driver gives each
answer back as an event. The simulator and the live hosts perform the same effects; neither can do anything else to a
validator.

Work for the executor (:class:`validator.node.executor.executor.Executor`) is an effect too: ``Run(job)`` is answered by
``Completed(result)``, jobs are run one at a time and in order. So votes flow while a block executes, and a slow
executor can be modelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from consensus.messages import AnyCertificate
from validator.chain.receipts import NOTHING_BURNED, Burned
from validator.primitives.types import Hash, Height

if TYPE_CHECKING:
    from validator.chain.messages import Reading
    from validator.node.executor.jobs import Job, JobResult


class TimerName(NamedTuple):
    """Names a wake-up; starting one that runs restarts it."""

    owner: str
    """``leader``, ``advance``, ``rebroadcast``, ``allowance`` (consensus), ``sync`` or ``propose`` (node)."""
    number: int = 0
    """The view, for consensus timers but that of the allowance."""


# --- events ---------------------------------------------------------------------------------------------------------


class Started(msgspec.Struct, frozen=True):
    """The first event a node gets, after recovery from its disk."""


class Message(msgspec.Struct, frozen=True):
    """Bytes from a peer that proved its key when it connected."""

    sender: int
    payload: bytes
    content: Reading | None = None
    """The payload as read by :func:`validator.chain.messages.read_message`, if the driver has read it already."""


class Timeout(msgspec.Struct, frozen=True):
    timer: TimerName


class Submit(msgspec.Struct, frozen=True):
    """Signed transactions from a client; answered by :class:`Reply` with the same request number."""

    request: int
    transactions: tuple[bytes, ...]


class Completed(msgspec.Struct, frozen=True):
    """The executor finished a job."""

    result: JobResult


class Synced(msgspec.Struct, frozen=True):
    """All journal appends up to and including ``token`` are durable."""

    token: int


Event = Started | Message | Timeout | Submit | Completed | Synced


# --- effects --------------------------------------------------------------------------------------------------------


class Send(msgspec.Struct, frozen=True):
    """Send to one peer, or to all of them if ``recipient`` is ``None``."""

    recipient: int | None
    payload: bytes


class SetTimer(msgspec.Struct, frozen=True):
    timer: TimerName
    delay_ms: int


class CancelTimer(msgspec.Struct, frozen=True):
    timer: TimerName


class Run(msgspec.Struct, frozen=True):
    """Give a job to the executor."""

    job: Job


class Append(msgspec.Struct, frozen=True):
    """Append bytes to the journal file and make them durable; answered by :class:`Synced`.

    A driver may put several appends under one sync and answer with the highest token only.
    """

    token: int
    data: bytes


class ReplaceJournal(msgspec.Struct, frozen=True):
    """Atomically replace the journal's content. Every append emitted before is covered; there is no answer."""

    data: bytes


class SubmitResult(msgspec.Struct, frozen=True):
    """The result of one submitted transaction: ``error`` and ``reason`` are ``None`` if the mempool took it."""

    transaction_hash: Hash
    error: str | None
    """One line for people."""
    reason: str | None = None
    """One of the stable words of :class:`validator.node.pool.mempool.Refusal`."""


class Reply(msgspec.Struct, frozen=True):
    request: int
    results: tuple[SubmitResult, ...]


class TransactionRefused(msgspec.Struct, frozen=True):
    """For observers: the mempool did not take a transaction, for a :class:`validator.node.pool.mempool.Refusal`."""

    transaction_hash: Hash
    reason: str
    peer: int | None
    """The peer that gossiped it; ``None`` of a client's."""


class TransactionDropped(msgspec.Struct, frozen=True):
    """For observers: a transaction that the mempool had taken, from a client or a peer, left it without becoming final,
    for a :class:`validator.node.pool.mempool.Departure`."""

    transaction_hash: Hash
    reason: str


class Certified(msgspec.Struct, frozen=True):
    """For observers: a certificate is known here."""

    certificate: AnyCertificate


class BlockFinal(msgspec.Struct, frozen=True):
    """For observers: a block is final, executed and committed here."""

    height: Height
    view: int
    digest: Hash
    state_root: Hash
    transactions: int
    fires: int
    destroyed: int
    pending_timers: int
    backlog: int
    """Live timers whose trigger height has passed."""
    basefee_cycle: int
    basefee_lane_timer: int
    lane_cycles: int
    reorg_depth: int = 0
    """Executed blocks of another branch that were given up for this one."""
    burned: Burned = NOTHING_BURNED


class Joined(msgspec.Struct, frozen=True):
    """A snapshot was taken in whole; the data folder can be opened now."""

    height: Height


class Diverged(msgspec.Struct, frozen=True):
    """This validator's own execution of a final block gave another result than the header. It stops taking part.

    ``receipts`` are those of its execution, encoded, as evidence (empty if execution failed).
    """

    height: Height
    digest: Hash
    reason: str
    expected_root: Hash
    computed_root: Hash
    receipts: bytes
    trace: bytes = b""
    """How it came to that, step by step: an encoded :class:`validator.transition.trace.BlockTrace`."""


class EvidenceFound(msgspec.Struct, frozen=True):
    """Proof of a validator's misbehaviour, encoded: two votes, or a vote for an invalid block."""

    kind: str
    culprit: int
    data: bytes


class PeerFault(msgspec.Struct, frozen=True):
    """A peer sent something that no honest peer sends, and it was dropped; ``reason`` is a fixed word for counters."""

    peer: int
    reason: str


class Dropped(msgspec.Struct, frozen=True):
    """A message that honest peers send too was dropped: late, repeated, far ahead, or too much at a time."""

    peer: int
    reason: str


Effect = (
    Send
    | SetTimer
    | CancelTimer
    | Run
    | Append
    | ReplaceJournal
    | Reply
    | TransactionRefused
    | TransactionDropped
    | Certified
    | BlockFinal
    | Diverged
    | Joined
    | EvidenceFound
    | PeerFault
    | Dropped
)
