"""Tier multipliers: does a faster tier buy time? (Seed 001 §7.3 and §16.)"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Final

from kits.market.estimates import Cell, Estimate, Results
from kits.market.lab.experiment import Decision, Experiment, Plot, Setup
from kits.market.lab.population import Group
from kits.market.lab.strategies import Share, Tier
from validator.chain.genesis import Policy

MULTIPLIERS: Final = {"seed": [8, 10, 15, 25], "steep": [5, 10, 30, 90], "flat": [10, 10, 10, 10]}
"""Tips of the tiers economy, standard, fast and urgent, in tenths of the median tip."""
SCALES: Final = {"slack": 0.4, "steady": 1.0, "bursts": 0.6}
"""The load of each pattern, as a share of 1.3 lanes. Bursts have theirs in a quarter of the blocks."""
PATTERNS: Final = tuple(SCALES)
TIERS: Final = ("economy", "standard", "fast", "urgent")
MATERIAL = 0.1
"""Share of the standard tier's wait that a faster one must save."""


def of_tier(tier: str, _random: Random) -> Tier:
    return Tier(tier)


class Tiers(Experiment):
    name = "tiers"
    title = "Tier multipliers"
    question = "Does the tier fast buy time, under which congestion, and at what price?"
    hypothesis = "The tips 0.8, 1, 1.5 and 2.5 × the median order the tiers by wait (seed 001 §7.3, §16)."
    rule = (
        "The tier fast buys time under a pattern if it waits clearly less than standard, by more than a tenth of"
        " standard's wait. The seed's multipliers hold if it does so under steady load and bursts. If only steeper ones"
        " do, take those; if neither, it depends on the pattern or tiers do not buy time."
    )
    factors = {"pattern": PATTERNS, "multipliers": tuple(MULTIPLIERS)}
    plots = tuple(Plot(f"{tier}.wait_mean", f"Mean wait of tier {tier}, in blocks", "pattern") for tier in TIERS)
    shown = (
        *(f"{tier}.wait_mean" for tier in TIERS),
        "fast.revenue",
    )

    def setup(self, cell: Cell, blocks: int) -> Setup:
        pattern, multipliers = cell
        scale = SCALES[str(pattern)]
        burst = (10, 40) if pattern == "bursts" else (1, 1)
        of_tiers = (
            Group(name=tier, agents=12, load=0.25 * scale, burst=burst, strategy=partial(of_tier, tier))
            for tier in TIERS
        )
        priced = Group(name="priced", agents=15, load=0.3 * scale, burst=burst, strategy=lambda _: Share(0.3))
        return Setup(Policy.CIP1, (*of_tiers, priced), {"PRIORITY_TIERS": MULTIPLIERS[str(multipliers)]})

    def decide(self, results: Results) -> Decision:
        saved: dict[Cell, Estimate] = {cell: self._saved(results, cell) for cell in self.cells()}
        buys = {
            cell: gap.falls_below(-MATERIAL * results.mean(cell, "standard.wait_mean").mean)
            for cell, gap in saved.items()
        }
        congested = PATTERNS[1:]
        if all(buys[pattern, "seed"] for pattern in congested):
            recommendation = "Keep the seed's multipliers: the tier fast buys time whenever the lane is congested."
        elif all(buys[pattern, "steep"] for pattern in congested):
            recommendation = "Use steeper multipliers: the seed's are too close together."
        elif any(buys[pattern, "seed"] for pattern in congested):
            where = next(pattern for pattern in congested if buys[pattern, "seed"])
            recommendation = f"It depends: the tier fast buys time under {where} alone. Do not sell it as a promise."
        else:
            recommendation = (
                "Do not sell the tier fast as a way to save time: it saves less than a tenth of standard's wait."
            )
        return Decision(
            "The wait of fast less that of standard is "
            + "; ".join(f"{saved[pattern, 'seed'].text} blocks ({pattern})" for pattern in PATTERNS)
            + f"; with steeper multipliers {saved['steady', 'steep'].text} under steady load.",
            recommendation,
            "Waits count timers that never fired with their whole life. One fifth of the load names prices; if all name"
            " tiers the median feeds on itself.",
        )

    def _saved(self, results: Results, cell: Cell) -> Estimate:
        return results.gap(cell, "fast.wait_mean", "standard.wait_mean")
