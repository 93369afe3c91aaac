"""Insolvency storm: the paying actor is drained just before its timers are due, and funded again after that."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Final

from pydantic import Field

from loadgen.workloads.attacks.base import Burst, BurstOptions, next_multiple
from loadgen.workloads.base import Intent, Member, Observation, Options
from loadgen.workloads.script import Script, attempt, burn, transfer
from validator.primitives.types import address_text

DRAIN_BLOCKS: Final = 6
"""Blocks before its timers' due height at which the actor is drained, so that the transfer is in a block in time."""
FUNDED_PERCENT: Final = 50
"""Share of the account's balance with which a drained actor is funded again, in percent."""


class InsolvencyStormOptions(BurstOptions):
    """Options of :class:`InsolvencyStorm`."""

    every_blocks: Annotated[int, Field(ge=16, le=10_000)] = 24
    """Timers of all attackers become due at multiples of this height."""
    burn: Annotated[int, Field(ge=0, le=200_000)] = 20_000
    """Cycles of work of a fire, if there were one."""


class InsolvencyStorm(Burst[InsolvencyStormOptions]):
    """An attack that in each period funds its actor, schedules timers, and drains the actor before they are due."""

    name: ClassVar[str] = "insolvency-storm"
    options_type: ClassVar[type[Options]] = InsolvencyStormOptions
    goal: ClassVar[str] = "timers take part in the auction, and none can pay when its turn comes"
    defence: ClassVar[str] = (
        "solvency is judged at a timer's turn; destroying it draws on `TIMER_GC_CYCLES`, not on the lane"
    )

    def __init__(self, options: InsolvencyStormOptions, member: Member) -> None:
        super().__init__(options, member)
        self._drained_for = 0
        """The last due height for which the actor was drained."""

    def intents(self, observation: Observation) -> list[Intent]:
        due = next_multiple(self.options.every_blocks, observation.height + 1)
        if due - observation.height > DRAIN_BLOCKS:
            return self._schedule(due, observation)
        if self._drained_for == due or not observation.actor_balance:
            return []
        self._drained_for = due
        account = address_text(self.member.address)
        return [self.member.call([attempt(transfer(account, observation.actor_balance))])]

    def payload(self) -> Script:
        return [burn(self.options.burn)]

    def _schedule(self, due: int, observation: Observation) -> list[Intent]:
        size = min(self.options.timers, self.member.timer_room(observation))
        if not size:
            return []
        intent = self.member.call([attempt(self.timer(due, observation))] * size)
        if observation.actor_balance:
            return [intent]
        return [replace(intent, value=observation.balance * FUNDED_PERCENT // 100)]
