"""A metric: what a figure says, in which unit, and whether more of it is better. Lab and scorecard share it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from cluster.commands.compare.statistics import Interval

Better = Literal["more", "less", ""]
"""Which values are better; empty if neither is by itself."""
ANY: Final[Interval] = (-math.inf, math.inf)
SHARE: Final[Interval] = (0.0, 1.0)
POSITIVE: Final[Interval] = (0.0, math.inf)


@dataclass(frozen=True, slots=True)
class Metric:
    """The definition of a figure."""

    words: str
    """What it is, without its unit."""
    unit: str = ""
    """Empty if it has none: a number of things, or a ratio."""
    better: Better = ""
    range: Interval = ANY
    """The least and the greatest value that it can have. Intervals stay within, and so do the axes of plots."""
    measure: Callable[..., Any] | None = None
    """Computes it: in the lab from a market that ran, in the scorecard from an attacked run and its baseline."""

    @property
    def text(self) -> str:
        """The words, with the unit."""
        word = "as a" if self.unit.startswith("share") else "in"
        return f"{self.words}, {word} {self.unit}" if self.unit else self.words
