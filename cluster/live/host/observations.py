"""Notes on what one validator did and saw, for the driver. Times are milliseconds since the epoch."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar
from zlib import crc32

from cluster.audit.safety.certificates import is_certified
from cluster.audit.safety.certified_chain import Claim, claim_of
from cluster.common.units import MICROSECONDS_PER_SECOND, MILLISECONDS_PER_SECOND
from cluster.live.host.metrics import TIMED_JOBS, Timings
from cluster.live.host.threads import Done
from cluster.live.processes.steady_clock import CLOCK
from cluster.record.message_trace import HEAD_BYTES, RING_MESSAGES, Stamp
from cluster.record.run import WARM_UP, Work
from consensus.keys import ValidatorSet
from consensus.messages import AnyCertificate, Vote, VoteKind
from consensus.types import GENESIS_VIEW, View
from validator.chain.transactions import transaction_hash
from validator.node.events import BlockFinal
from validator.node.executor.jobs import Build, Execute, Job

MAX_OBSERVATIONS: Final = 100_000
"""Limit of notes that wait for the driver; the oldest are dropped first."""
MAX_REMEMBERED: Final = 4_096
"""Number of certificates, and of statements, that are remembered; the oldest are forgotten first. It is enough for the
last views of a hundred validators.
"""
MAX_VOTES_REMEMBERED: Final = 256
"""Number of sent votes that are remembered, to recognize repetitions while a view is not decided."""
MAX_TAKEN: Final = 8_192
"""Limit of transactions taken from clients that wait for the driver; the oldest are dropped first."""
MARKED_BYTES: Final = 256
"""The checksum of this many bytes, and the length, identify a message well enough for a diagram."""


MAX_WORK: Final = 1_024
"""Limit of pieces of work that wait for the driver; the oldest are dropped first."""
NOT_TOLD: Final = View(-1)
"""Parent view of a vote from a host whose code reports only view and kind."""


T = TypeVar("T")


class FirstSeen(NamedTuple):
    """A validator began to build or to execute its first block of a height."""

    height: int
    at_ms: float


class FinalSeen(NamedTuple):
    """A validator made a block final."""

    at_ms: float
    block: BlockFinal


class HeightSeen(NamedTuple):
    """The final height on an external validator's status page. Several notes may have the same one."""

    at_ms: float
    height: int


class ViewSeen(NamedTuple):
    """A validator entered a view of consensus."""

    at_ms: float
    view: int


class VoteSent(NamedTuple):
    """A validator sent a vote that it had not sent recently. The validator itself is the vote's signer."""

    view: View
    kind: VoteKind
    parent_view: View = NOT_TOLD
    digest: bytes = b""
    at_ms: float = 0.0
    """When it was sent; 0 from a host whose code does not report that."""


class Taken(NamedTuple):
    """A validator took a transaction from a client."""

    at_ms: float
    transaction_hash: bytes


class CertificateSeen(NamedTuple):
    """A validator accepts a certificate (:class:`CertificateTap`)."""

    certificate: AnyCertificate
    looks_good: bool
    """Whether the signatures are valid by the host's own check."""


class NotesLost(NamedTuple):
    """The oldest notes, of views up to ``view``, were dropped because too many waited."""

    view: int


Observation = FirstSeen | FinalSeen | HeightSeen | ViewSeen | VoteSent | CertificateSeen | NotesLost


def view_of(seen: Observation) -> int:
    """The view of a note; 0 if it is about a block."""
    match seen:
        case ViewSeen() | VoteSent() | NotesLost():
            return seen.view
        case CertificateSeen():
            return seen.certificate.view
    return 0


class Observations:
    """The notes on one validator that the driver has not taken yet."""

    def __init__(self) -> None:
        self.timings = Timings(time.monotonic)
        self._notes: deque[Observation] = deque()
        self._lost: NotesLost | None = None
        """Highest view of the notes that were dropped since the last call of :meth:`drain`."""
        self._stamps: deque[Stamp] = deque(maxlen=RING_MESSAGES)
        self._takes: deque[Taken] | None = None
        """The transactions that were taken since the driver last asked; ``None`` if it never did."""
        self._work: deque[Work] = deque(maxlen=MAX_WORK)
        self._has_block = self._has_fired = False
        """Whether the validator has built or executed a block, or one in which timers fire, since it started."""
        self._votes: dict[VoteSent, None] = {}
        """The votes that were noted last."""
        self._view = 0
        self._highest = 0
        self._build_began_ms: dict[int, float] = {}
        """Start times of builds, keyed by view."""

    def recovered(self, height: int) -> None:
        """Note that the validator recovered up to this height: these blocks are never noted as first seen."""
        self._highest = height
        self._has_block = self._has_fired = height > 0

    def entered(self, view: int) -> None:
        """Note a view, unless it is unchanged."""
        if view != self._view:
            self._view = view
            self._note(ViewSeen(CLOCK.epoch_ms(), view))

    def began_build(self, view: int) -> None:
        self._build_began_ms[view] = CLOCK.epoch_ms()

    def built(self, view: int, height: int) -> None:
        self.timings.seen(height)
        began_ms = self._build_began_ms.pop(view, None)  # none left for a second block of the view
        if began_ms is not None:
            self._saw(height, began_ms)

    def began_execution(self, height: int) -> None:
        self.timings.seen(height)
        self._saw(height, CLOCK.epoch_ms())

    def finalized(self, block: BlockFinal) -> None:
        self.timings.final(block.height)
        self._note(FinalSeen(CLOCK.epoch_ms(), block))

    def voted(self, vote: Vote) -> None:
        """Note a vote that is sent, unless it is repeated."""
        said = VoteSent(vote.view, vote.kind, vote.parent_view, vote.digest)
        if said not in self._votes:
            self._votes[said] = None
            if len(self._votes) > MAX_VOTES_REMEMBERED:
                del self._votes[next(iter(self._votes))]
            self._note(said._replace(at_ms=CLOCK.epoch_ms()))

    def took(self, transactions: Iterable[bytes]) -> None:
        """Note transactions that the validator took from a client, if the driver asked for that."""
        if self._takes is not None:
            at_ms = CLOCK.epoch_ms()
            self._takes.extend(Taken(at_ms, transaction_hash(wire)) for wire in transactions)

    def drain_taken(self) -> list[Taken]:
        """The last :data:`MAX_TAKEN` transactions taken since the last call; none at the first one."""
        taken = list(self._takes or ())
        self._takes = deque(maxlen=MAX_TAKEN)
        return taken

    def certified(self, seen: CertificateSeen) -> None:
        self._note(seen)

    def stamp(self, is_sent: bool, peer: int | None, payload: bytes) -> None:
        """Note a message that was sent or received."""
        mark = crc32(payload[:MARKED_BYTES])
        self._stamps.append(Stamp(CLOCK.epoch_ms(), is_sent, peer, payload[:HEAD_BYTES], len(payload), mark))

    def worked(self, job: Job, done: Done) -> None:
        """Note a job of the executor that ended."""
        self.timings.done(job, done)
        if (kind := TIMED_JOBS.get(type(job))) is not None:
            kind = WARM_UP if self._is_warm_up(job, done) else kind
            ended_ms = CLOCK.epoch_ms() - (time.monotonic() - done.ended_s) * MILLISECONDS_PER_SECOND
            wall_us, core_us = _in_us(done.seconds), _in_us(done.core_seconds)
            self._work.append(Work(kind, *done.block_sizes, wall_us, core_us, ended_ms))

    def _is_warm_up(self, job: Job, done: Done) -> bool:
        """Whether a job is the first that builds or executes a block, or the first with one in which timers fire."""
        if not isinstance(job, Build | Execute) or self._has_fired:
            return False
        is_first, self._has_fired = not self._has_block, done.block_sizes[1] > 0
        self._has_block = True
        return is_first or self._has_fired

    def spent(self, kind: str, seconds: float) -> None:
        """Note work that is no job."""
        self._work.append(Work(kind, 0, 0, _in_us(seconds)))

    def drain(self) -> list[Observation]:
        """The notes since the last call."""
        lost, self._lost = self._lost, None
        return [*filter(None, [lost]), *_drained(self._notes)]

    def drain_stamps(self) -> list[Stamp]:
        """The last :data:`~cluster.record.message_trace.RING_MESSAGES` messages since the last call."""
        return _drained(self._stamps)

    def drain_work(self) -> list[Work]:
        """The last :data:`MAX_WORK` pieces of work since the last call."""
        return _drained(self._work)

    def _note(self, seen: Observation) -> None:
        if len(self._notes) >= MAX_OBSERVATIONS:
            dropped = view_of(self._notes.popleft())
            self._lost = NotesLost(dropped if self._lost is None else max(dropped, self._lost.view))
        self._notes.append(seen)

    def _saw(self, height: int, at_ms: float) -> None:
        if height > self._highest:
            self._highest = height
            self._note(FirstSeen(height, at_ms))


class CertificateTap:
    """Selects which certificates, accepted by the validators of one host, are reported to the driver.

    Among 64 validators the same statement of a view is in dozens of certificates. The host checks the signatures of
    each; most are cached from its validators' own checks. It reports the first certificate of each statement, and each
    that does not look good. The driver judges (:mod:`cluster.watches.live.safety_watch`).
    """

    def __init__(self) -> None:
        self._seen: dict[AnyCertificate, None] = {}
        self._claims: dict[Claim, None] = {}
        self._newest_finalized: int = GENESIS_VIEW

    def take(self, certificate: AnyCertificate, validators: ValidatorSet, namespace: bytes) -> CertificateSeen | None:
        """Take a certificate that a validator accepts. Returns the report for the driver, if any."""
        if certificate in self._seen:
            return None
        _remember(self._seen, certificate)
        claim = claim_of(certificate)
        is_new = claim not in self._claims
        _remember(self._claims, claim)
        looks_good = is_certified(certificate, validators, namespace, self._newest_finalized)
        if certificate.kind == VoteKind.FINALIZE:
            self._newest_finalized = max(self._newest_finalized, certificate.view)
        return CertificateSeen(certificate, looks_good) if is_new or not looks_good else None


def _remember(kept: dict[T, None], item: T) -> None:
    kept[item] = None
    if len(kept) > MAX_REMEMBERED:
        del kept[next(iter(kept))]


def _drained(waiting: deque[T]) -> list[T]:
    found = list(waiting)
    waiting.clear()
    return found


def _in_us(seconds: float) -> int:
    return round(seconds * MICROSECONDS_PER_SECOND)
