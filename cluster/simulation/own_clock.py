"""The clock of a simulated machine, and its timers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.simulation.clock import VirtualClock
from validator.node.events import TimerName

Later = Callable[[int, str, bytes, Callable[[], None]], None]
"""``later(delay_us, label, content, call)`` schedules a call, which is dropped if the machine stops before."""


class _Armed(NamedTuple):
    """A running timer."""

    number: int
    expires_us: int


class OwnClock:
    """A clock that may run at another speed than virtual time: at 2, timers expire after half the time."""

    def __init__(self, clock: VirtualClock, speed: float, later: Later, expire: Callable[[TimerName], None]) -> None:
        self.speed = speed
        self._clock = clock
        self._later = later
        self._expire = expire
        self._own_us = 0.0
        """The clock's time when its present speed was set."""
        self._own_since_us = 0
        """The virtual time when its present speed was set."""
        self._paused_since_ms: float | None = None
        """The clock's time when the machine's present pause began; ``None`` if it is not paused."""
        self._paused_ms = 0.0
        """Total duration of the machine's past pauses."""
        self._timers: dict[TimerName, _Armed] = {}
        self._timer_number = 0

    @property
    def now_ms(self) -> float:
        """The clock's time, by which timers expire."""
        passed_us = self._clock.now_us - self._own_since_us
        return (self._own_us + passed_us * self.speed) / MICROSECONDS_PER_MILLISECOND

    @property
    def awake_ms(self) -> float:
        """The clock's time without the machine's pauses: a timer that expires during a pause is noticed after it."""
        now_ms = self.now_ms if self._paused_since_ms is None else self._paused_since_ms
        return now_ms - self._paused_ms

    def pause(self) -> None:
        """Note that the machine pauses; the clock continues."""
        if self._paused_since_ms is None:
            self._paused_since_ms = self.now_ms

    def go_on(self) -> None:
        """Note that the machine's pause ends."""
        if self._paused_since_ms is not None:
            self._paused_ms += self.now_ms - self._paused_since_ms
            self._paused_since_ms = None

    def set_speed(self, speed: float) -> None:
        """Change the clock's speed from now on; the remaining time of each running timer changes accordingly."""
        self._own_us, self._own_since_us = self.now_ms * MICROSECONDS_PER_MILLISECOND, self._clock.now_us
        before, self.speed = self.speed, speed
        if speed == before:
            return
        for timer, armed in list(self._timers.items()):
            left_us = max(0, armed.expires_us - self._clock.now_us)
            self._arm(timer, round(left_us * before / speed))

    def set_timer(self, timer: TimerName, delay_ms: int) -> None:
        """Start or restart a timer."""
        delay_us = delay_ms * MICROSECONDS_PER_MILLISECOND
        self._arm(timer, delay_us if self.speed == 1.0 else round(delay_us / self.speed))

    def cancel_timer(self, timer: TimerName) -> None:
        """Stop a timer, if it runs."""
        self._timers.pop(timer, None)

    def cancel_all(self) -> None:
        """Stop every timer."""
        self._timers.clear()

    def _arm(self, timer: TimerName, delay_us: int) -> None:
        self._timer_number += 1
        armed = self._timers[timer] = _Armed(self._timer_number, self._clock.now_us + delay_us)

        def expire() -> None:
            if self._timers.get(timer) == armed:
                del self._timers[timer]
                self._expire(timer)

        self._later(delay_us, f"timer {timer.owner} {timer.number}", b"", expire)
