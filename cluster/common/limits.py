"""Limits of users' values: seeds, heights, seconds."""

from __future__ import annotations

from typing import Final

MAX_SECONDS: Final = 86_400
"""A run lasts at most a day."""
MAX_HEIGHTS: Final = 1_000_000
MAX_SEED: Final = 2**64 - 1


def is_seed(value: object) -> bool:
    """Whether a value is a run's seed."""
    return type(value) is int and 0 <= value <= MAX_SEED
