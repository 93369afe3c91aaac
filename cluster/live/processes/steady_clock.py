"""Time since the epoch, of which all processes of a run on one machine have the same, whatever its wall clock does.

A run is judged by times that several processes note: the driver when faults begin and end, hosts when blocks become
final. If the machine's wall clock is set meanwhile, times before and after that are not comparable. So a process reads
the wall clock once, and counts from there in the time since the machine was started. The driver hands its reading on:
to hosts by :data:`CLOCK_VARIABLE`, and to another driver with the run. A process on another machine reads the wall
clock of that machine when it starts.
"""

from __future__ import annotations

import os
import time
from typing import Final

from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.live.processes.processes import BOOT_ID
from cluster.live.processes.resumption import boot_seconds

CLOCK_VARIABLE: Final = "STAMPEDE_CLOCK"
"""Of the environment of a process: the reading of another one (:attr:`SteadyClock.reading`)."""


class SteadyClock:
    """The clock of this process."""

    def __init__(self, reading: str = "") -> None:
        """With the reading of another process, if that is of this machine."""
        self._offset_s: float
        """Of the epoch, to the time since the machine was started."""
        self.read()
        self.take_over(reading)

    def read(self) -> None:
        """Read the wall clock anew: a run begins."""
        self._offset_s = time.time() - boot_seconds()

    @property
    def reading(self) -> str:
        """For another process: of which machine it is, since its last start, and the offset in seconds."""
        return f"{BOOT_ID} {self._offset_s!r}"

    def take_over(self, reading: str) -> None:
        """Go on with the reading of another process; ignored if it is another machine's, or from before a restart."""
        machine, _, offset_s = reading.partition(" ")
        if machine == BOOT_ID:
            self._offset_s = float(offset_s)

    def epoch_ms(self) -> float:
        """Milliseconds since the epoch."""
        return (boot_seconds() + self._offset_s) * MILLISECONDS_PER_SECOND


CLOCK: Final = SteadyClock(os.environ.get(CLOCK_VARIABLE, ""))
