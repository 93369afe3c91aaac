"""Attacks by the bidding agents of actors, and on the cycles that a block has for queries of such agents."""

from __future__ import annotations

from abc import abstractmethod
from textwrap import indent
from typing import Annotated, ClassVar, Final

from pydantic import Field

from loadgen.workloads.attacks.base import invoke
from loadgen.workloads.base import Intent, Observation, Options, Workload

PROGRAM: Final = '''
class Bidder(Actor):
    """Has timers that its own agent bids for."""

    def plan(self, payload):
        assert self.sender == self.deployer, "only the owner"
        for number in range(payload["timers"]):
            height = self.height + 1 + number % payload["spread"]
            expires_at = height + payload["wait"]
            self.schedule(height, payload["burn"], "work", gas_limit=payload["gas"], expires_at=expires_at)

    def work(self, payload):
        assert self.sender == self.address, "only the timer"
        self.burn(payload)

    def get_gas_bid(self, context):
'''
SCHEDULE_CYCLES: Final = 3_500
"""Maximum cycles for scheduling one timer in a call of the handler ``plan``."""
TIMER_CELLS: Final = 32
"""Cells of a timer's payload, at most."""
FIRE_CYCLES: Final = 4_000
"""Cycles of a fire without its work."""


class BiddingOptions(Options):
    """Options of attacks by bidding agents."""

    timers: Annotated[int, Field(ge=1, le=250)] = 32
    """Timers per turn."""
    spread_blocks: Annotated[int, Field(ge=1, le=1_000)] = 4
    """The timers become due in 1 to this many blocks."""
    wait_blocks: Annotated[int, Field(ge=0, le=10_000)] = 20
    """Blocks that a due timer waits before it expires; its agent is asked in each of them."""
    burn: Annotated[int, Field(ge=0, le=200_000)] = 5_000
    """Cycles of work per fire."""


class Bidding(Workload[BiddingOptions]):
    """Base class of attacks by bidding agents. Each turn schedules timers whose fees are left to the actor's agent."""

    options_type: ClassVar[type[Options]] = BiddingOptions
    is_attack: ClassVar[bool] = True

    @classmethod
    def actor_code(cls, options: Options) -> str:
        assert isinstance(options, BiddingOptions)
        return PROGRAM + indent(cls.bid(options), " " * 8) + "\n"

    @classmethod
    @abstractmethod
    def bid(cls, options: BiddingOptions) -> str:
        """The Python statements of the agent's handler ``get_gas_bid``."""

    def intents(self, observation: Observation) -> list[Intent]:
        options = self.options
        size = min(options.timers, self.member.timer_room(observation))
        if not size:
            return []
        plan = {
            "timers": size,
            "spread": options.spread_blocks,
            "wait": options.wait_blocks,
            "burn": options.burn,
            "gas": FIRE_CYCLES + options.burn,
        }
        return [invoke(self.member, "plan", plan, SCHEDULE_CYCLES * (1 + size), TIMER_CELLS * (1 + size))]


class FailingAgents(Bidding):
    """An attack with timers whose bidding agent fails at once whenever it is queried."""

    name: ClassVar[str] = "failing-agents"
    goal: ClassVar[str] = "timers whose agents fail stop the timer phase, or are priced for free"
    defence: ClassVar[str] = "a failed query costs its cycles and emits `GbaFallback`; the default agent bids instead"

    @classmethod
    def bid(cls, options: BiddingOptions) -> str:
        return 'assert False, "no answer"'


class GreedyAgents(Bidding):
    """An attack with timers whose bidding agent burns cycles, and bids so little that it is queried in each block."""

    name: ClassVar[str] = "greedy-agents"
    goal: ClassVar[str] = "the queries of other actors find the budget of the block used up"
    defence: ClassVar[str] = (
        "`GBA_QUERIES_PER_ACTOR` and the order of queries share `GBA_BUDGET_CYCLES`; the others get older answers"
    )

    @classmethod
    def bid(cls, options: BiddingOptions) -> str:
        return 'self.burn(9_000)\nreturn {"max_fee_per_cycle": 0, "max_priority_fee_per_cycle": 0}'


class LyingAgents(Bidding):
    """An attack with timers whose bidding agent bids the highest valid price."""

    name: ClassVar[str] = "lying-agents"
    goal: ClassVar[str] = (
        "timers that claim to pay more than all others come first in every block, and can pay for nothing"
    )
    defence: ClassVar[str] = (
        "solvency is judged at a timer's turn; what cannot pay is destroyed on `TIMER_GC_CYCLES`, not on the lane"
    )

    @classmethod
    def bid(cls, options: BiddingOptions) -> str:
        return 'return {"max_fee_per_cycle": 2**96 - 1, "max_priority_fee_per_cycle": 2**96 - 1}'


class SlowAgents(Bidding):
    """An attack with timers whose bidding agent loops until the cycles of its query are used up."""

    name: ClassVar[str] = "slow-agents"
    goal: ClassVar[str] = "queries that never come to an end use up processor time before the first fire"
    defence: ClassVar[str] = (
        "`GBA_MAX_CYCLES` ends a query, which is paid for all the same; the default agent bids instead"
    )

    @classmethod
    def bid(cls, options: BiddingOptions) -> str:
        return "while True:\n    self.burn(100)"
