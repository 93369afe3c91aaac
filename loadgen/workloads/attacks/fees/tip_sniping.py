"""Tip sniping: a bidding agent that bids just above the median tip, again in every block."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from loadgen.workloads.attacks.agents.base import Bidding, BiddingOptions
from loadgen.workloads.base import Options


class TipSnipingOptions(BiddingOptions):
    """Options of :class:`TipSniping`."""

    burn: Annotated[int, Field(ge=0, le=200_000)] = 50_000
    """Cycles of work per fire."""
    margin: Annotated[int, Field(ge=1, le=10**12)] = 1
    """Amount above the median tip of the block before, in the smallest unit per cycle."""
    headroom: Annotated[int, Field(ge=1, le=1_000)] = 4
    """Fee limit before the tip, in lane prices."""


class TipSniping(Bidding):
    """An attack with timers whose bidding agent bids just above the median tip, and so outbids half of all others."""

    name: ClassVar[str] = "tip-sniping"
    options_type: ClassVar[type[Options]] = TipSnipingOptions
    goal: ClassVar[str] = "the attacker's timers displace honest ones at the margin, for hardly more than these pay"
    defence: ClassVar[str] = (
        "the fairness weight doubles the score of who fires seldom; queries are paid in every block"
    )

    @classmethod
    def bid(cls, options: BiddingOptions) -> str:
        assert isinstance(options, TipSnipingOptions)
        return (
            f'tip = context["previous_block_p50_priority_tip_per_cycle"] + {options.margin}\n'
            f'limit = context["basefee_lane_timer"] * {options.headroom} + tip\n'
            'return {"max_fee_per_cycle": limit, "max_priority_fee_per_cycle": tip}'
        )
