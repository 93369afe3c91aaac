"""The weights of actors, in integers: by fires in a sliding window (SPEC §8), or earned by epochs (SPEC §13).

Fairness weights are exact with the clip bounds of SPEC §8 and without smoothing. In all other chains they are
fixed-point numbers in units of 1 / :data:`ONE`, as is the smoothed median (:class:`Rounding`).

Earned weights, of ``gba_auction``, are fixed-point numbers in units of 1 / :data:`ONE`. An actor's weight in an epoch
follows from its record alone, so nothing is recomputed when an epoch begins: :func:`weight_at` catches up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from validator.chain.records import MEDIAN_FIRES, ActorWeight, Fires
from validator.primitives.compiled import compiled
from validator.primitives.params import DEFAULTS, Parameters
from validator.primitives.types import Address
from validator.state.working_set import World

ONE: Final = 1 << 16
"""The fixed-point number 1.0 of weights and scores."""
MILLI: Final = 1_000


def fixed_point(milli: int) -> int:
    """Thousandths as a fixed-point number, rounded down."""
    return ONE * milli // MILLI


class Rounding(NamedTuple):
    """How fairness weights are rounded, in units of 1 / :data:`ONE`: ``clip(2 - r / median, least, most)``, down."""

    median: int
    """The median of the non-zero ``r``, smoothed if the chain smooths it; at least :data:`ONE`."""
    least: int
    most: int


class FairnessWeights(NamedTuple):
    """The fairness weights in one block, by the account for which fires are counted (``WEIGHT_PARTY``)."""

    recent: Mapping[Address, int]
    """``r``: number of fires in the window by account, without zeros."""
    divisor: int
    """``D = max(2, M2)``, twice the median of the non-zero ``r``."""
    rounding: Rounding | None = None
    """``None`` if weights are exact: then ``W = weight / divisor``, in ``[1, 2]``."""

    def weight(self, account: Address) -> int:
        """The weight of an account's actors: exact, or in units of 1 / :data:`ONE`.

        The exact one is ``2 * D - min(2 * r, D)``: ``2 * D`` without fires, ``D`` from the median on.
        """
        recent = self.recent.get(account, 0)
        if self.rounding is not None:
            return int(rounded_weight(recent, *self.rounding))
        return 2 * self.divisor - min(2 * recent, self.divisor)


def weigh(world: World, counts: FireCounts, parameters: Parameters) -> FairnessWeights:
    """The fairness weights of the block that begins. A smoothed median moves, once a block, and is put into state.

    A window without fires has no median: the smoothed one rests. The first median that there is begins it.
    """
    p, divisor = parameters, counts.divisor()
    bounds = p.weight_clip_min_milli, p.weight_clip_max_milli
    is_smoothed = p.median_smoothing_milli < MILLI
    if not is_smoothed and bounds == (DEFAULTS.weight_clip_min_milli, DEFAULTS.weight_clip_max_milli):
        return FairnessWeights(counts.by_account, divisor)
    median = ONE * divisor // 2
    if is_smoothed:
        before: int | None = world.get(MEDIAN_FIRES)
        if counts.by_account:
            median = smoothed(before, median, p.median_smoothing_milli)
            world.put(MEDIAN_FIRES, median)
        elif before is not None:
            median = before
    return FairnessWeights(counts.by_account, divisor, Rounding(median, *map(fixed_point, bounds)))


def smoothed(before: int | None, newest: int, milli: int) -> int:
    """The exponential moving average of medians after ``newest``, which has the weight ``milli`` / 1,000.

    Each step rounds down, so the result is never above the exact average, and less than ``1,000 / milli`` units below.
    """
    return newest if before is None else (milli * newest + (MILLI - milli) * before) // MILLI


@compiled
def rounded_weight(recent: Any, median: Any, least: Any, most: Any) -> Any:
    """``clip(2 - recent / median, least, most)``, rounded down; all but ``recent`` in units of 1 / :data:`ONE`.

    ``recent`` and the median are below 2**30. The result is less than a unit below the exact one.
    """
    weight = 0
    if recent * ONE < 2 * median:
        weight = 2 * ONE - (recent * ONE * ONE + median - 1) // median
    return min(most, max(least, weight))


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


@compiled
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
    """Number of fires by account in the window. The number of accounts with each count makes medians cheap."""

    def __init__(self) -> None:
        self.by_account: dict[Address, int] = {}
        """Number of fires by the account for which they are counted. Accounts without fires are absent."""
        self._accounts_with: dict[int, int] = {}

    def count(self, fires: Fires, sign: int) -> None:
        """Add a block's fires to the counts, or subtract them. ``sign``: 1 or -1."""
        for account, number in fires.counts:
            before = self.by_account.get(account, 0)
            after = before + sign * number
            assert after >= 0, "fires are taken away only after they were added"
            self._move(before, after)
            if after:
                self.by_account[account] = after
            else:
                del self.by_account[account]

    def divisor(self) -> int:
        """The divisor of the weights, ``D = max(2, M2)``; ``M2`` is twice the median of the counts (SPEC §8)."""
        total = len(self.by_account)
        if not total:
            return 2
        lower, upper = (total - 1) // 2, total // 2
        passed = 0
        middle: list[int] = []
        for count in sorted(self._accounts_with):
            reached = passed + self._accounts_with[count]
            middle.extend(count for rank in (lower, upper) if passed <= rank < reached)
            passed = reached
        return max(2, sum(middle))

    def _move(self, before: int, after: int) -> None:
        if before:
            self._accounts_with[before] -= 1
            if not self._accounts_with[before]:
                del self._accounts_with[before]
        if after:
            self._accounts_with[after] = self._accounts_with.get(after, 0) + 1
