"""Churn: timers that are cancelled or extended before they fire.

Each turn schedules a generation of timers under saved ids and then, for the generation before it, cancels some and
extends the others. An operation on a timer that has fired is rejected inside a ``try``, and the transaction continues.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from loadgen.workloads.base import Intent, Observation, Options, Workload
from loadgen.workloads.script import (
    Operation,
    Script,
    attempt,
    burn,
    cancel_saved,
    extend_saved,
    fire_gas_limit,
    put,
    schedule,
)

FIRST_EXPIRY_BLOCKS: Final = 200
"""Blocks from a timer's trigger height to its first expiry, as if the observed block scheduled the timer."""
EXTENSION_BLOCKS: Final = 400
"""Blocks that an extension adds to the first expiry."""
GENERATIONS: Final = 2
"""Number of turns after which saved ids are reused."""


class ChurnOptions(Options):
    """Options of :class:`Churn`."""

    timers: Annotated[int, Field(ge=1, le=100)] = 6
    """Timers per generation."""
    ahead_blocks: Annotated[int, Field(ge=1, le=1_000)] = 20
    """Blocks until a timer fires, unless it is cancelled."""
    cancel_percent: Annotated[int, Field(ge=0, le=100)] = 50
    """Share of timers that are cancelled; the others are extended."""
    burn: Annotated[int, Field(ge=0, le=100_000)] = 1_000
    """Cycles of work per fire."""


class Churn(Workload[ChurnOptions]):
    """Schedules a generation of timers in each turn, and cancels or extends those of the previous generation."""

    name: ClassVar[str] = "churn"
    options_type: ClassVar[type[Options]] = ChurnOptions
    _turn = 0

    def intents(self, observation: Observation) -> list[Intent]:
        script = self._change_last(observation) if self._turn else []
        size = min(self.options.timers, self.member.timer_room(observation))
        script += [attempt(self._schedule(slot, observation)) for slot in range(size)]
        self._turn += 1
        return [self.member.call(script)] if script else []

    def _schedule(self, slot: int, observation: Observation) -> Operation:
        payload: Script = [burn(self.options.burn), put("churned", str(self._turn))]
        return schedule(
            self.options.ahead_blocks,
            payload,
            gas_limit=fire_gas_limit(payload, self.member.parameters),
            expires_at=self._first_expiry(observation),
            save_as=self._key(self._turn, slot),
        )

    def _change_last(self, observation: Observation) -> Script:
        script: Script = []
        for slot in range(self.options.timers):
            key = self._key(self._turn - 1, slot)
            if self.member.random.randrange(100) < self.options.cancel_percent:
                script.append(attempt(cancel_saved(key)))
            else:
                script.append(attempt(extend_saved(key, self._first_expiry(observation) + EXTENSION_BLOCKS)))
        return script

    def _first_expiry(self, observation: Observation) -> int:
        return observation.height + self.options.ahead_blocks + FIRST_EXPIRY_BLOCKS

    @staticmethod
    def _key(turn: int, slot: int) -> str:
        return f"timer/{turn % GENERATIONS}/{slot}"
