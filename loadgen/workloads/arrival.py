"""Arrival of turns: when one user takes its turns, in a closed or in an open loop.

*Closed*: a turn is due an interval after the one before began, and a turn that is missed is not made up for. While the
chain is slow, such a user asks less of it, so that its latencies leave out what users would have waited meanwhile
(coordinated omission).

*Open*: turns are due by the clock alone, whatever became of those before. Turns that come late are all taken, one after
the other, and what is measured of them counts from when they were due. At most :data:`MAX_WAITING` turns wait; those
that come due beyond are skipped, and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from loadgen.workloads.phases import MILLI, AnyPhase, Seen

LOOK_MS: Final = 500
"""An open user that goes by phases looks at the chain at least so often, so that it learns of other rates."""
RETRY_MS: Final = 100
"""An open user that could not take its due turns looks again after so long."""
MAX_WAITING: Final = 256
"""Due turns of one user that wait at most."""


class Schedule:
    """The rate of one user's turns by its plan."""

    def __init__(
        self,
        interval_ms: int,
        phases: Sequence[AnyPhase] = (),
        from_height: int | None = None,
        until_height: int | None = None,
    ) -> None:
        self.interval_ms = interval_ms
        self._phases = tuple(phases)
        self._from_height = from_height or 0
        self._until_height = until_height
        self.is_plain = not (phases or from_height or until_height)
        """Whether the rate is 1 for ever."""
        self.turn_costs = interval_ms * MILLI
        """Milliseconds times thousandths of a rate."""

    def rate_milli(self, seen: Seen) -> int:
        """The rate at a moment, in thousandths."""
        if not self._lasts_at(seen.height):
            return 0
        phase = next((phase for phase in self._phases if phase.lasts_at(seen)), None)
        return MILLI if phase is None else phase.rate_milli(seen)

    def has_turns_at(self, height: int) -> bool:
        """Whether turns may come due at a height, whatever the time, the prices and the backlog are then."""
        seen = Seen(height)
        by_height = (phase for phase in self._phases if not phase.is_by_time)
        phase = next((phase for phase in by_height if phase.lasts_at(seen)), None)
        return self._lasts_at(height) and (phase is None or phase.has_turns(seen))

    def _lasts_at(self, height: int) -> bool:
        return self._from_height <= height and (self._until_height is None or height < self._until_height)

    def next_change_ms(self, at_ms: int) -> int | None:
        """The first millisecond after one at which the rate may be another by time alone; ``None`` if there is none."""
        changes = (phase.next_change_ms(at_ms) for phase in self._phases)
        return min((change for change in changes if change is not None and change > at_ms), default=None)


class Rhythm:
    """A closed loop.

    A user is looked at again and again. For each look it is asked for :meth:`next_delay_ms`, how long it is until the
    one after it, and then :meth:`takes_turn` says whether this look is a turn. So the delay behind a look is reckoned
    with the heights that were known at the looks before it.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._seen = Seen()
        self._earned = 0

    def next_delay_ms(self, now_ms: int = 0) -> int:
        """How long until the user is looked at again, at the rate of what it knows."""
        schedule = self.schedule
        if schedule.is_plain:
            return schedule.interval_ms
        rate = schedule.rate_milli(replace(self._seen, at_ms=now_ms))
        delay_ms = schedule.interval_ms if rate <= MILLI else max(1, -(-schedule.turn_costs // rate))
        self._earned = min(self._earned + delay_ms * rate, 2 * schedule.turn_costs)
        return delay_ms

    def takes_turn(self, seen: Seen) -> bool:
        """Whether the user takes a turn now that it knows of this."""
        schedule = self.schedule
        if schedule.is_plain:
            return True
        self._seen = replace(seen, height=max(self._seen.height, seen.height))
        if schedule.rate_milli(seen) == 0 or self._earned < schedule.turn_costs:
            return False
        self._earned -= schedule.turn_costs
        return True


class OpenRhythm:
    """An open loop. The schedule is integrated over time; between two looks, heights and prices count as they were
    known at the first of them."""

    def __init__(self, schedule: Schedule, first_due_ms: int) -> None:
        """At rate 1 the first turn is due ``first_due_ms`` after the load began."""
        self.schedule = schedule
        self.waiting: deque[int] = deque()
        """When the turns were due that were not taken yet, in milliseconds since the load began."""
        self.skipped = 0
        """Turns that came due while :data:`MAX_WAITING` others waited."""
        self._seen = Seen()
        """Up to its moment all due turns are known."""
        self._earned = schedule.turn_costs - max(1, first_due_ms) * MILLI

    def advance(self, now_ms: int) -> None:
        """Note the turns that came due by a moment."""
        while self._seen.at_ms < now_ms:
            begun_ms, rate = self._seen.at_ms, self.schedule.rate_milli(self._seen)
            change_ms = self.schedule.next_change_ms(begun_ms)
            end_ms = now_ms if change_ms is None else min(now_ms, change_ms)
            costs, before = self.schedule.turn_costs, self._earned
            count, self._earned = divmod(before + rate * (end_ms - begun_ms), costs)
            room = min(count, MAX_WAITING - len(self.waiting))
            for number in range(1, room + 1):
                self.waiting.append(begun_ms + -(-(number * costs - before) // rate))
            self.skipped += count - room
            self._seen = replace(self._seen, at_ms=end_ms)

    def begin(self, now_ms: int) -> None:
        """Leave out the turns that were due before a moment."""
        self.advance(now_ms)
        self.waiting.clear()
        self.skipped = 0

    def see(self, seen: Seen) -> None:
        """Note the turns that came due by a moment, and what is known of the chain from then on."""
        self.advance(seen.at_ms)
        height = max(self._seen.height, seen.height)
        self._seen = replace(seen, at_ms=self._seen.at_ms, height=height)

    @property
    def is_paused(self) -> bool:
        """Whether no turn comes due by what is known."""
        return self.schedule.rate_milli(self._seen) == 0

    def next_delay_ms(self, now_ms: int) -> int:
        """How long until the user is to be looked at again: when the next turn is due, or something may be new."""
        were_left = bool(self.waiting)
        self.advance(now_ms)
        if self.waiting:
            return RETRY_MS if were_left else 0
        costs, earned, seen = self.schedule.turn_costs, self._earned, self._seen
        if self.schedule.is_plain:
            return -(-(costs - earned) // MILLI)
        while (passed_ms := seen.at_ms - self._seen.at_ms) < LOOK_MS:
            rate = self.schedule.rate_milli(seen)
            change_ms = self.schedule.next_change_ms(seen.at_ms)
            left_ms = LOOK_MS - passed_ms if change_ms is None else min(LOOK_MS - passed_ms, change_ms - seen.at_ms)
            if rate * left_ms >= costs - earned:
                return passed_ms + -(-(costs - earned) // rate)
            earned += rate * left_ms
            seen = replace(seen, at_ms=seen.at_ms + left_ms)
        return LOOK_MS
