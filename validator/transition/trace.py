"""One block's execution step by step, to find where two executions of it diverge.

A trace has the steps of SPEC §3 in their order: each transaction, fire, query of a bidding agent, callback and message
is a separate step, and so is any other change of the state between them. A step names the state keys it changed, with
the values before and after, and the receipts it left.

Rules: production code does not depend on traces and pays nothing for them. :func:`traced` derives from the given
transition and marks a step after each of its methods; a block is traced by executing it once more. So a trace shows a
*repeated* execution: if that gives another root than the first one, :attr:`BlockTrace.first_writes` holds all changes
of the first one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Final

import msgspec

from validator.chain.block import Event
from validator.chain.records import QueuedMessage, Timer, encode_record
from validator.execution.bidding import BidCandidate, BiddingRound
from validator.execution.jobs import Waiting
from validator.execution.timer_phase import Candidate, TimerPhase
from validator.primitives.codec import encode, tagged_hash
from validator.state.working_set import Change, World
from validator.transition.transition import BlockResult, PreparedTransaction, Transition

MAX_VALUE_BYTES: Final = 1_024
"""Size limit of a value in a trace; a longer one is replaced by its length and hash."""
MAX_TRACE_BYTES: Final = 8 * 1024 * 1024
"""Size limit of the writes and receipts in a trace. Steps beyond it keep only their digest."""


EXPIRED: Final = "expired"
"""Reason for which the garbage collection destroys expired timers (:class:`validator.chain.block.DestroyedReceipt`)."""


class StepKind(StrEnum):
    """The kinds of steps, in the order of SPEC §3."""

    START = "start"
    TRANSACTION = "transaction"
    TRANSACTION_TIPS = "transaction tips"
    EXPIRY = "expiry"
    QUERY = "query"
    SUPPLY = "default pricing"
    FIRE = "fire"
    DESTRUCTION = "destruction"
    SELECTION = "selection"
    FIRE_TIPS = "fire tips"
    CALLBACK = "callback"
    MESSAGE = "message"
    FAIRNESS = "fairness counters"
    JOB_ENDS = "end of jobs"
    CALENDAR = "calendar"
    SUPPLIES = "supplies"
    PRICES = "prices and counters"


SPEC_STEPS: Final = {
    StepKind.START: 1,
    StepKind.TRANSACTION: 3,
    StepKind.TRANSACTION_TIPS: 3,
    StepKind.EXPIRY: 4,
    StepKind.QUERY: 4,
    StepKind.SUPPLY: 4,
    StepKind.FIRE: 4,
    StepKind.DESTRUCTION: 4,
    StepKind.SELECTION: 4,
    StepKind.FIRE_TIPS: 4,
    StepKind.CALLBACK: 5,
    StepKind.MESSAGE: 5,
    StepKind.FAIRNESS: 6,
    StepKind.JOB_ENDS: 6,
    StepKind.CALENDAR: 6,
    StepKind.SUPPLIES: 6,
    StepKind.PRICES: 6,
}
"""The step of SPEC §3 that each kind belongs to."""


class LongValue(msgspec.Struct, frozen=True, array_like=True):
    """The size and hash of a value that is too long to be kept in a trace."""

    size: int
    digest: bytes


Value = bytes | LongValue | None
"""The value of a state key in a trace; ``None`` if the key has no value."""


class Write(msgspec.Struct, frozen=True, array_like=True):
    """A state key that a step changed, with its values before and after."""

    key: bytes
    before: Value
    after: Value


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One step of a block's execution."""

    kind: StepKind
    number: int
    """Number among the block's steps of its kind, from 0."""
    subject: bytes
    """A transaction's hash, a timer's or job's id, or a message's receiver; empty if the step has none."""
    digest: bytes
    """Digest over subject, writes and receipts, so that steps can be compared without them."""
    writes: tuple[Write, ...] = ()
    """Changed keys, ascending."""
    receipts: tuple[bytes, ...] = ()
    """Canonical encodings of receipts, in the order of execution."""
    is_shortened: bool = False
    """Whether writes and receipts are left out because the trace is full."""

    @property
    def name(self) -> str:
        """The step's kind and subject as text."""
        return f"{self.kind} {self.subject.hex()}"


class BlockTrace(msgspec.Struct, frozen=True, array_like=True):
    """A block's execution, step by step."""

    height: int
    block: bytes
    """The block's hash."""
    steps: tuple[Step, ...]
    refusal: str
    """Why execution ended after the steps; empty if it was complete."""
    figures: tuple[tuple[str, str], ...]
    """The header's fields by execution, in order; numbers as decimal text, hashes as hex."""
    repeats: bool = True
    """Whether this execution gave the same root as the first one."""
    first_writes: tuple[Write, ...] = ()
    """All changes of the first execution, if this one has another root or no steps."""
    remark: str = ""
    """Why the trace has no steps, if that is special; else empty."""

    def figure(self, name: str) -> str:
        """A field of the header; empty if execution did not reach it."""
        return dict(self.figures).get(name, "")


class StepRecorder:
    """Collects the steps of one execution."""

    def __init__(self, world: World | None = None) -> None:
        self._world = world
        self._mark = 0
        self._numbers: Counter[StepKind] = Counter()
        self._kept_bytes = 0
        self.steps: list[Step] = []

    def watch(self, world: World) -> None:
        """Record the changes of this working set from now on."""
        self._world, self._mark = world, world.checkpoint()

    def step(self, kind: StepKind, subject: bytes = b"", receipts: Iterable[Any] = ()) -> None:
        """End a step, which made all changes since the previous one."""
        assert self._world is not None, "steps are marked once the block has begun"
        changes = self._world.changes_since(self._mark)
        self._mark = self._world.checkpoint()
        self.keep(kind, subject, changes, tuple(encode(receipt) for receipt in receipts))

    def rest(self, kind: StepKind) -> None:
        """End a step that is recorded only if it changed the state."""
        assert self._world is not None
        if self._world.changes_since(self._mark):
            self.step(kind)
        self._mark = self._world.checkpoint()

    def keep(self, kind: StepKind, subject: bytes, changes: Sequence[Change], receipts: tuple[bytes, ...]) -> None:
        """Add a step with these changes and encoded receipts."""
        writes = writes_of(changes)
        content = encode((subject, writes, receipts))
        digest = tagged_hash(b"step", content)
        self._kept_bytes += len(content)
        number = self._numbers[kind]
        self._numbers[kind] += 1
        if self._kept_bytes > MAX_TRACE_BYTES:
            self.steps.append(Step(kind, number, subject, digest, is_shortened=True))
        else:
            self.steps.append(Step(kind, number, subject, digest, writes, receipts))

    def trace(self, height: int, block: bytes, outcome: BlockResult | None, refusal: str = "") -> BlockTrace:
        """The trace of the steps so far; ``outcome`` is the result of execution, if it was not refused."""
        fields = () if outcome is None else outcome.header_fields().items()
        figures = tuple((name, _figure(name, value)) for name, value in fields)
        return BlockTrace(height, block, tuple(self.steps), refusal, figures)


def _figure(name: str, value: int | bytes) -> str:
    if isinstance(value, int):
        return str(value)
    return value.hex() if name.endswith("_root") else str(int.from_bytes(value, "big"))


def writes_of(changes: Sequence[Change]) -> tuple[Write, ...]:
    """These changes of records as a trace's writes of encoded values."""
    return tuple(
        Write(change.key, _value(change.key, change.before), _value(change.key, change.after)) for change in changes
    )


def _value(key: bytes, record: Any) -> Value:
    if record is None:
        return None
    value = encode_record(key, record)
    return value if len(value) <= MAX_VALUE_BYTES else LongValue(len(value), tagged_hash(b"value", value))


def traced(transition: type[Transition], recorder: StepRecorder) -> type[Transition]:
    """A subclass of ``transition`` that reports each step to ``recorder``. It can only apply a block, and only once."""
    phases = {policy: _traced_phase(phase, recorder) for policy, phase in transition.phases.items()}
    return type("Traced", (_TracedTransition, transition), {"recorder": recorder, "phases": phases})


def _traced_phase(phase: type[TimerPhase], recorder: StepRecorder) -> type[TimerPhase]:
    bidding = type("Traced", (_TracedBidding, phase.bidding_class), {"recorder": recorder})
    return type("Traced", (_TracedPhase, phase), {"recorder": recorder, "bidding_class": bidding})


class _TracedTransition(Transition):
    """Mixin for a transition class: reports its steps to ``recorder``."""

    recorder: ClassVar[StepRecorder]

    def freeze(self) -> None:
        self.recorder.watch(self.world)
        super().freeze()
        self.recorder.step(StepKind.START)

    def execute(self, prepared: PreparedTransaction) -> None:
        before = len(self.receipts)
        try:
            super().execute(prepared)
        finally:
            self.recorder.step(StepKind.TRANSACTION, prepared.hash, self.receipts[before:])

    def timer_phase(self) -> TimerPhase:
        self.recorder.rest(StepKind.TRANSACTION_TIPS)
        return super().timer_phase()

    def run_timers(self) -> None:
        super().run_timers()
        self.recorder.rest(StepKind.FIRE_TIPS)

    def run_callbacks(self) -> None:
        self.recorder.rest(StepKind.TRANSACTION_TIPS)
        super().run_callbacks()
        self.recorder.rest(StepKind.CALLBACK)

    def run_callback(self, waiting: Waiting) -> int:
        used = super().run_callback(waiting)
        self.recorder.step(StepKind.CALLBACK, waiting.job_id, self.callbacks[-1:])
        return used

    def run_messages(self) -> None:
        super().run_messages()
        self.recorder.rest(StepKind.MESSAGE)

    def run_message(self, message: QueuedMessage) -> int:
        used = super().run_message(message)
        self.recorder.step(StepKind.MESSAGE, message.to, self.messages[-1:])
        return used

    def keep_calendar(self) -> list[Timer]:
        self.recorder.rest(StepKind.JOB_ENDS)
        ended = super().keep_calendar()
        self.recorder.rest(StepKind.CALENDAR)
        return ended

    def keep_supplies(self, phase: TimerPhase, ended: list[Timer]) -> None:
        super().keep_supplies(phase, ended)
        self.recorder.rest(StepKind.SUPPLIES)

    def close(self, phase: TimerPhase) -> int:
        burned = super().close(phase)
        self.recorder.step(StepKind.PRICES)
        return burned


class _TracedPhase(TimerPhase):
    """Mixin for a timer phase class: reports its steps to ``recorder``."""

    recorder: ClassVar[StepRecorder]

    def expire(self) -> None:
        super().expire()
        self.recorder.rest(StepKind.EXPIRY)

    def ask(self) -> None:
        super().ask()
        self.recorder.rest(StepKind.QUERY)

    def scan(self, candidates: Iterable[Candidate]) -> None:
        self.recorder.rest(StepKind.SUPPLY)
        super().scan(candidates)
        self.recorder.rest(StepKind.SELECTION)

    def fire(self, timer: Timer, candidate: Candidate, max_cost: int) -> None:
        before = len(self.fires)
        super().fire(timer, candidate, max_cost)
        self.recorder.step(StepKind.FIRE, timer.timer_id, self.fires[before:])

    def destroy(self, timers: Sequence[Timer], reason: str, events: Sequence[Event]) -> None:
        before = len(self.destroyed)
        super().destroy(timers, reason, events)
        ended = self.destroyed[before:]
        if ended:
            kind = StepKind.EXPIRY if reason == EXPIRED else StepKind.DESTRUCTION
            self.recorder.step(kind, ended[0].timer_id if len(ended) == 1 else b"", ended)

    def count_fires(self) -> None:
        super().count_fires()  # type: ignore[safe-super]
        self.recorder.rest(StepKind.FAIRNESS)


class _TracedBidding(BiddingRound):
    """Mixin for a bidding round class: reports its queries to ``recorder``."""

    recorder: ClassVar[StepRecorder]

    def query(self, candidate: BidCandidate) -> None:
        super().query(candidate)
        self.recorder.step(StepKind.QUERY, candidate.timer_id, self.receipts[-1:])


def steps_apart(one: Sequence[Step], other: Sequence[Step]) -> Iterator[int]:
    """Positions at which two executions have different steps, or only one has a step."""
    for position in range(max(len(one), len(other))):
        mine, theirs = (steps[position : position + 1] for steps in (one, other))
        if [(step.name, step.digest) for step in mine] != [(step.name, step.digest) for step in theirs]:
            yield position
