"""The mechanisms of a chain that its blocks reached (:class:`~cluster.record.rules.Mechanism`).

They are observed from outside: in blocks, in receipts, and in the ledger's books.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cluster.audit.chain_codec import (
    CallbackReceipt,
    Extended,
    FireReceipt,
    MessageReceipt,
    Scheduled,
    TransactionReceipt,
    Watching,
)
from cluster.audit.fee_market import markets
from cluster.audit.ledger.agent_queries import UNPAID, spent_by
from cluster.audit.ledger.context import BlockContext
from cluster.audit.ledger.timer_phase import EXPIRED, INSUFFICIENT_FUNDS, Phase, TimerLife, TurnAudit
from cluster.record.rules import Mechanism
from validator.primitives.params import Parameters

LEAST_OF_ODD: Final = 3
"""The smallest odd number of values whose wrongly computed median can differ from the right one."""

RunReceipt = TransactionReceipt | FireReceipt | CallbackReceipt | MessageReceipt


class OverflowBooks:
    """The timers scheduled beyond the horizon, by the epoch in which they come within it (SPEC §5)."""

    def __init__(self, parameters: Parameters) -> None:
        self._length = parameters.epoch_length
        self._horizon = parameters.epoch_horizon
        self._beyond: dict[int, set[bytes]] = {}

    def enter(self, height: int, scheduled: Iterable[Scheduled]) -> None:
        """Enter the timers that were scheduled in a block."""
        for item in scheduled:
            epoch = item.trigger_height // self._length - self._horizon
            if epoch > height // self._length:
                self._beyond.setdefault(epoch, set()).add(item.timer_id)

    def begins_epoch(self, height: int) -> bool:
        return height % self._length == 0

    def come_within(self, height: int) -> set[bytes]:
        """Remove and return the timers that come within the horizon in this height's epoch, pending or not."""
        return self._beyond.pop(height // self._length, set())


class ChainMechanisms:
    """Notes which mechanisms each block reaches, once the whole block is entered."""

    def __init__(self, parameters: Parameters, turns: TurnAudit, pending: dict[bytes, TimerLife]) -> None:
        """``turns`` and ``pending`` are the ledger's."""
        self._turns = turns
        self._pending = pending
        self._overflow = OverflowBooks(parameters)
        self._waiting: frozenset[bytes] = frozenset()
        """The timers that passed the gate in the block before, but had no room."""
        self._before: BlockContext | None = None

    def enter(self, context: BlockContext, receipts: Sequence[RunReceipt], is_deferred_lane_full: bool) -> None:
        """Note the mechanisms that a block reached. ``receipts`` are those of its runs."""
        for mechanism in self._reached(context, receipts, is_deferred_lane_full):
            context.reach(mechanism)
        phase = self._turns.phase
        if phase is not None:
            self._waiting = frozenset(life.timer_id for life, _ in phase.waiting)
        self._before = context

    def _reached(
        self, context: BlockContext, receipts: Sequence[RunReceipt], is_deferred_lane_full: bool
    ) -> Iterator[Mechanism]:
        outcome, phase = context.receipts, self._turns.phase
        plain = {
            Mechanism.MESSAGES: bool(outcome.messages),
            Mechanism.CALLBACKS: bool(outcome.callbacks),
            Mechanism.AGENT_QUERIES: bool(outcome.queries),
            Mechanism.BACKLOG: self._turns.due > 0,
            Mechanism.DEFERRED_LANE_FULL: is_deferred_lane_full,
            Mechanism.TRANSACTIONS_REVERTED: not all(receipt.ok for receipt in outcome.transactions),
            Mechanism.FIRES_REVERTED: not all(fire.ok for fire in outcome.fires),
            Mechanism.WINDOW_PRUNED: self._turns.window.pruned > 0,
            Mechanism.TIMERS_EXPIRED_WAITING: any(
                each.reason == EXPIRED and each.timer_id in self._waiting for each in outcome.destroyed
            ),
        }
        yield from (mechanism for mechanism, is_reached in plain.items() if is_reached)
        yield from self._changes(context)
        yield from self._calendar(context, receipts)
        yield from self._medians(outcome.fires)
        yield from _ends(context)
        yield from _queries(context)
        yield from _prices(context)
        if phase is not None:
            yield from _limits(phase)

    def _changes(self, context: BlockContext) -> Iterator[Mechanism]:
        """The mechanisms shown by a change since the previous block: of the parameters, or to the auction."""
        before = self._before
        if before is None:
            return
        if context.is_auctioned and not before.is_auctioned:
            yield Mechanism.AUCTION_BEGAN
        if context.parameters is not before.parameters:
            yield Mechanism.PARAMETERS_CHANGED

    def _calendar(self, context: BlockContext, receipts: Sequence[RunReceipt]) -> Iterator[Mechanism]:
        height, overflow = context.height, self._overflow
        if overflow.begins_epoch(height):
            yield Mechanism.EPOCH_ENTERED
            # what ended in the block itself was there when the epoch began
            gone = {fire.timer_id for fire in context.receipts.fires}
            gone.update(each.timer_id for each in context.receipts.destroyed)
            if any(key in self._pending or key in gone for key in overflow.come_within(height)):
                yield Mechanism.OVERFLOW_CUT
        for receipt in receipts:
            watching = {each.timer_id for each in receipt.effects.timer_changes if isinstance(each, Watching)}
            overflow.enter(height, [each for each in receipt.effects.scheduled if each.timer_id not in watching])
            for change in receipt.effects.timer_changes:
                if isinstance(change, Extended):
                    yield Mechanism.TIMERS_EXTENDED

    def _medians(self, fires: Sequence[FireReceipt]) -> Iterator[Mechanism]:
        for count, odd, even in (
            (self._turns.window.actors, Mechanism.WINDOW_MEDIAN_ODD, Mechanism.WINDOW_MEDIAN_EVEN),
            (len(fires), Mechanism.TIP_MEDIAN_ODD, Mechanism.TIP_MEDIAN_EVEN),
        ):
            if count and count % 2 == 0:
                yield even
            elif count >= LEAST_OF_ODD:
                yield odd


def _ends(context: BlockContext) -> Iterator[Mechanism]:
    p, outcome = context.parameters, context.receipts
    reasons = {each.reason for each in outcome.destroyed}
    if EXPIRED in reasons:
        yield Mechanism.TIMERS_EXPIRED
    if INSUFFICIENT_FUNDS in reasons:
        yield Mechanism.TIMERS_INSUFFICIENT_FUNDS
    if outcome.gc_cycles + p.gc_cycles_per_removal > p.timer_gc_cycles:
        yield Mechanism.GC_BUDGET_USED_UP


def _queries(context: BlockContext) -> Iterator[Mechanism]:
    p, queries = context.parameters, context.receipts.queries
    outcomes = {query.outcome for query in queries}
    if "failed" in outcomes:
        yield Mechanism.QUERIES_FAILED
    if UNPAID in outcomes:
        yield Mechanism.QUERIES_UNPAID
    if queries and sum(map(spent_by, queries)) + p.gba_max_cycles > p.gba_budget_cycles:
        yield Mechanism.QUERY_BUDGET_USED_UP


def _prices(context: BlockContext) -> Iterator[Mechanism]:
    """The limits that apply to the next block's basefees: floor, cap or least step."""
    if context.header is None:
        return
    p = context.parameters
    for market in markets(context.header, p, context.policy.has_lane_fee):
        if market.used < market.target and market.basefee - market.step < p.min_basefee:
            yield Mechanism.BASEFEE_AT_FLOOR
        elif market.used > market.target and market.basefee + max(market.step, 1) > p.max_basefee:
            yield Mechanism.BASEFEE_AT_CAP
        elif market.used > market.target and not market.step:
            yield Mechanism.BASEFEE_LEAST_STEP


def _limits(phase: Phase) -> Iterator[Mechanism]:
    """The limits that keep timers waiting although they passed the gate: the scan's, or the lane's cells or cycles."""
    p, used = phase.context.parameters, phase.used
    looked_at = len(phase.context.receipts.fires) + len(phase.waiting)
    looked_at += sum(each.reason == INSUFFICIENT_FUNDS for each in phase.context.receipts.destroyed)
    if looked_at > p.scan_limit:
        yield Mechanism.SCAN_LIMIT_REACHED
    if phase.waiting and used.cells >= p.lane_timer_cells:
        yield Mechanism.LANE_CELLS_FULL
    least = p.min_gas_limit_per_timer
    if any(used.cycles + max(offer.gas_limit, least) > p.lane_timer_cycles for _, offer in phase.waiting):
        yield Mechanism.LANE_CYCLES_FULL
