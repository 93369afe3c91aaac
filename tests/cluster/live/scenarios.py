"""A small live scenario, and a smaller one."""

from __future__ import annotations

from typing import Any

SCENARIO: dict[str, Any] = {
    "name": "small",
    "validators": 4,
    "consensus": {
        "block_interval_ms": 120,
        "leader_timeout_ms": 600,
        "advance_timeout_ms": 900,
        "rebroadcast_ms": 400,
    },
    "load": {
        "users": [
            {"workload": "heartbeat", "count": 2, "interval_ms": 300},
            {"workload": "flood", "count": 1, "interval_ms": 300, "options": {"timers": 5, "spread_blocks": 3}},
        ]
    },
    "stop": {"height": 25, "drain_blocks": 3, "timeout_s": 300},
    "success": {"heights_compared": 15, "transactions": 3, "fires": 3, "stall_ms": 120_000},
}
PAIR: dict[str, Any] = {**SCENARIO, "validators": {"count": 2, "hosts": 1}}
"""Quicker to start; for what is about the run's other processes."""
