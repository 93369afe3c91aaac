"""The timer phase of a block (SPEC §6, §10): collect, expire, price, gate, sort, scan and fire, carry over.

One :class:`TimerPhase` is one block's phase. Its steps are small methods in SPEC's order, so that a planted bug can
replace exactly one of them. A timer that is carried over causes no write: its due height follows from its trigger
height.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from validator.chain.block import DestroyedReceipt, Event, FireReceipt
from validator.chain.records import TIMER, Timer, timer_key
from validator.execution.bidding import BiddingRound
from validator.execution.handler_context import HandlerContext, run_handler
from validator.execution.mailbox import MESSAGES_PER_DEFERRED_RUN
from validator.execution.timer_calls import LanePrices, SchedulingTerms
from validator.primitives.codec import pack_uint
from validator.primitives.meter import Meter
from validator.primitives.params import TieBreak
from validator.primitives.types import PRICE_LIMIT
from validator.pvm.dispatch import program, resolve_handler
from validator.pvm.runtime.machine import Vm
from validator.scheduler import order
from validator.scheduler.fairness import FairnessWeights
from validator.scheduler.index import SchedulerIndex
from validator.scheduler.pricing import default_bid
from validator.scheduler.rows import WORD_BITS, WORD_MASK, timer_id_of_row
from validator.state.working_set import World


class Candidate(NamedTuple):
    """A due timer that passed the gate."""

    timer_id: bytes
    gas_limit: int
    tip: int
    """Tip per cycle."""


@dataclass(slots=True)
class LaneUse:
    """The phase's use of its lane and its proceeds so far."""

    cycles: int = 0
    cells: int = 0
    gc_cycles: int = 0
    burned_cycle: int = 0
    burned_lane: int = 0
    tips: int = 0


@dataclass(slots=True)
class TimerPhase:
    """One block's timer phase. ``run`` performs it; the receipts are its result."""

    bidding_class: ClassVar[type[BiddingRound]] = BiddingRound

    world: World
    index: SchedulerIndex
    """The scheduler's index, begun for this block."""
    terms: SchedulingTerms
    prices: LanePrices
    fairness: FairnessWeights
    vm: Vm
    explains: bool = False
    """Whether to explain why each remaining timer was carried; costs a look at each."""
    use: LaneUse = field(default_factory=LaneUse)
    fires: list[FireReceipt] = field(default_factory=list)
    destroyed: list[DestroyedReceipt] = field(default_factory=list)
    carried: dict[bytes, str] = field(default_factory=dict)
    """Reason why each remaining timer was carried, by timer id, if asked for; in no receipt and under no root."""
    events: list[Event] = field(default_factory=list)
    """Every event of the phase, in order."""
    bidding: BiddingRound = field(init=False)
    _unpaid_removals: set[bytes] = field(default_factory=set)
    """Timers that were due for destruction when the garbage collection budget was used up."""

    def __post_init__(self) -> None:
        self.bidding = self.bidding_class(self.world, self.index, self.terms, self.prices, self.vm, self.explains)

    def run(self) -> None:
        """Perform the phase over the timers that are due."""
        self.expire()
        if self.terms.auction:
            self.bidding.run()
            self.events.extend(self.bidding.events)
            self.supply()
            self.scan(self.best_first())
        else:
            self.scan(self.in_turn())
        if self.explains:
            self.carried = self.explain()

    # --- steps, in the order of SPEC §6 -----------------------------------------------------------------------------

    def expire(self) -> None:
        """Destroy timers past their expiry, within the garbage collection budget without step 6's share."""
        p, pool = self.terms.parameters, self.index.pool
        if not pool.live:
            return
        room = (p.timer_gc_cycles - p.scan_limit * p.gc_cycles_per_removal) // p.gc_cycles_per_removal
        # The index still has the rows of timers that this block's transactions cancelled, at most as many as timers
        # they changed.
        cancelled = len(self.world.changes_under(TIMER))
        ids = map(timer_id_of_row, pool.rows[pool.expired(self.terms.height, room + cancelled)])
        expired = [self._timer(timer_id) for timer_id in ids if not self.world.is_removed(timer_key(timer_id))][:room]
        self.destroy(expired, "expired", [Event("TimerExpired", timer.actor, _id_field(timer)) for timer in expired])

    def supply(self) -> None:
        """Have the default agent supply ``max_fee`` to timers that are priced for the first time (SPEC §9).

        The supply is recorded once per block, and only if a timer needs it.
        """
        max_fee = self.default_max_fee
        self.index.supply(max_fee, self.bidding.since)
        for timer_id in self.bidding.defaulted:
            timer = self._timer(timer_id)
            if timer.max_fee_per_cycle is None and self._supplied(timer) is None:
                self.world.put(timer.key, timer._replace(default_max_fee=max_fee))

    def best_first(self) -> Iterator[Candidate]:
        """The timers that clear the gate, by score descending, then the tie-break (SPEC §6.4, §6.5, §8)."""
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

    def in_turn(self) -> Iterator[Candidate]:
        """The FIFO phase's candidates (SPEC §13): without pricing and fee gate, in the order of the triggers."""
        positions = self.index.pool.positions(self.terms.height, self.terms.cap)
        return (self._candidate(position, 0) for position in positions)

    def scan(self, candidates: Iterable[Candidate]) -> None:
        """Fire, destroy or carry one at a time, in order."""
        p, use = self.terms.parameters, self.use
        looked_at = 0
        for candidate in candidates:
            full = use.cycles + p.min_gas_limit_per_timer > p.lane_timer_cycles or use.cells >= p.lane_timer_cells
            if full or looked_at >= p.scan_limit:
                return
            if self.world.is_removed(timer_key(candidate.timer_id)):
                continue  # cancelled by a handler of this block
            if use.cycles + candidate.gas_limit > p.lane_timer_cycles:
                if not self.terms.auction:
                    return  # first in, first out: a timer that does not fit ends the phase
                looked_at += 1
            elif not self.fire_or_destroy(candidate):
                looked_at += 1

    def fire_or_destroy(self, candidate: Candidate) -> bool:
        """Process a timer that fits. Returns whether it was destroyed, which does not count as looked at."""
        timer, p = self._timer(candidate.timer_id), self.terms.parameters
        needed = self.max_cost(candidate)
        balance = self.world.balance(timer.fee_payer)
        if timer.payer_cap is not None:
            balance = min(balance, timer.payer_cap)
        if balance >= needed:
            self.fire(timer, candidate, needed)
            return False
        if self.use.gc_cycles + p.gc_cycles_per_removal > p.timer_gc_cycles:
            self._unpaid_removals.add(timer.timer_id)
            return False
        fields = (
            *_id_field(timer),
            ("fee_payer", "0x" + timer.fee_payer.hex()),
            ("needed", str(needed)),
            ("balance", str(balance)),
        )
        event = Event("TimerCancelledInsufficientFunds", timer.actor, fields)
        self.destroy([timer], "insufficient_funds", [event])
        return True

    def fire(self, timer: Timer, candidate: Candidate, max_cost: int) -> None:
        """Remove, charge, run and settle (SPEC §10)."""
        p = self.terms.parameters
        # An extension by a handler of this phase is lost with the timer; its other fields cannot have changed.
        brought_along = self.world.payload_of(timer)
        self.world.remove_timers([timer])
        self.world.debit(timer.fee_payer, max_cost)
        meter = Meter(candidate.gas_limit, p.max_cells_per_fire)
        context = HandlerContext(
            self.world, meter, timer.actor, timer.actor, self.terms, messages_left=MESSAGES_PER_DEFERRED_RUN
        )
        actor = self.world.actor(timer.actor)
        assert actor is not None, "a timer's actor exists"
        handler, payload = resolve_handler(timer.handler, brought_along)
        body = program(self.vm, actor.code, handler, payload)

        def charged(run: HandlerContext) -> None:
            run.meter.charge(p.fire_base_cycles)
            body(run)

        result = run_handler(context, charged)
        self.events.extend(result.effects.events)
        burned, tip = self.settle(timer, candidate, meter, max_cost)
        self.fires.append(
            FireReceipt(
                timer_id=timer.timer_id,
                actor=timer.actor,
                trigger_height=timer.trigger_height,
                sequence=timer.sequence,
                fee_payer=timer.fee_payer,
                ok=result.ok,
                error=result.error,
                cycles=meter.cycles_used,
                cells=meter.cells_used,
                burned=pack_uint(burned),
                tip=pack_uint(tip),
                tip_per_cycle=pack_uint(candidate.tip),
                effects=result.effects,
            )
        )

    def settle(self, timer: Timer, candidate: Candidate, meter: Meter, max_cost: int) -> tuple[int, int]:
        """Refund unused cycles and cells at the prices charged. Returns the amounts burned and tipped."""
        prices, use = self.prices, self.use
        burned_cycle = meter.cycles_used * prices.basefee_cycle + meter.cells_used * prices.basefee_cell
        burned_lane = meter.cycles_used * prices.lane_price
        tip = meter.cycles_used * candidate.tip
        self.world.credit(timer.fee_payer, max_cost - burned_cycle - burned_lane - tip)
        use.cycles += meter.cycles_used
        use.cells += meter.cells_used
        use.burned_cycle += burned_cycle
        use.burned_lane += burned_lane
        use.tips += tip
        return burned_cycle + burned_lane, tip

    # --- helpers ------------------------------------------------------------------------------------------------------

    def max_cost(self, candidate: Candidate) -> int:
        """The most that a fire may cost; it is charged up front."""
        per_cycle = self.prices.basefee_cycle + self.prices.lane_price + candidate.tip
        return candidate.gas_limit * per_cycle + self.terms.parameters.max_cells_per_fire * self.prices.basefee_cell

    def destroy(self, timers: Sequence[Timer], reason: str, events: Sequence[Event]) -> None:
        """End timers without a fire, charged to the garbage collection."""
        self.world.remove_timers(timers)
        self.use.gc_cycles += self.terms.parameters.gc_cycles_per_removal * len(timers)
        self.destroyed.extend(
            DestroyedReceipt(timer.timer_id, reason, event) for timer, event in zip(timers, events, strict=True)
        )
        self.events.extend(events)

    def explain(self) -> dict[bytes, str]:
        """Why each remaining timer was carried (SPEC §6)."""
        rows = self.index.pool.living()
        reasons: dict[bytes, str] = {}
        for row in rows:
            timer_id = timer_id_of_row(row)
            if not self.world.is_removed(timer_key(timer_id)):
                reasons[timer_id] = self._reason(self._timer(timer_id), int(row["expires_at"]))
        return reasons

    def _reason(self, timer: Timer, expires_at: int) -> str:
        if expires_at < self.terms.height or timer.timer_id in self._unpaid_removals:
            return "gc_budget"
        if self.terms.auction and self.price(timer)[0] < self.prices.lane_price:
            return "below_basefee"
        return "over_cap" if self._gas_limit(timer) > self.terms.cap else "lane_full"

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

    def _priced_apart(self) -> dict[int, tuple[int, int] | None]:
        """``(tip, score)`` of the timers not priced as the index prices their parties; ``None`` below the gate."""
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
        """The sort key of candidates."""
        if self.terms.parameters.tie_break is TieBreak.AGED:
            return -score, b"", position
        return -score, timer_id_of_row(self.index.pool.rows[position]), 0

    def _candidate(self, position: int, tip: int) -> Candidate:
        row = self.index.pool.rows[position]
        return Candidate(timer_id_of_row(row), int(row["gas_limit"]) or self.terms.cap, tip)

    def _timer(self, timer_id: bytes) -> Timer:
        timer = self.world.timer(timer_id)
        assert timer is not None, "a waiting timer is in state"
        return timer

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

    def _gas_limit(self, timer: Timer) -> int:
        return self.terms.cap if timer.gas_limit is None else timer.gas_limit

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


def _id_field(timer: Timer) -> tuple[tuple[str, str]]:
    return (("timer_id", timer.timer_id.hex()),)
