"""The fee market of the timer lane, computed by an observer: basefees, median tip, weights (SPEC §7-§9, §13).

Written from SPEC, independently of the validators' code: the chain's values are checked against it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from itertools import accumulate
from math import ceil, floor
from typing import Final, NamedTuple

from cluster.audit.chain_codec import FireReceipt, Header
from validator.primitives.params import P50Weight, Parameters, WeightParty

USUAL_SLOPE: Final = 8
"""The constant ``A`` of SPEC §7, the slope of the basefees of cycles and cells."""
ONE: Final = 65_536
"""The fixed-point number 1.0 of earned weights and scores (SPEC §13, ``gba_auction``)."""
WEIGHT_BITS: Final = 32
"""Number of low bits of a score that hold the weight, where it only breaks ties (SPEC §13, ``gba_auction``)."""
BIAS_UNIT: Final = 2**32
"""The fixed-point number 1.0 of biases (SPEC §13, ``bias_auction``)."""
MOST_BIAS: Final = 2**128 - 1
SATURATING: Final = 67
"""An exponent beyond which a bias is :data:`MOST_BIAS`, since ``e^67 > 2**96``."""
EXACT: Final = Context(prec=120)
"""Decimal arithmetic that is exact enough for every bias."""
USUAL_WEIGHTS: Final = (1_000, 1_000, 2_000)
"""Smoothing and clip bounds, in thousandths, with which fairness weights are exact; all others round them."""
MIN_DIVISOR: Final = 2
"""The lower bound of the fairness divisor ``D`` (SPEC §8)."""


class Basefees(NamedTuple):
    """The three basefees that a header states."""

    cycle: int
    cell: int
    lane_timer: int

    @classmethod
    def of(cls, header: Header) -> Basefees:
        return cls(header.basefee_cycle, header.basefee_cell, header.basefee_lane_timer)


class Market(NamedTuple):
    """The basefee of one resource in a block, and how much of the resource the block used, with the target."""

    basefee: int
    used: int
    target: int
    slope: int

    @property
    def step(self) -> int:
        """The size of the basefee's change after the block, without sign, before the limits of basefees apply."""
        return _step(*self)


def markets(header: Header, parameters: Parameters, has_lane_fee: bool) -> tuple[Market, ...]:
    """The markets of cycles and cells in a block, and that of the timer lane if it has a fee (SPEC §7, §13)."""
    before, p = Basefees.of(header), parameters
    cycles, cells = header.user_cycles + header.lane_cycles, header.user_cells + header.lane_cells
    usual = (
        Market(before.cycle, cycles, p.block_cycles_target, USUAL_SLOPE),
        Market(before.cell, cells, p.block_cells_target, USUAL_SLOPE),
    )
    if not has_lane_fee:
        return usual
    return *usual, Market(before.lane_timer, header.lane_cycles, p.lane_timer_cycles // 2, p.lane_basefee_slope)


def following_basefees(header: Header, parameters: Parameters, has_lane_fee: bool) -> Basefees:
    """The basefees of the block after ``header``, in which ``parameters`` were in force (SPEC §7, §13)."""
    cycle, cell, *lane = (_moved(*market, parameters) for market in markets(header, parameters, has_lane_fee))
    return Basefees(cycle, cell, *lane or [cycle])


def risen(basefee: int, used: int, target: int, slope: int, p: Parameters) -> int:
    """The basefee after a block that used more than the target. It grows with ``basefee`` and with ``used``."""
    return min(p.max_basefee, basefee + max(_step(basefee, used, target, slope), 1))


def _moved(basefee: int, used: int, target: int, slope: int, p: Parameters) -> int:
    if used == target:
        return basefee
    if used > target:
        return risen(basefee, used, target, slope, p)
    return max(p.min_basefee, basefee - _step(basefee, used, target, slope))


def _step(basefee: int, used: int, target: int, slope: int) -> int:
    return basefee * min(8 * abs(used - target), slope * target) // (8 * slope * target)


def median_tip(fires: Sequence[FireReceipt], weight: P50Weight) -> int:
    """The median tip per cycle (``p50``) of a block's fires; 0 if there are none. ``weight``: by fires or by cycles."""
    tips = sorted((fire.tip_per_cycle, fire.cycles) for fire in fires)
    if not tips:
        return 0
    if weight is P50Weight.FIRES:
        return tips[(len(tips) - 1) // 2][0]
    half = sum(cycles for _, cycles in tips)
    reached = accumulate(cycles for _, cycles in tips)
    return next(tip for (tip, _), cycles in zip(tips, reached, strict=True) if 2 * cycles >= half)


@dataclass(slots=True)
class FairnessWindow:
    """Fires of recent blocks, counted by actor, or by the actors' deployers (SPEC §8)."""

    deployers: dict[bytes, bytes] = field(default_factory=dict)
    """Who deployed each actor."""
    recent: Counter[bytes] = field(default_factory=Counter)
    """The number of fires in the window (``r``), by the account that they count for. Others are absent."""
    divisor: int = MIN_DIVISOR
    """The fairness divisor ``D`` of the current block: twice the median of the counts in ``recent``, bounded below."""
    smoothed: int | None = None
    """The moving average of the medians so far, in units of 2**-16; ``None`` before the first one."""
    smoothed_at: dict[int, int] = field(default_factory=dict)
    """The moving average in force at each height since the first one, if medians are smoothed."""
    actors: int = 0
    """The number of accounts with fires in the window when the current block began."""
    pruned: int = 0
    """The number of blocks that left the window when the current block began."""
    _blocks: deque[tuple[int, Counter[bytes]]] = field(default_factory=deque)

    def begin_block(self, height: int, window: int, share_milli: int = 1_000) -> None:
        """Begin a block: drop the fires of blocks older than the window, and compute the medians for the block.

        ``share_milli``: the newest median's share in the moving average, in thousandths.
        """
        before = len(self._blocks)
        while self._blocks and self._blocks[0][0] < height - window:
            for actor, count in self._blocks.popleft()[1].items():
                self.recent[actor] -= count
                if not self.recent[actor]:
                    del self.recent[actor]
        self.pruned = before - len(self._blocks)
        ascending = sorted(self.recent.values())
        count = self.actors = len(ascending)
        median_twice = ascending[(count - 1) // 2] + ascending[count // 2] if count else 0
        self.divisor = max(MIN_DIVISOR, median_twice)
        if count:
            newest = median_twice * ONE // 2
            before_it = newest if self.smoothed is None else self.smoothed
            self.smoothed = (share_milli * newest + (1_000 - share_milli) * before_it) // 1_000
        if self.smoothed is not None and share_milli < 1_000:
            self.smoothed_at[height] = self.smoothed

    def enter(self, height: int, fires: Mapping[bytes, int], parameters: Parameters) -> None:
        """Enter the fires of a block, counted by actor."""
        if fires:
            counted: Counter[bytes] = Counter()
            for actor, count in fires.items():
                counted[self.account_of(actor, parameters)] += count
            self._blocks.append((height, counted))
            self.recent.update(counted)

    def account_of(self, actor: bytes, parameters: Parameters) -> bytes:
        """The account that an actor's fires count for."""
        return self.deployers.get(actor, actor) if parameters.weight_party is WeightParty.DEPLOYER else actor

    def score(self, actor: bytes, tip: int, parameters: Parameters) -> int:
        """The score of a timer in the auction, from its actor's weight and its tip (SPEC §8)."""
        p, fires = parameters, self.recent[self.account_of(actor, parameters)]
        weight = 2 * self.divisor - min(2 * fires, self.divisor)
        if (p.median_smoothing_milli, p.weight_clip_min_milli, p.weight_clip_max_milli) != USUAL_WEIGHTS:
            median = ONE if self.smoothed is None else self.smoothed
            exact = 2 - min(Fraction(2), Fraction(fires * ONE, median))
            weight = min(max(floor(exact * ONE), _bound(p.weight_clip_min_milli)), _bound(p.weight_clip_max_milli))
        return (tip + p.priority_floor) * weight


@dataclass(slots=True)
class _Earned:
    """The weight of one actor in an epoch, and the scores of its fires in it."""

    epoch: int
    weight: int
    scores: list[int] = field(default_factory=list)


class EarnedWeights:
    """The weights that actors earn by their fires, epoch by epoch (``gba_auction``)."""

    def __init__(self) -> None:
        self._of: dict[bytes, _Earned] = {}

    def enter(self, fires: Iterable[FireReceipt], height: int, p50_tip: int, p: Parameters) -> None:
        """Enter a block's fires. ``p50_tip``: the median tip in force in it."""
        for fire in fires:
            earned = self._of.get(fire.actor)
            if earned is None:
                self._of[fire.actor] = earned = _Earned(height // p.epoch_length, _bound(p.weight_min_milli))
            _move(earned, height // p.epoch_length, p)
            earned.scores.append(_score(fire, height - fire.trigger_height, p50_tip, p))

    def weight(self, actor: bytes, height: int, p: Parameters) -> int:
        """The weight of an actor at a height."""
        earned = self._of.get(actor)
        if earned is None:
            return _bound(p.weight_min_milli)
        _move(earned, height // p.epoch_length, p)
        return earned.weight

    def score(self, actor: bytes, tip: int, height: int, late: int, p: Parameters) -> int:
        """The score of a timer that is ``late`` blocks late: its tip, then its actor's weight, or a starving one's."""
        least = _bound(p.starvation_floor_milli) if late >= p.starvation_blocks else 0
        return tip << WEIGHT_BITS | max(self.weight(actor, height, p), least)

    def share(self, actor: bytes, height: int, p: Parameters) -> int:
        """The cycles of the lane after which an actor waits for the others."""
        return max(1, p.lane_timer_cycles * self.weight(actor, height, p) // (ONE * p.budget_slices))


def _bound(milli: int) -> int:
    return ONE * milli // 1_000


def _move(earned: _Earned, epoch: int, p: Parameters) -> None:
    """Move an actor's weight on to an epoch: towards the mean score of each epoch's fires, or towards 0."""
    while earned.epoch < epoch:
        mean = sum(earned.scores) // len(earned.scores) if earned.scores else 0
        moved = ((1_000 - p.weight_lambda_milli) * earned.weight + p.weight_lambda_milli * mean) // 1_000
        moved = min(max(moved, _bound(p.weight_min_milli)), _bound(p.weight_max_milli))
        is_settled = moved == earned.weight and not earned.scores
        earned.epoch = epoch if is_settled else earned.epoch + 1
        earned.weight, earned.scores = moved, []


def _score(fire: FireReceipt, late: int, p50_tip: int, p: Parameters) -> int:
    """The mean of four figures from 0 to 1: tip, outcome, lateness, and what was left of the lane."""
    both = fire.tip_per_cycle + p50_tip
    figures = (
        ONE * fire.tip_per_cycle // both if both else ONE // 2,
        ONE if fire.ok else 0,
        ONE * late // (late + p.starvation_blocks),
        ONE - ONE * fire.cycles // p.lane_timer_cycles,
    )
    return sum(figures) // len(figures)


class Fired(NamedTuple):
    """A fire with a locked bid: its bid, and how many blocks it was late."""

    bid: int
    late: int


class BiasMarket:
    """The bias of those who wait, ``e^(n·λ)``, and its rate λ, which follows the bids (SPEC §13, ``bias_auction``)."""

    def __init__(self) -> None:
        self._micro: int | None = None
        """λ in millionths; ``None`` before the first fire."""
        self._fires: list[Fired] = []
        """The fires since λ last changed."""
        self._known: dict[tuple[int, int], int] = {}

    def bias(self, late: int, p: Parameters) -> int:
        """The bias of a timer that is ``late`` blocks late, in units of 2**-32, below 2**128."""
        return self._bias(late, self._rate(p))

    def enter(self, fires: Sequence[Fired], height: int, p: Parameters) -> None:
        """Enter a block's fires; λ moves at the end of each interval that had some."""
        self._fires.extend(fires)
        if not self._fires or height % p.bias_interval_blocks:
            return
        rate, count = self._rate(p), len(self._fires)
        late, bid = sum(each.late for each in self._fires) // count, sum(each.bid for each in self._fires) // count
        growth = (self._bias(late + 1, rate) - self._bias(late, rate)) // BIAS_UNIT
        step = rate * p.bias_lambda_step_milli // 1_000
        moved = rate - step if growth > bid // p.value_life_blocks else rate + step
        self._micro = min(max(moved, p.bias_lambda_min_micro), p.bias_lambda_max_micro)
        self._fires = []
        self._known = {}

    def _rate(self, p: Parameters) -> int:
        return p.bias_lambda_micro if self._micro is None else self._micro

    def _bias(self, late: int, micro: int) -> int:
        if (known := self._known.get((late, micro))) is not None:
            return known
        power = Decimal(late * micro).scaleb(-6)
        found = MOST_BIAS if power > SATURATING else min(MOST_BIAS, int(EXACT.multiply(EXACT.exp(power), BIAS_UNIT)))
        self._known[late, micro] = found
        return found


def density(bid: int, bias: int, gas_limit: int) -> int:
    """The score of a timer with a locked bid. ``bias``: in units of 2**-32."""
    return min(MOST_BIAS, bid * BIAS_UNIT + bias) // gas_limit


def critical_bid(bid: int, bias: int, gas_limit: int, of_bias: int, of_gas_limit: int) -> int:
    """The least bid with which a timer of ``of_bias`` and ``of_gas_limit`` comes before another one, or ties."""
    level = Fraction(bid * BIAS_UNIT + bias, gas_limit)
    return ceil(Fraction(ceil(level * of_gas_limit) - of_bias, BIAS_UNIT))
