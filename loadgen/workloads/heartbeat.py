"""Heartbeat: chains of timers, each of which does a little work and schedules its successor.

A transaction starts a chain of ``beats`` timers, ``every`` blocks apart. A beat's payload is a script with the rest of
the chain, so each fire depends only on the previous one. The actor pays.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from loadgen.workloads.base import Intent, Observation, Options, Workload
from loadgen.workloads.script import Script, burn, emit, fire_gas_limit, put, schedule

MAX_BEATS: Final = 20
"""Maximum number of beats in a chain: each adds three levels to a script's nesting, which may be at most 64."""

TIERS: Final = (None, "economy", "standard", "fast", "urgent")
"""Tiers for timers' tips. A user's number selects one of them; ``None`` leaves the tip to default pricing."""


class HeartbeatOptions(Options):
    """Options of :class:`Heartbeat`."""

    every: Annotated[int, Field(ge=1, le=1_000)] = 2
    """Blocks between two beats."""
    beats: Annotated[int, Field(ge=1, le=MAX_BEATS)] = 8
    """Timers in a chain."""
    burn: Annotated[int, Field(ge=0, le=100_000)] = 500
    """Cycles of work per beat."""


class Heartbeat(Workload[HeartbeatOptions]):
    """Starts a chain of timers in each turn."""

    name: ClassVar[str] = "heartbeat"
    options_type: ClassVar[type[Options]] = HeartbeatOptions
    _started = 0

    def intents(self, observation: Observation) -> list[Intent]:
        if not self.member.timer_room(observation):
            return []
        self._started += 1
        script: Script = [put("chains", str(self._started)), self._first_beat()]
        return [self.member.call(script)]

    def _first_beat(self) -> list[object]:
        """The operation that schedules a whole chain, built from its last beat to the first."""
        tier = TIERS[self.member.number % len(TIERS)]
        last = self.options.beats
        payload: Script = [*self._work(last), emit("chain_ended", str(self._started))]
        for beat in range(last - 1, -1, -1):
            limit = fire_gas_limit(payload, self.member.parameters)
            operation = schedule(self.options.every, payload, gas_limit=limit, tier=tier)
            payload = [*self._work(beat), operation]
        return operation

    def _work(self, beat: int) -> Script:
        return [put("beat", f"{self._started}/{beat}"), burn(self.options.burn)]
