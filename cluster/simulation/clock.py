"""Virtual time: a queue of calls ordered by time, and by the order in which they were put there.

Time is counted in whole microseconds, so that no rounding of floats decides an order. Every call that runs is hashed
into a rolling digest with what it says of itself: equal digests mean equal runs, event by event.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final, NamedTuple

from blake3 import blake3

MICROSECONDS_A_MILLISECOND: Final = 1_000


class _Entry(NamedTuple):
    at_us: int
    number: int
    label: str
    content: bytes
    call: Callable[[], None]


class VirtualClock:
    """Runs calls in virtual time."""

    def __init__(self) -> None:
        self._queue: list[_Entry] = []
        self._number = 0
        self._digest = blake3()
        self.now_us = 0
        self.events = 0

    @property
    def now_ms(self) -> float:
        """Milliseconds since the run began."""
        return self.now_us / MICROSECONDS_A_MILLISECOND

    def after(self, delay_us: int, label: str, content: bytes, call: Callable[[], None]) -> None:
        """Run ``call`` after a delay. ``label`` and ``content`` say what it is, for the digest."""
        heapq.heappush(self._queue, _Entry(self.now_us + delay_us, self._number, label, content, call))
        self._number += 1

    def step(self) -> bool:
        """Run the next call; ``False`` where there is none."""
        if not self._queue:
            return False
        entry = heapq.heappop(self._queue)
        self.now_us = entry.at_us
        self.events += 1
        self._digest.update(f"{entry.at_us} {entry.label} {len(entry.content)} ".encode() + entry.content)
        entry.call()
        return True

    def digest(self) -> str:
        """Hash over every call so far, as hex."""
        return self._digest.hexdigest()
