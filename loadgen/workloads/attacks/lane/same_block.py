"""Same block: all timers of all attackers become due in one block."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from loadgen.workloads.attacks.base import Burst, BurstOptions
from loadgen.workloads.base import Options
from loadgen.workloads.script import Script, burn


class SameBlockOptions(BurstOptions):
    """Options of :class:`SameBlock`."""

    burn: Annotated[int, Field(ge=0, le=200_000)] = 20_000
    """Cycles of work per fire."""


class SameBlock(Burst[SameBlockOptions]):
    """An attack that schedules each burst of timers for the next height at which all attackers' timers become due."""

    name: ClassVar[str] = "same-block"
    options_type: ClassVar[type[Options]] = SameBlockOptions
    goal: ClassVar[str] = "honest timers that become due in the same block wait until the burst has been worked off"
    defence: ClassVar[str] = "`LANE_TIMER_CYCLES` bounds a block; priority and fairness weight order the burst"

    def payload(self) -> Script:
        return [burn(self.options.burn)]
