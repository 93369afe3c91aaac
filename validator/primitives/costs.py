"""Costs of host calls (SPEC §2), in cycles. Cells follow from the sizes of the arguments.

At the end are the costs of a runner contract call, without its transaction's base and payload.
"""

from __future__ import annotations

from typing import Final

KV_GET_CYCLES: Final = 10
KV_SET_CYCLES: Final = 200
KV_DELETE_CYCLES: Final = 200
PUBLISH_CYCLES: Final = 200
PUBLISHED_CYCLES: Final = 10
"""Cost of reading a value that an actor published."""
SET_BIDDING_AGENT_CYCLES: Final = 200
SCHEDULE_TIMER_CYCLES: Final = 1_000
CANCEL_TIMER_CYCLES: Final = 500
EXTEND_TIMER_CYCLES: Final = 500
TRANSFER_CYCLES: Final = 200
EMIT_CYCLES: Final = 50
NAME_BYTES_INCLUDED: Final = 32
"""Bytes of a handler's or an event's name that a call's price includes; Python actors pay a cycle for each further
byte."""
READ_CONTEXT_CYCLES: Final = 5
PENDING_CYCLES: Final = KV_GET_CYCLES
"""Cost of asking whether a timer is pending, which reads state like ``kv_get``."""
SEND_CYCLES: Final = 80
"""Price of a message, in addition to the cycles and cells reserved for its run."""
REQUEST_JOB_CYCLES: Final = 500
"""Price of a job, in addition to the cycles and cells reserved for its callback."""
CONSUME_RESULT_CYCLES: Final = 200

SUBMIT_RESULT_CYCLES: Final = 1_000
"""Cost of writing a result and the job's record; the last result also queues the callback."""
REGISTER_RUNNER_CYCLES: Final = 500
UNREGISTER_RUNNER_CYCLES: Final = 500
