"""Lane multiplier: does a subsidy of 0.8 × fill a lane that is too little used? (Seed 001 §5 and §16.)"""

from __future__ import annotations

from kits.market.estimates import Cell, Results
from kits.market.lab.experiment import Decision, Experiment, Plot, Setup
from kits.market.lab.population import Group
from kits.market.lab.strategies import Share
from validator.chain.genesis import Policy

MULTIPLIERS = (1_000, 900, 800, 500)
LOADS = ("under-use", "target", "overload")
LOAD_OF = {"under-use": 0.3, "target": 0.7, "overload": 1.3}
MATERIAL = 0.05
"""Share of the lane's use by which a subsidy must raise it."""


class LaneMultiplier(Experiment):
    name = "lane_multiplier"
    title = "Lane fee multiplier"
    question = "Does a multiplier of 0.8 on the lane's price fill a lane that is structurally under-used?"
    hypothesis = "A subsidy of 0.8 × raises the use of a lane that is under-used (seed 001 §5, §16)."
    rule = (
        "Subsidise if at under-use the multiplier 0.8 raises the lane's use clearly, by more than a twentieth of it,"
        " and the users' welfare with it. If it does so under overload alone, the hypothesis names the wrong cause."
    )
    factors = {"load": LOADS, "LANE_FEE_MULTIPLIER_MILLI": MULTIPLIERS}
    plots = (
        Plot("lane_use", "Use of the lane", "LANE_FEE_MULTIPLIER_MILLI"),
        Plot("welfare", "Welfare", "LANE_FEE_MULTIPLIER_MILLI"),
        Plot("burn", "Burned", "LANE_FEE_MULTIPLIER_MILLI"),
    )
    shown = ("lane_use", "priced_out_share", "welfare", "burn", "price_mean")

    def setup(self, cell: Cell, blocks: int) -> Setup:
        load, multiplier = cell
        groups = (Group(name="users", agents=40, load=LOAD_OF[str(load)], worth=2.5, strategy=lambda _: Share(0.3)),)
        return Setup(Policy.CIP1, groups, {"LANE_FEE_MULTIPLIER_MILLI": multiplier})

    def decide(self, results: Results) -> Decision:
        raised = {load: results.change((load, 800), (load, 1_000), "lane_use") for load in LOADS}
        used = {load: results.mean((load, 1_000), "lane_use").mean for load in LOADS}
        fills = {load: raised[load].exceeds(MATERIAL * used[load]) for load in LOADS}
        welfare = results.change(("under-use", 800), ("under-use", 1_000), "welfare")
        burn = results.change(("under-use", 800), ("under-use", 1_000), "burn")
        if fills["under-use"] and welfare.exceeds(0):
            recommendation = "A subsidy of 0.8 × helps a lane that is under-used."
        elif any(fills.values()):
            recommendation = (
                "It depends: the subsidy raises the use, but not at under-use, or without welfare. Keep 1.0 ×."
            )
        else:
            recommendation = "Keep 1.0 ×: the lane's basefee makes up for the multiplier, or rests at its minimum."
        return Decision(
            f"At under-use 0.8 × raises the use by {raised['under-use'].text} from {used['under-use']:.3f}, welfare by"
            f" {welfare.text} and the burn by {burn.text}; under overload it raises the use by"
            f" {raised['overload'].text}.",
            recommendation,
            "The median job is worth 2.5 times the least basefee here, and the cycle's basefee rests at its minimum."
            " Where jobs are worth much more than that, the price decides nothing.",
        )
