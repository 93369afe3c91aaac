"""The scenario in which faults of single validators are looked at: four of them, under a flood of timers."""

from __future__ import annotations

from typing import Any

from cluster.scenario import Scenario


def flooded(name: str, faults: list[dict[str, Any]], height: int = 34, timeout_s: int = 60) -> Scenario:
    """With these faults, up to a height."""
    return Scenario.model_validate(
        {
            "name": name,
            "consensus": {"signatures": "keyed-hash"},
            "load": {"users": [{"workload": "flood", "count": 2, "interval_ms": 300, "options": {"timers": 5}}]},
            "stop": {"height": height, "timeout_s": timeout_s},
            "success": {"transactions": 5, "fires": 10},
            "faults": faults,
        }
    )
