"""Arrival of turns: the times of one user's turns, in a closed or an open loop.

*Closed*: a turn is due an interval after the one before began, and missed turns are not made up for. While the chain is
slow, such a user sends less, so that its latencies omit the waits of users that would have sent meanwhile (coordinated
omission).

*Open*: turns are due by the clock only, independent of earlier turns. Late turns are all taken, one after the other,
and measured from their due times. At most :data:`MAX_WAITING` turns wait; further ones are skipped, and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from loadgen.workloads.phases import MILLI, AnyPhase, Seen

LOOK_MS: Final = 500
"""Maximum milliseconds between two checks of an open-loop user with phases, so that it notices changed rates."""
RETRY_MS: Final = 100
"""Milliseconds after which an open-loop user that could not take all its due turns is checked again."""
MAX_WAITING: Final = 256
"""Maximum number of due turns of one user that wait."""


class Schedule:
    """The planned rate of one user's turns, from its interval, its phases, and its first and last height."""

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
        """Whether the rate is always 1."""
        self.turn_costs = interval_ms * MILLI
        """Credit that one turn costs. In each millisecond a user earns a credit of its rate in thousandths."""

    def rate_milli(self, seen: Seen) -> int:
        """The rate of turns, in thousandths, at the given height, time, price and backlog."""
        if not self._lasts_at(seen.height):
            return 0
        phase = next((phase for phase in self._phases if phase.lasts_at(seen)), None)
        return MILLI if phase is None else phase.rate_milli(seen)

    def has_turns_at(self, height: int) -> bool:
        """Whether turns can come due at a height, at least for some time, prices and backlog."""
        seen = Seen(height)
        by_height = (phase for phase in self._phases if not phase.is_by_time)
        phase = next((phase for phase in by_height if phase.lasts_at(seen)), None)
        return self._lasts_at(height) and (phase is None or phase.has_turns(seen))

    def _lasts_at(self, height: int) -> bool:
        return self._from_height <= height and (self._until_height is None or height < self._until_height)

    def next_change_ms(self, at_ms: int) -> int | None:
        """The first millisecond after ``at_ms`` at which the rate may change by time; ``None`` if there is none."""
        changes = (phase.next_change_ms(at_ms) for phase in self._phases)
        return min((change for change in changes if change is not None and change > at_ms), default=None)


class Rhythm:
    """The times of one user's turns in a closed loop.

    A driver checks the user repeatedly. Each check first calls :meth:`next_delay_ms` for the time until the next check,
    then :meth:`takes_turn` for whether the user takes a turn now. So the delay after a check is computed from the
    heights known at the checks before it.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._seen = Seen()
        self._earned = 0

    def next_delay_ms(self, now_ms: int = 0) -> int:
        """Milliseconds until the user's next check, at the current rate. Adds the credit that is earned until then."""
        schedule = self.schedule
        if schedule.is_plain:
            return schedule.interval_ms
        rate = schedule.rate_milli(replace(self._seen, at_ms=now_ms))
        delay_ms = schedule.interval_ms if rate <= MILLI else max(1, -(-schedule.turn_costs // rate))
        self._earned = min(self._earned + delay_ms * rate, 2 * schedule.turn_costs)
        return delay_ms

    def takes_turn(self, seen: Seen) -> bool:
        """Whether the user takes a turn now, given what it sees of the chain. The turn is paid from its credit."""
        schedule = self.schedule
        if schedule.is_plain:
            return True
        self._seen = replace(seen, height=max(self._seen.height, seen.height))
        if schedule.rate_milli(seen) == 0 or self._earned < schedule.turn_costs:
            return False
        self._earned -= schedule.turn_costs
        return True


class OpenRhythm:
    """The times of one user's turns in an open loop. They follow from the schedule's rate, integrated over time.
    Between two checks of the user, heights and prices are those known at the first check."""

    def __init__(self, schedule: Schedule, first_due_ms: int) -> None:
        """At rate 1 the first turn is due ``first_due_ms`` after the load began."""
        self.schedule = schedule
        self.waiting: deque[int] = deque()
        """Due times of turns that were not taken yet, in milliseconds since the load began."""
        self.skipped = 0
        """Number of turns that came due while :data:`MAX_WAITING` others waited, and are never taken."""
        self._seen = Seen()
        """What the user last knew of the chain, and until when its due turns are in ``waiting`` or ``skipped``."""
        self._earned = schedule.turn_costs - max(1, first_due_ms) * MILLI

    def advance(self, now_ms: int) -> None:
        """Add the turns that come due until ``now_ms`` to those that wait."""
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
        """Drop the turns that were due before a time."""
        self.advance(now_ms)
        self.waiting.clear()
        self.skipped = 0

    def see(self, seen: Seen) -> None:
        """Add the turns that come due until the time of ``seen``. Later turns follow from its height and prices."""
        self.advance(seen.at_ms)
        height = max(self._seen.height, seen.height)
        self._seen = replace(seen, at_ms=self._seen.at_ms, height=height)

    @property
    def is_paused(self) -> bool:
        """Whether the rate is 0 for the time, height, prices and backlog that the user last knew."""
        return self.schedule.rate_milli(self._seen) == 0

    def next_delay_ms(self, now_ms: int) -> int:
        """Milliseconds until the user's next check: until a turn is due, waiting turns are tried again, or the rate may
        have changed."""
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
