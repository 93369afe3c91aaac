"""Lying agents: bidding agents that bid more than their owner has."""

from __future__ import annotations

from typing import ClassVar

from loadgen.workloads.attacks.agents.base import Bidding, BiddingOptions


class LyingAgents(Bidding):
    """An attack with timers whose bidding agent bids the highest valid price."""

    name: ClassVar[str] = "lying-agents"
    goal: ClassVar[str] = (
        "timers that claim to pay more than all others come first in every block, and can pay for nothing"
    )
    defence: ClassVar[str] = (
        "solvency is judged at a timer's turn; what cannot pay is destroyed on `TIMER_GC_CYCLES`, not on the lane"
    )

    @classmethod
    def bid(cls, options: BiddingOptions) -> str:
        return 'return {"max_fee_per_cycle": 2**96 - 1, "max_priority_fee_per_cycle": 2**96 - 1}'
