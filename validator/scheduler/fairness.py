"""Per-actor fairness weights over a sliding window of blocks (SPEC §8), exact in integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from validator.types import Address


class FairnessWeights(NamedTuple):
    """The weights of one block. ``W(a) = weight(a) / divisor``, in ``[1, 2]``."""

    recent: Mapping[Address, int]
    """``r``: fires in the window, by actor, without zeros."""
    divisor: int
    """``D = max(2, M2)``, twice the median of the non-zero ``r``."""

    @staticmethod
    def over(recent: Mapping[Address, int]) -> FairnessWeights:
        ascending = sorted(recent.values())
        count = len(ascending)
        twice_median = ascending[(count - 1) // 2] + ascending[count // 2] if count else 0
        return FairnessWeights(recent, max(2, twice_median))

    def weight(self, actor: Address) -> int:
        """``2 * D - min(2 * r, D)``: twice the divisor for an actor that has not fired, the divisor from the median
        on."""
        return 2 * self.divisor - min(2 * self.recent.get(actor, 0), self.divisor)
