"""Tip outbidding: timers with higher tips than those of all other users."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from loadgen.workloads.attacks.base import Burst, BurstOptions
from loadgen.workloads.base import Options
from loadgen.workloads.script import Script, burn


class TipOutbiddingOptions(BurstOptions):
    """Options of :class:`TipOutbidding`."""

    every_blocks: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Timers of all attackers become due at multiples of this height."""
    tip_percent: Annotated[int, Field(ge=1, le=100_000)] = 200
    """Tip of a timer, in percent of the lane price that its user knows."""
    burn: Annotated[int, Field(ge=0, le=200_000)] = 50_000
    """Cycles of work per fire."""


class TipOutbidding(Burst[TipOutbiddingOptions]):
    """Keeps the lane full of timers that pay more than others."""

    name: ClassVar[str] = "tip-outbidding"
    options_type: ClassVar[type[Options]] = TipOutbiddingOptions
    goal: ClassVar[str] = "honest timers wait as long as the attacker pays more for each cycle of the lane"
    defence: ClassVar[str] = "the basefee of a full lane rises an eighth a block, and the tips go to proposers"

    def payload(self) -> Script:
        return [burn(self.options.burn)]
