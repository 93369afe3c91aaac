"""Lane cycles: fires that use the lane's cycles and none of its cells."""

from __future__ import annotations

from typing import ClassVar

from loadgen.workloads.attacks.base import Burst, BurstOptions, largest_work
from loadgen.workloads.base import Options
from loadgen.workloads.script import Script


class LaneCycles(Burst[BurstOptions]):
    """An attack with timers that each burn all cycles that a fire may use."""

    name: ClassVar[str] = "lane-cycles"
    options_type: ClassVar[type[Options]] = BurstOptions
    goal: ClassVar[str] = "few fires take all cycles of the lane"
    defence: ClassVar[str] = "`MAX_CYCLES_PER_FIRE_AUCTION_PHASE` bounds a fire; a full lane raises the lane basefee"

    def payload(self) -> Script:
        return largest_work(self.member)
