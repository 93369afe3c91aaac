"""What runs show: means over seeds with their 95 % intervals, and differences that are paired by seed.

A trial is one observation. Intervals are Student's, or
percentile bootstrap intervals (:mod:`cluster.commands.compare.statistics`), which need more seeds: of few values a
bootstrap is too narrow.

Differences that a rule decides by are a *family*: their intervals allow for all that the rule looks at
(:func:`decided`), by Holm's procedure (Scandinavian Journal of Statistics, 1979). The differences are tested in the
order of their p-values, the smallest of m at 0.05 / m, the next at 0.05 / (m - 1), until one is not significant. It and
those after it keep its level. So with a probability of 95 % none of the clear differences is due to chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Final, NamedTuple, TypeVar

import numpy as np

from cluster.commands.compare.statistics import CONFIDENCE, Interval, mean_interval

RESAMPLING_SEED: Final = 1
Level = str | int | float
Cell = tuple[Level, ...]
"""A level for each factor, in the order of the factors."""
Side = tuple[Cell, str]
"""One side of a comparison: a cell and a measure."""
Family = dict[tuple[Side, Side], list[float]]
"""The differences by seed of each comparison."""
T = TypeVar("T")


class Estimate(NamedTuple):
    """A mean over seeds with its interval, or a mean difference of pairs."""

    mean: float
    interval: Interval | None
    """``None`` if there are fewer than two values."""

    @property
    def ends(self) -> Interval:
        """The ends of the interval; both are the mean if there is none."""
        return self.interval or (self.mean, self.mean)

    @property
    def direction(self) -> int:
        """1 or -1 if all is above or below zero, the interval or a single value; 0 if that is undecided."""
        low, high = self.ends
        return (low > 0) - (high < 0)

    @property
    def is_clear(self) -> bool:
        """Whether there is an interval, and it lies on one side of zero."""
        return self.interval is not None and self.direction != 0

    def exceeds(self, bound: float) -> bool:
        """Whether the mean is above a bound that is not negative, and the interval above zero."""
        return self.is_clear and self.mean > max(0, bound)

    def falls_below(self, bound: float) -> bool:
        """Whether the mean is below a bound that is not positive, and the interval below zero."""
        return self.is_clear and self.mean < min(0, bound)

    @property
    def text(self) -> str:
        """The estimate in a sentence."""
        if self.interval is None:
            return f"{self.mean:.3g}"
        low, high = self.interval
        return f"{self.mean:.3g} ({low:.3g} to {high:.3g})"


def by_student(values: Sequence[float], outside: float = 1 - CONFIDENCE) -> Estimate:
    """The mean of values, with Student's interval, which misses the mean with probability ``outside``."""
    mean, count = fmean(values), len(values)
    if count < 2:
        return Estimate(mean, None)
    half = student(outside, count - 1) * stdev(values) / math.sqrt(count)
    return Estimate(mean, (mean - half, mean + half))


def by_bootstrap(values: Sequence[float]) -> Estimate:
    """The mean of values, with a bootstrap interval."""
    if len(values) < 2:
        return Estimate(values[0], None)
    if len(set(values)) == 1:
        return Estimate(values[0], (values[0], values[0]))
    return Estimate(fmean(values), mean_interval(values, np.random.default_rng(RESAMPLING_SEED)))


@dataclass(frozen=True, slots=True)
class Results:
    """The measures of trials: ``rows[cell][seed][measure]``. ``None`` is no value: that seed is left out."""

    rows: Mapping[Cell, Mapping[int, Mapping[str, float | None]]]
    range_of: Callable[[str], Interval] = lambda measure: (-math.inf, math.inf)
    """The least and the greatest value that a measure can have."""
    made: Family = field(default_factory=dict)
    """The comparisons that were asked for."""
    outside: dict[tuple[Side, Side], float] = field(default_factory=dict)
    """For each of them the probability with which its interval misses the difference; else 1 - 0.95."""

    def values(self, cell: Cell, measure: str) -> list[float]:
        """A measure of each seed, in the order of seeds."""
        return list(self._by_seed(cell, measure).values())

    def has(self, cell: Cell, measure: str) -> bool:
        """Whether there is the cell, and all its runs have the measure."""
        return cell in self.rows and all(measure in found for found in self.rows[cell].values())

    def mean(self, cell: Cell, measure: str) -> Estimate:
        """The mean of a measure. Its interval has no values that the measure cannot have."""
        found, (least, most) = by_student(self.values(cell, measure)), self.range_of(measure)
        if found.interval is None:
            return found
        low, high = found.interval
        return Estimate(found.mean, (max(low, least), min(high, most)))

    def change(self, cell: Cell, base: Cell, measure: str) -> Estimate:
        """The mean difference of a cell to a base, paired by seed."""
        return self.compared((cell, measure), (base, measure))

    def gap(self, cell: Cell, measure: str, other: str) -> Estimate:
        """The mean difference of two measures of a cell, ``measure`` less ``other``, paired by seed."""
        return self.compared((cell, measure), (cell, other))

    def compared(self, one: Side, other: Side) -> Estimate:
        """The mean difference of two sides, paired by seed."""
        found = self.differences(one, other)
        if one != other:
            self.made[one, other] = found
        return by_student(found, self.outside.get((one, other), 1 - CONFIDENCE))

    def differences(self, one: Side, other: Side) -> list[float]:
        """A measure of a cell less another, for each seed that has both."""
        values, others = self._by_seed(*one), self._by_seed(*other)
        return [value - others[seed] for seed, value in values.items() if seed in others]

    def _by_seed(self, cell: Cell, measure: str) -> dict[int, float]:
        found = {seed: row[measure] for seed, row in sorted(self.rows[cell].items())}
        return {seed: value for seed, value in found.items() if value is not None}


def decided(decide: Callable[[Results], T], results: Results) -> T:
    """What a rule says of results, if the intervals of differences allow for all comparisons that it makes.

    The rule is applied again until it makes no further ones. ``results`` then has all of them.
    """
    while True:
        known = len(results.made)
        found = decide(results)
        if len(results.made) == known:
            return found
        results.outside.update(holm(results.made))


def holm(family: Family) -> dict[tuple[Side, Side], float]:
    """The level of each comparison of a family."""
    levels, level = {}, 0.0
    is_open = True
    p_values = {key: p_value(differences) for key, differences in family.items()}
    for place, key in enumerate(sorted(p_values, key=p_values.__getitem__)):
        if is_open:
            level = (1 - CONFIDENCE) / (len(family) - place)
            is_open = p_values[key] <= level
        levels[key] = level
    return levels


def p_value(differences: Sequence[float]) -> float:
    """The probability of a mean at least as far from 0, by Student's t, if the true one is 0; 1 for a single value."""
    mean, count = fmean(differences), len(differences)
    deviation = stdev(differences) if count > 1 else math.inf
    if not mean or deviation == math.inf:
        return 1.0
    t = math.inf if not deviation else abs(mean) / deviation * math.sqrt(count)
    return max(0.0, 1 - _inside(math.atan(t / math.sqrt(count - 1)), count - 1))


def effect_size(differences: Sequence[float]) -> float | None:
    """The mean of differences in their standard deviations (Cohen's d of pairs); ``None`` if they do not vary."""
    deviation = stdev(differences) if len(differences) > 1 else 0.0
    return fmean(differences) / deviation if deviation else None


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
