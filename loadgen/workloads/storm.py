"""Storm: thousands of timers that can never do their work, and must be removed while others run.

A transaction schedules a burst. Some of its timers are *insolvent*: their payer may spend one unit, so that they are
destroyed at their turn. The others are *hopeless*: each requests the maximum cycles of a fire, without a tip and at
little more than the current price. So a few of them fire, which raises the price, and the rest expires after
``wait_blocks``. With a high ``bid_percent`` they are not hopeless: while they pay for the whole lane its price rises,
and timers with lower bids wait.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from loadgen.workloads.base import Intent, Observation, Options, Workload
from loadgen.workloads.script import Operation, attempt, burn, fire_gas_limit, schedule

SLACK_BLOCKS: Final = 4
"""Maximum blocks from the latest block that a user knows to the block with its transaction."""
FEE_HEADROOM: Final = 4
"""Fee limit of the insolvent timers, in lane prices: enough that they get their turn, at which they cannot pay."""
ONE_RISE_PERCENT: Final = 115
"""Fee limit, in percent of the lane price, slightly above the price after one full block. Timers with a lower limit are
refused while the price rises."""


class StormOptions(Options):
    """Options of :class:`Storm`."""

    timers: Annotated[int, Field(ge=1, le=1_000)] = 100
    """Timers per burst."""
    in_all: Annotated[int, Field(ge=1, le=10_000_000)] = 1_000
    """Timers that a user schedules before it stops."""
    insolvent_percent: Annotated[int, Field(ge=0, le=100)] = 50
    """Share of timers that cannot pay; the others expire."""
    spread_blocks: Annotated[int, Field(ge=1, le=1_000)] = 4
    """The timers become due in 1 to this many blocks."""
    wait_blocks: Annotated[int, Field(ge=1, le=1_000)] = 2
    """Minimum blocks that a timer that can pay waits before it expires."""
    bid_percent: Annotated[int, Field(ge=100, le=10_000)] = ONE_RISE_PERCENT
    """Highest offer for a cycle of a timer that can pay, in percent of the lane price that its user knows."""


class Storm(Workload[StormOptions]):
    """Schedules a burst of timers in each turn, if the actor has room, until it has scheduled ``in_all`` timers."""

    name: ClassVar[str] = "storm"
    options_type: ClassVar[type[Options]] = StormOptions
    is_attack: ClassVar[bool] = True
    goal: ClassVar[str] = "timers that can never do their work have to be removed while others run"
    defence: ClassVar[str] = (
        "removal draws on `TIMER_GC_CYCLES` alone; what cannot pay the lane price waits outside of the lane"
    )
    _scheduled = 0

    def intents(self, observation: Observation) -> list[Intent]:
        left = self.options.in_all - self._scheduled
        size = min(self.options.timers, left, self.member.timer_room(observation))
        if not size:
            return []
        self._scheduled += size
        return [self.member.call([attempt(self._timer(observation)) for _ in range(size)])]

    def _timer(self, observation: Observation) -> Operation:
        random, options, parameters = self.member.random, self.options, self.member.parameters
        in_blocks = random.randint(1, options.spread_blocks)
        lane_price = self.member.lane_price(observation)
        if random.randrange(100) < options.insolvent_percent:
            return schedule(
                in_blocks,
                [],
                gas_limit=fire_gas_limit([], parameters),
                max_fee_per_cycle=FEE_HEADROOM * lane_price,
                max_priority_fee_per_cycle=0,
                payer_cap=1,
            )
        expires_at = observation.height + SLACK_BLOCKS + in_blocks + options.wait_blocks
        all_that_it_may_use = parameters.max_cycles_per_fire_auction_phase
        return schedule(
            in_blocks,
            [burn(max(0, all_that_it_may_use - fire_gas_limit([burn(0)], parameters)))],
            gas_limit=all_that_it_may_use,
            expires_at=expires_at,
            max_fee_per_cycle=lane_price * options.bid_percent // 100,
            max_priority_fee_per_cycle=0,
        )
