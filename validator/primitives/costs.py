"""Costs of host calls (SPEC §2), in cycles. The costs in cells depend only on the sizes of the arguments.

The last constants are the costs of calls of the runner contract. They do not include the base cost and the payload cost
of the transaction.
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
ALLOW_WATCHING_CYCLES: Final = 200
WRITE_WATCHABLE_CYCLES: Final = 200
"""Price of a write to a key that timers may watch, in addition to that of other writes."""
TRIGGER_CYCLES: Final = 200
"""Price that such a write pays for each timer that watches the key: the timer becomes due if the value has changed."""
SCHEDULE_TIMER_CYCLES: Final = 1_000
CANCEL_TIMER_CYCLES: Final = 500
EXTEND_TIMER_CYCLES: Final = 500
TRANSFER_CYCLES: Final = 200
EMIT_CYCLES: Final = 50
NAME_BYTES_INCLUDED: Final = 32
"""Number of bytes of a handler's or an event's name that the price of a host call includes. Python actors pay one cycle
for each further byte."""
READ_CONTEXT_CYCLES: Final = 5
MIN_QUERY_CYCLES: Final = 100
"""The least that a query for a bid costs."""
PENDING_CYCLES: Final = KV_GET_CYCLES
"""Cost of asking whether a timer is pending, which reads state like ``kv_get``."""
SEND_CYCLES: Final = 80
"""Price of a message, in addition to the cycles and cells reserved for its run."""
REQUEST_JOB_CYCLES: Final = 500
"""Price of a job, in addition to the cycles and cells reserved for its callback."""
CONSUME_RESULT_CYCLES: Final = 200

SUBMIT_RESULT_CYCLES: Final = 1_000
"""Cost of submitting a job's result: writing the result and the job's record, and queueing the callback after the last
result."""
REGISTER_RUNNER_CYCLES: Final = 500
UNREGISTER_RUNNER_CYCLES: Final = 500
