"""What a scheduling policy decides outside of a block's timer phase: prices, limits, and what a schedule may offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from validator.primitives.params import Parameters


class Bids(Enum):
    """What a policy makes of the ``bid`` with which a timer is scheduled (SPEC §4, §13)."""

    REFUSED = "refused"
    """It is an error, since fees took its place."""
    IGNORED = "ignored"
    """It has no effect, and an event says so."""
    LOCKED = "locked"
    """It is taken from the fee payer until the timer ends."""


class Offer(NamedTuple):
    """The fee fields of a timer, per cycle; ``clamped_from`` is the stated priority if that was clamped."""

    max_fee: int | None
    priority: int | None
    clamped_from: int | None = None


class LaneRules(ABC):
    """A policy's rules outside of the timer phase. They have no state and depend only on their arguments (SPEC §13).

    By default the lane has no price, and fee fields are stored as they are.
    """

    __slots__ = ()
    own: ClassVar[Mapping[str, int]] = MappingProxyType({})
    """The values of the parameters that a user's policy states, by name."""
    bids: ClassVar[Bids]
    """What becomes of a request's ``bid``."""
    has_watches: ClassVar[bool] = False
    """Whether timers may watch keys of actors."""
    timers_first: ClassVar[bool]
    """Whether a block's timers fire before its transactions run."""

    @abstractmethod
    def fire_cap(self, parameters: Parameters) -> int:
        """The most cycles that a fire may use (SPEC §10)."""

    def lane_price(self, basefee_lane: int, parameters: Parameters) -> int:
        """The price of a cycle in the timer lane, in addition to the cycle's basefee (SPEC §7)."""
        return 0

    def fee_floor(self, basefee_lane: int, parameters: Parameters) -> int:
        """The least ``max_fee_per_cycle`` with which a timer may fire."""
        return 0

    def admit(self, offer: Offer, fee_floor: int) -> Offer:
        """The fee fields to store for a new timer. Raises :class:`Rejection` with the error's name."""
        return offer

    def next_basefee_lane(self, basefee_lane: int, basefee_cycle: int, used: int, parameters: Parameters) -> int:
        """The timer lane's basefee in the next block, after a block that used ``used`` cycles of the lane.

        ``basefee_cycle`` is the cycle's basefee in the next block, of which the lane's is an alias by default.
        """
        return basefee_cycle

    @abstractmethod
    def next_p50_tip(self, fires: Sequence[tuple[int, int]], parameters: Parameters) -> int:
        """The median tip, by which the default agent and the tiers bid in the next block (SPEC §9).

        ``fires`` has ``(tip per cycle, cycles used)`` of each fire of this block.
        """
