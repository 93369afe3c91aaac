"""Gas bidding agents as the source of bids: what does asking at the time of the fire gain? (Seeds 000 §4, 003 §9.9.)"""

from __future__ import annotations

from typing import Final

from kits.market.estimates import Cell, Results
from kits.market.lab.experiment import POLICY, Decision, Effort, Experiment, Plot, Setup
from kits.market.lab.population import Group
from kits.market.lab.strategies import DefaultAgent, Share
from validator.chain.genesis import Policy

SOURCES: Final = ("fields", "default", "program")
POLICIES: Final = (Policy.CIP1.value, Policy.GBA_AUCTION.value)
LOADS: Final = (0.5, 1.4)
MATERIAL = 0.01
"""The utility, as a share of the jobs' value, that a source must add."""


class BidSource(Experiment):
    name = "bid_source"
    title = "Agents as the source of bids"
    question = "What do agents that bid at the time of the fire gain over fees that were fixed before?"
    hypothesis = (
        "An agent that sees the block bids better than a fixed fee, and the default agent suffices for most"
        " (seeds 000 §4, 001 §7, 003 §9.9)."
    )
    rule = (
        "Agents pay, queries included, if under overload programs have clearly more utility than fee fields, by more"
        " than a hundredth of all value, under each policy. The default agent suffices if its users' utility is not"
        " clearly below that of fee fields by as much. It depends where the policies differ."
    )
    factors = {"policy": POLICIES, "load": LOADS, "source": SOURCES}
    plots = (
        Plot("utility", "Utility", "source"),
        Plot("welfare", "Welfare", "source"),
        Plot("wait_mean", "Mean wait in blocks", "source"),
    )
    shown = ("utility", "welfare", "wait_mean", "revenue", "burn")
    full = Effort(800, 8)

    def setup(self, cell: Cell, blocks: int) -> Setup:
        policy, load, source = cell
        users = Group(
            name="users",
            agents=40,
            load=float(load),
            strategy=(lambda _: DefaultAgent()) if source == "default" else (lambda _: Share(0.3)),
            bids_by_program=source == "program",
        )
        return Setup(self.policies.get(str(policy)) or Policy(str(policy)), (users,))

    def decide(self, results: Results) -> Decision:
        high, policies = LOADS[-1], list(map(str, self.factors[POLICY]))
        by_program, by_default = (
            {policy: results.change((policy, high, source), (policy, high, "fields"), "utility") for policy in policies}
            for source in ("program", "default")
        )
        pays = [policy for policy in policies if by_program[policy].exceeds(MATERIAL)]
        suffices = [policy for policy in policies if not by_default[policy].falls_below(-MATERIAL)]
        if len(pays) == len(policies):
            recommendation = "Offer programs that bid: they gain more than their queries cost."
        elif pays:
            recommendation = f"It depends: programs that bid pay under {pays[0]} alone."
        else:
            recommendation = "Fixed fees do: programs that bid gain nothing that their queries do not cost."
        recommendation += f" The default agent suffices under {' and '.join(suffices) or 'neither policy'}."
        return Decision(
            "Under overload programs change utility by "
            + " and ".join(f"{by_program[policy].text} ({policy})" for policy in policies)
            + ", the default agent by "
            + " and ".join(f"{by_default[policy].text} ({policy})" for policy in policies)
            + ".",
            recommendation,
            "All users have the same source here. Programs bid the value that is left, fields that of the trigger"
            " height. A policy with locked bids asks no agent.",
        )
