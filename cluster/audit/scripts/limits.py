"""Prices in cycles and limits of the calls that handlers make, as SPEC §2, §4 and §14 state them.

They are written out here, so that they are independent of the code that is judged.
"""

from __future__ import annotations

from typing import Final

GET: Final = 10
SET: Final = 200
DELETE: Final = 200
EMIT: Final = 50
TRANSFER: Final = 200
ALLOW_WATCHING: Final = 200
WRITE_WATCHABLE: Final = 200
"""What a write to a watchable key costs more than another one, in cycles. :data:`TRIGGER` is added for each watcher."""
TRIGGER: Final = 200
WATCHED_KEY_BYTES: Final = 256
"""The longest key that can be watched."""
SCHEDULE: Final = 1_000
CANCEL: Final = 500
EXTEND: Final = 500
SEND: Final = 80
"""The price of sending a message, in cycles. The cycles and cells reserved for the message's run are added."""
REQUEST_JOB: Final = 500
"""The price of requesting a job, in cycles. The cycles and cells reserved for the job's callback are added."""

MIN_MESSAGE_CYCLES: Final = 2_000
MESSAGES_A_TRANSACTION: Final = 1_024
"""The most messages and jobs, together, that a transaction may send and request."""
MESSAGES_A_DEFERRED_RUN: Final = 2
"""The most messages and jobs, together, that the run of a fire, a callback or a message may send and request."""
TIER_SHARES: Final = 10
"""The divisor of the factors of priority tiers, which are in tenths of the median tip."""
