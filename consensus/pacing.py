"""Timeouts and repetition that adapt to a network that is slower than the configuration assumed.

A view *failed* for a validator if a quorum gave it up, or if the validator itself did and left it otherwise. The
configured timeouts are doubled when more views failed since the last finalization than faulty leaders can fail
(:meth:`consensus.leader.LeaderElection.longest_row`), and again with each further one, up to :data:`MAX_FACTOR` times.
They are halved after each :data:`FINAL_VIEWS` finalizations.
What may be lost is repeated after about two block times. An engine has no clock but its timers, so it counts the ticks
of the rebroadcast timer in each view that ended with a block. The median of the last :data:`SAMPLES` such views is the
block time; no interval is shorter than a tick, nor longer than the leader timeout, rounded up to a tick.
``docs/consensus.md`` has the arguments and the bounds.
"""

from __future__ import annotations

from collections import deque
from statistics import median_low
from typing import Final

MAX_FACTOR: Final = 16
FINAL_VIEWS: Final = 16
"""Finalizations after which timeouts shrink a step: a step back too early costs as many views as it takes to grow."""

SAMPLES: Final = 9
"""Views that ended with a block, of which the median counts: five slow ones lengthen the interval, five quick ones
shorten it."""
BLOCK_TIMES: Final = 2
"""Block times from one repetition to the next: less repeats what is still under way."""


class Pacing:
    """The factor of one engine's timeouts."""

    def __init__(self) -> None:
        self.factor = 1
        self.repetition = Repetition()
        self._failed = 0
        """Views since the last finalization."""
        self._final = 0
        """Finalizations since the last step."""

    def failed(self, longest_row: int) -> None:
        """A view failed, of which so many may between two finalizations, however good the network."""
        self._failed += 1
        if self._failed > longest_row and self.factor < MAX_FACTOR:
            self.factor *= 2
            self._final = 0

    def finalized(self) -> None:
        """A finalization became known."""
        self._failed = 0
        self._final += 1
        if self._final == FINAL_VIEWS:
            self._final = 0
            self.factor = max(1, self.factor // 2)


class Repetition:
    """When one engine repeats what may be lost. Its unit of time is the tick, one ``rebroadcast_ms``."""

    def __init__(self) -> None:
        self.ticks = 0
        """In this view."""
        self._interval = 1
        """Ticks from one repetition to the next, unless the leader timeout is shorter."""
        self._first = 0
        """The tick of the first repetition in this view, or 0."""
        self._last = 0
        """That of the last one."""
        self._taken = deque([0] * SAMPLES, maxlen=SAMPLES)
        """Ticks of the views that ended with a block lately."""

    def enter_view(self) -> None:
        """Another view begins."""
        self.ticks = self._first = self._last = 0

    def tick(self, longest: int) -> bool:
        """A tick came; whether to repeat now. ``longest``: ticks of the leader timeout, which bounds the interval."""
        self.ticks += 1
        if self.ticks - self._last < min(self._interval, longest):
            return False
        self._first = self._first or self.ticks
        self._last = self.ticks
        return True

    def made_block(self) -> None:
        """The view ended with a block.

        If it ended within a tick of its first repetition, that may have ended it, so the view changes nothing:
        otherwise losses alone would lengthen the interval.
        """
        repaired = 0 < self._first == self.ticks
        self._taken.append(self._interval // BLOCK_TIMES if repaired else self.ticks)
        self._interval = max(1, BLOCK_TIMES * median_low(self._taken))
