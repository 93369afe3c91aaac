"""Attacks on prices: the lane's basefee and tips."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from loadgen.workloads.attacks.agents import Bidding, BiddingOptions
from loadgen.workloads.attacks.base import SLACK_BLOCKS, Burst, BurstOptions, largest_fire_gas, largest_work
from loadgen.workloads.base import Intent, Member, Observation, Options, Workload
from loadgen.workloads.script import Script, attempt, burn, schedule_at


class BasefeeOscillationOptions(Options):
    """Options of :class:`BasefeeOscillation`."""

    period_blocks: Annotated[int, Field(ge=2, le=200)] = 8
    """Blocks of a period; the lane is full in the first half."""
    fill_percent: Annotated[int, Field(ge=1, le=200)] = 100
    """Cycles of the fires of a full block, in percent of the lane."""
    max_fee_percent: Annotated[int, Field(ge=100, le=100_000)] = 400
    """Fee limit of a timer, in percent of the lane price that its user knows."""
    ahead_blocks: Annotated[int, Field(ge=1, le=200)] = 16
    """Number of blocks ahead for which timers are scheduled."""


class BasefeeOscillation(Workload[BasefeeOscillationOptions]):
    """An attack with timers that fill the lane in the first half of each period, and none in the second half.

    Each timer expires at the height at which it becomes due, so that the full half does not reach into the empty one.
    """

    name: ClassVar[str] = "basefee-oscillation"
    options_type: ClassVar[type[Options]] = BasefeeOscillationOptions
    is_attack: ClassVar[bool] = True
    goal: ClassVar[str] = (
        "the lane basefee swings, so that honest fee limits are too low in one block and too high in another"
    )
    defence: ClassVar[str] = (
        "a step of the basefee is at most an eighth; the default fee limit has room for some five steps"
    )

    def __init__(self, options: BasefeeOscillationOptions, member: Member) -> None:
        super().__init__(options, member)
        self._planned = 0
        """The height up to which timers are scheduled."""

    def intents(self, observation: Observation) -> list[Intent]:
        options, first = self.options, max(self._planned + 1, observation.height + SLACK_BLOCKS)
        last = observation.height + SLACK_BLOCKS + options.ahead_blocks
        full = [
            height for height in range(first, last) if height % options.period_blocks < -(-options.period_blocks // 2)
        ]
        size = min(self._fires, self.member.timer_room(observation) // max(1, len(full)))
        self._planned = max(self._planned, last - 1)
        script = [each for height in full for each in self._timers(height, size, observation)]
        return [self.member.call(script)] if script else []

    def dropped(self, intent: Intent) -> None:
        self._planned = 0

    @property
    def _fires(self) -> int:
        """Number of fires with the maximum cycles that fill the lane to ``fill_percent``."""
        lane = self.member.parameters.lane_timer_cycles
        return max(1, lane * self.options.fill_percent // 100 // largest_fire_gas(self.member))

    def _timers(self, height: int, size: int, observation: Observation) -> Script:
        operation = schedule_at(
            height,
            largest_work(self.member),
            gas_limit=largest_fire_gas(self.member),
            expires_at=height,
            max_fee_per_cycle=self.member.lane_price(observation) * self.options.max_fee_percent // 100,
        )
        return [attempt(operation)] * size


class TipOutbiddingOptions(BurstOptions):
    """Options of :class:`TipOutbidding`."""

    every_blocks: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Timers of all attackers become due at multiples of this height."""
    tip_percent: Annotated[int, Field(ge=1, le=100_000)] = 200
    """Tip of a timer, in percent of the lane price that its user knows."""
    burn: Annotated[int, Field(ge=0, le=200_000)] = 50_000
    """Cycles of work per fire."""


class TipOutbidding(Burst[TipOutbiddingOptions]):
    """Keeps the lane full of timers that pay more than others."""

    name: ClassVar[str] = "tip-outbidding"
    options_type: ClassVar[type[Options]] = TipOutbiddingOptions
    goal: ClassVar[str] = "honest timers wait as long as the attacker pays more for each cycle of the lane"
    defence: ClassVar[str] = "the basefee of a full lane rises an eighth a block, and the tips go to proposers"

    def payload(self) -> Script:
        return [burn(self.options.burn)]


class TipSnipingOptions(BiddingOptions):
    """Options of :class:`TipSniping`."""

    burn: Annotated[int, Field(ge=0, le=200_000)] = 50_000
    """Cycles of work per fire."""
    margin: Annotated[int, Field(ge=1, le=10**12)] = 1
    """Amount above the median tip of the block before, in the smallest unit per cycle."""
    headroom: Annotated[int, Field(ge=1, le=1_000)] = 4
    """Fee limit before the tip, in lane prices."""


class TipSniping(Bidding):
    """An attack with timers whose bidding agent bids just above the median tip, and so outbids half of all others."""

    name: ClassVar[str] = "tip-sniping"
    options_type: ClassVar[type[Options]] = TipSnipingOptions
    goal: ClassVar[str] = "the attacker's timers displace honest ones at the margin, for hardly more than these pay"
    defence: ClassVar[str] = (
        "the fairness weight doubles the score of who fires seldom; queries are paid in every block"
    )

    @classmethod
    def bid(cls, options: BiddingOptions) -> str:
        assert isinstance(options, TipSnipingOptions)
        return (
            f'tip = context["previous_block_p50_priority_tip_per_cycle"] + {options.margin}\n'
            f'limit = context["basefee_lane_timer"] * {options.headroom} + tip\n'
            'return {"max_fee_per_cycle": limit, "max_priority_fee_per_cycle": tip}'
        )
