"""All policies on the same workload: waits, welfare, prices, revenue. (Seeds 000, 001 §1 and 003 §9.1, §9.6.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kits.market.estimates import Cell, Results
from kits.market.lab.experiment import POLICY, REFEREED, Decision, Effort, Experiment, Plot, Setup
from kits.market.lab.population import Group
from kits.market.lab.strategies import CONDUCT
from validator.chain.genesis import Policy

RIVALS: Final[Mapping[str, Setup]] = {
    "cip1": Setup(Policy.CIP1, ()),
    "fifo": Setup(Policy.FIFO, ()),
    "gba_auction": Setup(Policy.GBA_AUCTION, ()),
    "bias vcg": Setup(Policy.BIAS_AUCTION, ()),
    "bias first_price": Setup(Policy.BIAS_AUCTION, (), {"PAYMENT_RULE": "first_price"}),
}
PATTERNS: Final = {
    "slack": Group(name="users", agents=40, load=0.45),
    "overload": Group(name="users", agents=40, load=1.3),
    "bursts": Group(name="users", agents=40, load=0.7, burst=(10, 40)),
}
FIRST_PRICES: Final = ("gba_auction", "bias first_price")
NEAR = 0.02
"""The distance from the best within which a rival counts as equal to it."""
STEADIER = 0.1
"""The share of first price's step by which a price must be steadier."""
GOALS: Final[Mapping[str, tuple[str, int]]] = {
    "welfare": ("welfare_of_best", 1),
    "access": ("starved_share", -1),
    "steady prices": ("price_step", -1),
    "fairness": ("utility_spread", -1),
}
"""What a policy is to do: the measure, and whether more of it is better."""


class Rivals(Experiment):
    name = "rivals"
    title = "The policies side by side"
    question = "Which policy serves the same workload best: waits, welfare, prices, fairness, revenue?"
    hypothesis = (
        "First prices oscillate where a lane's basefee does not, and cip1 serves best (seed 001 §1); VCG is steadier"
        " than first price, and the bias bounds waits (seed 003 §9.1, §9.5)."
    )
    rule = (
        "Judged among learners under overload. cip1 is steadier if its price steps are clearly smaller than those of"
        " each first price, by more than a tenth. A policy is recommended if in welfare, access, steady prices and"
        " fairness it is nowhere clearly worse than the best by more than 0.02; if there is none, it depends on the"
        " goal, and the best for each is named. fifo has no price, and is not judged by it."
    )
    factors = {"conduct": tuple(CONDUCT), "pattern": tuple(PATTERNS), "policy": tuple(RIVALS)}
    plots = (
        Plot("welfare_of_best", "Welfare as a share of the referee's", "policy"),
        Plot("late_max", "Longest lateness of a fire, in blocks", "policy"),
        Plot("price_step", "Change of the price from block to block", "policy"),
        Plot("revenue", "Revenue", "policy"),
        Plot("burn", "Burned", "policy"),
        Plot("starved_share", "Share of the timers that starved", "policy"),
        Plot("priced_out_share", "Share of the timers that were too dear to schedule", "policy"),
        Plot("utility_per_bid_variance", "Variance of utility for each wei bid, among agents", "policy"),
    )
    shown = ("welfare_of_best", "late_max", "starved_share", "price_step", "utility_per_bid_variance")
    metrics = REFEREED
    full = Effort(600, 8)

    def setup(self, cell: Cell, blocks: int) -> Setup:
        conduct, pattern, name = cell
        demand = PATTERNS[str(pattern)]
        rival = RIVALS[str(name)] if name in RIVALS else Setup(self.policies[str(name)], ())
        return rival._replace(groups=(replace(demand, strategy=CONDUCT[str(conduct)]),))

    def decide(self, results: Results) -> Decision:
        cells: dict[str, Cell] = {str(name): ("learning", "overload", name) for name in self.factors[POLICY]}
        steps = {name: results.change(cells["cip1"], cells[name], "price_step") for name in FIRST_PRICES}
        bounds = {name: -STEADIER * results.mean(cells[name], "price_step").mean for name in FIRST_PRICES}
        is_steadier = all(steps[name].falls_below(bounds[name]) for name in FIRST_PRICES)
        good = {goal: self._good(results, cells, goal) for goal in GOALS}
        everywhere = [name for name in cells if all(name in good[goal] for goal in GOALS)]
        if everywhere:
            recommendation = f"Choose {' or '.join(everywhere)}: nowhere clearly worse than the best."
        else:
            named = "; ".join(f"{goal}: {', '.join(names)}" for goal, names in good.items())
            recommendation = f"It depends on the goal. Best are, for {named}."
        shares = ", ".join(f"{name} {results.mean(cell, 'welfare_of_best').mean:.2f}" for name, cell in cells.items())
        return Decision(
            f"Share of the referee's welfare among learners under overload: {shares}. The price of cip1 steps by"
            + " and".join(f" {steps[name].text} against {name}" for name in FIRST_PRICES)
            + f": it is {'steadier than' if is_steadier else 'not steadier than each'} first price.",
            recommendation,
            "The referee is the best in each block with what earlier blocks left, so a share may exceed 1 by a little."
            " It has no price, and fires what others would not pay for. Learners try one bid in ten at random.",
        )

    def _good(self, results: Results, cells: Mapping[str, Cell], goal: str) -> list[str]:
        """The rivals that are not clearly worse than the best one."""
        measure, sign = GOALS[goal]
        judged = [name for name in cells if goal != "steady prices" or name != "fifo"]
        best = max(judged, key=lambda name: sign * results.mean(cells[name], measure).mean)
        found = []
        for name in judged:
            change = results.change(cells[name], cells[best], measure)
            is_worse = change.falls_below(-NEAR) if sign > 0 else change.exceeds(NEAR)
            if not is_worse:
                found.append(name)
        return found
