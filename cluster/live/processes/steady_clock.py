"""Time since the epoch that is the same in all processes of a run on one machine, even if the wall clock is set.

A run is judged by times that several processes note: the driver when faults begin and end, hosts when blocks become
final. If the machine's wall clock is set meanwhile, times before and after that are not comparable. So a process reads
the wall clock once, and from then on adds the time since the machine was started. The driver passes its reading on: to
hosts by :data:`~cluster.common.checkout.CLOCK_VARIABLE`, and to another driver with the run. A process on another
machine reads the wall clock of that machine when it starts.
"""

from __future__ import annotations

import os
import time
from typing import Final

from cluster.common.checkout import CLOCK_VARIABLE
from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.live.processes.processes import BOOT_ID
from cluster.live.processes.resumption import boot_seconds


class SteadyClock:
    """A clock of the time since the epoch, for this process. Setting the machine's wall clock does not affect it."""

    def __init__(self, reading: str = "") -> None:
        """``reading`` is that of another process, used if it is on this machine."""
        self._offset_s: float
        """Difference between the time since the epoch and the time since the machine was started."""
        self.read()
        self.take_over(reading)

    def read(self) -> None:
        """Read the wall clock again, since a run begins."""
        self._offset_s = time.time() - boot_seconds()

    @property
    def reading(self) -> str:
        """The reading for another process: the machine's boot id, and the offset in seconds."""
        return f"{BOOT_ID} {self._offset_s!r}"

    def take_over(self, reading: str) -> None:
        """Use the reading of another process from now on. One of another machine, or from before a restart of this one,
        is ignored.
        """
        machine, _, offset_s = reading.partition(" ")
        if machine == BOOT_ID:
            self._offset_s = float(offset_s)

    def epoch_ms(self) -> float:
        """Milliseconds since the epoch."""
        return (boot_seconds() + self._offset_s) * MILLISECONDS_PER_SECOND


CLOCK: Final = SteadyClock(os.environ.get(CLOCK_VARIABLE, ""))
