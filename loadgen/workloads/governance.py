"""Governance: system instructions (SPEC §12), and deployments of programs.

A governance user is one of the chain's ``system_deployers`` from the genesis on. In each turn it deploys a program and
a script actor, lets the script actor schedule a generation of timers, changes governed parameters, and cancels or
extends the timers of the previous generation by instructions 48 and 50. A timer's id follows from its actor's address,
which follows from the nonce of its deployment. So the user knows the ids without a query, and a failed generation does
not affect others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field, field_validator

from loadgen.workloads.actor_program import ActorProgram
from loadgen.workloads.base import Intent, Observation, Options, Workload
from loadgen.workloads.script import Script, burn, encode_script, fire_gas_limit, schedule_at
from validator.chain.transactions import (
    SCRIPT_CODE,
    CancelTimer,
    Deploy,
    ExtendTimer,
    Instruction,
    System,
    UpdateTimerConfig,
    deployed_address,
)
from validator.primitives.codec import keccak256
from validator.primitives.params import GOVERNED, ParameterError, parse_value
from validator.primitives.types import Address

DEPLOY_CYCLES_PER_BYTE: Final = 500
"""Cycles per byte of code in a deployment's gas limit: more than any usual program takes; the rest is refunded."""
ENDOWMENT: Final = 10**18
"""The endowment of a generation's actor for its fires, in the smallest CBY unit."""
EXTENSION_BLOCKS: Final = 400
"""Blocks from a timer's trigger height to its extended expiry."""
FIRST_EXPIRY_BLOCKS: Final = 10
"""Blocks from a timer's trigger height to its first expiry."""
FIRE_WORK: Final[Script] = [burn(500)]
REFUSED_CONFIG: Final = {"LANE_TIMER_CYCLES": 0}
"""A change of parameters that every chain refuses, because the value is out of range."""


class GovernanceOptions(Options):
    """Options of :class:`Governance`."""

    timers: Annotated[int, Field(ge=0, le=8)] = 4
    """Timers per turn, which the next turn cancels or extends."""
    ahead_blocks: Annotated[int, Field(ge=2, le=1_000)] = 24
    """Blocks until a timer fires, unless it is cancelled."""
    cancel_percent: Annotated[int, Field(ge=0, le=100)] = 50
    """Share of timers that are cancelled; the others are extended."""
    configs: list[dict[str, Any]] = [
        {"LANE_TIMER_CYCLES": 1_000_000},
        {"LANE_BASEFEE_SLOPE": 2, "PRIORITY_TIERS": [5, 10, 20, 40]},
        {"FAIRNESS_WINDOW_BLOCKS": 5},
        {"LANE_TIMER_CYCLES": 2_000_000, "LANE_BASEFEE_SLOPE": 1},
    ]
    """Changes of governed parameters, one per turn, in rotation."""
    refused_percent: Annotated[int, Field(ge=0, le=100)] = 10
    """Share of turns with a change that the chain must refuse."""
    deploys: list[ActorProgram] = Field(default=["heartbeat"], validate_default=True)
    """Programs that are deployed, one per turn, in rotation."""

    @field_validator("configs")
    @classmethod
    def _configs_are_governed(cls, configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for number, config in enumerate(configs):
            for name, value in config.items():
                if name not in GOVERNED:
                    raise ValueError(f"[{number}]: {name} is not governed; known: {', '.join(sorted(GOVERNED))}")
                try:
                    parse_value(name, value)
                except ParameterError as error:
                    raise ValueError(f"[{number}]: {error}") from None
        return configs

    def programs(self) -> dict[str, str]:
        return {f"deploys[{number}]": program.code for number, program in enumerate(self.deploys)}


class Governance(Workload[GovernanceOptions]):
    """Each turn deploys programs, schedules a generation of timers, changes governed parameters, and cancels or extends
    the timers of the previous turn."""

    name: ClassVar[str] = "governance"
    options_type: ClassVar[type[Options]] = GovernanceOptions
    is_deployer: ClassVar[bool] = True
    _turn = 0
    _generation: Sequence[bytes] = ()
    """The ids of the previous turn's timers."""

    def intents(self, observation: Observation) -> list[Intent]:
        decided = [self._decide(timer_id, observation) for timer_id in self._generation]
        intents = [*self._schedule(observation), self._change_parameters(), *decided]
        if self.options.deploys:
            intents.append(self._deploy(self.options.deploys[self._turn % len(self.options.deploys)].code))
        self._turn += 1
        return [intent for intent in intents if intent is not None]

    def _schedule(self, observation: Observation) -> list[Intent]:
        """The intents that deploy a script actor, with the turn's first nonce, and let it schedule the timers."""
        if not self.options.timers:
            return []
        actor = deployed_address(self.member.address, observation.next_nonce)
        height = observation.height + self.options.ahead_blocks
        payload = encode_script(FIRE_WORK)
        self._generation = [timer_id_of(actor, height, payload, number) for number in range(self.options.timers)]
        gas_limit = fire_gas_limit(FIRE_WORK, self.member.parameters)
        expires_at = height + FIRST_EXPIRY_BLOCKS
        script = [schedule_at(height, FIRE_WORK, gas_limit=gas_limit, expires_at=expires_at)] * self.options.timers
        return [self._deploy(SCRIPT_CODE, ENDOWMENT), self.member.call(script, actor=actor)]

    def _deploy(self, code: str, value: int = 0) -> Intent:
        parameters = self.member.parameters
        gas_limit = parameters.tx_base_cycles + DEPLOY_CYCLES_PER_BYTE * len(code)
        return Intent(Deploy(code), min(gas_limit, parameters.lane_user_cycles), len(code), value=value)

    def _change_parameters(self) -> Intent | None:
        configs = self.options.configs
        if self.member.random.randrange(100) < self.options.refused_percent:
            return self._instruct(UpdateTimerConfig(json.dumps(REFUSED_CONFIG)))
        return self._instruct(UpdateTimerConfig(json.dumps(configs[self._turn % len(configs)]))) if configs else None

    def _decide(self, timer_id: bytes, observation: Observation) -> Intent:
        if self.member.random.randrange(100) < self.options.cancel_percent:
            return self._instruct(CancelTimer(timer_id))
        later = observation.height + self.options.ahead_blocks + EXTENSION_BLOCKS
        return self._instruct(ExtendTimer(timer_id, later))

    def _instruct(self, instruction: Instruction) -> Intent:
        return Intent(System(instruction), self.member.parameters.tx_base_cycles, 0)


def timer_id_of(actor: Address, height: int, payload: bytes, schedule_nonce: int) -> bytes:
    """A timer's id (SPEC §4)."""
    return keccak256(actor + height.to_bytes(8, "big") + payload + schedule_nonce.to_bytes(8, "big"))
