"""The interface between a validator and its driver: events in, effects out.

``Node.handle(event)`` returns effects, in the order in which they must be performed. The driver returns each answer as
an event. The simulator and the live hosts perform the same effects; neither has any other access to a validator.

Work for the executor (:class:`validator.node.executor.executor.Executor`) is an effect too: ``Run(job)`` is answered by
``Completed(result)``, jobs run one at a time and in order. So votes are exchanged while a block executes, and a slow
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
    """The name of a timer. If a timer with this name runs, starting it again restarts it."""

    owner: str
    """The timer's purpose: ``leader``, ``advance``, ``rebroadcast``, ``allowance`` (consensus), ``sync``, ``propose``
    (node) or ``join`` (joining)."""
    number: int = 0
    """The view, for consensus timers except the allowance timer; else 0."""


# --- events ---------------------------------------------------------------------------------------------------------


class Started(msgspec.Struct, frozen=True):
    """The first event a node gets, after recovery from its disk."""


class Message(msgspec.Struct, frozen=True):
    """Bytes from a peer that proved its key when it connected."""

    sender: int
    payload: bytes
    content: Reading | None = None
    """The payload as read by :func:`validator.chain.messages.read_message`; ``None`` if the driver did not read it."""


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
    """Send a message's bytes to one peer, or to all peers if ``recipient`` is ``None``."""

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

    A driver may sync several appends at once and answer with only the highest token.
    """

    token: int
    data: bytes


class ReplaceJournal(msgspec.Struct, frozen=True):
    """Atomically replace the journal's content, including all appends emitted before. There is no answer."""

    data: bytes


class SubmitResult(msgspec.Struct, frozen=True):
    """The result of one submitted transaction: ``error`` and ``reason`` are ``None`` if the mempool took it."""

    transaction_hash: Hash
    error: str | None
    """Error as one line for people."""
    reason: str | None = None
    """Reason, one of the fixed words of :class:`validator.node.mempool.Refusal`."""


class Reply(msgspec.Struct, frozen=True):
    request: int
    results: tuple[SubmitResult, ...]


class TransactionRefused(msgspec.Struct, frozen=True):
    """For observers: the mempool refused a transaction, for a :class:`validator.node.mempool.Refusal`."""

    transaction_hash: Hash
    reason: str
    peer: int | None
    """The peer that gossiped the transaction; ``None`` if a client submitted it."""


class TransactionDropped(msgspec.Struct, frozen=True):
    """For observers: a transaction that the mempool had accepted, from a client or a peer, left it without becoming
    final, for a :class:`validator.node.mempool.Departure`."""

    transaction_hash: Hash
    reason: str


class Certified(msgspec.Struct, frozen=True):
    """For observers: this validator knows a certificate."""

    certificate: AnyCertificate


class BlockFinal(msgspec.Struct, frozen=True):
    """For observers: this validator has made a block final, executed and committed it."""

    height: Height
    view: int
    digest: Hash
    state_root: Hash
    transactions: int
    fires: int
    destroyed: int
    pending_timers: int
    backlog: int
    """Number of live timers that are due."""
    basefee_cycle: int
    basefee_lane_timer: int
    lane_cycles: int
    reorg_depth: int = 0
    """Number of executed blocks of another branch that this block displaced."""
    burned: Burned = NOTHING_BURNED


class Joined(msgspec.Struct, frozen=True):
    """A snapshot was fetched completely; the data folder can be opened now."""

    height: Height


class Diverged(msgspec.Struct, frozen=True):
    """This validator's execution of a final block does not match the header. It stops participating.

    ``receipts`` are those of its execution, encoded, as evidence (empty if execution failed).
    """

    height: Height
    digest: Hash
    reason: str
    expected_root: Hash
    computed_root: Hash
    receipts: bytes
    trace: bytes = b""
    """The execution step by step: an encoded :class:`validator.transition.trace.BlockTrace`."""


class EvidenceFound(msgspec.Struct, frozen=True):
    """Proof of a validator's misbehaviour, encoded: two votes, or a vote for an invalid block."""

    kind: str
    culprit: int
    data: bytes


class PeerFault(msgspec.Struct, frozen=True):
    """A message that no honest peer sends was dropped; ``reason`` is a fixed word for counters."""

    peer: int
    reason: str


class Dropped(msgspec.Struct, frozen=True):
    """A message that honest peers send too was dropped: late, repeated, far ahead, or above a limit."""

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
