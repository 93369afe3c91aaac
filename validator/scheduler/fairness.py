"""Per-actor fairness weights over a sliding window of blocks (SPEC §8), exact in integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from validator.chain.records import Fires
from validator.primitives.types import Address


class FairnessWeights(NamedTuple):
    """The fairness weights of actors in one block: ``W(a) = weight(a) / divisor``, in ``[1, 2]``."""

    recent: Mapping[Address, int]
    """``r``: number of fires in the window by actor, without zeros."""
    divisor: int
    """``D = max(2, M2)``, twice the median of the non-zero ``r``."""

    def weight(self, actor: Address) -> int:
        """An actor's weight, ``2 * D - min(2 * r, D)``: ``2 * D`` without fires, ``D`` from the median on."""
        return 2 * self.divisor - min(2 * self.recent.get(actor, 0), self.divisor)


class FireCounts:
    """Number of fires by actor in the window. The number of actors with each count makes medians cheap."""

    def __init__(self) -> None:
        self.by_actor: dict[Address, int] = {}
        """Number of fires by actor. Actors without fires are absent."""
        self._actors_with: dict[int, int] = {}

    def count(self, fires: Fires, sign: int) -> None:
        """Add a block's fires to the counts, or subtract them. ``sign``: 1 or -1."""
        for actor, number in fires.counts:
            before = self.by_actor.get(actor, 0)
            after = before + sign * number
            assert after >= 0, "fires are taken away only after they were added"
            self._move(before, after)
            if after:
                self.by_actor[actor] = after
            else:
                del self.by_actor[actor]

    def divisor(self) -> int:
        """The divisor of the weights, ``D = max(2, M2)``; ``M2`` is twice the median of the counts (SPEC §8)."""
        total = len(self.by_actor)
        if not total:
            return 2
        lower, upper = (total - 1) // 2, total // 2
        passed = 0
        middle: list[int] = []
        for count in sorted(self._actors_with):
            reached = passed + self._actors_with[count]
            middle.extend(count for rank in (lower, upper) if passed <= rank < reached)
            passed = reached
        return max(2, sum(middle))

    def _move(self, before: int, after: int) -> None:
        if before:
            self._actors_with[before] -= 1
            if not self._actors_with[before]:
                del self._actors_with[before]
        if after:
            self._actors_with[after] = self._actors_with.get(after, 0) + 1
