"""How far a process's event loop is behind: whether what comes late came late, or was only seen late.

A greenlet sleeps again and again, and notes by how much it sleeps too long. While the loop has other work, or the
process no processor, answers that have come wait as long as that.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final

import gevent  # type: ignore[import-untyped]

TICK_S: Final = 0.02
MAX_KEPT: Final = 1_024
"""Ticks that are kept: at least the last 20 seconds."""


class LoopLag:
    """The lag of one event loop. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._due_at = float("inf")
        """When the sleep that goes on is to end."""
        self._ticks: deque[tuple[float, float]] = deque(maxlen=MAX_KEPT)
        """When each sleep was to end, and when it did."""

    def run(self) -> None:
        """Measure for ever."""
        while True:
            self.begin(time.monotonic())
            gevent.sleep(TICK_S)
            self.end(time.monotonic())

    def begin(self, now: float) -> None:
        """A sleep begins."""
        self._due_at = now + TICK_S

    def end(self, now: float) -> None:
        """It is over."""
        self._ticks.append((self._due_at, now))
        self._due_at = float("inf")

    def behind_s(self, since: float, now: float) -> float:
        """For how long the loop was behind in a stretch of time that ends now."""
        behind = max(0.0, now - max(since, self._due_at))
        for due_at, ended_at in reversed(self._ticks):
            if ended_at <= since:
                break
            behind += ended_at - max(since, due_at)
        return behind
