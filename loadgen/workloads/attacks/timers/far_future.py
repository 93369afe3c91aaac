"""Far future: timers that become due long after the attack, and stay in the overflow tree until then."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from loadgen.workloads.base import Intent, Observation, Options, Workload
from loadgen.workloads.script import Script, attempt, emit, fire_gas_limit, schedule


class FarFutureOptions(Options):
    """Options of :class:`FarFuture`."""

    timers: Annotated[int, Field(ge=1, le=1_000)] = 200
    """Timers per turn."""
    ahead_blocks: Annotated[int, Field(ge=1, le=2_000_000)] = 100_000
    """Blocks until the first of them is due."""
    spread_blocks: Annotated[int, Field(ge=1, le=500_000)] = 10_000
    """The heights are drawn from this many blocks."""
    payload_bytes: Annotated[int, Field(ge=0, le=400)] = 100
    """Bytes that each timer adds to its payload."""


class FarFuture(Workload[FarFutureOptions]):
    """An attack that in each turn schedules timers due far in the future, until its actor may have no more timers."""

    name: ClassVar[str] = "far-future"
    options_type: ClassVar[type[Options]] = FarFutureOptions
    is_attack: ClassVar[bool] = True
    goal: ClassVar[str] = (
        "state grows by timers that are not due for long, and every step of the calendar becomes dearer"
    )
    defence: ClassVar[str] = "`MAX_TIMERS_PER_ACTOR` and `MAX_TTL` bound the growth; the overflow tree costs O(log n)"

    def intents(self, observation: Observation) -> list[Intent]:
        options, random = self.options, self.member.random
        size = min(options.timers, self.member.timer_room(observation))
        payload: Script = [emit("far", "." * options.payload_bytes)]
        gas_limit = fire_gas_limit(payload, self.member.parameters)
        heights = [options.ahead_blocks + random.randrange(options.spread_blocks) for _ in range(size)]
        script: Script = [attempt(schedule(height, payload, gas_limit=gas_limit)) for height in heights]
        return [self.member.call(script)] if script else []
