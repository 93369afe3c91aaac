"""Sybil fragmentation: one budget, spread over many actors with few timers each.

The budget is the group's ``budget``, and the actors are its ``count`` users. An actor that has fired seldom has twice
the weight of one that fires often (SPEC §8), so a budget that is spread over many actors bids with twice the weight.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from loadgen.workloads.attacks.base import Burst, BurstOptions
from loadgen.workloads.base import Options
from loadgen.workloads.script import Script, burn


class SybilFragmentationOptions(BurstOptions):
    """Options of :class:`SybilFragmentation`."""

    timers: Annotated[int, Field(ge=1, le=100)] = 4
    """Timers per turn of each actor."""
    tip_percent: Annotated[int, Field(ge=0, le=100_000)] = 1
    """Tip of a timer, in percent of the lane price that its user knows; the weight multiplies it."""
    burn: Annotated[int, Field(ge=0, le=200_000)] = 50_000
    """Cycles of work per fire."""


class SybilFragmentation(Burst[SybilFragmentationOptions]):
    """An attack by many actors, each of which has few timers, due at the same heights as those of the others."""

    name: ClassVar[str] = "sybil-fragmentation"
    options_type: ClassVar[type[Options]] = SybilFragmentationOptions
    goal: ClassVar[str] = "many actors of one purse have the fairness weight of newcomers, and outrank honest actors"
    defence: ClassVar[str] = "the weight multiplies a tip by two at most, and every fire pays the whole lane price"

    def payload(self) -> Script:
        return [burn(self.options.burn)]
