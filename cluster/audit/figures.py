"""Figures of a chain: metrics of each block, how timers ended, and the runs that failed.

Metrics of blocks are stored in columns to save memory: a run of days has several hundred thousand. A *run* is a
transaction's call, a fire, a callback of a job, or a mailbox message. A failed one was reverted, and its error is in
its receipt. Of a timer that ended only the figures of its actor are kept.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from itertools import chain
from typing import Any, Final, NamedTuple

from spec.encoding import Effects, Receipts
from spec.world import Timer

MAX_ERRORS: Final = 8
"""The most different errors kept of one kind of one actor's runs: an error may have the program's own text."""
OTHER_ERRORS: Final = "other errors"


def _column() -> Any:
    return field(default_factory=lambda: array("Q"))


def _prices() -> Any:
    """A column whose values may take more than eight bytes."""
    return field(default_factory=list)


@dataclass(slots=True)
class BlockColumns:
    """Counts, use and prices of blocks, for metrics and charts: a column each, with an item a block from height 1 on.

    The basefees are those in force during the block. Other code must not change a column.
    """

    proposer: Sequence[int] = _column()
    """The index of the validator that proposed it."""
    transactions: Sequence[int] = _column()
    reverted: Sequence[int] = _column()
    scheduled: Sequence[int] = _column()
    fires: Sequence[int] = _column()
    destroyed: Sequence[int] = _column()
    messages: Sequence[int] = _column()
    queries: Sequence[int] = _column()
    pending: Sequence[int] = _column()
    """Timers pending after the block."""
    backlog: Sequence[int] = _column()
    """Pending timers whose trigger height has passed."""
    basefee_cycle: Sequence[int] = _prices()
    basefee_cell: Sequence[int] = _prices()
    basefee_lane_timer: Sequence[int] = _prices()
    lane_cycles: Sequence[int] = _column()
    lane_limit: Sequence[int] = _column()
    """The parameter ``LANE_TIMER_CYCLES`` in force during the block."""
    user_cycles: Sequence[int] = _column()

    def append(self, **figures: int) -> None:
        """Enter the next block, with a figure for each column."""
        for each in fields(self):
            getattr(self, each.name).append(figures[each.name])

    @property
    def last(self) -> dict[str, int]:
        """The figures of the last block, by column."""
        return {each.name: getattr(self, each.name)[-1] for each in fields(self)}

    def __len__(self) -> int:
        return len(self.proposer)


class RunKind(StrEnum):
    """What made an actor run."""

    TRANSACTION = "transaction"
    FIRE = "fire"
    CALLBACK = "callback"
    MESSAGE = "message"


class FailedRuns(NamedTuple):
    """The runs of one kind of one actor that failed with one error."""

    kind: RunKind
    actor: bytes
    error: str
    times: int
    runs: int
    """The actor's runs of this kind, whether they failed or not."""
    first_height: int
    """The height of the first block with such a failed run."""

    @property
    def key(self) -> Failure:
        return self.kind, self.actor, self.error


Failure = tuple[RunKind, bytes, str]
"""Runs of a kind of an actor that failed with an error."""


class RunOutcomes:
    """Counts the runs of each actor, and those that failed."""

    def __init__(self) -> None:
        self.failed: Counter[RunKind] = Counter()
        """The number of failed runs of each kind."""
        self._runs: Counter[tuple[RunKind, bytes]] = Counter()
        self._failures: dict[tuple[RunKind, bytes], dict[str, FailedRuns]] = {}
        """The failed runs of a kind of an actor, by error. Their ``runs`` are filled in when they are read."""

    def enter(self, receipts: Receipts, called: Iterable[bytes | None]) -> None:
        """Enter the runs of a block. ``called`` are the actors that its transactions call; ``None`` for those that call
        none, which do not count."""
        runs: list[tuple[RunKind, bytes | None, Any]] = [
            *((RunKind.TRANSACTION, actor, run) for actor, run in zip(called, receipts.transactions, strict=False)),
            *((RunKind.FIRE, run.actor, run) for run in receipts.fires),
            *((RunKind.CALLBACK, run.actor, run) for run in receipts.callbacks),
            *((RunKind.MESSAGE, run.to, run) for run in receipts.messages),
        ]
        for kind, actor, run in runs:
            if actor is not None:
                self._runs[kind, actor] += 1
                if not run.ok:
                    self._fail(receipts.height, kind, actor, run.error)

    def _fail(self, height: int, kind: RunKind, actor: bytes, error: str) -> None:
        self.failed[kind] += 1
        known = self._failures.setdefault((kind, actor), {})
        if error not in known and len(known) >= MAX_ERRORS:
            error = OTHER_ERRORS
        before = known.get(error, FailedRuns(kind, actor, error, 0, 0, height))
        known[error] = before._replace(times=before.times + 1)

    @property
    def failures(self) -> list[FailedRuns]:
        """All failed runs, the most frequent first."""
        found = [each for known in self._failures.values() for each in known.values()]
        return sorted(
            (each._replace(runs=self._runs[each.kind, each.actor]) for each in found),
            key=lambda each: (-each.times, each.kind, each.actor, each.error),
        )

    @property
    def always_failing(self) -> list[FailedRuns]:
        """Of each actor whose runs of a kind failed every time, the most frequent error; the most runs first."""
        found = dict[tuple[RunKind, bytes], FailedRuns]()
        times = Counter[tuple[RunKind, bytes]]()
        for each in self.failures:
            found.setdefault((each.kind, each.actor), each)
            times[each.kind, each.actor] += each.times
        always = [each._replace(times=each.runs) for of, each in found.items() if times[of] == each.runs]
        return sorted(always, key=lambda each: (-each.times, each.kind, each.actor))


class TimerState(StrEnum):
    """How a timer ended."""

    FIRED = "fired"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    INSUFFICIENT_FUNDS = "insufficient_funds"


@dataclass(slots=True)
class ActorTimers:
    """Statistics of one actor's timers: how many it scheduled, and how late those that came due ended."""

    scheduled: int = 0
    due: int = 0
    """The number of ended timers that had come due while they were pending."""
    fired_at: array[int] = field(default_factory=lambda: array("I"))
    """The height of each fire, ascending."""
    lateness: Counter[int] = field(default_factory=Counter)
    """The number of timers that fired or were destroyed when due, keyed by the blocks since their trigger height."""


@dataclass(slots=True)
class NewTimer:
    """One of the newest timers. Times are heights."""

    timer_id: bytes
    scheduled_at: int
    ended_at: int | None = None
    """When it fired, was cancelled or was destroyed; ``None`` while it is pending."""


NEWEST_KEPT: Final = 256
"""The number of timers in :attr:`TimerFigures.newest` from before the newest :data:`NEWEST_HEIGHTS` heights."""
NEWEST_HEIGHTS: Final = 64
ENDED_KEPT: Final = 64
"""The number of ids kept in :attr:`TimerFigures.ended_last`."""


class TimerFigures:
    """Counts the timers of a chain: those scheduled, and how and how late they ended."""

    def __init__(self) -> None:
        self.scheduled = 0
        """The number of timers ever scheduled."""
        self.states: Counter[TimerState] = Counter()
        """The number of timers by how they ended."""
        self.by_actor: defaultdict[bytes, ActorTimers] = defaultdict(ActorTimers)
        self.newest: deque[NewTimer] = deque()
        """The timers scheduled last, pending or not, in the order of scheduling.

        They are those of the newest :data:`NEWEST_HEIGHTS` heights and up to :data:`NEWEST_KEPT` before them.
        """
        self.ended_last: deque[bytes] = deque(maxlen=ENDED_KEPT)
        """The ids of the timers that ended last, in order."""
        self._newest: dict[bytes, NewTimer] = {}
        """Those of :attr:`newest` by id."""

    @property
    def fires(self) -> int:
        return self.states[TimerState.FIRED]

    def enter(self, receipts: Receipts, ended: Mapping[bytes, Timer]) -> int:
        """Enter a block, with the timers that ended in it, as they were, by id. Returns how many it scheduled."""
        height, before = receipts.height, self.scheduled
        for timer_id, actor, *_ in chain.from_iterable(effects.scheduled for effects in effects_of(receipts)):
            self.scheduled += 1
            self._newest[timer_id] = new = NewTimer(timer_id, height)
            self.newest.append(new)
            self.by_actor[actor].scheduled += 1
        for timer, state in ends_of(receipts, ended):
            self._end(timer, state, height)
        while len(self.newest) > NEWEST_KEPT and self.newest[NEWEST_KEPT].scheduled_at <= height - NEWEST_HEIGHTS:
            del self._newest[self.newest.popleft().timer_id]
        return self.scheduled - before

    def _end(self, timer: Timer, state: TimerState, height: int) -> None:
        self.states[state] += 1
        self.ended_last.append(timer.timer_id)
        if (new := self._newest.get(timer.timer_id)) is not None:
            new.ended_at = height
        of_actor = self.by_actor[timer.actor]
        if state is TimerState.FIRED:
            of_actor.fired_at.append(height)
        if is_due(timer, height):
            of_actor.due += 1
            if state is not TimerState.CANCELLED:
                of_actor.lateness[height - timer.trigger_height] += 1


def ends_of(receipts: Receipts, ended: Mapping[bytes, Timer]) -> Iterator[tuple[Timer, TimerState]]:
    """How the timers that ended in a block did, in their order."""
    states = {fire.timer_id: TimerState.FIRED for fire in receipts.fires}
    states |= {each.timer_id: TimerState(each.reason) for each in receipts.destroyed}
    return ((timer, states.get(timer_id, TimerState.CANCELLED)) for timer_id, timer in ended.items())


def is_due(timer: Timer, height: int) -> bool:
    """Whether a timer that is pending, or ended at a height, had come due by then."""
    return timer.trigger_height <= height and not timer.is_watching


def effects_of(receipts: Receipts) -> Iterator[Effects]:
    """The effects of a block's runs, in its receipts' order."""
    for runs in (receipts.transactions, receipts.fires, receipts.callbacks, receipts.messages):
        yield from (run.effects for run in runs)
