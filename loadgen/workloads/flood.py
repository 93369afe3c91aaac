"""Flood: bursts of timers that compete for the timer lane.

A transaction schedules ``timers`` timers, due 1 to ``spread_blocks`` blocks later, each with a ``gas_limit`` equal to
its payload's cost. Some state their fees, some leave them to default pricing, some are paid by the transaction's
sender. Each schedule is in a ``try``, so that a burst continues if one timer is rejected.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field, model_validator

from loadgen.workloads.base import Intent, Observation, Options, Workload
from loadgen.workloads.script import Operation, Script, attempt, burn, fire_gas_limit, put, schedule

MAX_BURST_CELLS: Final = 250_000
"""Maximum payload bytes in a burst: a block holds 1,000,000 cells of transactions, and a payload is paid for twice."""
BYTES_PER_TIMER: Final = 200
"""Upper bound of the bytes that one timer takes in a burst, without its ``payload_bytes``."""

FEE_HEADROOM: Final = (2, 4)
"""Least and greatest factor of the lane price for an explicit ``max_fee_per_cycle``; each timer draws a factor."""
TIP_DIVISOR: Final = 10
"""Divisor of the lane price for the largest explicit tip."""
PAYER_CAP_HEADROOM: Final = 4
"""Factor by which basefees may grow while a sender's ``payer_cap`` still covers the cost of a fire."""
FIELD_LIMIT: Final = 2**96 - 1

Percent = Annotated[int, Field(ge=0, le=100)]


class FloodOptions(Options):
    """Options of :class:`Flood`."""

    timers: Annotated[int, Field(ge=1, le=1_000)] = 30
    """Timers per burst."""
    spread_blocks: Annotated[int, Field(ge=1, le=1_000)] = 12
    """The timers become due in 1 to this many blocks."""
    burn: Annotated[int, Field(ge=0, le=200_000)] = 8_000
    """Maximum cycles of work per fire; each timer draws between half of it and all of it."""
    payload_bytes: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Bytes that a fire writes to storage in addition to its mark."""
    explicit_percent: Percent = 50
    """Share of timers that state ``max_fee_per_cycle`` and a tip."""
    sender_percent: Percent = 10
    """Share of timers that the sender pays for, up to a cap."""

    @model_validator(mode="after")
    def _fits_a_block(self) -> FloodOptions:
        size = self.timers * (self.payload_bytes + BYTES_PER_TIMER)
        if size > MAX_BURST_CELLS:
            raise ValueError(
                f"a burst of {self.timers} timers with payload_bytes {self.payload_bytes} takes up to {size} bytes,"
                f" expected at most {MAX_BURST_CELLS}"
            )
        return self


class Flood(Workload[FloodOptions]):
    """Schedules a burst of timers in each turn, or a smaller one if the actor has no room for all of them."""

    name: ClassVar[str] = "flood"
    options_type: ClassVar[type[Options]] = FloodOptions
    _bursts = 0

    def intents(self, observation: Observation) -> list[Intent]:
        size = min(self.options.timers, self.member.timer_room(observation))
        if not size:
            return []
        self._bursts += 1
        script: Script = []
        allowance = 0
        for _ in range(size):
            operation, cap = self._timer(observation)
            script.append(attempt(operation))
            allowance += cap
        return [self.member.call(script, timer_allowance=allowance)]

    def _timer(self, observation: Observation) -> tuple[Operation, int]:
        """A schedule operation, and the allowance that it needs from the transaction."""
        random, options = self.member.random, self.options
        mark = f"{self._bursts}" + "." * options.payload_bytes
        payload = [burn(random.randint(options.burn // 2, options.burn)), put("burst", mark)]
        gas_limit = fire_gas_limit(payload, self.member.parameters)
        max_fee, tip = self._fees(observation) if random.randrange(100) < options.explicit_percent else (None, None)
        cap = self._payer_cap(observation, gas_limit) if random.randrange(100) < options.sender_percent else None
        operation = schedule(
            random.randint(1, options.spread_blocks),
            payload,
            gas_limit=gas_limit,
            max_fee_per_cycle=max_fee,
            max_priority_fee_per_cycle=tip,
            fee_payer="sender" if cap is not None else None,
            payer_cap=cap,
        )
        return operation, cap or 0

    def _fees(self, observation: Observation) -> tuple[int, int]:
        price = self.member.lane_price(observation)
        max_fee = price * self.member.random.randint(*FEE_HEADROOM)
        tip = self.member.random.randint(0, price // TIP_DIVISOR)
        return min(max_fee, FIELD_LIMIT), min(tip, FIELD_LIMIT)

    def _payer_cap(self, observation: Observation, gas_limit: int) -> int:
        """The highest cost of a fire (SPEC §6.6b) if the basefees grow by :data:`PAYER_CAP_HEADROOM`."""
        price = observation.basefee_cycle + 2 * self.member.lane_price(observation)
        cells = self.member.parameters.max_cells_per_fire * observation.basefee_cell
        return min(PAYER_CAP_HEADROOM * (gas_limit * price + cells), FIELD_LIMIT)
