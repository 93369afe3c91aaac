"""The policy ``cip1`` (SPEC §6 to §9): an auction in a lane with a basefee, by tips and fairness weights."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from validator.chain.records import Timer
from validator.execution.lane_rules import LaneRules, Offer
from validator.execution.timer_phase import Candidate, TimerPhase
from validator.primitives.errors import Rejection
from validator.primitives.params import Parameters, TieBreak
from validator.primitives.types import PRICE_LIMIT
from validator.scheduler import order
from validator.scheduler.pricing import default_bid, lane_price, median_tip, next_basefee
from validator.scheduler.rows import WORD_BITS, WORD_MASK, timer_id_of_row


class Cip1Rules(LaneRules):
    """The rules of ``cip1`` (SPEC §4): a fee limit must reach the lane price.

    A priority above the difference between fee limit and lane price is clamped to it.
    """

    __slots__ = ()
    takes_bids: ClassVar[bool] = True
    counts_fires: ClassVar[bool] = True

    def fire_cap(self, parameters: Parameters) -> int:
        return parameters.max_cycles_per_fire_auction_phase

    def lane_price(self, basefee_lane: int, parameters: Parameters) -> int:
        return lane_price(basefee_lane, parameters)

    def admit(self, offer: Offer, lane_price: int) -> Offer:
        max_fee, priority, _ = offer
        if max_fee is None:
            return offer
        if max_fee < lane_price:
            raise Rejection("TimerRejectedBelowBasefee")
        headroom = max_fee - lane_price
        if priority is None or priority <= headroom:
            return offer
        return Offer(max_fee, headroom, clamped_from=priority)

    def next_basefee_lane(self, basefee_lane: int, basefee_cycle: int, used: int, parameters: Parameters) -> int:
        target, slope = parameters.lane_timer_cycles // 2, parameters.lane_basefee_slope
        return next_basefee(basefee_lane, used, target, slope, parameters)

    def next_p50_tip(self, fires: Sequence[tuple[int, int]], parameters: Parameters) -> int:
        return median_tip(fires, parameters.p50_weight)


class Cip1Phase(TimerPhase):
    """The timer phase of ``cip1``: timers bid, by themselves or by agents, and fire by score.

    A timer takes part if its fee limit reaches the lane price.
    """

    __slots__ = ()
    rules: ClassVar[LaneRules] = Cip1Rules()
    asks_agents: ClassVar[bool] = True
    passes_over: ClassVar[bool] = True

    def supply(self) -> None:
        """Have the default agent supply ``max_fee`` to timers that are priced for the first time (SPEC §9).

        The supply is recorded once per block, and only if a timer needs it.
        """
        self.supplied_max_fee = max_fee = self.default_max_fee
        self.index.supply(max_fee, self.bidding.since)
        for timer_id in self.bidding.defaulted:
            timer = self._timer(timer_id)
            if timer.max_fee_per_cycle is None and self._supplied(timer) is None:
                self.world.put(timer.key, timer._replace(default_max_fee=max_fee))

    def candidates(self) -> Iterator[Candidate]:
        """The timers that clear the gate, by score descending, then the tie-break (SPEC §6.4, §6.5, §8)."""
        self.supply()
        pool = self.index.pool
        if not pool.live or self.prices.lane_price >= PRICE_LIMIT:  # no fee is this high
            return iter(())
        prices = self._kernel_prices()
        found = pool.best_first(self.index.parties.table, prices)
        apart = self._priced_apart()
        if not apart:
            return (self._candidate(position, tip) for position, tip, _ in found)
        merged = heapq.merge(
            ((self._order(position, score), position, tip) for position, tip, score in found if position not in apart),
            sorted((self._order(at, priced[1]), at, priced[0]) for at, priced in apart.items() if priced is not None),
        )
        return (self._candidate(position, tip) for _, position, tip in merged)

    def is_priced_out(self, timer: Timer) -> bool:
        return self.price(timer)[0] < self.prices.lane_price

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

    # --- parts ------------------------------------------------------------------------------------------------------

    def _priced_apart(self) -> dict[int, tuple[int, int] | None]:
        """``(tip, score)`` by position of the timers that are not priced as the index prices their parties.

        ``None`` for those whose max fee is below the lane price.
        """
        apart: dict[int, tuple[int, int] | None] = {}
        for timer_id in self.bidding.apart:
            timer = self._timer(timer_id)
            if timer.expires_at < self.terms.height or self._gas_limit(timer) > self.terms.cap:
                continue
            position = self.index.pool.position_of(timer.trigger_height, timer.sequence)
            max_fee, priority = self.price(timer)
            tip = min(priority, max_fee - self.prices.lane_price)
            score = (tip + self.terms.parameters.priority_floor) * self.fairness.weight(timer.actor)
            apart[position] = None if max_fee < self.prices.lane_price else (tip, score)
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
        return default_bid(self.prices.lane_price, self.prices.p50_tip, self.terms.parameters)

    def _kernel_prices(self) -> npt.NDArray[np.void]:
        prices = np.zeros(1, order.PRICES)
        values = {
            "price": self.prices.lane_price,
            "tip": self._default_bid()[1],
            "bid_max": self.index.parties.greatest_bid[0],
            "bid_priority": self.index.parties.greatest_bid[1],
        }
        for name, value in values.items():
            prices[f"{name}_low"], prices[f"{name}_high"] = value & WORD_MASK, value >> WORD_BITS
        prices["height"], prices["cap"] = self.terms.height, self.terms.cap
        prices["floor"], prices["divisor"] = self.terms.parameters.priority_floor, self.fairness.divisor
        prices["by_id"] = self.terms.parameters.tie_break is TieBreak.ID
        return prices
