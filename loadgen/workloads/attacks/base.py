"""Common parts of attacks: bursts of timers, common due heights, calls of Python actors."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Final, TypeVar

from pydantic import Field

from loadgen.workloads.base import Intent, Member, Observation, Options, OptionsT, Workload
from loadgen.workloads.script import Operation, Script, attempt, burn, fire_gas_limit, schedule_at
from validator.chain.transactions import Call
from validator.pvm.runtime.values import encode_value

SLACK_BLOCKS: Final = 4
"""Maximum blocks from the latest block that a user knows to the block with its transaction, if blocks have room."""
FIELD_LIMIT: Final = 2**96 - 1
CALL_GAS_LIMIT: Final = 100_000
"""Gas limit of a call to a Python actor, in cycles, without the call's work; unused cycles are refunded."""
CALL_CELLS_LIMIT: Final = 1_000
"""Cells limit of a call to a Python actor, without the timers that the call schedules."""


class BurstOptions(Options):
    """Options of bursts of timers."""

    timers: Annotated[int, Field(ge=1, le=1_000)] = 100
    """Timers per turn."""
    every_blocks: Annotated[int, Field(ge=1, le=10_000)] = 20
    """Timers of all attackers become due at multiples of this height."""
    max_fee_percent: Annotated[int, Field(ge=100, le=100_000)] = 400
    """Fee limit of a timer without its tip, in percent of the lane price that its user knows."""
    tip_percent: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Tip of a timer, in percent of that price."""


BurstOptionsT = TypeVar("BurstOptionsT", bound=BurstOptions)


class Burst(Workload[BurstOptionsT]):
    """Base class of attacks by bursts: each turn schedules equal timers for the next multiple of ``every_blocks``."""

    is_attack: ClassVar[bool] = True

    def intents(self, observation: Observation) -> list[Intent]:
        size = min(self.options.timers, self.member.timer_room(observation))
        height = next_multiple(self.options.every_blocks, observation.height + SLACK_BLOCKS)
        return [self.member.call([attempt(self.timer(height, observation))] * size)] if size else []

    @abstractmethod
    def payload(self) -> Script:
        """The script that each timer runs when it fires."""

    def gas_limit(self, payload: Script) -> int:
        """The gas limit of a timer, in cycles; by default what its payload needs."""
        return fire_gas_limit(payload, self.member.parameters)

    def expires_at(self, height: int) -> int | None:
        """Expiry height of a timer that is due at ``height``; ``None``, the default, for the latest possible."""
        return None

    def timer(self, height: int, observation: Observation) -> Operation:
        """The operation that schedules a timer for a height."""
        payload, expires_at = self.payload(), self.expires_at(height)
        fields = {} if expires_at is None else {"expires_at": expires_at}
        max_fee, tip = fees(self.options, self.member.lane_price(observation))
        return schedule_at(
            height,
            payload,
            gas_limit=self.gas_limit(payload),
            max_fee_per_cycle=max_fee,
            max_priority_fee_per_cycle=tip,
            **fields,
        )


class Programmed(Workload[OptionsT]):
    """An attack whose actor is a Python program."""

    is_attack: ClassVar[bool] = True
    program: ClassVar[str]

    @classmethod
    def actor_code(cls, options: Options) -> str:
        return cls.program


def fees(options: BurstOptions, lane_price: int) -> tuple[int, int]:
    """The fee limit and the tip of a timer, per cycle. The fee limit includes the tip."""
    tip = min(lane_price * options.tip_percent // 100, FIELD_LIMIT)
    return min(lane_price * options.max_fee_percent // 100 + tip, FIELD_LIMIT), tip


def next_multiple(step: int, least: int) -> int:
    """The first multiple of a step that is at least ``least``."""
    return -(-least // step) * step


def largest_fire_gas(member: Member) -> int:
    """The most cycles that a fire may request."""
    return member.parameters.max_cycles_per_fire_auction_phase


def largest_work(member: Member) -> Script:
    """A script that uses all cycles that a fire may request, and no cells."""
    base = fire_gas_limit([burn(0)], member.parameters)
    return [burn(max(0, largest_fire_gas(member) - base))]


def invoke(
    member: Member, handler: str, payload: Any, gas_limit: int = CALL_GAS_LIMIT, cells_limit: int = CALL_CELLS_LIMIT
) -> Intent:
    """An intent that calls a handler of the user's actor, a Python program. The user lane bounds both limits."""
    wire, parameters = encode_value(payload), member.parameters
    return Intent(
        Call(member.actor, handler, wire),
        min(parameters.tx_base_cycles + gas_limit, parameters.lane_user_cycles),
        min(len(wire) + cells_limit, parameters.lane_user_cells),
    )
