"""Limits of user input: seeds, heights, seconds."""

from __future__ import annotations

from typing import Final

MAX_SECONDS: Final = 86_400
"""The longest duration of a run that ends at a height: a day."""
MAX_DURATION_S: Final = 30 * 86_400
"""The longest duration of a run that ends after a time instead of at a height."""
MAX_HEIGHTS: Final = 1_000_000
MAX_SEED: Final = 2**64 - 1


def is_seed(value: object) -> bool:
    """Whether a value is valid as the seed of a run."""
    return type(value) is int and 0 <= value <= MAX_SEED
