"""The scheduler's index: which timers are due at a height, and how often each actor fired of late.

It is derived from state and holds nothing of its own. It stands at one block; :meth:`SchedulerIndex.advance` moves it
to a child by that block's changes, :meth:`SchedulerIndex.retreat` moves it back by the same changes, so it follows
every branch and equals a rebuild from state on each of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Final

from validator.records import FIRES, TIMER, Fires, Timer, decode_record, fires_height
from validator.state import View
from validator.types import Address
from validator.world import Change

_INDEXED: Final = (TIMER, FIRES)


class SchedulerIndex:
    """Live timers by trigger height, and fires by actor over the recorded window."""

    def __init__(self) -> None:
        self._by_trigger: dict[int, dict[int, Timer]] = {}
        self._recent: dict[Address, int] = {}
        self._fire_heights: list[int] = []
        """Heights of the recorded blocks with fires, ascending."""

    @staticmethod
    def rebuild(view: View) -> SchedulerIndex:
        """The index of a state, by scanning it."""
        index = SchedulerIndex()
        for prefix in _INDEXED:
            index.advance(Change(key, None, decode_record(key, value)) for key, value in view.scan(prefix))
        return index

    def advance(self, changes: Iterable[Change]) -> None:
        """Move to the child block that made these changes."""
        for change in changes:
            self._apply(change.key, change.before, change.after)

    def retreat(self, changes: Iterable[Change]) -> None:
        """Move back to the parent of the block that made these changes."""
        for change in changes:
            self._apply(change.key, change.after, change.before)

    def due(self, height: int) -> list[Timer]:
        """The live timers due at ``height``, carried ones included, by ``(trigger_height, sequence)``."""
        triggers = sorted(trigger for trigger in self._by_trigger if trigger <= height)
        return [
            timer
            for trigger in triggers
            for _, timer in sorted(self._by_trigger[trigger].items())
        ]  # fmt: skip

    def backlog(self, height: int) -> int:
        """How many live timers have a trigger height up to ``height``."""
        return sum(len(bucket) for trigger, bucket in self._by_trigger.items() if trigger <= height)

    def recent_fires(self) -> dict[Address, int]:
        """Fires in the recorded window, by actor; actors without any are absent."""
        return dict(self._recent)

    def fire_heights_below(self, height: int) -> list[int]:
        """The recorded blocks with fires below a height, ascending."""
        return self._fire_heights[: bisect_left(self._fire_heights, height)]

    def timers(self) -> Iterator[Timer]:
        """All live timers, in no particular order."""
        for bucket in self._by_trigger.values():
            yield from bucket.values()

    def contents(self) -> tuple[list[Timer], list[tuple[Address, int]]]:
        """Everything in a fixed order, to compare two indexes."""
        timers = [
            self._by_trigger[trigger][seq]
            for trigger in sorted(self._by_trigger)
            for seq in sorted(self._by_trigger[trigger])
        ]
        return timers, sorted(self._recent.items())

    def _apply(self, key: bytes, before: object, after: object) -> None:
        if isinstance(before, Timer):
            self._remove_timer(before)
        elif isinstance(before, Fires):
            self._count(before, -1)
            del self._fire_heights[bisect_left(self._fire_heights, fires_height(key))]
        if isinstance(after, Timer):
            self._by_trigger.setdefault(after.trigger_height, {})[after.sequence] = after
        elif isinstance(after, Fires):
            self._count(after, +1)
            insort(self._fire_heights, fires_height(key))

    def _remove_timer(self, timer: Timer) -> None:
        bucket = self._by_trigger[timer.trigger_height]
        del bucket[timer.sequence]
        if not bucket:
            del self._by_trigger[timer.trigger_height]

    def _count(self, fires: Fires, sign: int) -> None:
        for actor, count in fires.counts:
            total = self._recent.get(actor, 0) + sign * count
            if total:
                self._recent[actor] = total
            else:
                del self._recent[actor]
