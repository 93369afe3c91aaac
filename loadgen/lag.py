"""Measurement of the lag of a process's event loop, to tell late answers from answers that were noticed late.

A greenlet sleeps repeatedly and records by how much each sleep is too long. A sleep is too long if the loop has other
work or the process gets no processor time. Answers that have arrived wait for the same time.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final

import gevent  # type: ignore[import-untyped]

TICK_S: Final = 0.02
MAX_KEPT: Final = 1_024
"""Number of sleeps that are kept: those of at least the last 20 seconds."""


class LoopLag:
    """The lag of one event loop. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._due_at = float("inf")
        """Intended end of the current sleep."""
        self._ticks: deque[tuple[float, float]] = deque(maxlen=MAX_KEPT)
        """Intended and actual end of each sleep."""

    def run(self) -> None:
        """Measure the lag forever: sleep repeatedly, and note when each sleep ends."""
        while True:
            self.begin(time.monotonic())
            gevent.sleep(TICK_S)
            self.end(time.monotonic())

    def begin(self, now: float) -> None:
        """Note the begin of a sleep."""
        self._due_at = now + TICK_S

    def end(self, now: float) -> None:
        """Note the end of a sleep."""
        self._ticks.append((self._due_at, now))
        self._due_at = float("inf")

    def behind_s(self, since: float, now: float) -> float:
        """Seconds of the interval from ``since`` to ``now`` during which the loop was behind."""
        behind = max(0.0, now - max(since, self._due_at))
        for due_at, ended_at in reversed(self._ticks):
            if ended_at <= since:
                break
            behind += ended_at - max(since, due_at)
        return behind
