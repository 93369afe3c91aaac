"""Differences between two groups of numbers, with intervals, p-values and an adjustment for many tests.

- *Intervals* are percentile bootstrap intervals of means (Efron), at :data:`CONFIDENCE`.
- *p-values* are those of two-sided permutation tests of the difference in means: of group labels if the groups are
  independent, of signs if values are paired. All permutations are used if they are few, otherwise random ones. The
  tests assume no distribution.
- *Many metrics* are tested at once: p-values are adjusted by Benjamini and Hochberg's procedure, so that at most a
  share of :data:`FALSE_DISCOVERY_RATE` of the significant ones is expected to be false. A permutation test of few
  numbers has a minimum p-value; :func:`needed` gives how many numbers one metric needs to be significant.

Random numbers come from the caller's generator: the same seed gives the same result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

CONFIDENCE: Final = 0.95
FALSE_DISCOVERY_RATE: Final = 0.05
MAX_RESAMPLES: Final = 10_000
MIN_RESAMPLES: Final = 1_000
MAX_CELLS: Final = 20_000_000
"""Maximum number of values drawn for the resamples of one metric. At least :data:`MIN_RESAMPLES` resamples are drawn
even if they exceed it."""
CHUNK_CELLS: Final = 2_000_000
MAX_NEEDED: Final = 32
"""Size of a group at which :func:`needed` stops. For larger groups the permutations are random, so the minimum p-value
does not fall further."""
TOLERANCE: Final = 1e-12
"""Relative tolerance: differences that are equal except for rounding count as equal."""

Numbers = NDArray[np.float64]
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Difference:
    """Two groups' means, and their difference (second minus first) with its interval and p-value."""

    counts: tuple[int, int]
    means: tuple[float, float]
    intervals: tuple[Interval, Interval]
    """Confidence interval of each group's mean."""
    change: float
    change_interval: Interval
    p_value: float
    least_p_value: float
    """The smallest p-value that groups of these sizes can give."""

    @property
    def is_constant(self) -> bool:
        """Whether all numbers are the same, so that there is nothing to test."""
        low = min(interval[0] for interval in self.intervals)
        return low == max(interval[1] for interval in self.intervals)


def compare_independent(first: Sequence[float], second: Sequence[float], generator: np.random.Generator) -> Difference:
    """Compare two groups with independent members; each has at least one."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    means_a, means_b = _bootstrap(a, generator), _bootstrap(b, generator)
    size = min(len(means_a), len(means_b))
    p_value, least = _permute_labels(a, b, generator)
    return Difference(
        counts=(len(a), len(b)),
        means=(float(a.mean()), float(b.mean())),
        intervals=(_interval(means_a), _interval(means_b)),
        change=float(b.mean() - a.mean()),
        change_interval=_interval(means_b[:size] - means_a[:size]),
        p_value=p_value,
        least_p_value=least,
    )


def compare_paired(first: Sequence[float], second: Sequence[float], generator: np.random.Generator) -> Difference:
    """Compare two groups whose members are paired, for example by seed; there is at least one pair."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    changes = b - a
    p_value, least = _flip_signs(changes, generator)
    return Difference(
        counts=(len(a), len(b)),
        means=(float(a.mean()), float(b.mean())),
        intervals=(_interval(_bootstrap(a, generator)), _interval(_bootstrap(b, generator))),
        change=float(changes.mean()),
        change_interval=_interval(_bootstrap(changes, generator)),
        p_value=p_value,
        least_p_value=least,
    )


def mean_interval(values: Sequence[float], generator: np.random.Generator) -> Interval:
    """The confidence interval of the mean of a group, which has at least one member."""
    return _interval(_bootstrap(np.asarray(values, dtype=np.float64), generator))


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number, by Benjamini and Hochberg's step-up procedure. The order is kept."""
    count = len(p_values)
    found = [1.0] * count
    least = 1.0
    for rank, place in sorted(enumerate(sorted(range(count), key=lambda i: p_values[i]), start=1), reverse=True):
        least = min(least, p_values[place] * count / rank)
        found[place] = least
    return found


def needed(is_paired: bool, tests: int) -> int | None:
    """The smallest group size at which one of ``tests`` metrics can be significant by itself.

    The size is the number of pairs, or of members in each of two groups of equal size. ``None`` if no size suffices,
    since resampling cannot give a p-value low enough for this number of metrics.
    """
    for count in range(1, MAX_NEEDED):
        ways = 2**count if is_paired else math.comb(2 * count, count)
        least = 2 / ways if ways <= MAX_RESAMPLES else 1 / (MAX_RESAMPLES + 1)
        if least * tests <= FALSE_DISCOVERY_RATE:
            return count
    return None


def batch_means(first: Sequence[float], second: Sequence[float], batches: int) -> tuple[list[float], list[float]]:
    """The means of consecutive ranges of two equally long series.

    Neighbouring values are correlated, so they are not independent samples; means of long ranges nearly are.
    """
    edges = [round(i * len(first) / batches) for i in range(batches + 1)]
    spans = [(start, end) for start, end in pairwise(edges) if end > start]
    one, other = ([sum(values[start:end]) / (end - start) for start, end in spans] for values in (first, second))
    return one, other


# --- drawing --------------------------------------------------------------------------------------------------------


def _drawn(size: int, draw: Callable[[int], Numbers]) -> Numbers:
    """Draw resamples of ``size`` values each; returns a number for each resample.

    ``draw(rows)`` draws ``rows`` resamples and returns their numbers. Resamples are drawn in chunks, to save memory.
    """
    left, found = max(MIN_RESAMPLES, min(MAX_RESAMPLES, MAX_CELLS // size)), []
    while left > 0:
        rows = min(left, max(1, CHUNK_CELLS // size))
        found.append(draw(rows))
        left -= rows
    return np.concatenate(found)


def _bootstrap(values: Numbers, generator: np.random.Generator) -> Numbers:
    """The means of random resamples of the values, drawn with replacement."""
    size = len(values)
    return _drawn(size, lambda rows: values[generator.integers(0, size, (rows, size))].mean(axis=1))


def _interval(means: Numbers) -> Interval:
    rest = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [rest, 1 - rest])
    return float(low), float(high)


def _permute_labels(a: Numbers, b: Numbers, generator: np.random.Generator) -> tuple[float, float]:
    """Permutation test of two independent groups: the p-value, and the smallest p-value possible with these sizes."""
    pooled, size = np.concatenate([a, b]), len(a)
    count, total = len(pooled), float(pooled.sum())

    def subsets(rows: int) -> Numbers:
        order = np.argpartition(generator.random((rows, count)), size - 1, axis=1)[:, :size]
        return pooled[order].sum(axis=1)

    ways = math.comb(count, size)
    if ways <= MAX_RESAMPLES:
        sums = np.array([pooled[list(chosen)].sum() for chosen in combinations(range(count), size)])
    else:
        sums = _drawn(count, subsets)
    changes = (total - sums) / (count - size) - sums / size
    return _p_value(changes, float(b.mean() - a.mean()), ways, extremes=2 if size == len(b) else 1)


def _flip_signs(changes: Numbers, generator: np.random.Generator) -> tuple[float, float]:
    count = len(changes)
    ways = 2**count
    if ways <= MAX_RESAMPLES:
        bits = (np.arange(ways)[:, None] >> np.arange(count)) & 1
        means = ((1 - 2 * bits) * changes).mean(axis=1)
    else:
        means = _drawn(count, lambda rows: ((1 - 2 * generator.integers(0, 2, (rows, count))) * changes).mean(axis=1))
    return _p_value(means, float(changes.mean()), ways, extremes=2)


def _p_value(changes: Numbers, observed: float, ways: int, extremes: int) -> tuple[float, float]:
    """The p-value, and the smallest one possible.

    The p-value is the share of the permuted ``changes`` that are at least as large as the observed one. ``ways`` is the
    number of all permutations; at least ``extremes`` of them are as large as any observed change.
    """
    slack = TOLERANCE * max(1e-300, float(np.abs(changes).max(initial=0.0)))
    as_large = int((np.abs(changes) >= abs(observed) - slack).sum())
    if ways <= MAX_RESAMPLES:
        return as_large / len(changes), extremes / ways
    return (as_large + 1) / (len(changes) + 1), 1 / (len(changes) + 1)
