"""Costs of host calls (SPEC §2), in cycles. Cells follow from the sizes of the arguments.

At the end, what a call of the runner contract costs besides its transaction's base and payload.
"""

from __future__ import annotations

from typing import Final

KV_GET_CYCLES: Final = 10
KV_SET_CYCLES: Final = 200
KV_DELETE_CYCLES: Final = 200
PUBLISH_CYCLES: Final = 200
PUBLISHED_CYCLES: Final = 10
"""Of reading what an actor published."""
SET_BIDDING_AGENT_CYCLES: Final = 200
SCHEDULE_TIMER_CYCLES: Final = 1_000
CANCEL_TIMER_CYCLES: Final = 500
EXTEND_TIMER_CYCLES: Final = 500
TRANSFER_CYCLES: Final = 200
EMIT_CYCLES: Final = 50
NAME_BYTES_INCLUDED: Final = 32
"""Bytes of a handler's or an event's name that a call's own price covers; Python actors pay a cycle for each more."""
READ_CONTEXT_CYCLES: Final = 5
PENDING_CYCLES: Final = KV_GET_CYCLES
"""Of asking whether a timer is pending, which reads state as ``kv_get`` does."""
SEND_CYCLES: Final = 80
"""A message's own price; the cycles and cells reserved for its run come on top."""
REQUEST_JOB_CYCLES: Final = 500
"""A job's own price; the cycles and cells reserved for its callback come on top."""
CONSUME_RESULT_CYCLES: Final = 200

SUBMIT_RESULT_CYCLES: Final = 1_000
"""A result and the job's record are written, and the callback queued with the last one."""
REGISTER_RUNNER_CYCLES: Final = 500
UNREGISTER_RUNNER_CYCLES: Final = 500
