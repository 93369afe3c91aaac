"""The timers of one validator on an asyncio loop, with a clock that may run at another speed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cluster.common.units import MILLISECONDS_PER_SECOND
from validator.node.events import TimerName


class Timers:
    """Timers by name; a timer that is set again restarts. ``on_timeout`` is called on the loop."""

    def __init__(self, usual_speed: float, on_timeout: Callable[[TimerName], None]) -> None:
        self.skewed = 0
        """Number of timers that were set while a fault skewed the clock."""
        self._usual_speed = self._speed = usual_speed
        self._on_timeout = on_timeout
        self._running: dict[TimerName, asyncio.TimerHandle] = {}
        self._is_closed = False

    def set(self, timer: TimerName, delay_ms: int) -> None:
        """Start a timer. Ignored once closed."""
        self.cancel(timer)
        if not self._is_closed:
            self.skewed += self._speed != self._usual_speed
            self._start(timer, delay_ms / MILLISECONDS_PER_SECOND / self._speed)

    def cancel(self, timer: TimerName) -> None:
        running = self._running.pop(timer, None)
        if running is not None:
            running.cancel()

    def set_speed(self, factor: float) -> None:
        """Run the clock ``factor`` times as fast as usual; running timers continue at the new speed."""
        before, self._speed = self._speed, self._usual_speed * factor
        if self._speed == before:
            return
        now = asyncio.get_running_loop().time()
        for timer, running in list(self._running.items()):
            running.cancel()
            self._start(timer, max(0.0, running.when() - now) * before / self._speed)

    def close(self) -> None:
        """Cancel every timer, and ignore new ones."""
        self._is_closed = True
        for running in self._running.values():
            running.cancel()
        self._running.clear()

    def _start(self, timer: TimerName, delay_s: float) -> None:
        self._running[timer] = asyncio.get_running_loop().call_later(delay_s, self._fire, timer)

    def _fire(self, timer: TimerName) -> None:
        del self._running[timer]
        self._on_timeout(timer)
