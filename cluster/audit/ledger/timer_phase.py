"""The turns of the timer phase, followed by an observer (SPEC §6, §9, §13): which timer came when, and at what price.

Receipts hold all facts about a timer on which its turn depends, and each query's answer; what fires used, paid and
changed is in their own receipts. The rest follows: the price of each timer, its place in the block's order, how much of
the lane was left at its turn, and whether its payer could pay then. Violations are: timers that fired out of turn, at
another price, or although they did not fit; timers that were destroyed although their payer could pay; and timers that
still wait although they passed the gate and fitted at their turn (work conservation: they should have fired, or have
been destroyed).

Not judged, but counted, are timers behind the last fire if the scan may have ended before them; if the budget of the
garbage collection is used up, those whose payer may have been unable to pay; and those beyond :data:`MAX_JUDGED` in a
block.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, islice, pairwise
from typing import Final

import msgspec

from cluster.audit.chain_codec import Bid, DestroyedReceipt, Extended, FireReceipt, QueryReceipt, Scheduled
from cluster.audit.fee_market import (
    BiasMarket,
    EarnedWeights,
    FairnessWindow,
    Fired,
    density,
    median_tip,
)
from cluster.audit.ledger.agent_queries import Agents
from cluster.audit.ledger.context import BlockContext
from cluster.record.rules import Mechanism
from validator.chain.genesis import Genesis
from validator.primitives.params import TieBreak
from validator.primitives.types import PRICE_LIMIT

DEFAULT_MAX_FEE_FACTOR: Final = 2
"""The default agent's maximum fee, as a multiple of the fee floor when it first prices a timer (SPEC §9)."""
MAX_JUDGED: Final = 4_096
"""The most waiting timers judged per block: the oldest ones in odd blocks, the newest ones in even blocks."""

Order = tuple[int, bytes, tuple[int, int]]
"""The sort key of a timer's turn in a block: negative score, tie-break, then trigger height and sequence number."""


EXPIRED: Final = "expired"
INSUFFICIENT_FUNDS: Final = "insufficient_funds"


class TimerState(StrEnum):
    """The state of a timer."""

    PENDING = "pending"
    FIRED = "fired"
    CANCELLED = "cancelled"
    EXPIRED = EXPIRED
    INSUFFICIENT_FUNDS = INSUFFICIENT_FUNDS


class TimerLife(msgspec.Struct, gc=False):
    """One timer, from its schedule to its end. Times are heights."""

    timer_id: bytes
    actor: bytes
    scheduled_at: int
    trigger_height: int
    sequence: int
    expires_at: int
    terms: Scheduled
    """The timer's terms as scheduled. A fee or limit of ``None`` was left open."""
    state: TimerState = TimerState.PENDING
    ended_at: int | None = None
    """The height at which it fired, was cancelled or was destroyed."""
    payload: bytes | None = None
    """The payload; ``None`` if the chain does not give it, it is too long to keep, or the timer is not pending."""
    default_max_fee: int = 0
    """The maximum fee that the default agent fixed for the timer; 0 if it has not yet."""
    bid: int = 0
    """The amount that is locked for it (SPEC §13)."""
    watch: tuple[bytes, str] | None = None
    """The actor and the key of its storage that the timer watches (SPEC §13)."""

    @property
    def is_watching(self) -> bool:
        """Whether the timer waits for a change of a key. Until then, its trigger height is the one after its expiry."""
        return self.watch is not None and self.trigger_height > self.expires_at

    @property
    def turn(self) -> tuple[int, int]:
        return self.trigger_height, self.sequence

    def may_fire_in(self, context: BlockContext) -> bool:
        """Whether the gas limit and the maximum fee, where given, allow a fire in this block."""
        may_pay = self.terms.max_fee_per_cycle is None or self.terms.max_fee_per_cycle >= context.fee_floor
        return may_pay and (self.terms.gas_limit or 0) <= context.fire_cap


class Offer(msgspec.Struct, frozen=True, gc=False):
    """A due timer as it competes in a block: its limits and prices, and its place in the order of turns."""

    actor: bytes
    terms: Scheduled
    gas_limit: int
    max_fee: int
    tip: int
    order: Order
    max_cost: int
    """The maximum cost of the fire, which the payer must have before the fire runs (SPEC §6, step 6b)."""
    passes: bool
    """Whether the timer passes the gate (SPEC §6, step 4): it pays the least fee, within the cap of gas limits."""
    bid: int = 0
    """The amount that is locked for it."""
    bias: int = 0
    """What its waiting counts for, in units of 2**-32, where bids are locked."""
    share: int | None = None
    """The cycles of the lane after which its actor waits for the others; ``None`` if the policy has no slices."""


class Use(msgspec.Struct, frozen=True, gc=False):
    """The cycles and cells used of the timer lane, and the number of fires."""

    cycles: int
    cells: int
    fires: int


NOTHING_USED: Final = Use(0, 0, 0)


class Turn(msgspec.Struct, frozen=True, gc=False):
    """A fire in its turn, and the use of the lane before it."""

    fire: FireReceipt
    offer: Offer
    before: Use


LanePass = list[Turn]
"""A pass over the lane: its fires with known offers, in their order."""


class PassAnswers:
    """Answers what was used when a timer had its turn in a pass that is over."""

    def __init__(self, turns: LanePass, end: Use) -> None:
        """``end``: the use of the lane after the pass."""
        self._turns = [turn.offer.order for turn in turns]
        self._uses = [*(turn.before for turn in turns), end]
        self._is_sorted = all(a <= b for a, b in pairwise(self._turns))
        self._positions: dict[bytes, list[int]] = {}
        """The positions of each actor's fires, ascending."""
        self._totals: dict[bytes, list[int]] = {}
        """The cycles that an actor used before each of its fires, and in all."""
        for position, turn in enumerate(turns):
            self._positions.setdefault(turn.fire.actor, []).append(position)
            totals = self._totals.setdefault(turn.fire.actor, [0])
            totals.append(totals[-1] + turn.fire.cycles)

    def position(self, order: Order) -> int:
        """The number of turns before that of a timer with this sort key. All, if the turns are out of order."""
        return bisect_left(self._turns, order) if self._is_sorted else len(self._turns)

    def is_behind(self, order: Order) -> bool:
        """Whether every turn of the pass came before that of a timer with this sort key."""
        return self.position(order) == len(self._turns)

    def use(self, order: Order) -> Use:
        return self._uses[self.position(order)]

    def fires_of(self, actor: bytes, order: Order) -> int:
        """The number of fires of an actor in the pass until then."""
        return bisect_left(self._positions.get(actor, []), self.position(order))

    def cycles_of(self, actor: bytes, order: Order) -> int:
        """The cycles that the fires of an actor had used in the pass."""
        return self._totals.get(actor, [0])[self.fires_of(actor, order)]


@dataclass(slots=True)
class Phase:
    """The timer phase of one block: its prices and progress."""

    context: BlockContext
    p50_tip: int
    used: Use = NOTHING_USED
    """Use of the lane so far."""
    last: Order | None = None
    """The latest sort key of the turns so far."""
    gone: int = 0
    """Due timers that fired, were destroyed or were cancelled since the phase began."""
    passes: list[LanePass] = field(default_factory=lambda: [[]])
    """The passes over the lane that began: one, or two where actors have slices."""
    cycles_of: Counter[bytes] = field(default_factory=Counter)
    """The cycles of the lane that fires have used, by actor, where actors have slices."""
    cancelled: list[Offer] = field(default_factory=list)
    """Due timers that fires cancelled after their turn had come, where bids are locked."""
    waiting: list[tuple[TimerLife, Offer]] = field(default_factory=list)
    """Timers that passed the gate and still wait at the end, among those judged."""

    @property
    def turns(self) -> Iterator[Turn]:
        """The fires with known offers, in their order."""
        return chain.from_iterable(self.passes)

    def find_pass(self, offer: Offer, share: int) -> str:
        """Begin the second pass if this turn belongs to it. Returns the problem if it belongs to the first one instead;
        else it is empty."""
        is_aside = self.cycles_of[offer.actor] >= share
        if is_aside and len(self.passes) == 1:
            self.passes.append([])
            self.last = None
        elif not is_aside and len(self.passes) > 1:
            return "came after timers whose actors had used their slices, though its own actor had not"
        return ""

    def answers(self) -> list[PassAnswers]:
        """The answers about each pass, once all are over."""
        ends = [*(later[0].before for later in self.passes[1:] if later), self.used]
        return [PassAnswers(each, end) for each, end in zip(self.passes, ends, strict=False)]

    def is_limited(self, answers: PassAnswers, offer: Offer) -> bool:
        """Whether a timer had no turn because its actor had fired enough in the block."""
        context = self.context
        if not context.policy.locks_bids:
            return False
        return answers.fires_of(offer.actor, offer.order) >= context.parameters.max_fires_per_actor

    def best_left_out(self) -> Offer | None:
        """The first timer in order that the lane had no room for at its turn; ``None`` if there is none.

        It is right only if all due timers are in :attr:`waiting`, and the scan reached all of them.
        """
        (answers,) = self.answers()
        known = [*(offer for _, offer in self.waiting), *self.cancelled]
        left_out = (
            offer
            for offer in known
            if not self.is_limited(answers, offer) and not self.has_room(answers.use(offer.order), offer.gas_limit)
        )
        return min(left_out, key=lambda offer: offer.order, default=None)

    @property
    def looked_at_fires_alone(self) -> bool:
        """Whether the scan's limit counted only timers that fired, and was not reached.

        The lane had room left for any gas limit, so no timer was carried over. The fires were fewer than the scan's
        limit, so the scan reached the last timer. Removals do not count, as long as their budget lasts.
        """
        p = self.context.parameters
        fires = len(self.context.receipts.fires)
        return self.has_room(self.used, self.context.fire_cap) and fires < p.scan_limit

    def has_room(self, used: Use, gas_limit: int) -> bool:
        """Whether a timer with this gas limit fits into the lane when ``used`` of it is already taken."""
        p = self.context.parameters
        cycles = used.cycles + max(gas_limit, p.min_gas_limit_per_timer)
        has_limits = used.cells < p.lane_timer_cells and used.fires < p.max_fires_per_block
        return has_limits and cycles <= p.lane_timer_cycles


class TurnAudit:
    """Tracks the waiting timers of a chain, block after block, and checks which of them have their turn.

    The texts that methods yield are violations.
    """

    def __init__(self, genesis: Genesis, agents: Agents) -> None:
        self._genesis = genesis
        self._agents = agents
        self.unjudged = 0
        """The number of times that a waiting timer could not be judged, summed over blocks."""
        self._coming: list[tuple[int, int, bytes, TimerLife]] = []
        """A heap of the timers that are not due yet, by trigger height, sequence number and id.

        The id is needed because an invalid block may use a sequence number twice.
        """
        self._due: dict[bytes, TimerLife] = {}
        """Due timers, in the order of their trigger heights and sequence numbers."""
        self._open: dict[bytes, dict[bytes, TimerLife]] = {}
        """Due timers that leave a fee open, keyed by actor, then by id, in the order of ``_due``."""
        self._without_default: dict[bytes, TimerLife] = {}
        """Due timers with an open maximum fee that the default agent has not fixed yet, keyed by id."""
        self._last_bids: dict[tuple[bytes, bytes], Bid] = {}
        """The last bid that a successful query gave, keyed by actor and agent."""
        self._answers: dict[bytes, Bid | None] = {}
        """The bids that this block's queries gave, keyed by timer id; ``None`` for a query without a bid."""
        self.window = FairnessWindow({address: actor.deployer for address, actor in genesis.actors.items()})
        self.weights = EarnedWeights()
        self.bias = BiasMarket()
        self._told: set[bytes] = set()
        self.p50_tip = 0
        """The median tip in force in the next block."""
        self.phase: Phase | None = None
        """The phase of the current block; ``None`` if its prices are unknown."""

    @property
    def due(self) -> int:
        """The number of pending timers that are due."""
        return len(self._due)

    # --- a block, in its order ----------------------------------------------------------------------------------------

    def scheduled(self, life: TimerLife) -> None:
        """Enter a timer that was scheduled, or whose trigger height changed."""
        heapq.heappush(self._coming, (*life.turn, life.timer_id, life))

    def begin_phase(self, context: BlockContext) -> None:
        """Begin a block's timer phase: the timers whose trigger height is reached become due."""
        p = context.parameters
        self.window.begin_block(context.height, p.fairness_window_blocks, p.median_smoothing_milli)
        self._answers.clear()
        while self._coming and self._coming[0][0] <= context.height:
            trigger, _, _, waiting = heapq.heappop(self._coming)
            if waiting.state is TimerState.PENDING and waiting.trigger_height == trigger:
                self._due[waiting.timer_id] = waiting
                if waiting.terms.max_fee_per_cycle is None or waiting.terms.max_priority_fee_per_cycle is None:
                    self._open.setdefault(waiting.actor, {})[waiting.timer_id] = waiting
                if waiting.terms.max_fee_per_cycle is None:
                    self._without_default[waiting.timer_id] = waiting
        self.phase = None if context.header is None else Phase(context, self.p50_tip)

    def candidates(self) -> dict[bytes, list[bytes]] | None:
        """The timers that agents may be asked about in this block, keyed by actor; ``None`` if they are unknown, as
        without prices.

        Each actor has at most as many as SPEC §9 permits.
        """
        phase = self.phase
        if phase is None:
            return None
        if not phase.context.policy.is_price_known:
            return None
        if not phase.context.is_auctioned:
            return {}
        most = self._genesis.parameters.gba_queries_per_actor
        found = {}
        for actor, timers in self._open.items():
            if self._agents.may_bid_for(actor):
                fitting = (
                    waiting.timer_id
                    for waiting in timers.values()
                    if waiting.expires_at >= phase.context.height
                    and waiting.may_fire_in(phase.context)
                    and self._agents.agent_of(actor, waiting.timer_id) is not None
                )
                found[actor] = list(islice(fitting, most))
        return found

    def queried(self, query: QueryReceipt) -> Iterator[str]:
        """Enter a query about a timer; yields problems."""
        bid = query.bid
        if (bid is None) == (query.outcome == "ok"):
            yield "has no answer" if bid is None else "has an answer, though it failed"
        self._answers[query.timer_id] = bid
        if bid is not None:
            self._last_bids[query.actor, query.agent] = bid
        waiting, phase = self._due.get(query.timer_id), self.phase
        if waiting is None or phase is None:
            return
        terms = waiting.terms
        if None not in (terms.max_fee_per_cycle, terms.max_priority_fee_per_cycle):
            yield "is about one that leaves no fee open"
        if phase.context.is_priced and not waiting.may_fire_in(phase.context):
            yield "is about one that cannot fire in this block"

    def price(self) -> None:
        """Fix prices after all queries: the default agent supplies the maximum fees that no other agent gave."""
        phase = self.phase
        self._agents.keep()
        if phase is None or not phase.context.is_auctioned:
            return
        for waiting in list(self._without_default.values()):
            bid = self._bid_for(waiting)
            if bid is None or bid.max_fee is None:
                waiting.default_max_fee = min(DEFAULT_MAX_FEE_FACTOR * phase.context.fee_floor, PRICE_LIMIT - 1)
                del self._without_default[waiting.timer_id]

    def offer(self, timer_id: bytes) -> Offer | None:
        """The offer of a timer in this block; ``None`` if the timer is not due or prices are unknown."""
        waiting = self._due.get(timer_id)
        return None if waiting is None or self.phase is None else self._offer(waiting, self.phase)

    def merged(
        self, fires: Sequence[FireReceipt], destroyed: Sequence[DestroyedReceipt]
    ) -> list[FireReceipt | DestroyedReceipt]:
        """Merge fires with timers destroyed at their turn into one list, in the order of turns.

        Fires keep their order. If turns are unknown, a timer was destroyed as early as the fires allow.
        """
        merged: list[FireReceipt | DestroyedReceipt] = list(fires)
        if not destroyed:
            return merged
        if self.phase is not None and not self.phase.context.policy.is_order_known:
            return _merged_early(fires, destroyed)
        orders = [self._order(fire.timer_id) for fire in fires]
        for inserted, each in enumerate(destroyed):
            order = self._order(each.timer_id)
            later = (i for i, of_fire in enumerate(orders) if order and of_fire and of_fire > order)
            merged.insert(next(later, len(fires)) + inserted, each)
        return merged

    def _order(self, timer_id: bytes) -> Order | None:
        offer = self.offer(timer_id)
        return None if offer is None else offer.order

    def take_turn(self, offer: Offer) -> list[str]:
        """Check and enter a timer's turn: its place in the order, its price, and room in the lane; returns problems."""
        problems: list[str] = []
        phase = self.phase
        assert phase is not None, "offers are made in a phase"
        context = phase.context
        if context.policy.is_order_known:
            if offer.share is not None and (problem := phase.find_pass(offer, offer.share)):
                problems.append(problem)
            if phase.last is not None and offer.order < phase.last:
                kind = "in a block that runs first in, first out" if context.is_fifo else "of the auction"
                problems.append(f"came out of turn {kind}")
            else:
                phase.last = offer.order
        if offer.gas_limit > context.fire_cap:
            problems.append(f"had its turn with a gas limit of {offer.gas_limit}, beyond the cap of {context.fire_cap}")
        elif not offer.passes and context.is_priced:
            least = f"where {context.fee_floor} is the least"
            problems.append(f"had its turn, though it allows {offer.max_fee} a cycle {least}")
        elif not phase.has_room(phase.used, offer.gas_limit):
            problems.append(
                f"had its turn, though its {offer.gas_limit} cycles did not fit: the lane had used"
                f" {phase.used.cycles} and {phase.used.cells} cells"
            )
        return problems

    def fired(self, fire: FireReceipt, offer: Offer | None) -> None:
        phase = self.phase
        if phase is None:
            return
        used = phase.used
        if offer is not None:
            phase.passes[-1].append(Turn(fire, offer, used))
        phase.used = Use(used.cycles + fire.cycles, used.cells + fire.cells, used.fires + 1)
        if phase.context.policy.timers_first:
            phase.cycles_of[fire.actor] += fire.cycles

    def ended(self, timer_id: bytes) -> None:
        """Called when a timer is no longer pending: stop tracking it."""
        waiting, phase = self._due.pop(timer_id, None), self.phase
        if waiting is not None and phase is not None:
            phase.gone += 1
            is_cancelled = waiting.state is TimerState.CANCELLED
            if is_cancelled and phase.context.policy.locks_bids and phase.last is not None:
                offer = self._offer(waiting, phase)
                if offer.passes and waiting.expires_at >= phase.context.height and offer.order < phase.last:
                    phase.cancelled.append(offer)
        if waiting is not None and (of_actor := self._open.get(waiting.actor)) is not None:
            of_actor.pop(timer_id, None)
            if not of_actor:
                del self._open[waiting.actor]
        self._without_default.pop(timer_id, None)
        self._told.discard(timer_id)

    @property
    def is_scan_known(self) -> bool:
        """Whether the scan surely reached all due timers, and all of them were judged, in the phase that just ended."""
        phase = self.phase
        if phase is None or len(self._due) > MAX_JUDGED or not phase.context.policy.is_order_known:
            return False
        return phase.gone + len(phase.waiting) < phase.context.parameters.scan_limit

    def judge(self, gc_cycles: int, can_surely_pay: Callable[[Offer], bool]) -> tuple[int, list[tuple[bytes, str]]]:
        """Judge the timers that still wait after all turns.

        Returns how many were judged, and the ids of those that should not wait, each with the reason.

        ``can_surely_pay`` tells whether a timer's payer could pay at any moment of the phase. If the budget for
        removals is used up, only the timers that could pay are judged: others may wait to be removed.
        """
        phase = self.phase
        if phase is None:
            return 0, []
        context, p = phase.context, phase.context.parameters
        if not context.policy.is_order_known:
            return self._judge_idle_lane(phase, gc_cycles, can_surely_pay)
        if context.policy.timers_first:
            return self._judge_slices(phase, can_surely_pay)
        cost, removed = p.gc_cycles_per_removal, len(context.receipts.destroyed)
        is_budget_used_up = gc_cycles + cost > p.timer_gc_cycles
        if is_budget_used_up and (gc_cycles != cost * removed or context.is_fifo):
            self.unjudged += len(self._due)
            return 0, []
        if context.is_fifo:
            return self._judge_first(phase)
        judged, may_be_over = self._choose(phase)
        offers = phase.waiting
        if is_budget_used_up or (may_be_over and not phase.looked_at_fires_alone):
            # The scan may have ended behind the last fire; it looked at every timer with an earlier turn. Timers that
            # are not removed any more count as looked at.
            last = phase.last if may_be_over else None
            reached = [
                each
                for each in offers
                if (not may_be_over or (last is not None and each[1].order < last))
                and (not is_budget_used_up or can_surely_pay(each[1]))
            ]
            judged -= len(offers) - len(reached)
            offers = reached
        self.unjudged += len(self._due) - judged
        return judged, list(self._passed_over(phase, offers))

    def _judge_slices(
        self, phase: Phase, can_surely_pay: Callable[[Offer], bool]
    ) -> tuple[int, list[tuple[bytes, str]]]:
        """Judge the waiting timers of a block with slices: how many were judged, and those passed over.

        Not judged are those whose payer may have been unable to pay, and those that a scan may not have reached.
        """
        judged, may_be_over = self._choose(phase)
        first, *second = phase.answers()
        reached = [
            (waiting, offer)
            for waiting, offer in phase.waiting
            if can_surely_pay(offer) and not (may_be_over and first.is_behind(offer.order))
        ]
        judged -= len(phase.waiting) - len(reached)
        self.unjudged += len(self._due) - judged
        found = []
        for waiting, offer in reached:
            assert offer.share is not None
            used = first.use(offer.order)
            if first.cycles_of(offer.actor, offer.order) >= offer.share:
                if may_be_over:
                    continue
                used = second[0].use(offer.order) if second else phase.used
            if phase.has_room(used, offer.gas_limit) and waiting.timer_id not in self._told:
                self._told.add(waiting.timer_id)
                found.append((waiting.timer_id, _fitted(offer, used)))
        return judged, found

    def _judge_idle_lane(
        self, phase: Phase, gc_cycles: int, can_surely_pay: Callable[[Offer], bool]
    ) -> tuple[int, list[tuple[bytes, str]]]:
        """Judge the waiting timers of a block with a user's order: how many were judged, and those for which the lane
        still has room after its last fire.

        None is judged if the scan or the budget for removals may have ended the phase, or if the policy says that
        timers may wait. Of a policy that is first in, first out, one that does not fit may have ended it.
        """
        context, p = phase.context, phase.context.parameters
        judged, may_be_over = self._choose(phase) if context.policy.conserves_work else (0, False)
        if not judged or may_be_over or gc_cycles + p.gc_cycles_per_removal > p.timer_gc_cycles:
            self.unjudged += len(self._due)
            return 0, []
        self.unjudged += len(self._due) - judged
        fitting = [each for each in phase.waiting if phase.has_room(phase.used, each[1].gas_limit)]
        if context.is_fifo and len(fitting) < len(phase.waiting):
            return judged, []
        fires = Counter(fire.actor for fire in context.receipts.fires)
        most = p.max_fires_per_actor if context.policy.locks_bids else len(context.receipts.fires) + 1
        found = {
            waiting.timer_id: f"though the lane has room for its {offer.gas_limit} cycles: it used {phase.used.cycles}"
            for waiting, offer in fitting
            if waiting.timer_id not in self._told and fires[offer.actor] < most and can_surely_pay(offer)
        }
        self._told.update(found)
        return judged, list(found.items())

    def _choose(self, phase: Phase) -> tuple[int, bool]:
        """Choose the waiting timers that are judged, and note those that passed the gate in :attr:`Phase.waiting`.

        Returns how many were chosen, and whether the scan may have ended before it reached every due timer.
        """
        values, height = self._due.values(), phase.context.height
        chosen = list(islice(values if height % 2 else reversed(values), MAX_JUDGED))
        alive = [waiting for waiting in chosen if waiting.expires_at >= height]
        phase.waiting = [(waiting, offer) for waiting in alive if (offer := self._offer(waiting, phase)).passes]
        competing = phase.gone + len(phase.waiting) + len(self._due) - len(chosen)
        return len(chosen), competing >= phase.context.parameters.scan_limit

    def _judge_first(self, phase: Phase) -> tuple[int, list[tuple[bytes, str]]]:
        """Judge the waiting timers of a first-in, first-out block: how many were judged, and those passed over.

        The first timer that does not fit ends the phase, so only the first waiting one that passes the gate matters.
        """
        alive = (waiting for waiting in self._due.values() if waiting.expires_at >= phase.context.height)
        offers = ((waiting, self._offer(waiting, phase)) for waiting in alive)
        first = next((each for each in offers if each[1].passes), None)
        if first is None:
            return len(self._due), []
        if phase.gone >= phase.context.parameters.scan_limit:
            self.unjudged += len(self._due)
            return 0, []
        return len(self._due), list(self._passed_over(phase, [first]))

    def end_phase(self, fires: Sequence[FireReceipt]) -> None:
        """End a block's timer phase: update the median tip and the fairness window of later blocks from its fires."""
        phase = self.phase
        self._agents.let_go()
        if phase is None:
            return
        self.p50_tip = 0
        context = phase.context
        if not context.is_fifo:
            self.p50_tip = median_tip(fires, context.parameters.p50_weight)
            if context.policy.locks_bids:
                fired = [Fired(turn.offer.bid, context.height - turn.fire.trigger_height) for turn in phase.turns]
                self.bias.enter(fired, context.height, context.parameters)
            elif context.policy.timers_first:
                self.weights.enter(fires, context.height, phase.p50_tip, context.parameters)
            else:
                self.window.enter(context.height, Counter(fire.actor for fire in fires), context.parameters)

    # --- prices -------------------------------------------------------------------------------------------------------

    def _bid_for(self, waiting: TimerLife) -> Bid | None:
        if waiting.timer_id in self._answers:
            return self._answers[waiting.timer_id]
        agent = self._agents.agent_of(waiting.actor, waiting.timer_id)
        remembered = None if agent is None else self._last_bids.get((waiting.actor, agent))
        if remembered is not None and self.phase is not None:
            self.phase.context.reach(Mechanism.BID_REMEMBERED)
        return remembered

    def _offer(self, waiting: TimerLife, phase: Phase) -> Offer:
        terms, context, p = waiting.terms, phase.context, phase.context.parameters
        gas_limit = context.fire_cap if terms.gas_limit is None else terms.gas_limit
        max_fee, tip, score, share, bias = 0, 0, 0, None, 0
        tie = waiting.timer_id if p.tie_break is TieBreak.ID and not context.is_fifo else b""
        late = context.height - waiting.trigger_height
        if context.policy.locks_bids:
            bias = self.bias.bias(late, p)
            score = density(waiting.bid, bias, gas_limit)
        if context.is_auctioned:
            max_fee, priority = self._fees(waiting, phase)
            tip = min(priority, max_fee - context.fee_floor)
            if context.policy.timers_first:
                score = self.weights.score(waiting.actor, tip, context.height, late, p)
                share = self.weights.share(waiting.actor, context.height, p)
            else:
                score = self.window.score(waiting.actor, tip, p)
        order = (-score, tie, waiting.turn)
        max_cost = gas_limit * (context.fire_price + tip) + context.max_cells_cost
        passes = tip >= 0 and gas_limit <= context.fire_cap
        return Offer(waiting.actor, terms, gas_limit, max_fee, tip, order, max_cost, passes, waiting.bid, bias, share)

    def _fees(self, waiting: TimerLife, phase: Phase) -> tuple[int, int]:
        """The maximum fee and the priority fee of a timer.

        Each is the one in the timer's terms, else its agent's, else the default agent's.
        """
        max_fee, priority = waiting.terms.max_fee_per_cycle, waiting.terms.max_priority_fee_per_cycle
        if max_fee is not None and priority is not None:
            return max_fee, priority
        bid = self._bid_for(waiting)
        if bid is not None:
            max_fee = bid.max_fee if max_fee is None else max_fee
            priority = bid.priority if priority is None else priority
        cap = phase.context.parameters.default_tip_cap
        default_tip = min(phase.p50_tip, phase.context.fee_floor // cap) if cap else phase.p50_tip
        return (
            waiting.default_max_fee if max_fee is None else max_fee,
            default_tip if priority is None else priority,
        )

    # --- timers that wait ---------------------------------------------------------------------------------------------

    def _passed_over(self, phase: Phase, offers: Sequence[tuple[TimerLife, Offer]]) -> Iterator[tuple[bytes, str]]:
        if not offers:
            return
        (answers,) = phase.answers()
        for waiting, offer in offers:
            used = answers.use(offer.order)
            why = _fitted(offer, used)
            if phase.is_limited(answers, offer):
                continue
            if not phase.has_room(used, offer.gas_limit):
                if not phase.context.is_fifo or answers.is_behind(offer.order):
                    continue
                why = "though what does not fit ends the phase of a block that runs first in, first out"
            if waiting.timer_id not in self._told:
                self._told.add(waiting.timer_id)
                yield waiting.timer_id, why


def _merged_early(
    fires: Sequence[FireReceipt], destroyed: Sequence[DestroyedReceipt]
) -> list[FireReceipt | DestroyedReceipt]:
    """Fires with destroyed timers, each at the beginning, so that no returned bid comes late, or, if fires extended it,
    after the last one that did."""
    extended = {
        change.timer_id: number
        for number, fire in enumerate(fires, 1)
        for change in fire.effects.timer_changes
        if isinstance(change, Extended)
    }
    # Sorting is stable: fires keep their order, and a destroyed timer comes after the fire of its number.
    turns: list[tuple[int, FireReceipt | DestroyedReceipt]] = [*enumerate(fires, 1)]
    turns += [(extended.get(each.timer_id, 0), each) for each in destroyed]
    return [each for _, each in sorted(turns, key=lambda turn: turn[0])]


def _fitted(offer: Offer, used: Use) -> str:
    """Why a timer should not wait."""
    return f"though its {offer.gas_limit} cycles fitted when its turn came: the lane had used {used.cycles}"
