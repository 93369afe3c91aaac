"""An experiment of the lab: a question, the markets that answer it, and the rule that decides.

Intervals are Student's, over seeds: a run is one observation. Seeds are few, and a bootstrap of few values is too
narrow.

An experiment has *factors* with *levels*. A *cell* is one combination of levels; each cell runs once per seed, and all
cells meet the same jobs for a seed, so differences between cells are paired by seed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, stdev
from typing import Any, ClassVar, Final, NamedTuple

from kits.market.lab.market import Market
from kits.market.lab.measures import WARM_UP, measures, range_of
from kits.market.lab.optimum import best_welfare
from kits.market.lab.population import Group
from validator.chain.genesis import Policy

CONFIDENCE: Final = 0.95
"""Probability with which an interval has the mean that it is an interval of."""
Interval = tuple[float, float]
Level = str | int | float
Cell = tuple[Level, ...]
"""A level for each factor, in the order of the factors."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a run of an experiment does."""

    blocks: int
    seeds: int


LANE_PRICES: Final = (1_000, 0)
"""Levels of ``LANE_FEE_MULTIPLIER_MILLI``: with and without a price of the lane. Without it the lane is always full,
and weights count for most."""
FULL: Final = Effort(1_200, 8)
QUICK: Final = Effort(240, 3)


class Setup(NamedTuple):
    """The market of one cell."""

    policy: Policy
    groups: Sequence[Group]
    params: Mapping[str, Any] = {}


class Estimate(NamedTuple):
    """A mean over seeds with its 95 % interval, or a mean difference of pairs."""

    mean: float
    interval: Interval

    @property
    def is_clear(self) -> bool:
        """Whether the interval lies on one side of zero."""
        return self.interval[0] > 0 or self.interval[1] < 0

    def exceeds(self, bound: float) -> bool:
        """Whether the mean is above a bound that is not negative, and the interval above zero."""
        return self.mean > bound and self.interval[0] > 0

    def falls_below(self, bound: float) -> bool:
        """Whether the mean is below a bound that is not positive, and the interval below zero."""
        return self.mean < bound and self.interval[1] < 0

    @property
    def text(self) -> str:
        low, high = self.interval
        return f"{self.mean:.3g} ({low:.3g} to {high:.3g})"


@dataclass(frozen=True, slots=True)
class Results:
    """The measures of an experiment's runs: ``rows[cell][seed][measure]``."""

    rows: Mapping[Cell, Mapping[int, Mapping[str, float]]]

    def values(self, cell: Cell, measure: str) -> list[float]:
        """A measure of each seed, in the order of seeds."""
        found = self.rows[cell]
        return [found[seed][measure] for seed in sorted(found)]

    def mean(self, cell: Cell, measure: str) -> Estimate:
        """The mean of a measure. Its interval has no values that the measure cannot have."""
        found = _estimate(self.values(cell, measure))
        (low, high), (least, most) = found.interval, range_of(measure)
        is_known = math.isfinite(low)
        return Estimate(found.mean, (max(low, least), min(high, most)) if is_known else (low, high))

    def change(self, cell: Cell, base: Cell, measure: str, tests: int = 1) -> Estimate:
        """The mean difference of a cell to a base, paired by seed.

        ``tests``: the number of differences of which the greatest is sought. The interval is wider by as much
        (Bonferroni).
        """
        pairs = zip(self.values(cell, measure), self.values(base, measure), strict=True)
        return _estimate([value - before for value, before in pairs], tests)

    def gap(self, cell: Cell, measure: str, other: str) -> Estimate:
        """The mean difference of two measures of a cell, ``measure`` less ``other``, paired by seed."""
        pairs = zip(self.values(cell, measure), self.values(cell, other), strict=True)
        return _estimate([value - before for value, before in pairs])


def _estimate(values: Sequence[float], tests: int = 1) -> Estimate:
    mean, count = fmean(values), len(values)
    if count < 2:
        return Estimate(mean, (-math.inf, math.inf))
    half = student((1 - CONFIDENCE) / tests, count - 1) * stdev(values) / math.sqrt(count)
    return Estimate(mean, (mean - half, mean + half))


def student(outside: float, freedom: int) -> float:
    """The bound that Student's t, with ``freedom`` degrees of freedom, exceeds in size with probability ``outside``."""
    low, high = 0.0, math.pi / 2
    for _ in range(100):
        angle = (low + high) / 2
        low, high = (angle, high) if _inside(angle, freedom) < 1 - outside else (low, angle)
    return math.sqrt(freedom) * math.tan(low)


def _inside(angle: float, freedom: int) -> float:
    """The probability that Student's t lies within ``sqrt(freedom) * tan(angle)`` (Abramowitz and Stegun, 26.7.3-4)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = freedom % 2
    term, total = (cosine if is_odd else 1.0), 0.0
    for number in range(2 + is_odd, freedom + 1, 2):
        total += term
        term *= cosine * cosine * (number - 1) / number
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total


class Plot(NamedTuple):
    """A plot of a result page: a measure over the levels of one factor, a line for each combination of the others."""

    measure: str
    title: str
    over: str
    """Name of the factor on the x axis."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the results say."""

    answer: str
    """One sentence, with its figures."""
    recommendation: str
    limits: str


class Experiment(ABC):
    """One experiment. Subclasses are registered in :mod:`kits.market.lab.experiments.registry`."""

    name: ClassVar[str]
    title: ClassVar[str]
    question: ClassVar[str]
    hypothesis: ClassVar[str]
    rule: ClassVar[str]
    """The rule by which :meth:`decide` decides, in words."""
    factors: ClassVar[Mapping[str, Sequence[Level]]]
    plots: ClassVar[Sequence[Plot]]
    shown: ClassVar[Sequence[str]]
    """The measures that the table of the page shows."""
    has_referee: ClassVar[bool] = False
    """Whether a run has the measure ``welfare_of_best``: its welfare as a share of the referee's. The referee takes
    about as long as the run."""
    full: ClassVar[Effort] = FULL
    quick: ClassVar[Effort] = QUICK

    @classmethod
    def cells(cls) -> list[Cell]:
        """All combinations of levels."""
        return list(product(*cls.factors.values()))

    @classmethod
    @abstractmethod
    def setup(cls, cell: Cell, blocks: int) -> Setup:
        """The market of a cell. ``blocks``: its length."""

    @classmethod
    @abstractmethod
    def decide(cls, results: Results) -> Decision:
        """Apply the rule to the results."""

    @classmethod
    def run(cls, cell: Cell, seed: int, effort: Effort) -> dict[str, float]:
        """Run the market of a cell; returns its measures."""
        setup = cls.setup(cell, effort.blocks)
        market = Market(setup.policy, setup.groups, seed, effort.blocks, setup.params)
        market.run()
        found = {**measures(market), **cls.further(market)}
        if cls.has_referee:
            found["welfare_of_best"] = _welfare_of_best(market)
        return found

    @classmethod
    def further(cls, market: Market) -> dict[str, float]:
        """Measures of this experiment alone."""
        return {}


def _welfare_of_best(market: Market) -> float:
    """The welfare of a market's jobs after the warm-up, as a share of what the referee reaches with them."""
    begin = market.blocks * WARM_UP
    best = best_welfare(tuple(trade.job for trade in market.trades), market.parameters.lane_timer_cycles, begin)
    return sum(trade.value for trade in market.trades if trade.job.due > begin) / best if best else 1.0
