"""The weights of actors, exact in integers: by fires in a sliding window (SPEC §8), or earned by epochs (SPEC §13).

Earned weights, of ``gba_auction``, are fixed-point numbers in units of 1 / :data:`ONE`. An actor's weight in an epoch
follows from its record alone, so nothing is recomputed when an epoch begins: :func:`weight_at` catches up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from numba import njit

from validator.chain.records import ActorWeight, Fires
from validator.primitives.params import Parameters
from validator.primitives.types import Address

ONE: Final = 1 << 16
"""The fixed-point number 1.0 of weights and scores."""
MILLI: Final = 1_000


def fixed_point(milli: int) -> int:
    """Thousandths as a fixed-point number, rounded down."""
    return ONE * milli // MILLI


class FairnessWeights(NamedTuple):
    """The fairness weights of actors in one block: ``W(a) = weight(a) / divisor``, in ``[1, 2]``."""

    recent: Mapping[Address, int]
    """``r``: number of fires in the window by actor, without zeros."""
    divisor: int
    """``D = max(2, M2)``, twice the median of the non-zero ``r``."""

    def weight(self, actor: Address) -> int:
        """An actor's weight, ``2 * D - min(2 * r, D)``: ``2 * D`` without fires, ``D`` from the median on."""
        return 2 * self.divisor - min(2 * self.recent.get(actor, 0), self.divisor)


class Decay(NamedTuple):
    """How earned weights move from epoch to epoch: ``w' = (1 - λ) · w + λ · S``, clamped (SPEC §13)."""

    decay: int
    """λ, in thousandths."""
    least: int
    """The least weight, which an actor without fires has, too: so a fresh actor has no advantage over an idle one."""
    most: int

    @staticmethod
    def of(parameters: Parameters) -> Decay:
        return Decay(
            parameters.weight_lambda_milli,
            fixed_point(parameters.weight_min_milli),
            fixed_point(parameters.weight_max_milli),
        )

    def weight(self, record: ActorWeight | None, epoch: int) -> int:
        """The weight, in an epoch, of an actor with this record."""
        return self.least if record is None else int(weight_at(epoch, *record, *self))

    def with_fires(self, record: ActorWeight | None, epoch: int, scores: int, fires: int) -> ActorWeight:
        """The record after further fires in an epoch. ``scores``: the sum of their scores."""
        if record is not None and record.epoch == epoch:
            return record._replace(scores=record.scores + scores, fires=record.fires + fires)
        return ActorWeight(epoch, self.weight(record, epoch), scores, fires)


@njit(cache=True, nogil=True)
def weight_at(epoch: Any, since: Any, weight: Any, scores: Any, fires: Any, decay: Any, least: Any, most: Any) -> Any:
    """The weight in ``epoch`` of an actor whose newest fires were in epoch ``since``, with the weight that it had then.

    ``S`` of that epoch is the mean score of its fires, and 0 of each epoch since. Each step rounds down: it is at most
    one unit below the exact value, so the result is at most ``1 / λ`` units below it, plus one for the mean.
    """
    earned = scores // fires
    while since < epoch and (earned > 0 or weight > least):
        weight = min(most, max(least, ((MILLI - decay) * weight + decay * earned) // MILLI))
        since, earned = since + 1, 0
    return weight


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
