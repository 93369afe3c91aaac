"""The watch of pacing: it checks that a validator's timers and repetitions follow from its past events.

It is an independent implementation of ``docs/consensus.md``, "Timeouts that adapt" and "Repetition that adapts". It
sees a validator's inputs and outputs: certificates that it learned, timers that expired, votes that it wrote to its
journal and sent, and the timers that it starts.

===========  =========================================================================================================
rule         what must hold
===========  =========================================================================================================
timeouts     a leader or advance timer is the configured timeout times the factor that the watch counted. After a
             restart the factor is one that the journal may have: the one in force at the newest vote that was sent,
             since the journal is durable up to that vote, or a later one
repetitions  when its rebroadcast timer expires, a validator broadcasts the votes of its view that it sent before, if
             the interval that the watch counted has passed since the last time, and none of them otherwise
===========  =========================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from cluster.audit.safety.own_votes import GIVING_UP
from cluster.audit.safety.rule_log import Look
from cluster.common.wording import counted
from cluster.record.rules import Mechanism
from cluster.record.rules import SafetyRule as Rule
from cluster.scenario import Scenario
from cluster.simulation.machine import Machine
from cluster.watches.durable_journal import votes_in
from cluster.watches.watch import Read, Watch, broadcast_of
from consensus.interface import TimerKind
from consensus.messages import FINALIZE, Vote, VoteKind, vote_of
from consensus.types import GENESIS_VIEW, View
from validator.node.events import Append, Certified, Effect, Event, SetTimer, Timeout, TimerName

LONGEST: Final = 16
"""Maximum factor by which the configured timeouts are multiplied."""
MAX_PATIENCE: Final = 16
"""Maximum number of finalizations after which timeouts are halved, as a multiple of the minimum number."""
BLOCK_TIMES: Final = 2
"""Interval between two repetitions of votes, in block times."""
SAMPLES: Final = 9
"""Number of past views with a block that are remembered. The median of their lengths in ticks is the block time."""
PATIENT: Final = range(8, 2**63, 32)
"""Views in which the first repetition comes a tick later."""
FINALITY_LAGS: Final = {"simplex": 1, "hotstuff": 2}
"""Number of later views in which a vote to finalize is repeated (``docs/consensus.md``)."""
LEADER, ADVANCE, TICK = TimerKind.LEADER.value, TimerKind.ADVANCE.value, TimerKind.REBROADCAST.value


@dataclass(slots=True)
class _Ticks:
    """The expirations of a validator's rebroadcast timer since the validator's start."""

    now: int = 0
    """Number of ticks so far in the present view."""
    repeated_at: list[int] = field(default_factory=list)
    """The ticks of the present view at which the validator had to repeat its votes."""
    interval: int = 1
    samples: list[int] = field(default_factory=lambda: [0] * SAMPLES)
    is_patient: bool = False
    """Whether the first repetition in this view comes a tick later."""
    unclear: int = 0
    """Number of views since the last patient one that a repetition may have ended. Whether it did shows only in the
    next patient view."""

    def is_due(self, leader_timeout_ms: int, tick_ms: int) -> bool:
        """Count another tick. Returns whether the validator must repeat its votes."""
        self.now += 1
        longest = max(1, ceil(leader_timeout_ms / tick_ms))
        wait = self.interval + 1 if self.is_patient and not self.repeated_at else self.interval
        if self.now - max(self.repeated_at, default=0) < min(wait, longest):
            return False
        self.repeated_at.append(self.now)
        return True

    def view_begins(self, view: View) -> None:
        self.now, self.repeated_at = 0, []
        self.is_patient = view in PATIENT

    def view_ends(self, with_block: bool) -> None:
        if with_block and self.repeated_at[:1] == [self.now]:
            self.unclear = 0 if self.is_patient else self.unclear + 1
        elif with_block:
            alike = 1 + self.unclear if self.is_patient else 1
            self.unclear = 0 if self.is_patient else self.unclear
            self.samples = [*self.samples, *[self.now] * alike][-SAMPLES:]
            self.interval = BLOCK_TIMES * sorted(self.samples)[SAMPLES // 2] + 1


@dataclass(slots=True)
class _Book:
    """The watch's knowledge of one validator since its start."""

    final_views: int
    """Minimum number of finalizations after which timeouts are halved."""
    reached: set[Mechanism]
    """Mechanisms of timeouts that some validator has used."""
    view: View = GENESIS_VIEW
    """The validator's present view; 0 until it enters its first one."""
    factor: int = 1
    failed: int = 0
    """Views that failed since the last finalization."""
    final: int = 0
    """Number of counted finalizations since the factor was last changed, or could have been halved but was 1."""
    until_shorter: int = field(init=False)
    """Number of counted finalizations at which the factor is halved."""
    is_tried: bool = False
    """Whether the factor was halved, and not changed since."""
    waited: bool = False
    """Whether a timer of the validator expired in its present view."""
    gave_up: bool = False
    """Whether the validator voted to give up its present view."""
    took_part: bool = False
    """Whether the validator's timer expired, or it cast a vote other than finalize, since the last counted
    finalization."""
    ended_by: VoteKind | None = None
    """The kind of the last certificate that the validator learned."""
    kept: list[tuple[View, int]] = field(default_factory=lambda: [(GENESIS_VIEW, 1)])
    """The factors that may be the last one in the validator's journal, each with the view in which it was set."""
    ticks: _Ticks = field(default_factory=_Ticks)
    said: set[Vote] = field(default_factory=set)
    """The votes of its present view that the validator sent."""

    def __post_init__(self) -> None:
        self.until_shorter = self.final_views

    def restarted(self) -> _Book:
        """The knowledge that is left after a restart of the validator."""
        return _Book(self.final_views, self.reached, kept=self.kept)

    def begins(self, view: View, factor: int) -> None:
        """Note that the validator enters its first view, with ``factor`` if its journal may have this factor."""
        possible = [kept for _, kept in self.kept]
        self.view, self.factor = view, factor if factor in possible else possible[-1]
        self.kept = [(GENESIS_VIEW, self.factor)]
        self.ticks.view_begins(view)

    def sends(self, vote: Vote) -> None:
        if vote.view == self.view:
            self.said.add(vote)
        while len(self.kept) > 1 and self.kept[1][0] < vote.view:
            del self.kept[0]

    def writes(self, vote: Vote) -> None:
        if vote.kind != FINALIZE:
            self.took_part = True
            self.gave_up |= vote.kind in GIVING_UP and vote.view == self.view

    def certified(self, kind: VoteKind) -> None:
        self.ended_by = kind
        if kind != FINALIZE:
            return
        self.failed = 0
        if self.took_part:
            self.took_part, self.final = False, self.final + 1
            if self.final == self.until_shorter:
                self._shorten()

    def enters(self, view: View, longest_row: int) -> None:
        if self.waited and (self.gave_up or self.ended_by in GIVING_UP):
            self.failed += 1
            if self.failed > longest_row and self.factor < LONGEST:
                self._lengthen()
        self.ticks.view_ends(with_block=view == self.view + 1 and self.ended_by not in GIVING_UP)
        self.ticks.view_begins(view)
        self.view, self.waited, self.gave_up = view, False, False
        self.said.clear()

    def _shorten(self) -> None:
        if self.is_tried or self.factor == 1:
            self.until_shorter = max(self.final_views, self.until_shorter // 2)
        self.is_tried = self.factor > 1
        self.factor, self.final = max(1, self.factor // 2), 0
        if self.is_tried and self.factor == 1:
            self.reached.add(Mechanism.TIMEOUTS_LEVEL_AGAIN)
        self.kept.append((self.view, self.factor))

    def _lengthen(self) -> None:
        if self.is_tried:
            self.until_shorter = min(MAX_PATIENCE * self.final_views, 2 * self.until_shorter)
        self.reached.add(Mechanism.TIMEOUTS_LENGTHENED)
        self.factor, self.final, self.is_tried = 2 * self.factor, 0, False
        self.kept.append((self.view, self.factor))


class PacingWatch(Watch):
    """Checks in one run the timers and repetitions of honest validators."""

    effects = frozenset({Append, Certified, SetTimer})
    SUBJECTS = frozenset({LEADER, ADVANCE, TICK})

    def __init__(
        self,
        names: Sequence[str],
        look: Look,
        scenario: Scenario,
        longest_row: Callable[[View], int],
        read: Read,
    ) -> None:
        """``longest_row``: for each view, the number of failed views since the last finalization up to which timeouts
        are not lengthened."""
        super().__init__(names, look)
        self.forks(scenario)
        self._longest_row = longest_row
        self._read = read
        self._finality_lag = FINALITY_LAGS[scenario.consensus.protocol]
        self._books = [_Book(scenario.limits.final_views, self.reached) for _ in names]

    def forks(self, scenario: Scenario) -> None:
        self._consensus = scenario.consensus

    def factor(self, index: int) -> int:
        """The factor of a validator's timeouts in its present view."""
        return self._books[index].factor

    def starts(self, machine: Machine) -> None:
        """Note that a validator is started: it first replays its journal."""
        self._books[machine.index] = self._books[machine.index].restarted()

    def begins_to_join(self, machine: Machine, nonce: bytes) -> None:
        """Note that a validator starts again without its journal."""
        self._books[machine.index] = _Book(self._books[machine.index].final_views, self.reached)

    def votes(self, machine: Machine, vote: Vote) -> None:
        self._books[machine.index].sends(vote)

    def performs(self, machine: Machine, effect: Append | Certified | SetTimer) -> None:
        """Check the duration of a timer, or note a certificate or the votes for the journal, which are cast."""
        book = self._books[machine.index]
        if type(effect) is SetTimer:
            self._starts_timer(machine, book, effect.timer, effect.delay_ms)
        elif type(effect) is Append:
            for vote in votes_in(effect.data):
                book.writes(vote)
        elif type(effect) is Certified and book.view != GENESIS_VIEW:
            book.certified(effect.certificate.kind)

    def judge(self, machine: Machine, event: Event, effects: Sequence[Effect]) -> None:
        """Check which votes a validator repeats when one of its timers expires."""
        if type(event) is not Timeout:
            return
        index, timer, configured = machine.index, event.timer, self._consensus
        book = self._books[index]
        if timer.owner not in self.SUBJECTS or timer.number != book.view:
            return
        book.waited = book.took_part = True
        if timer.owner != TICK:
            return
        said = [vote for vote in map(vote_of, broadcast_of(effects, self._read)) if vote is not None]
        oldest = book.view - self._finality_lag
        old = [vote.view for vote in said if vote.view < oldest]
        what = f"{self._names[index]} repeats in view {book.view} what it said in views {old}" if old else ""
        self._look(Rule.REPETITIONS, not old, what)
        is_due = book.ticks.is_due(book.factor * configured.leader_timeout_ms, configured.rebroadcast_ms)
        repeated, expected = book.said.intersection(said), book.said if is_due else set()
        holds = repeated == expected
        what = (
            ""
            if holds
            else f"{self._names[index]} repeats {counted(len(repeated), 'vote')}, not {len(expected)}, at tick "
            f"{book.ticks.now} of view {book.view}; it has to at ticks {book.ticks.repeated_at}"
        )
        self._look(Rule.REPETITIONS, holds, what)

    def _starts_timer(self, machine: Machine, book: _Book, timer: TimerName, delay_ms: int) -> None:
        """Check the duration of a timer that a validator starts; the leader timer is the first of a view."""
        if timer.owner == LEADER:
            configured_ms = self._consensus.leader_timeout_ms
        elif timer.owner == ADVANCE:
            configured_ms = self._consensus.advance_timeout_ms
        else:
            return
        view = View(timer.number)
        if timer.owner == LEADER:
            if book.view == GENESIS_VIEW:
                book.begins(view, delay_ms // configured_ms)
            else:
                book.enters(view, self._longest_row(book.view))
        due_ms = book.factor * configured_ms
        holds = delay_ms == due_ms
        what = (
            ""
            if holds
            else f"{machine.name} starts the {timer.owner} timer of view {view} with {delay_ms:,} ms, not {due_ms:,}"
        )
        self._look(Rule.TIMEOUTS, holds, what)
