"""Basefee oscillation: the lane is filled in one half of each period and left to other users in the other half.

Each timer expires at the height at which it becomes due, so that the full half does not reach into the empty one.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from loadgen.workloads.attacks.base import SLACK_BLOCKS, largest_fire_gas, largest_work
from loadgen.workloads.base import Intent, Member, Observation, Options, Workload
from loadgen.workloads.script import Script, attempt, schedule_at


class BasefeeOscillationOptions(Options):
    """Options of :class:`BasefeeOscillation`."""

    period_blocks: Annotated[int, Field(ge=2, le=200)] = 8
    """Blocks of a period; the lane is full in the first half."""
    fill_percent: Annotated[int, Field(ge=1, le=200)] = 100
    """Cycles of the fires of a full block, in percent of the lane."""
    max_fee_percent: Annotated[int, Field(ge=100, le=100_000)] = 400
    """Fee limit of a timer, in percent of the lane price that its user knows."""
    ahead_blocks: Annotated[int, Field(ge=1, le=200)] = 16
    """Number of blocks ahead for which timers are scheduled."""


class BasefeeOscillation(Workload[BasefeeOscillationOptions]):
    """An attack with timers that fill the lane in the first half of each period, and none in the second half."""

    name: ClassVar[str] = "basefee-oscillation"
    options_type: ClassVar[type[Options]] = BasefeeOscillationOptions
    is_attack: ClassVar[bool] = True
    goal: ClassVar[str] = (
        "the lane basefee swings, so that honest fee limits are too low in one block and too high in another"
    )
    defence: ClassVar[str] = (
        "a step of the basefee is at most an eighth; the default fee limit has room for some five steps"
    )

    def __init__(self, options: BasefeeOscillationOptions, member: Member) -> None:
        super().__init__(options, member)
        self._planned = 0
        """The height up to which timers are scheduled."""

    def intents(self, observation: Observation) -> list[Intent]:
        options, first = self.options, max(self._planned + 1, observation.height + SLACK_BLOCKS)
        last = observation.height + SLACK_BLOCKS + options.ahead_blocks
        full = [
            height for height in range(first, last) if height % options.period_blocks < -(-options.period_blocks // 2)
        ]
        size = min(self._fires, self.member.timer_room(observation) // max(1, len(full)))
        self._planned = max(self._planned, last - 1)
        script = [each for height in full for each in self._timers(height, size, observation)]
        return [self.member.call(script)] if script else []

    def dropped(self, intent: Intent) -> None:
        self._planned = 0

    @property
    def _fires(self) -> int:
        """Number of fires with the maximum cycles that fill the lane to ``fill_percent``."""
        lane = self.member.parameters.lane_timer_cycles
        return max(1, lane * self.options.fill_percent // 100 // largest_fire_gas(self.member))

    def _timers(self, height: int, size: int, observation: Observation) -> Script:
        operation = schedule_at(
            height,
            largest_work(self.member),
            gas_limit=largest_fire_gas(self.member),
            expires_at=height,
            max_fee_per_cycle=self.member.lane_price(observation) * self.options.max_fee_percent // 100,
        )
        return [attempt(operation)] * size
