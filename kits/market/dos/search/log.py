"""The log of a search, ``candidates.jsonl`` in its folder: the search, then one line per candidate in their order.

A line that a crash left incomplete is cut off, and its candidate runs again. A candidate's line is held back until all
with lower numbers are written, so that equal searches give equal bytes. The file contains no measured times.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from cluster.commands.sweeps.log import LineLog
from cluster.common.errors import BadInput
from kits.market.dos.search.objectives import Fitness

LOG_FILE: Final = "candidates.jsonl"


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the search log: a candidate and the result of its evaluation."""

    number: int
    fitness: Fitness
    figure: float | None
    """The attack's figure (:mod:`kits.market.dos.search.objectives`); ``None`` if it has none."""
    spend: float
    """Spend of the attackers, in the smallest CBY unit."""
    attack: list[dict[str, int | str]]
    problem: str = ""
    """Why the candidate could not be evaluated, in one line; empty if it was evaluated."""


class SearchLog(LineLog[Line]):
    """The evaluated candidates of a search, on disk."""

    def __init__(self, folder: Path, search: dict[str, Any]) -> None:
        """Open or create the log in a folder. ``search`` identifies the search; only that search may continue the log.

        Raises :class:`BadInput` if the log belongs to another search or cannot be read.
        """
        self._waiting: dict[int, Line] = {}
        super().__init__(folder / LOG_FILE, Line, "search", search)

    def add(self, line: Line) -> None:
        """Add a candidate's result. It is written once the results of all candidates with lower numbers are written."""
        self._waiting[line.number] = line
        while (ready := self._waiting.pop(len(self.entries), None)) is not None:
            super().add(ready)

    def _take(self, line: Line) -> None:
        place = len(self.entries)
        if line.number != place:
            raise BadInput(f"{self._path}: line {place + 2}: has candidate {line.number}, expected {place}")
        super()._take(line)
