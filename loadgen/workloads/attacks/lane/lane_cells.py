"""Lane cells: fires that use the lane's cells and hardly any of its cycles."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from loadgen.workloads.attacks.base import SLACK_BLOCKS, BurstOptions, Programmed, fees, invoke, next_multiple
from loadgen.workloads.base import Intent, Observation, Options

PROGRAM: Final = '''
class CellHog(Actor):
    """Writes much to its storage when a timer fires, over and over the same."""

    def plan(self, payload):
        assert self.sender == self.deployer, "only the owner"
        for number in range(payload["timers"]):
            self.schedule(payload["height"], payload["bytes"], "write", gas_limit=payload["gas"],
                          max_fee_per_cycle=payload["max_fee"], max_priority_fee_per_cycle=payload["tip"])

    def write(self, payload):
        assert self.sender == self.address, "only the timer"
        self.set("text", "x" * payload)
'''
SCHEDULE_CYCLES: Final = 3_000
"""Maximum cycles for scheduling one timer in a call of the handler ``plan``."""
FIRE_CYCLES: Final = 5_000
"""Cycles of a fire, without the text that it writes."""
BYTES_PER_CYCLE: Final = 8
"""Minimum bytes of the text that an actor makes, copies and packs per cycle."""
KEY_CELLS: Final = 100
"""Maximum cells that writing the text takes in addition to the text: those of the key and of the encoding."""


class LaneCellsOptions(BurstOptions):
    """Options of :class:`LaneCells`."""

    timers: Annotated[int, Field(ge=1, le=100)] = 12
    """Timers per turn."""
    cells: Annotated[int, Field(ge=1_000, le=1_000_000)] = 540_000
    """Cells per fire; no more than a fire may use."""


class LaneCells(Programmed[LaneCellsOptions]):
    """Lets a Python actor schedule fires that each write a long text."""

    name: ClassVar[str] = "lane-cells"
    options_type: ClassVar[type[Options]] = LaneCellsOptions
    program: ClassVar[str] = PROGRAM
    goal: ClassVar[str] = "few cheap fires take all cells of the lane, whose basefee follows cycles alone"
    defence: ClassVar[str] = (
        "`MAX_CELLS_PER_FIRE` and `LANE_TIMER_CELLS` bound a fire and a block; the cell basefee rises"
    )

    def intents(self, observation: Observation) -> list[Intent]:
        options, member = self.options, self.member
        size = min(options.timers, member.timer_room(observation))
        if not size:
            return []
        cells = max(1, min(options.cells, member.parameters.max_cells_per_fire) - KEY_CELLS)
        max_fee, tip = fees(options, member.lane_price(observation))
        plan = {
            "timers": size,
            "height": next_multiple(options.every_blocks, observation.height + SLACK_BLOCKS),
            "bytes": cells,
            "gas": FIRE_CYCLES + cells // BYTES_PER_CYCLE,
            "max_fee": max_fee,
            "tip": tip,
        }
        return [invoke(member, "plan", plan, SCHEDULE_CYCLES * (1 + size))]
