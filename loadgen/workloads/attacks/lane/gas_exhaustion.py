"""Gas exhaustion: fires that always run out of cycles."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from loadgen.workloads.attacks.base import Burst, BurstOptions
from loadgen.workloads.base import Options
from loadgen.workloads.script import Script, burn


class GasExhaustionOptions(BurstOptions):
    """Options of :class:`GasExhaustion`."""

    gas_limit: Annotated[int, Field(ge=1_000, le=250_000)] = 50_000
    """Cycles of a fire; its work needs more."""


class GasExhaustion(Burst[GasExhaustionOptions]):
    """Schedules timers whose work takes one cycle more than they have."""

    name: ClassVar[str] = "gas-exhaustion"
    options_type: ClassVar[type[Options]] = GasExhaustionOptions
    goal: ClassVar[str] = "the lane is spent on fires that fail, and that the attacker hopes to get back"
    defence: ClassVar[str] = "a fire that runs out of cycles pays for all of its `gas_limit` and is not retried"

    def payload(self) -> Script:
        parameters = self.member.parameters
        return [burn(max(0, self.options.gas_limit - parameters.fire_base_cycles) + 1)]

    def gas_limit(self, payload: Script) -> int:
        return self.options.gas_limit
