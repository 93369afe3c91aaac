"""The timer phase of a block (SPEC §6, §10): collect, expire, price, gate, sort, scan and fire, carry over.

One :class:`TimerPhase` is one block's phase. Its steps are methods in SPEC's order, each small, so that a planted bug
can replace exactly one of them. Nothing is written for a timer that is carried: its due height follows from its
trigger height.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from validator.block import DestroyedReceipt, Event, FireReceipt
from validator.codec import pack_uint
from validator.host import HandlerContext, run_handler
from validator.meter import Meter
from validator.params import Parameters, TieBreak
from validator.pvm.dispatch import program, resolve_handler
from validator.records import Timer
from validator.scheduler.fairness import FairnessWeights
from validator.scheduler.pricing import default_bid
from validator.scheduler.scheduling import SchedulingTerms
from validator.world import World


@dataclass(frozen=True, slots=True)
class LanePrices:
    """What the block charges per cycle and per cell."""

    basefee_cycle: int
    basefee_cell: int
    lane_price: int
    p50_tip: int


class Candidate(NamedTuple):
    """A due timer that passed the gate."""

    timer: Timer
    tip: int
    score: int


@dataclass(slots=True)
class LaneUse:
    """What the phase used and brought in so far."""

    cycles: int = 0
    cells: int = 0
    gc_cycles: int = 0
    burned_cycle: int = 0
    burned_lane: int = 0
    tips: int = 0


@dataclass(slots=True)
class TimerPhase:
    """One block's timer phase. ``run`` performs it; the receipts are what it leaves."""

    world: World
    parameters: Parameters
    terms: SchedulingTerms
    prices: LanePrices
    fairness: FairnessWeights
    use: LaneUse = field(default_factory=LaneUse)
    fires: list[FireReceipt] = field(default_factory=list)
    destroyed: list[DestroyedReceipt] = field(default_factory=list)
    carried: dict[bytes, str] = field(default_factory=dict)
    """Why each timer that stayed was carried, by timer id; for tools, in no receipt and under no root."""

    def run(self, due: list[Timer]) -> None:
        """Perform the phase over the timers that are due, ordered by ``(trigger_height, sequence)``."""
        alive = self.expire(due)
        candidates = self.gate([self.price(timer) for timer in alive])
        self.scan(self.sort(candidates))
        self.carry_over()

    # --- steps, in the order of SPEC §6 -----------------------------------------------------------------------------

    def expire(self, due: list[Timer]) -> list[Timer]:
        """Destroy what is past its expiry, within the garbage collection budget less step 6's share."""
        p = self.parameters
        budget = p.timer_gc_cycles - p.scan_limit * p.gc_cycles_per_removal
        alive: list[Timer] = []
        for timer in due:
            if self.terms.height <= timer.expires_at:
                alive.append(timer)
            elif self.use.gc_cycles + p.gc_cycles_per_removal <= budget:
                self.destroy(timer, "expired", Event("TimerExpired", timer.actor, _id_field(timer)))
            else:
                self.carry(timer, "gc_budget")
        return alive

    def price(self, timer: Timer) -> tuple[Timer, int, int]:
        """The timer with its ``(max_fee, priority)``: explicit values, else the default GBA's (SPEC §9)."""
        max_fee, priority = timer.max_fee_per_cycle, timer.max_priority_fee_per_cycle
        if max_fee is not None and priority is not None:
            return timer, max_fee, priority
        headroom, tip = default_bid(self.prices.lane_price, self.prices.p50_tip, self.parameters)
        if max_fee is None and timer.default_max_fee is None:
            timer = timer._replace(default_max_fee=headroom)
            self.world.update_timer(timer)
        if max_fee is None:
            max_fee = timer.default_max_fee
            assert max_fee is not None
        return timer, max_fee, tip if priority is None else priority

    def gate(self, priced: list[tuple[Timer, int, int]]) -> list[Candidate]:
        """Carry what does not clear the lane price or exceeds the cap; give the rest its tip and score."""
        candidates: list[Candidate] = []
        for timer, max_fee, priority in priced:
            headroom = max_fee - self.prices.lane_price
            if headroom < 0:
                self.carry(timer, "below_basefee")
            elif self.gas_limit(timer) > self.parameters.max_cycles_per_fire_auction_phase:
                self.carry(timer, "over_cap")
            else:
                tip = min(priority, headroom)
                score = (tip + self.parameters.priority_floor) * self.fairness.weight(timer.actor)
                candidates.append(Candidate(timer, tip, score))
        return candidates

    def sort(self, candidates: list[Candidate]) -> list[Candidate]:
        """By score descending, then the tie-break (SPEC §8)."""
        if self.parameters.tie_break is TieBreak.ID:
            return sorted(candidates, key=lambda c: (-c.score, c.timer.timer_id))
        return sorted(candidates, key=lambda c: (-c.score, c.timer.trigger_height, c.timer.sequence))

    def scan(self, ordered: list[Candidate]) -> None:
        """Fire, destroy or carry one at a time, in order."""
        p, use = self.parameters, self.use
        looked_at = 0
        for candidate in ordered:
            if self.world.get(candidate.timer.key) is None:
                continue  # cancelled meanwhile, by a handler of this phase
            full = use.cycles + p.min_gas_limit_per_timer > p.lane_timer_cycles or use.cells >= p.lane_timer_cells
            if full or looked_at >= p.scan_limit:
                self.carry(candidate.timer, "lane_full")
                continue
            if not self.consider(candidate):
                looked_at += 1

    def consider(self, candidate: Candidate) -> bool:
        """One timer's turn. Returns whether it was destroyed, which does not count as looked at."""
        timer, p = candidate.timer, self.parameters
        if self.use.cycles + self.gas_limit(timer) > p.lane_timer_cycles:
            self.carry(timer, "lane_full")
            return False
        needed = self.max_cost(candidate)
        balance = self.world.balance(timer.fee_payer)
        if timer.payer_cap is not None:
            balance = min(balance, timer.payer_cap)
        if balance >= needed:
            self.fire(candidate, needed)
            return False
        if self.use.gc_cycles + p.gc_cycles_per_removal > p.timer_gc_cycles:
            self.carry(timer, "gc_budget")
            return False
        fields = (
            *_id_field(timer),
            ("fee_payer", "0x" + timer.fee_payer.hex()),
            ("needed", str(needed)),
            ("balance", str(balance)),
        )
        event = Event("TimerCancelledInsufficientFunds", timer.actor, fields)
        self.destroy(timer, "insufficient_funds", event)
        return True

    def fire(self, candidate: Candidate, max_cost: int) -> None:
        """Remove, charge, run and settle (SPEC §10)."""
        timer, p = candidate.timer, self.parameters
        # An extension by a handler of this phase is gone with the timer; its other fields cannot have changed.
        self.remove(timer)
        self.world.debit(timer.fee_payer, max_cost)
        meter = Meter(self.gas_limit(timer), p.max_cells_per_fire)
        context = HandlerContext(self.world, meter, timer.actor, timer.actor, self.terms)
        actor = self.world.actor(timer.actor)
        assert actor is not None, "a timer's actor exists"
        handler, payload = resolve_handler(timer.handler, timer.payload)
        body = program(actor.code, handler, payload)

        def charged(run: HandlerContext) -> None:
            run.meter.charge(p.fire_base_cycles)
            body(run)

        result = run_handler(context, charged)
        burned, tip = self.settle(candidate, meter, max_cost)
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

    def settle(self, candidate: Candidate, meter: Meter, max_cost: int) -> tuple[int, int]:
        """Refund what was not used at the prices charged. Returns the amounts burned and tipped."""
        prices, use = self.prices, self.use
        burned_cycle = meter.cycles_used * prices.basefee_cycle + meter.cells_used * prices.basefee_cell
        burned_lane = meter.cycles_used * prices.lane_price
        tip = meter.cycles_used * candidate.tip
        self.world.credit(candidate.timer.fee_payer, max_cost - burned_cycle - burned_lane - tip)
        use.cycles += meter.cycles_used
        use.cells += meter.cells_used
        use.burned_cycle += burned_cycle
        use.burned_lane += burned_lane
        use.tips += tip
        return burned_cycle + burned_lane, tip

    def carry_over(self) -> None:
        """What is still alive is due at the next block; what a handler cancelled after it was passed over is not."""
        alive = {timer_id for timer_id in self.carried if self.world.timer(timer_id) is not None}
        self.carried = {timer_id: reason for timer_id, reason in self.carried.items() if timer_id in alive}

    # --- helpers ------------------------------------------------------------------------------------------------------

    def gas_limit(self, timer: Timer) -> int:
        """The timer's own limit, else the cap in force."""
        cap = self.parameters.max_cycles_per_fire_auction_phase
        return cap if timer.gas_limit is None else timer.gas_limit

    def max_cost(self, candidate: Candidate) -> int:
        """What a fire may cost at most, taken up front."""
        per_cycle = self.prices.basefee_cycle + self.prices.lane_price + candidate.tip
        return (
            self.gas_limit(candidate.timer) * per_cycle + self.parameters.max_cells_per_fire * self.prices.basefee_cell
        )

    def remove(self, timer: Timer) -> None:
        self.world.remove_timer(timer)

    def destroy(self, timer: Timer, reason: str, event: Event) -> None:
        self.remove(timer)
        self.use.gc_cycles += self.parameters.gc_cycles_per_removal
        self.destroyed.append(DestroyedReceipt(timer.timer_id, reason, event))

    def carry(self, timer: Timer, reason: str) -> None:
        self.carried[timer.timer_id] = reason


def _id_field(timer: Timer) -> tuple[tuple[str, str]]:
    return (("timer_id", timer.timer_id.hex()),)
