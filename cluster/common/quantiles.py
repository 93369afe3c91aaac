"""Quantiles by nearest rank: always one of the values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of the ``values`` (not empty) do not exceed: nearest rank."""
    ordered = sorted(values)
    rank = max(1, -(-int(share * 1_000_000) * len(ordered) // 1_000_000))
    return ordered[min(rank, len(ordered)) - 1]


def counted_quantile(counts: Counter[int], share: float) -> int:
    """The quantile of values, as :func:`quantile` has it, from the number of times that each value occurs."""
    need = max(1, -(-int(share * 1_000_000) * counts.total() // 1_000_000))
    reached = 0
    for value in sorted(counts):
        reached += counts[value]
        if reached >= need:
            return value
    return max(counts)
