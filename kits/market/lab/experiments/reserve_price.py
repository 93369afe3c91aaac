"""Reserve price: revenue against access. (Seed 003 §9.5 and §9.9.)"""

from __future__ import annotations

from typing import Final

from kits.market.estimates import Cell, Results
from kits.market.lab.experiment import Decision, Effort, Experiment, Plot, Setup
from kits.market.lab.population import FLOOR_PRICE, Group
from kits.market.lab.strategies import CONDUCT
from validator.chain.genesis import Policy

RESERVES: Final = (0.0, 0.05, 0.2, 0.5)
"""Reserves, as shares of the median value of a job of the rich."""
MEDIAN_VALUE: Final = 40 * FLOOR_PRICE * 45_000
LOADS: Final = {"slack": 0.6, "overload": 1.3}
POOR_BUDGET_MILLI = 500
"""The purse of the poor, in thousandths of the value of their jobs."""
MATERIAL = 0.01
"""The revenue, as a share of the jobs' value, that a reserve must add."""
ACCESS_ALLOWED = -0.02
UTILITY_ALLOWED = -0.05


class ReservePrice(Experiment):
    name = "reserve_price"
    title = "Reserve price"
    question = "How much revenue does a reserve add, and whom does it keep out?"
    hypothesis = (
        "A reserve guarantees a baseline revenue, at the cost of access for timers of low value (seed 003 §9.5, §9.9)."
    )
    rule = (
        "A reserve is worth its price if, with agents that learn, at slack load, it raises the revenue clearly by more"
        " than a hundredth of all value, while the poor's share of fires does not fall clearly by more than 0.02 and"
        " their utility not by more than 0.05. The greatest such reserve is recommended; none if there is none. It"
        " depends if only truthful agents would pay it."
    )
    factors = {"conduct": tuple(CONDUCT), "load": tuple(LOADS), "reserve": RESERVES}
    plots = (
        Plot("revenue", "Revenue", "reserve"),
        Plot("poor.fired_share", "Share of the poor's timers that fire", "reserve"),
        Plot("poor.utility", "Utility of the poor", "reserve"),
    )
    shown = ("revenue", "poor.fired_share", "poor.utility", "rich.utility", "welfare")
    full = Effort(800, 8)

    def setup(self, cell: Cell, blocks: int) -> Setup:
        conduct, load, reserve = cell
        half, strategy = LOADS[str(load)] / 2, CONDUCT[str(conduct)]
        groups = (
            Group(name="rich", agents=20, load=half, worth=40.0, strategy=strategy),
            Group(name="poor", agents=20, load=half, worth=10.0, strategy=strategy, budget_milli=POOR_BUDGET_MILLI),
        )
        return Setup(Policy.BIAS_AUCTION, groups, {"RESERVE_PRICE": int(float(reserve) * MEDIAN_VALUE)})

    def decide(self, results: Results) -> Decision:
        worth_it = {conduct: [r for r in RESERVES[1:] if self._is_worth(results, conduct, r)] for conduct in CONDUCT}
        top = RESERVES[-1]
        added, poorer = (
            {
                conduct: results.change((conduct, "slack", top), (conduct, "slack", 0.0), measure).text
                for conduct in CONDUCT
            }
            for measure in ("revenue", "poor.utility")
        )
        if worth_it["learning"]:
            recommendation = f"Set a reserve of {worth_it['learning'][-1]} of a median value."
        elif worth_it["truthful"]:
            recommendation = (
                f"It depends on conduct: a reserve of {worth_it['truthful'][-1]} of a median value pays with truthful"
                " agents, and not with those that learn to bid below it. A bid below the reserve would have to be"
                " refused."
            )
        else:
            recommendation = "Set no reserve: what it adds is too little, or the poor pay for it."
        return Decision(
            f"At slack load a reserve of {top} of a median value adds {added['truthful']} of all value in revenue"
            f" with truthful agents and {added['learning']} with learners; the poor's utility changes by"
            f" {poorer['truthful']} and {poorer['learning']}.",
            recommendation,
            "The chain accepts a bid below the reserve and takes it whole, so a reserve keeps out only those whose"
            " purse it empties. The poor have half the value of their jobs to spend.",
        )

    def _is_worth(self, results: Results, conduct: str, reserve: float) -> bool:
        cell, base = (conduct, "slack", reserve), (conduct, "slack", 0.0)
        return (
            results.change(cell, base, "revenue").exceeds(MATERIAL)
            and not results.change(cell, base, "poor.fired_share").falls_below(ACCESS_ALLOWED)
            and not results.change(cell, base, "poor.utility").falls_below(UTILITY_ALLOWED)
        )
