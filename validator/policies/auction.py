"""What auctions share: timers bid, by themselves or by agents, and fire by score (SPEC §6, §9)."""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from validator.chain.records import Timer
from validator.execution.lane_rules import Bids, LaneRules, Offer
from validator.execution.timer_phase import Candidate, TimerPhase
from validator.primitives.errors import Rejection
from validator.primitives.params import Parameters, TieBreak
from validator.primitives.types import PRICE_LIMIT
from validator.scheduler import order
from validator.scheduler.pricing import default_bid, median_tip
from validator.scheduler.rows import WORD_BITS, WORD_MASK, timer_id_of_row


class AuctionRules(LaneRules):
    """The rules of an auction (SPEC §4): a fee limit must reach the fee floor.

    A priority above the difference between fee limit and fee floor is clamped to it.
    """

    __slots__ = ()
    bids: ClassVar[Bids] = Bids.REFUSED

    def fire_cap(self, parameters: Parameters) -> int:
        return parameters.max_cycles_per_fire_auction_phase

    def admit(self, offer: Offer, fee_floor: int) -> Offer:
        max_fee, priority, _ = offer
        if max_fee is None:
            return offer
        if max_fee < fee_floor:
            raise Rejection("TimerRejectedBelowBasefee")
        headroom = max_fee - fee_floor
        if priority is None or priority <= headroom:
            return offer
        return Offer(max_fee, headroom, clamped_from=priority)

    def next_p50_tip(self, fires: Sequence[tuple[int, int]], parameters: Parameters) -> int:
        return median_tip(fires, parameters.p50_weight)


class AuctionPhase(TimerPhase):
    """The timer phase of an auction. A timer takes part if its fee limit reaches the fee floor."""

    __slots__ = ()
    asks_agents: ClassVar[bool] = True
    passes_over: ClassVar[bool] = True
    formula: ClassVar[order.Formula | None]
    """How the compiled loops compute a score from a tip and a weight; ``None`` if :meth:`score` alone knows."""

    def supply(self) -> None:
        """Have the default agent supply ``max_fee`` to timers that are priced for the first time (SPEC §9).

        The supply is recorded once per block, and only if a timer needs it.
        """
        self.supplied_max_fee = max_fee = self.default_max_fee
        self.index.supply(max_fee, self.bidding.since)
        for timer_id in self.bidding.defaulted:
            timer = self._timer(timer_id)
            if timer.max_fee_per_cycle is None and self._supplied(timer) is None:
                self.world.put(timer.key, replace(timer, default_max_fee=max_fee))

    def candidates(self) -> Iterator[Candidate]:
        """The timers that clear the gate, by score descending, then the tie-break (SPEC §6.4, §6.5, §8)."""
        self.supply()
        return self.in_order(self._priced_apart())

    def in_order(self, apart: dict[int, tuple[int, int] | None], closed: bool = False) -> Iterator[Candidate]:
        """The priced timers in order, without those of closed actors, or those alone (:meth:`Parties.close`).

        ``apart``: the timers that the index does not price, as they are before the first fire.
        """
        pool = self.index.pool
        if not pool.live or self.terms.fee_floor >= PRICE_LIMIT:  # no fee is this high
            return iter(())
        found: Iterable[tuple[int, int, int]] = ()
        if self.formula is not None:
            prices = self._kernel_prices()
            prices["closed"] = closed
            found = pool.best_first(self.index.parties.table, prices)
        if not apart:
            return (self._candidate(position, tip) for position, tip, _ in found)
        merged = heapq.merge(
            ((self._order(position, score), position, tip) for position, tip, score in found if position not in apart),
            sorted((self._order(at, priced[1]), at, priced[0]) for at, priced in apart.items() if priced is not None),
        )
        return (self._candidate(position, tip) for _, position, tip in merged)

    def is_priced_out(self, timer: Timer) -> bool:
        return self.price(timer)[0] < self.terms.fee_floor

    def price(self, timer: Timer) -> tuple[int, int]:
        """``(max_fee, priority)``: the timer's explicit one, else its agent's, else the default agent's (SPEC §9)."""
        max_fee, priority = timer.max_fee_per_cycle, timer.max_priority_fee_per_cycle
        bid = self.bidding.bid_for(timer) if max_fee is None or priority is None else None
        if bid is not None:
            max_fee = bid.max_fee if max_fee is None else max_fee
            priority = bid.priority if priority is None else priority
        max_fee = self._supplied(timer) if max_fee is None else max_fee
        assert max_fee is not None, "the default agent supplies to whatever it prices"
        return max_fee, self._default_bid()[1] if priority is None else priority

    # --- the policy's part ------------------------------------------------------------------------------------------

    @abstractmethod
    def score(self, timer: Timer, tip: int) -> int:
        """The score of a timer with this tip per cycle: at most 128 bits, as :attr:`formula` computes it."""

    # --- parts ------------------------------------------------------------------------------------------------------

    def _priced_apart(self) -> dict[int, tuple[int, int] | None]:
        """``(tip, score)`` by position of the timers that are not priced as the index prices their parties; without a
        compiled formula these are all.

        ``None`` for those whose max fee is below the fee floor.
        """
        apart: dict[int, tuple[int, int] | None] = {}
        if not self.index.pool.live:
            return apart
        timers = self.eligible() if self.formula is None else map(self._timer, self.bidding.apart)
        for timer in timers:
            if timer.expires_at < self.terms.height or self._gas_limit(timer) > self.terms.cap:
                continue
            position = self.index.pool.position_of(timer.trigger_height, timer.sequence)
            max_fee, priority = self.price(timer)
            tip = min(priority, max_fee - self.terms.fee_floor)
            apart[position] = None if max_fee < self.terms.fee_floor else (tip, self.score(timer, tip))
        return apart

    def _order(self, position: int, score: int) -> tuple[int, bytes, int]:
        """The sort key of a candidate: score descending, then the tie-break."""
        if self.terms.parameters.tie_break is TieBreak.AGED:
            return -score, b"", position
        return -score, timer_id_of_row(self.index.pool.rows[position]), 0

    def _supplied(self, timer: Timer) -> int | None:
        """The max fee that the default agent supplied to a timer, in this block or an earlier one."""
        if timer.default_max_fee is not None:
            return timer.default_max_fee
        height = self.index.supplies.height_for(timer, self.terms.height, self.bidding.since)
        if height is None:
            return None
        return self._default_bid()[0] if height == self.terms.height else self.index.supplies.max_fees[height]

    @property
    def default_max_fee(self) -> int:
        """The max fee that the default agent supplies in this block."""
        return self._default_bid()[0]

    def _default_bid(self) -> tuple[int, int]:
        return default_bid(self.terms.fee_floor, self.prices.p50_tip, self.terms.parameters)

    def _kernel_prices(self) -> npt.NDArray[np.void]:
        is_by_id = self.terms.parameters.tie_break is TieBreak.ID
        assert self.formula is not None, "the compiled loops have a formula"
        prices = order.blank_prices(self.formula, self.terms.height, self.terms.cap, is_by_id)
        values = {
            "price": self.terms.fee_floor,
            "tip": self._default_bid()[1],
            "bid_max": self.index.parties.greatest_bid[0],
            "bid_priority": self.index.parties.greatest_bid[1],
        }
        for name, value in values.items():
            prices[f"{name}_low"], prices[f"{name}_high"] = value & WORD_MASK, value >> WORD_BITS
        return prices
