"""The names of a run's metrics with descriptions, for criteria and ``result.json``.

:mod:`cluster.checks.metrics.metrics` computes them from the record and its books; a few come from the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

METRICS: Final[Mapping[str, str]] = {
    "duration_s": "how long the run lasted",
    "heights": "final heights of the longest chain",
    "heights_common": "heights that all validators hold",
    "first_block_ms": "when the first block was final",
    "blocks_per_second": "final heights a second, from the first to the last one",
    "transactions": "committed transactions",
    "transactions_per_second": "the same a second",
    "transactions_reverted": "those of them that were reverted",
    "fires": "timers that fired",
    "fires_failed": "those of them whose handler failed",
    "fires_per_second": "the same a second",
    "fires_per_block_max": "most fires in one block",
    "messages": "mailbox messages that were handled",
    "messages_reverted": "those of them whose handler failed",
    "callbacks_failed": "callbacks of jobs whose handler failed",
    "agent_queries": "queries of bidding agents",
    "timers_scheduled": "timers that were scheduled",
    "timers_cancelled": "timers that were cancelled",
    "timers_expired": "timers that expired",
    "timers_insufficient_funds": "timers that ended for lack of funds",
    "timers_pending_at_end": "timers that still waited at the end",
    "backlog_max": "most timers that waited although they were due",
    "backlog_at_end": "such timers at the end",
    "lateness_p50_blocks": "blocks from a due timer's trigger height to its fire or its destruction, or at least to the"
    " block after the run, median; none if no timer came due",
    "lateness_p95_blocks": "the same, 95th percentile",
    "lateness_p99_blocks": "the same, 99th percentile",
    "lateness_max_blocks": "the same, the longest",
    "finality_latency_p50_ms": "from a block's first sight to its first finalization, median",
    "finality_latency_p95_ms": "the same, 95th percentile",
    "finality_latency_p99_ms": "the same, 99th percentile",
    "longest_stall_ms": "longest time without a new final block",
    "recovery_ms": "from the end of the last fault to a new final block of a quorum; none without faults",
    "deepest_reorg": "most executed blocks of one branch that a validator gave up",
    "fairness_jain_index": "Jain's index of the share of its due timers that each actor had fired; 1 is even,"
    " none if no timer fired",
    "lane_use_mean_share": "share of the timer lane's cycles that were used",
    "basefee_lane_first": "the timer lane's basefee in the first block",
    "basefee_lane_last": "the same in the last block",
    "basefee_lane_max": "the same, the highest",
    "burned": "fees that were burned, in the smallest CBY unit",
    "burned_cycle": "what of it was burned at the cycle's basefee: by transactions, fires and queries of agents",
    "burned_cell": "the same at the cell's basefee",
    "burned_lane_timer": "the same at the timer lane's price",
    "tips": "tips that were paid, in the smallest CBY unit",
    "load_requests": "requests of the load",
    "load_failures": "requests without a good answer",
    "load_transactions_sent": "transactions that a validator answered for",
    "load_transactions_rejected": "those of them that it refused",
    "load_transactions_late": "transactions that were sent more than 100 ms after they were due",
    "load_turns_skipped": "turns that were due and never taken",
    "load_transactions_unsent": "transactions of open users' turns that found no room: 16 were under way",
    "load_latency_p50_ms": "from a transaction's intended send to the first finalization of its block, median;"
    " infinite if that share never became final or was never sent",
    "load_latency_p95_ms": "the same, 95th percentile",
    "load_latency_p99_ms": "the same, 99th percentile",
    "load_latency_max_ms": "the same, the longest",
    "messages_sent": "messages between validators",
    "messages_dropped": "messages that links lost, and live what found no room",
    "bytes_sent": "bytes between validators; live testnet only",
    "events": "events of the simulation; simulator only",
    "core_seconds": "processor time of the validators themselves, node and executor, all together; live testnet only",
    "judge_core_seconds": "processor time of the driver and of the re-execution during the run, from the first final"
    " block until the validators rest; live testnet only",
    "disk_max_mb": "most that a validator's disk held at a look",
    "memory_max_mb": "most memory of a validator's process at a look; live testnet only",
    "host_lag_ms": "how long the machine kept a host from running, of the host that had most of it; 0 in the simulator",
    "driver_lag_ms": "the same of the driver",
    "load_average_max": "highest load average of the driver's machine, over a minute; live testnet only",
    "steal_share": "share of its processor time that a hypervisor gave to other machines; live testnet only",
    "open_files_max": "most file descriptors of one; live testnet only",
    "startup_seconds": "from the start to the first final block; live testnet only",
}
"""Metrics by name, with their descriptions, which end with the unit."""

METRICS_OF_LIVE_RUNS: Final = frozenset(name for name, text in METRICS.items() if text.endswith("live testnet only"))
METRICS_OF_SIMULATIONS: Final = frozenset(name for name, text in METRICS.items() if text.endswith("simulator only"))
"""Names of the metrics that only simulated runs have."""

SAMPLES: Final[Mapping[str, str]] = {
    "finality_latency_ms": "of each height, from its block's first sight to its first finalization",
    "block_interval_ms": "of each height but the first, the time since the one before was first final",
    "lateness_blocks": "of each timer that came due, the blocks from its trigger height to its fire or its"
    " destruction, or to the block after the run",
    "fires_per_block": "of each block, its fires",
    "transactions_per_block": "of each block, its transactions",
    "backlog_timers": "of each block, the timers that wait after it although they are due",
}
"""Samples, one value per block, due timer or height, by name, with their descriptions, which end with the unit."""
