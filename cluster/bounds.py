"""How long and how high a run may be: for scenarios and for the command line, which loads no sections."""

from __future__ import annotations

from typing import Final

MOST_SECONDS: Final = 86_400
"""A run lasts a day at most."""
MOST_HEIGHTS: Final = 1_000_000
