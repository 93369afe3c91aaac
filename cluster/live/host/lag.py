"""A process measures its own lag: time for which it wanted to run, and the machine did not let it.

Lag is the delay of a wait of known length, less the processor time that the process itself used during the wait: the
machine gave its processors to other processes, or was suspended. Linux also measures how long each thread waited for a
processor (``/proc/self/task/*/schedstat``, which psutil does not read); the longest wait counts. A process that is late
because it is busy has no lag: that delay is the chain's own.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from cluster.common.units import MILLISECONDS_PER_SECOND, NANOSECONDS_PER_SECOND
from cluster.live.processes.resumption import boot_seconds
from cluster.live.processes.steady_clock import CLOCK

TICK_S: Final = 0.1
SPAN_S: Final = 1.0
"""Lags within this time are reported as one."""
MIN_LAG_MS: Final = 10.0
"""A span with less lag is not reported."""
MAX_SPANS: Final = 1_000
"""Limit of spans that wait to be reported; the oldest are dropped first."""
TASKS: Final = "/proc/self/task"
SCHEDSTAT_BYTES: Final = 256
"""Number of bytes to read from the file: more than its three numbers have."""


class LagSpan(NamedTuple):
    """A span of time, in milliseconds since the epoch, and how much of it was lag."""

    from_ms: float
    until_ms: float
    lag_ms: float


class Moment(NamedTuple):
    """The clocks of a process, at one moment."""

    at_s: float
    """Seconds since the machine was started; time of a suspension included, since that is lag."""
    epoch_ms: float
    cpu_s: float
    """Processor time of the process so far."""
    waited_s: Mapping[int, float]
    """Time waited for a processor so far, keyed by thread; empty if the system does not measure it."""


def moment() -> Moment:
    """The clocks of this process, now."""
    return Moment(boot_seconds(), CLOCK.epoch_ms(), time.process_time(), _waited())


class LagMeter:
    """Measures the lag of this process: adds up the lags of its waits."""

    def __init__(self, look: Callable[[], Moment] = moment) -> None:
        self._look = look
        self._before = look()
        self._span_began = self._before
        self._lag_s = 0.0
        self._spans: list[LagSpan] = []
        self._is_closed = False

    def begin(self) -> None:
        self._before = self._look()

    def end(self, planned_s: float) -> None:
        """End the wait that :meth:`begin` began, which should have lasted ``planned_s``."""
        before, now = self._before, self._look()
        took_s = now.at_s - before.at_s
        late_s = took_s - planned_s - (now.cpu_s - before.cpu_s)
        waited_s = max((s - before.waited_s.get(thread, s) for thread, s in now.waited_s.items()), default=0.0)
        self._lag_s += min(took_s, max(0.0, late_s, waited_s))
        self._before = now
        if now.at_s - self._span_began.at_s >= SPAN_S:
            self._close(now)

    async def run(self) -> None:
        """Measure the running loop's lag, until cancelled or closed."""
        self.begin()
        while not self._is_closed:
            await asyncio.sleep(TICK_S)
            self.end(TICK_S)

    def close(self) -> None:
        """End :meth:`run`."""
        self._is_closed = True

    def drain(self) -> list[LagSpan]:
        """The completed spans with a lag, each once."""
        spans, self._spans = self._spans, []
        return spans

    def _close(self, now: Moment) -> None:
        lag_ms = self._lag_s * MILLISECONDS_PER_SECOND
        if lag_ms >= MIN_LAG_MS:
            length_ms = (now.at_s - self._span_began.at_s) * MILLISECONDS_PER_SECOND
            self._spans = [*self._spans[-MAX_SPANS + 1 :], LagSpan(now.epoch_ms - length_ms, now.epoch_ms, lag_ms)]
        self._span_began, self._lag_s = now, 0.0


def _waited() -> dict[int, float]:
    """Wait times keyed by native thread id. Called often, so a file is read in as few steps as possible."""
    found: dict[int, float] = {}
    for thread in threading.enumerate():
        try:
            file = os.open(f"{TASKS}/{thread.native_id}/schedstat", os.O_RDONLY)
        except OSError:
            continue  # the thread ended, or the system does not measure it
        try:
            fields = os.read(file, SCHEDSTAT_BYTES).split()
        except OSError:
            continue  # the thread ended since
        finally:
            os.close(file)
        if thread.native_id is not None and len(fields) > 1:
            found[thread.native_id] = int(fields[1]) / NANOSECONDS_PER_SECOND
    return found
