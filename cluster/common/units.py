"""Units of time."""

from __future__ import annotations

from typing import Final

MICROSECONDS_PER_MILLISECOND: Final = 1_000
MICROSECONDS_PER_SECOND: Final = 1_000_000
MILLISECONDS_PER_SECOND: Final = 1_000
NANOSECONDS_PER_SECOND: Final = 1_000_000_000
SECONDS_PER_MINUTE: Final = 60
