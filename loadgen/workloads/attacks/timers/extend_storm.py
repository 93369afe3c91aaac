"""Extend storm: the same timers are extended repeatedly."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from loadgen.workloads.base import Intent, Member, Observation, Options, Workload
from loadgen.workloads.script import Script, attempt, extend_saved, fire_gas_limit, schedule

FIRST_EXPIRY_BLOCKS: Final = 10
"""Blocks from a timer's trigger height to its first expiry."""


class ExtendStormOptions(Options):
    """Options of :class:`ExtendStorm`."""

    timers: Annotated[int, Field(ge=1, le=500)] = 200
    """Timers that are extended."""
    times: Annotated[int, Field(ge=1, le=16)] = 2
    """Number of extensions of each timer in a turn."""
    ahead_blocks: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """Blocks until they are due."""


class ExtendStorm(Workload[ExtendStormOptions]):
    """Schedules its timers in the first turn, and extends all of them in each later one."""

    name: ClassVar[str] = "extend-storm"
    options_type: ClassVar[type[Options]] = ExtendStormOptions
    is_attack: ClassVar[bool] = True
    goal: ClassVar[str] = "the order of expiry changes so often that keeping it costs more than the attacker pays"
    defence: ClassVar[str] = "an extension costs 500 cycles, must be later than the one before, and ends at `MAX_TTL`"

    def __init__(self, options: ExtendStormOptions, member: Member) -> None:
        super().__init__(options, member)
        self._expires_at = 0
        """The last requested expiry; 0 before the timers are scheduled."""

    def intents(self, observation: Observation) -> list[Intent]:
        if not self._expires_at:
            self._expires_at = observation.height + self.options.ahead_blocks + FIRST_EXPIRY_BLOCKS
            return [self.member.call(self._schedule())]
        script: Script = []
        for _ in range(self.options.times):
            self._expires_at += 1
            script += [attempt(extend_saved(_key(slot), self._expires_at)) for slot in range(self.options.timers)]
        return [self.member.call(script)]

    def dropped(self, intent: Intent) -> None:
        self._expires_at = 0

    def _schedule(self) -> Script:
        gas_limit, ahead = fire_gas_limit([], self.member.parameters), self.options.ahead_blocks
        return [
            attempt(schedule(ahead, [], gas_limit=gas_limit, expires_at=self._expires_at, save_as=_key(slot)))
            for slot in range(self.options.timers)
        ]


def _key(slot: int) -> str:
    return f"timer/{slot}"
