"""The timer phase of a block (SPEC §6, §10): collect, expire, select, fire and settle, carry over.

One :class:`TimerPhase` is one block's phase. The policy decides which timers take part and in which order
(:meth:`TimerPhase.candidates`); everything else is the same for all policies. The steps are small methods in SPEC's
order, so that a planted bug can replace exactly one of them. A timer that is carried over causes no write: its due
height follows from its trigger height.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from validator.chain.block import DestroyedReceipt, Event, FireReceipt
from validator.chain.records import TIMER, Timer, timer_key
from validator.execution.bidding import BiddingRound
from validator.execution.escrow import end_unfired
from validator.execution.handler_context import HandlerContext, run_handler
from validator.execution.lane_rules import LaneRules
from validator.execution.mailbox import MESSAGES_PER_DEFERRED_RUN
from validator.execution.timer_calls import LanePrices, SchedulingTerms
from validator.primitives.codec import pack_uint
from validator.primitives.meter import Meter
from validator.primitives.types import Address
from validator.pvm.dispatch import program, resolve_handler
from validator.pvm.runtime.machine import Vm
from validator.scheduler.fairness import FairnessWeights
from validator.scheduler.index import SchedulerIndex
from validator.scheduler.rows import gas_limit_of_row, timer_id_of_row
from validator.state.working_set import World


class Candidate(NamedTuple):
    """A due timer that may fire."""

    timer_id: bytes
    gas_limit: int
    tip: int
    """Tip per cycle."""


@dataclass(slots=True)
class LaneUse:
    """The cycles and cells that a timer phase has used so far, and the amounts that it has burned and tipped."""

    cycles: int = 0
    cells: int = 0
    gc_cycles: int = 0
    burned_cycle: int = 0
    burned_lane: int = 0
    tips: int = 0


@dataclass(slots=True)
class TimerPhase(ABC):
    """One block's timer phase. ``run`` performs it; the receipts are its result. Each policy has a subclass."""

    rules: ClassVar[LaneRules]
    """The policy's rules outside of the timer phase."""
    asks_agents: ClassVar[bool]
    """Whether agents are asked to price timers (SPEC §9)."""
    passes_over: ClassVar[bool]
    """Whether a timer that does not fit is passed over; otherwise it ends the phase."""
    bidding_class: ClassVar[type[BiddingRound]] = BiddingRound
    replaces: ClassVar[Collection[str]] = frozenset()
    """What a user's policy replaces of the policy from which it is derived: values of
    :class:`~validator.chain.genesis.Replaces`."""
    longest_wait_blocks: ClassVar[int | None] = None
    """The longest wait of a due timer under a user's policy, as it states; ``None`` if it states none. A run fails if
    one waits longer. Blocks do not depend on it."""
    policy_parameters: ClassVar[Mapping[str, Mapping[str, int]]] = MappingProxyType({})
    """The parameters that a user's policy states: ``default``, ``min`` and ``max`` of each, by name."""
    own: ClassVar[Mapping[str, int]] = MappingProxyType({})
    """The values of these parameters on this chain, by name."""

    world: World
    index: SchedulerIndex
    """The scheduler's index, begun for this block."""
    terms: SchedulingTerms
    prices: LanePrices
    fairness: FairnessWeights
    vm: Vm
    explains: bool = False
    """Whether to explain why each remaining timer was carried over, which costs a look at each."""
    use: LaneUse = field(default_factory=LaneUse)
    fires: list[FireReceipt] = field(default_factory=list)
    destroyed: list[DestroyedReceipt] = field(default_factory=list)
    carried: dict[bytes, str] = field(default_factory=dict)
    """The reason why each remaining timer was carried over, by timer id, if ``explains``. Receipts do not have it."""
    events: list[Event] = field(default_factory=list)
    """Every event of the phase, in order."""
    bidding: BiddingRound = field(init=False)
    """The block's round of queries; a policy without agents leaves it empty."""
    supplied_max_fee: int = 0
    """The max fee that the default agent supplied in this block, to timers without one (SPEC §9)."""
    _unpaid_removals: set[bytes] = field(default_factory=set)
    """Ids of timers that were to be destroyed when the garbage collection budget was used up."""

    def __post_init__(self) -> None:
        self.bidding = self.bidding_class(self.world, self.index, self.terms, self.prices, self.vm, self.explains)

    def run(self) -> None:
        """Perform the phase over the timers that are due."""
        self.expire()
        self.ask()
        self.scan(self.taking_part())
        if self.explains:
            self.carried = self.explain()

    def taking_part(self) -> Iterator[Candidate]:
        """The candidates, as :meth:`scan` gets them."""
        return self.candidates()

    # --- the policy's part ------------------------------------------------------------------------------------------

    @abstractmethod
    def candidates(self) -> Iterator[Candidate]:
        """The due timers that take part, in the order in which they may fire. When this returns, they are priced."""

    @abstractmethod
    def is_priced_out(self, timer: Timer) -> bool:
        """Whether the timer takes no part because the fees that it offers are too low."""

    @abstractmethod
    def count_fires(self) -> None:
        """Record in state what later blocks need to know of this block's fires. Called at the block's end."""

    # --- steps, in the order of SPEC §6 -----------------------------------------------------------------------------

    def expire(self) -> None:
        """Destroy timers past their expiry, within the garbage collection budget less what :meth:`scan` may need."""
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

    def ask(self) -> None:
        """Ask the agents, where the policy has any."""
        if self.asks_agents:
            self.bidding.run()
            self.events.extend(self.bidding.events)

    def scan(self, candidates: Iterable[Candidate]) -> None:
        """Fire, destroy or carry over the candidates one at a time, in order, up to the limits of lane and scan."""
        p, use = self.terms.parameters, self.use
        looked_at = 0
        for candidate in candidates:
            if self.world.is_removed(timer_key(candidate.timer_id)):
                continue  # cancelled by a handler of this block
            if self.is_full or looked_at >= p.scan_limit:
                self.leave_out(candidate)
                return
            if use.cycles + candidate.gas_limit > p.lane_timer_cycles:
                self.leave_out(candidate)
                if not self.passes_over:
                    return
                looked_at += 1
            elif not self.fire_or_destroy(candidate):
                looked_at += 1

    @property
    def is_full(self) -> bool:
        """Whether the lane has no room for any further fire."""
        p, use = self.terms.parameters, self.use
        has_cycles = use.cycles + p.min_gas_limit_per_timer <= p.lane_timer_cycles
        return not has_cycles or use.cells >= p.lane_timer_cells or len(self.fires) >= p.max_fires_per_block

    def leave_out(self, candidate: Candidate) -> None:  # noqa: B027 (policies whose prices do not depend on it)
        """Called with each timer that the lane has no room for, or no turn."""

    def fire_or_destroy(self, candidate: Candidate) -> bool:
        """Fire a timer that fits into the lane, or destroy it if its payer cannot pay.

        Returns whether it was destroyed. A destroyed timer does not count towards the scan limit.
        """
        timer = self._timer(candidate.timer_id)
        needed, balance = self.max_cost(candidate), self.available(timer)
        if balance >= needed:
            self.fire(timer, candidate, needed)
            return False
        return self.turn_away(timer, needed, balance)

    def turn_away(self, timer: Timer, needed: int, balance: int) -> bool:
        """Destroy a timer whose payer has ``balance`` of the ``needed`` amount. Returns whether it was destroyed.

        It is carried over if the garbage collection budget is used up.
        """
        p = self.terms.parameters
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
        """Fire a timer: remove it, charge its payer, run its handler and refund the rest (SPEC §10)."""
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

    def available(self, timer: Timer) -> int:
        """What a timer's payer can pay for its fire."""
        balance = self.world.balance(timer.fee_payer)
        return balance if timer.payer_cap is None else min(balance, timer.payer_cap)

    # --- helpers ------------------------------------------------------------------------------------------------------

    def eligible(self) -> list[Timer]:
        """The timers that may fire: due, not expired, and within the cap of gas limits. They are in the order of their
        trigger heights and sequences. A policy without a compiled order makes its own of them, with :meth:`turn`."""
        rows, positions = self.index.pool.rows, self.index.pool.positions(self.terms.height, self.terms.cap)
        timers = (self.world.timer(timer_id_of_row(rows[position])) for position in positions)
        return [timer for timer in timers if timer is not None]

    def those_of(self, candidates: Iterable[Candidate], may_fire: Callable[[Address], bool]) -> Iterator[Candidate]:
        """The candidates that neither fired nor were cancelled by a fire, and whose actors may fire at this moment."""
        for candidate in candidates:
            if self.world.is_removed(timer_key(candidate.timer_id)):
                continue
            if may_fire(self._timer(candidate.timer_id).actor):
                yield candidate

    def turn(self, timer: Timer, tip: int = 0) -> Candidate:
        """A timer's turn, at a tip per cycle."""
        return Candidate(timer.timer_id, self._gas_limit(timer), tip)

    def max_cost(self, candidate: Candidate) -> int:
        """The most that a fire may cost; it is charged up front."""
        per_cycle = self.prices.basefee_cycle + self.prices.lane_price + candidate.tip
        return candidate.gas_limit * per_cycle + self.terms.parameters.max_cells_per_fire * self.prices.basefee_cell

    def destroy(self, timers: Sequence[Timer], reason: str, events: Sequence[Event]) -> None:
        """Remove timers without firing them. The cycles are charged to the garbage collection budget."""
        end_unfired(self.world, timers)
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
        if self.is_priced_out(timer):
            return "below_basefee"
        return "over_cap" if self._gas_limit(timer) > self.terms.cap else "lane_full"

    def _candidate(self, position: int, tip: int) -> Candidate:
        row = self.index.pool.rows[position]
        return Candidate(timer_id_of_row(row), gas_limit_of_row(row) or self.terms.cap, tip)

    def _timer(self, timer_id: bytes) -> Timer:
        timer = self.world.timer(timer_id)
        assert timer is not None, "a waiting timer is in state"
        return timer

    def _gas_limit(self, timer: Timer) -> int:
        return self.terms.cap if timer.gas_limit is None else timer.gas_limit


def _id_field(timer: Timer) -> tuple[tuple[str, str]]:
    return (("timer_id", timer.timer_id.hex()),)
