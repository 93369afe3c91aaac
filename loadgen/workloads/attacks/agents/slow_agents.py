"""Slow agents: bidding agents that never finish an answer."""

from __future__ import annotations

from typing import ClassVar

from loadgen.workloads.attacks.agents.base import Bidding, BiddingOptions


class SlowAgents(Bidding):
    """An attack with timers whose bidding agent loops until the cycles of its query are used up."""

    name: ClassVar[str] = "slow-agents"
    goal: ClassVar[str] = "queries that never come to an end use up processor time before the first fire"
    defence: ClassVar[str] = (
        "`GBA_MAX_CYCLES` ends a query, which is paid for all the same; the default agent bids instead"
    )

    @classmethod
    def bid(cls, options: BiddingOptions) -> str:
        return "while True:\n    self.burn(100)"
