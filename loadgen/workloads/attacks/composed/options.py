"""The options of the composed attack. Their ranges are the space that ``stampede dos search`` searches."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from loadgen.workloads.base import Options

Bid = Literal["price", "market", "economy", "standard", "fast", "urgent"]
"""By the lane price that the user knows; left open to the default agent, which follows the median tip; or by a tier,
which is a multiple of that median."""


class Agent(StrEnum):
    """The bidding agent of the actor."""

    NONE = "none"
    SLOW = "slow"
    """Uses up the cycles of a query."""
    FAILING = "failing"
    LOW = "low"
    """Bids nothing, so that it is asked again in the next block."""
    HIGH = "high"
    """Bids more than anybody has."""
    SNIPING = "sniping"
    """Bids the median tip and one more."""


class ComposedOptions(Options):
    """Options of :class:`~loadgen.workloads.attacks.composed.composed.Composed`."""

    timers: Annotated[int, Field(ge=0, le=400)] = 20
    """Timers per turn; no more than a transaction can schedule."""
    due_blocks: Annotated[int, Field(ge=1, le=100)] = 4
    """They become due in so many blocks at the earliest, counted from the block that the user knows."""
    every_blocks: Annotated[int, Field(ge=1, le=100)] = 1
    """Their first height is a multiple of this one, whoever schedules them."""
    spread_blocks: Annotated[int, Field(ge=1, le=100)] = 1
    """They are spread evenly over so many heights."""
    wait_blocks: Annotated[int, Field(ge=0, le=1_000)] = 1_000
    """Blocks that a due timer waits before it expires."""
    burn: Annotated[int, Field(ge=0, le=200_000)] = 5_000
    """Cycles of work per fire."""
    gas_percent: Annotated[int, Field(ge=50, le=1_000)] = 100
    """Cycles that a fire has, in percent of those that it needs."""
    bid: Bid = "price"
    """Source of fee limit and tip: `price`, the lane price that the user knows; `market`, the default agent; a tier."""
    max_fee_percent: Annotated[int, Field(ge=100, le=10_000)] = 400
    """Of `price`: the fee limit besides the tip, in percent of the lane price."""
    tip_milli: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Of `price`: the tip, in thousandths of the lane price."""
    grind: Annotated[int, Field(ge=1, le=32)] = 1
    """Payloads of which each timer takes the one with the least id."""
    cancel_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Timers of the turn before that are cancelled, in percent."""
    extend_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Timers of the turn before whose expiry is moved, in percent; of those that are not cancelled."""
    drain_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """What the actor pays back to its user in each turn, in percent of its balance."""
    messages: Annotated[int, Field(ge=0, le=200)] = 0
    """Messages per turn to the target's actor."""
    message_bytes: Annotated[int, Field(ge=2, le=10_000)] = 2
    """Bytes of a message."""
    target: Annotated[int, Field(ge=0, le=9_999)] = 0
    """The user whose actor gets the messages, counted from 0 over all groups."""
    transfers: Annotated[int, Field(ge=0, le=15)] = 0
    """Transactions per turn that pay nothing to the user itself."""
    write_cells: Annotated[int, Field(ge=0, le=540_000)] = 0
    """Cells that a fire writes."""
    respawn: Annotated[int, Field(ge=0, le=4)] = 0
    """Timers that each fire schedules, which do the same."""
    respawn_blocks: Annotated[int, Field(ge=1, le=100)] = 1
    """Blocks from a fire to those timers."""
    jobs: Annotated[int, Field(ge=0, le=20)] = 0
    """Jobs per turn that nobody answers."""
    agent: Agent = Field(default=Agent.NONE, strict=False)
    """The actor's bidding agent, to which its timers leave their fees: `none`, `slow`, `failing`, `low`, `high` or
    `sniping`."""
    above_backlog: Annotated[int, Field(ge=0, le=1_000)] = 0
    """A turn is skipped while fewer due timers wait."""
    below_price_percent: Annotated[int, Field(ge=0, le=10_000)] = 0
    """A turn is skipped while the lane price is above so many percent of the initial basefee; 0: at no price."""

    def users_named(self) -> set[int]:
        return {self.target} if self.messages else set()

    @property
    def is_program(self) -> bool:
        """Whether the actor is a Python program: a script can do nothing of this."""
        return bool(self.write_cells or self.respawn or self.jobs) or self.agent is not Agent.NONE
