"""Prices and limits of what handlers call, as the SPEC states them (§2, §4, §14), in cycles. None is imported from the
code that is judged.
"""

from __future__ import annotations

from typing import Final

GET: Final = 10
SET: Final = 200
DELETE: Final = 200
EMIT: Final = 50
TRANSFER: Final = 200
SCHEDULE: Final = 1_000
CANCEL: Final = 500
EXTEND: Final = 500
SEND: Final = 80
"""Cycles and cells reserved for the message are added."""
REQUEST_JOB: Final = 500
"""Those reserved for the callback are added."""

MIN_MESSAGE_CYCLES: Final = 2_000
MESSAGES_A_TRANSACTION: Final = 1_024
"""Messages and jobs."""
MESSAGES_A_DEFERRED_RUN: Final = 2
"""Messages and jobs of a fire, a callback or a message."""
TIER_SHARES: Final = 10
"""A tier's factor is in tenths of the median tip."""
