"""Expiry storm: more timers in one block than the lane holds, which all expire in the next block."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from loadgen.workloads.attacks.base import Burst, BurstOptions, largest_work
from loadgen.workloads.base import Options
from loadgen.workloads.script import Script


class ExpiryStormOptions(BurstOptions):
    """Options of :class:`ExpiryStorm`."""

    wait_blocks: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Blocks that a due timer waits before it expires."""


class ExpiryStorm(Burst[ExpiryStormOptions]):
    """An attack with timers that request the maximum cycles of a fire, so that few of them fire before they expire."""

    name: ClassVar[str] = "expiry-storm"
    options_type: ClassVar[type[Options]] = ExpiryStormOptions
    goal: ClassVar[str] = "thousands of timers have to be removed in one block, for the price of the few that fire"
    defence: ClassVar[str] = "removal draws on `TIMER_GC_CYCLES` alone; what does not fit is carried"

    def payload(self) -> Script:
        return largest_work(self.member)

    def expires_at(self, height: int) -> int:
        return height + self.options.wait_blocks
