"""Metering of one handler's run (SPEC §2). A charge is made before the work, and cycles are charged before cells."""

from __future__ import annotations

from validator.primitives.errors import OutOfCells, OutOfCycles


class Meter:
    """Counts the cycles and cells that a run uses, against its limits."""

    __slots__ = ("cells_limit", "cells_used", "cycles_limit", "cycles_used")

    def __init__(self, cycles_limit: int, cells_limit: int) -> None:
        self.cycles_limit = cycles_limit
        self.cells_limit = cells_limit
        self.cycles_used = 0
        self.cells_used = 0

    def charge(self, cycles: int, cells: int = 0) -> None:
        """Charge cycles, then cells.

        Raises :class:`OutOfCycles` if the cycles exceed their limit; all remaining cycles are used up then. Raises
        :class:`OutOfCells` if the cells exceed their limit; the cycles stay charged then.
        """
        if self.cycles_used + cycles > self.cycles_limit:
            self.cycles_used = self.cycles_limit
            raise OutOfCycles
        self.cycles_used += cycles
        if self.cells_used + cells > self.cells_limit:
            raise OutOfCells
        self.cells_used += cells
