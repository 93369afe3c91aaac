"""States of a testnet that runs well, as its driver publishes them, of any number of validators."""

from __future__ import annotations

from typing import Any

from cluster.live.driver.chain_watch import NEWEST_BLOCKS
from cluster.live.driver.clients import FAULT_FORMS
from cluster.live.web.server import Page

REGIONS = ("east", "west", "north", "south")
UPDATE_MS = 250
LANE_CYCLES = 2_000_000
CHECKS = ("agreement", "state_roots", "chain", "timers", "conservation", "bounds", "safety")


def figures(number: int, per_update: int) -> Page:
    height = 1 + number * per_update
    return {
        "at_ms": number * UPDATE_MS,
        "top": height,
        "fires": 40 * height,
        "transactions": 9 * height,
        "pending_timers": 1_000 + number % 50,
        "backlog": number % 7,
        "basefee_cycle": 875_000 + 1_000 * (number % 9),
        "basefee_lane_timer": 10**18 + number,
        "lane_share": (number % 10) / 10,
    }


def update(number: int, count: int = 4, per_update: int = 2, **changes: Any) -> Page:
    """The update of a number, with ``per_update`` blocks since the last one."""
    at = figures(number, per_update)
    height = at["top"]
    first = max(1, height - NEWEST_BLOCKS + 1)
    return {
        "stage": "running",
        "load": "running",
        "end_height": None,
        "height": height,
        "view": height + 1,
        "leader": height % count,
        **at,
        "tiers": {"due": number % 7, "ring": 900, "epoch": 90, "overflow": 10},
        "validators": [["up", height - each % 2, height + 1, height, 3, height - 1] for each in range(count)],
        "blocks": [[each, each, 10.0 * each, each % 10, each % 40, 500_000] for each in range(first, height + 1)],
        "faults": [
            {"kind": "kill", "target": "validator-1", "at_height": 2, "at_ms": None, "begun_ms": 900,
             "ended_ms": None, "took_effect": False, "evidence": ""}
        ],
        "audit": {"blocks": height, "compared": height, "ledger": height, "reexecuted": height,
                  "violations": dict.fromkeys(CHECKS, 0), "failed": {"fire": 3}, "told": []},
        "problems": [],
        "notices": ["4 hosts are up after 1.0 s"],
        **changes,
    }  # fmt: skip


def snapshot(number: int, count: int = 4, regions: int = 0, per_update: int = 2, **changes: Any) -> Page:
    """The snapshot at an update, with the history before it."""
    names = list(REGIONS[:regions])
    return {
        "run": {
            "scenario": "a-scenario",
            "seed": 7,
            "commit": "0123456789abcdef",
            "chain_id": "stampede-7",
            "lane_cycles": LANE_CYCLES,
            "regions": {"names": names, "latency_ms": [[0 if a == b else 40.0 for a in names] for b in names]},
            "fault_forms": FAULT_FORMS,
            "validators": [
                {
                    "name": f"validator-{each}",
                    "region": names[each % regions] if regions else None,
                    "host": each % max(4, count // 5),
                    "byzantine": [],
                    "external": False,
                }
                for each in range(count)
            ],
        },
        "now": update(number, count, per_update, **changes),
        "history": [figures(each, per_update) for each in range(max(0, number - 20), number)],
    }
