"""Limits of users' values (seeds, heights, seconds) and of Python's cyclic collector in both drivers."""

from __future__ import annotations

from typing import Final

MAX_SECONDS: Final = 86_400
"""A run that ends at a height lasts at most a day."""
MAX_DURATION_S: Final = 30 * 86_400
"""For so long at most a run goes on that ends after a time, and not at a height."""
MAX_HEIGHTS: Final = 1_000_000
MAX_SEED: Final = 2**64 - 1
COLLECTOR_THRESHOLDS: Final = (50_000, 20, 100)
"""New containers before Python's cyclic collector looks at the youngest, and rounds before it looks at the next older
ones; its own first threshold is 700 or 2,000, by version."""


def is_seed(value: object) -> bool:
    """Whether a value is a run's seed."""
    return type(value) is int and 0 <= value <= MAX_SEED
