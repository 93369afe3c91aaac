"""Seeds of runs."""

from __future__ import annotations

from typing import Final

MAX_SEED: Final = 2**64 - 1


def is_seed(value: object) -> bool:
    """Whether a value is a run's seed."""
    return type(value) is int and 0 <= value <= MAX_SEED
