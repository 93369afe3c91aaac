"""Planted weaknesses: small chains with one known hole each, and the same chains without it.

Prices stand still (the basefees' bounds are equal) and everything else is the hardened preset, so that a search finds
the hole or nothing. A block has room for sixteen fires, and an actor has at most two timers. The user lane is so wide
that no budget here fills it for long: on a narrow one the search found floods of long transactions instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from cluster.scenario import Scenario
from kits.market.dos.search.evaluation import Problem

PRICE: Final = 1_000_000
SMALL: Final = {
    "INITIAL_BASEFEE": PRICE,
    "MIN_BASEFEE": PRICE,
    "MAX_BASEFEE": PRICE,
    "LANE_TIMER_CYCLES": 32_000,
    "MAX_CYCLES_PER_FIRE": 2_000,
    "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 2_000,
    "MAX_CELLS_PER_FIRE": 100,
    "LANE_USER_CYCLES": 1_000_000,
    "LANE_USER_CELLS": 1_000_000,
    "SCAN_LIMIT": 256,
    "MAX_TIMERS_PER_ACTOR": 2,
}
HARDENED: Final = {"PRIORITY_FLOOR": 1, "TIE_BREAK": "aged", "P50_WEIGHT": "cycles", "DEFAULT_TIP_CAP": 8}
TIES: Final = {"LANE_TIMER_CYCLES": 16_000, "MAX_TIMERS_PER_ACTOR": 1, "PRIORITY_FLOOR": 0}
"""Without tips all scores are equal. Sixty-four actors' timers fill eight blocks, and no more wait at a time."""
LARGER: Final = {
    "LANE_TIMER_CYCLES": 128_000,
    "MAX_CYCLES_PER_FIRE": 8_000,
    "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 8_000,
    "DEFAULT_TIP_CAP": 0,
    "LANE_FEE_MULTIPLIER_MILLI": 4_000,
}
"""Larger fires, and a default tip that follows the median as far as the price of the lane, which is dear."""
QUERIES: Final = {
    "LANE_USER_CYCLES": 200_000,
    "LANE_USER_CELLS": 50_000,
    "MAX_TIMERS_PER_ACTOR": 32,
    "GBA_MAX_CYCLES": 100_000,
    "GBA_BUDGET_CYCLES": 4_000_000,
}
HONEST: Final = {
    "workload": "heartbeat",
    "count": 6,
    "interval_ms": 2_000,
    "options": {"every": 2, "beats": 1, "burn": 200},
}


@dataclass(frozen=True)
class Weakness:
    """A planted weakness, and what a search must reach by it, and must not reach without it."""

    name: str
    objective: str
    budget: int
    least: float
    """The figure that shows that it was found."""
    planted: dict[str, Any]
    """Parameters with the hole."""
    sound: dict[str, Any] = field(default_factory=dict)
    """Parameters without it."""
    mutant: str | None = None
    honest: dict[str, Any] = field(default_factory=dict)
    blocks: int = 40

    def problem(self, is_planted: bool, seed: int = 1) -> Problem:
        """The search on the chain with the hole, or without it."""
        params = SMALL | HARDENED | (self.planted if is_planted else self.sound)
        node = {"mutant": self.mutant} if is_planted and self.mutant else {}
        fields = {
            "name": self.name,
            "chain": {"params": params},
            "validators": {"count": 4, "nodes": [node]},
            "load": {"users": [HONEST | self.honest]},
            "stop": {"height": self.blocks},
        }
        scenario = Scenario.model_validate(fields)
        return Problem(scenario.model_dump_json(exclude_unset=True), self.objective, self.budget, seed, self.blocks)


WEAKNESSES: Final = {
    weakness.name: weakness
    for weakness in (
        Weakness(
            "ground-ties",
            "starvation",
            8 * 10**12,
            least=0.75,
            planted={**TIES, "TIE_BREAK": "id"},
            sound=TIES,
        ),
        Weakness(
            "swung-median",
            "starvation",
            25 * 10**11,
            least=0.2,
            planted={**LARGER, "P50_WEIGHT": "fires"},
            sound=LARGER,
            honest={"interval_ms": 500, "options": {"every": 2, "beats": 1, "burn": 6_000}, "budget": 91 * 10**11},
        ),
        Weakness(
            "free-actors",
            "starvation",
            2 * 10**12,
            least=0.5,
            planted={"LANE_TIMER_CYCLES": 8_000},
            sound={"LANE_TIMER_CYCLES": 8_000, "MAX_CELLS_PER_FIRE": 125_000},
        ),
        Weakness(
            "free-queries",
            "block_time",
            10**12,
            least=120.0,
            planted=QUERIES,
            sound=QUERIES,
            mutant="queries-not-charged",
        ),
    )
}
