"""What host calls cost (SPEC §2), in cycles. Cells follow from the sizes of what is passed."""

from __future__ import annotations

from typing import Final

KV_GET_CYCLES: Final = 10
KV_SET_CYCLES: Final = 200
KV_DELETE_CYCLES: Final = 200
SCHEDULE_TIMER_CYCLES: Final = 1_000
CANCEL_TIMER_CYCLES: Final = 500
EXTEND_TIMER_CYCLES: Final = 500
TRANSFER_CYCLES: Final = 200
EMIT_CYCLES: Final = 50
READ_CONTEXT_CYCLES: Final = 5
SEND_CYCLES: Final = 80
"""A message's own price; the cycles and cells reserved for its run come on top."""
