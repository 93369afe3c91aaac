"""Chain reaction: every fire schedules further timers, so that one call starts an endless number of timers."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from loadgen.workloads.attacks.base import Programmed, invoke
from loadgen.workloads.base import Intent, Observation, Options

PROGRAM: Final = '''
class ChainReaction(Actor):
    """Each fire schedules further ones."""

    def start(self, payload):
        assert self.sender == self.deployer, "only the owner"
        self.react(payload)

    def fire(self, payload):
        assert self.sender == self.address, "only the timer"
        self.burn(payload["burn"])
        self.react(payload)

    def react(self, payload):
        for number in range(payload["fan_out"]):
            self.schedule(self.height + payload["every"], payload, "fire", gas_limit=payload["gas"])
'''
SCHEDULE_CYCLES: Final = 3_000
"""Maximum cycles for scheduling one timer."""
FIRE_CYCLES: Final = 5_000
"""Cycles of a fire, without its work and the timers that it schedules."""
TIMER_CELLS: Final = 200
"""Cells of a timer's payload, at most."""


class ChainReactionOptions(Options):
    """Options of :class:`ChainReaction`."""

    fan_out: Annotated[int, Field(ge=1, le=16)] = 2
    """Timers that a fire schedules."""
    every: Annotated[int, Field(ge=1, le=1_000)] = 1
    """Blocks from a fire to the timers that it schedules."""
    burn: Annotated[int, Field(ge=0, le=150_000)] = 5_000
    """Cycles of work per fire."""
    starts: Annotated[int, Field(ge=1, le=1_000_000)] = 4
    """Number of turns that start a reaction; then the user is idle."""


class ChainReaction(Programmed[ChainReactionOptions]):
    """An attack that starts a reaction in each of its first turns: timers whose fires schedule further such timers."""

    name: ClassVar[str] = "chain-reaction"
    options_type: ClassVar[type[Options]] = ChainReactionOptions
    program: ClassVar[str] = PROGRAM
    goal: ClassVar[str] = "timers multiply without further transactions until they fill the lane for good"
    defence: ClassVar[str] = (
        "no timer fires in the block that scheduled it; `MAX_TIMERS_PER_ACTOR` bounds the reaction; each fire is paid"
    )
    _started = 0

    def intents(self, observation: Observation) -> list[Intent]:
        if self._started == self.options.starts:
            return []
        self._started += 1
        fan_out, cells = self.options.fan_out, TIMER_CELLS * self.options.fan_out
        cycles = FIRE_CYCLES + SCHEDULE_CYCLES * fan_out
        payload = {
            "fan_out": fan_out,
            "every": self.options.every,
            "burn": self.options.burn,
            "gas": cycles + self.options.burn,
        }
        return [invoke(self.member, "start", payload, cycles, cells)]

    def dropped(self, intent: Intent) -> None:
        self._started -= 1
