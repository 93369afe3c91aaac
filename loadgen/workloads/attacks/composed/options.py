"""The options of the composed attack. Their ranges are the space that ``stampede dos search`` searches."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from loadgen.workloads.base import Options

Bid = Literal["price", "market", "economy", "standard", "fast", "urgent"]
"""Source of a timer's fees: ``price``, the lane price that the user knows; ``market``, the default agent, which follows
the median tip; or a tier, which is a multiple of that median."""


class Agent(StrEnum):
    """The bidding agent of the actor."""

    NONE = "none"
    SLOW = "slow"
    """Uses up the cycles of a query."""
    FAILING = "failing"
    LOW = "low"
    """Bids nothing, so that it is asked again in the next block."""
    HIGH = "high"
    """Bids more than any account has."""
    SNIPING = "sniping"
    """Bids one more than the median tip."""


class ComposedOptions(Options):
    """Options of :class:`~loadgen.workloads.attacks.composed.composed.Composed`."""

    timers: Annotated[int, Field(ge=0, le=400)] = 20
    """Timers per turn; no more than a transaction can schedule."""
    due_blocks: Annotated[int, Field(ge=1, le=100)] = 4
    """The timers become due in at least this many blocks, counted from the block that the user knows."""
    every_blocks: Annotated[int, Field(ge=1, le=100)] = 1
    """The first due height of all attackers' timers is a multiple of this one."""
    spread_blocks: Annotated[int, Field(ge=1, le=100)] = 1
    """The timers are spread evenly over this many heights."""
    wait_blocks: Annotated[int, Field(ge=0, le=1_000)] = 1_000
    """Blocks that a due timer waits before it expires."""
    burn: Annotated[int, Field(ge=0, le=200_000)] = 5_000
    """Cycles of work per fire."""
    gas_percent: Annotated[int, Field(ge=50, le=1_000)] = 100
    """Cycles of a fire, in percent of those that it needs."""
    bid: Bid = "price"
    """Source of fee limit and tip: `price`, the lane price that the user knows; `market`, the default agent; a tier."""
    max_fee_percent: Annotated[int, Field(ge=100, le=10_000)] = 400
    """For `price`: the fee limit without the tip, in percent of the lane price."""
    tip_milli: Annotated[int, Field(ge=0, le=10_000)] = 0
    """For `price`: the tip, in thousandths of the lane price."""
    grind: Annotated[int, Field(ge=1, le=32)] = 1
    """Number of payloads that each timer tries, to use the one with the least id."""
    cancel_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Timers of the previous turn that are cancelled, in percent."""
    extend_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Timers of the previous turn that are extended, in percent of those that are not cancelled."""
    drain_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Amount that the actor pays back to its user in each turn, in percent of its balance."""
    messages: Annotated[int, Field(ge=0, le=200)] = 0
    """Messages per turn to the target's actor."""
    message_bytes: Annotated[int, Field(ge=2, le=10_000)] = 2
    """Bytes of a message."""
    target: Annotated[int, Field(ge=0, le=9_999)] = 0
    """The user whose actor gets the messages, counted from 0 over all groups."""
    transfers: Annotated[int, Field(ge=0, le=15)] = 0
    """Transactions per turn, each of which pays 0 to the user itself."""
    write_cells: Annotated[int, Field(ge=0, le=540_000)] = 0
    """Cells that a fire writes."""
    respawn: Annotated[int, Field(ge=0, le=4)] = 0
    """Timers that each fire schedules, with the same behaviour."""
    respawn_blocks: Annotated[int, Field(ge=1, le=100)] = 1
    """Blocks from a fire to the timers that it schedules."""
    jobs: Annotated[int, Field(ge=0, le=20)] = 0
    """Jobs per turn that no runner answers."""
    agent: Agent = Field(default=Agent.NONE, strict=False)
    """The actor's bidding agent, which decides its timers' fees: `none`, `slow`, `failing`, `low`, `high` or
    `sniping`."""
    above_backlog: Annotated[int, Field(ge=0, le=1_000)] = 0
    """A turn is skipped while fewer due timers wait."""
    below_price_percent: Annotated[int, Field(ge=0, le=10_000)] = 0
    """A turn is skipped while the lane price is above this percentage of the initial basefee; 0: never."""

    def users_named(self) -> set[int]:
        return {self.target} if self.messages else set()

    @property
    def is_program(self) -> bool:
        """Whether the actor is a Python program, because a script cannot do what the options require."""
        return bool(self.write_cells or self.respawn or self.jobs) or self.agent is not Agent.NONE
