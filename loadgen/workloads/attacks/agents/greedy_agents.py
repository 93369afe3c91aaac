"""Greedy agents: bidding agents that use all cycles of a query, in every block, for timers that never fire."""

from __future__ import annotations

from typing import ClassVar

from loadgen.workloads.attacks.agents.base import Bidding, BiddingOptions


class GreedyAgents(Bidding):
    """An attack with timers whose bidding agent burns cycles, and bids so little that it is queried in each block."""

    name: ClassVar[str] = "greedy-agents"
    goal: ClassVar[str] = "the queries of other actors find the budget of the block used up"
    defence: ClassVar[str] = (
        "`GBA_QUERIES_PER_ACTOR` and the order of queries share `GBA_BUDGET_CYCLES`; the others get older answers"
    )

    @classmethod
    def bid(cls, options: BiddingOptions) -> str:
        return 'self.burn(9_000)\nreturn {"max_fee_per_cycle": 0, "max_priority_fee_per_cycle": 0}'
