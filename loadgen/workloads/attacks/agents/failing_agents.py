"""Failing agents: an attack by bidding agents that fail instead of answering."""

from __future__ import annotations

from typing import ClassVar

from loadgen.workloads.attacks.agents.base import Bidding, BiddingOptions


class FailingAgents(Bidding):
    """An attack with timers whose bidding agent fails at once whenever it is queried."""

    name: ClassVar[str] = "failing-agents"
    goal: ClassVar[str] = "timers whose agents fail stop the timer phase, or are priced for free"
    defence: ClassVar[str] = "a failed query costs its cycles and emits `GbaFallback`; the default agent bids instead"

    @classmethod
    def bid(cls, options: BiddingOptions) -> str:
        return 'assert False, "no answer"'
