"""Failing agents: bidding agents that fail."""

from __future__ import annotations

from typing import ClassVar

from loadgen.workloads.attacks.agents.base import Bidding, BiddingOptions


class FailingAgents(Bidding):
    """Its agent fails at once."""

    name: ClassVar[str] = "failing-agents"
    goal: ClassVar[str] = "timers whose agents fail stop the timer phase, or are priced for free"
    defence: ClassVar[str] = "a failed query costs its cycles and emits `GbaFallback`; the default agent bids instead"

    @classmethod
    def bid(cls, options: BiddingOptions) -> str:
        return 'assert False, "no answer"'
