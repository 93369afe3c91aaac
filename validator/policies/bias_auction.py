"""The policy ``bias_auction`` (SPEC §13, seed design 003 §9): bids that are locked, and a bias for those who wait.

A timer's bid is locked when it is scheduled. Timers go by ``(bid + e^(n·λ)) / gas_limit``, where ``n`` is the number of
blocks that they are late. A fire pays for its cycles at their basefee, and a part of its bid; the rest of the bid is
returned. λ follows the bids, so that the bias does not grow faster than timers lose value.

The bias is computed with integers alone, so it is the same everywhere: ``x = n·λ`` is reduced to ``k·ln 2 + r``,
``e^r`` is summed as a Taylor series in :data:`PRECISION` fractional bits, and the result is shifted by ``k``.

Error: ``x`` and ``ln 2`` are rounded down by less than a unit of 2**-192, so ``r`` is at most one unit below and 96
above its exact value. Each of the fewer than 64 terms of the series loses at most 2 units. So ``e^r`` is off by less
than 2**-183, and a bias in units of 2**-32, below 2**128, by less than 2**-55: it equals the exact value rounded down,
unless that is within 2**-55 of an integer, and then differs by at most one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from validator.chain.records import BIAS_RATE, BiasRate, Timer
from validator.execution.escrow import pay_from_escrow
from validator.execution.lane_rules import Bids, LaneRules
from validator.execution.timer_phase import Candidate, TimerPhase
from validator.primitives.codec import pack_uint
from validator.primitives.params import Parameters, PaymentRule, TieBreak
from validator.primitives.types import BID_ESCROW_ADDRESS, Address
from validator.scheduler import order
from validator.scheduler.fairness import MILLI
from validator.scheduler.pricing import median_tip
from validator.scheduler.rows import WORD_BITS, WORD_MASK

MICRO: Final = 10**6
FRACTION_BITS: Final = 32
"""Number of fractional bits of a bias."""
WHOLE_BITS: Final = 96
SATURATED: Final = 2 ** (WHOLE_BITS + FRACTION_BITS) - 1
"""The greatest bias, from which it does not grow."""
PRECISION: Final = 192


def _ln2() -> int:
    """``ln 2`` in :data:`PRECISION` fractional bits, rounded down: ``2 · artanh(1/3)``, summed with 64 more bits."""
    total, power, number = 0, (2 << PRECISION + 64) // 3, 1
    while power:
        total, power, number = total + power // number, power // 9, number + 2
    return total >> 64


LN2: Final = _ln2()


@lru_cache(maxsize=8_192)
def bias(waited: int, micro: int) -> int:
    """The bias, in units of 2**-32, of a timer that waited this many blocks, with λ in millionths."""
    doublings, rest = divmod((waited * micro << PRECISION) // MICRO, LN2)
    if doublings >= WHOLE_BITS:
        return SATURATED
    term, number = 1 << PRECISION, 0
    total = term
    while term:
        number += 1
        term = (term * rest >> PRECISION) // number
        total += term
    return total >> PRECISION - FRACTION_BITS - doublings


def saturates_after(micro: int) -> int:
    """A number of blocks after which the bias is saturated."""
    return LN2 * WHOLE_BITS * MICRO // (micro << PRECISION) + 2


def table(waited: int, micro: int) -> npt.NDArray[np.uint64]:
    """The biases of timers that waited up to ``waited`` blocks, as two words each, ``(high, low)``.

    The last entry holds for all longer waits, too, if the bias is saturated by then.
    """
    return _table(min(1 << waited.bit_length(), saturates_after(micro) + 1), micro)


@lru_cache(maxsize=32)
def _table(size: int, micro: int) -> npt.NDArray[np.uint64]:
    values = [bias(waited, micro) for waited in range(size)]
    return np.array([(value >> WORD_BITS, value & WORD_MASK) for value in values], np.uint64)


class BiasRules(LaneRules):
    """The rules of ``bias_auction``: bids are locked, and fee fields are stored but not compared."""

    __slots__ = ()
    bids: ClassVar[Bids] = Bids.LOCKED
    has_watches: ClassVar[bool] = True
    timers_first: ClassVar[bool] = False

    def fire_cap(self, parameters: Parameters) -> int:
        return parameters.max_cycles_per_fire_auction_phase

    def next_p50_tip(self, fires: Sequence[tuple[int, int]], parameters: Parameters) -> int:
        return median_tip(fires, parameters.p50_weight)


class Ranked(NamedTuple):
    """A timer's place in the order of turns: its bid, its gas limit, and its bias in units of 2**-32."""

    bid: int
    gas_limit: int
    bias: int

    @property
    def strength(self) -> int:
        """The numerator of the score, in units of 2**-32."""
        return (self.bid << FRACTION_BITS) + self.bias


def payment(winner: Ranked, left_out: Ranked | None, parameters: Parameters) -> int:
    """What a fire pays of its bid. ``left_out``: the first timer that the lane had no room for, if there is one."""
    due = 0
    match parameters.payment_rule:
        case PaymentRule.FIRST_PRICE:
            due = winner.bid
        case PaymentRule.VCG if left_out is not None:
            due = left_out.bid - (winner.bias >> FRACTION_BITS)
        case PaymentRule.CRITICAL if left_out is not None:
            needed = -(-left_out.strength * winner.gas_limit // left_out.gas_limit) - winner.bias
            due = -(-needed >> FRACTION_BITS)
    return min(winner.bid, max(parameters.reserve_price, due))


@dataclass(slots=True)
class BiasAuctionPhase(TimerPhase):
    """The timer phase of ``bias_auction``. What fires pay is known at its end, once it is known who is left out."""

    rules: ClassVar[LaneRules] = BiasRules()
    asks_agents: ClassVar[bool] = False
    passes_over: ClassVar[bool] = True

    _best_left_out: Ranked | None = None
    """The first timer in order that the lane had no room for. A later fire may have cancelled it."""
    _winners: list[Timer] = field(default_factory=list)
    """The timers that fired, in order."""
    _fires_of: dict[Address, int] = field(default_factory=dict)

    @property
    def rate(self) -> BiasRate:
        """λ, and the fires since it changed, at the block's beginning."""
        record: BiasRate | None = self.world.get(BIAS_RATE)
        return BiasRate(self.terms.parameters.bias_lambda_micro) if record is None else record

    def candidates(self) -> Iterator[Candidate]:
        """The due timers by score descending, then the tie-break."""
        pool, height = self.index.pool, self.terms.height
        if not pool.live:
            return iter(())
        is_by_id = self.terms.parameters.tie_break is TieBreak.ID
        prices = order.blank_prices(order.Formula.DENSITY, height, self.terms.cap, is_by_id)
        biases = table(height - int(pool.rows["trigger"][0]), self.rate.micro)
        found = pool.best_first(self.index.parties.table, prices, biases)
        return (self._candidate(position, 0) for position, _, _ in found)

    def is_priced_out(self, timer: Timer) -> bool:
        return False

    def scan(self, candidates: Iterable[Candidate]) -> None:
        try:
            TimerPhase.scan(self, self._within_caps(candidates))
        finally:
            self.index.parties.reopen()
        self.settle_bids()

    def leave_out(self, candidate: Candidate) -> None:
        if self._best_left_out is None:
            self._best_left_out = self.ranked(self._timer(candidate.timer_id))

    def fire(self, timer: Timer, candidate: Candidate, max_cost: int) -> None:
        TimerPhase.fire(self, timer, candidate, max_cost)
        self._winners.append(timer)
        self._fires_of[timer.actor] = fires = self._fires_of.get(timer.actor, 0) + 1
        if fires == self.terms.parameters.max_fires_per_actor:
            self.index.parties.close(timer.actor)

    def available(self, timer: Timer) -> int:
        balance = self.world.balance(timer.fee_payer)
        return balance if timer.payer_cap is None else min(balance, timer.payer_cap - (timer.bid or 0))

    def settle_bids(self) -> None:
        """Pay the proposer from the bids of the fires, return the rest, and note both in the receipts."""
        for number, timer in enumerate(self._winners):
            due = payment(self.ranked(timer), self._best_left_out, self.terms.parameters)
            fire = self.fires[number]
            self.fires[number] = msgspec.structs.replace(
                fire, tip=pack_uint(due), tip_per_cycle=pack_uint(due // fire.cycles)
            )
            self.world.debit(BID_ESCROW_ADDRESS, due)
            pay_from_escrow(self.world, timer.fee_payer, (timer.bid or 0) - due)
            self.use.tips += due

    def ranked(self, timer: Timer) -> Ranked:
        late = self.terms.height - timer.trigger_height
        return Ranked(timer.bid or 0, self._gas_limit(timer), bias(late, self.rate.micro))

    def count_fires(self) -> None:
        """Add this block's fires to the sums, and move λ at the end of an interval."""
        before, late = self.rate, sum(self.terms.height - timer.trigger_height for timer in self._winners)
        bids = sum(timer.bid or 0 for timer in self._winners)
        after = BiasRate(before.micro, before.fires + len(self._winners), before.waits + late, before.bids + bids)
        if after.fires and self.terms.height % self.terms.parameters.bias_interval_blocks == 0:
            after = BiasRate(next_rate(after, self.terms.parameters))
        if after != before:
            self.world.put(BIAS_RATE, after)

    # --- parts ------------------------------------------------------------------------------------------------------

    def _within_caps(self, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
        """The candidates that wait, without those that were found before their actor had fired enough."""
        return self.those_of(candidates, lambda actor: not self._has_fired_enough(actor))

    def _has_fired_enough(self, actor: Address) -> bool:
        return self._fires_of.get(actor, 0) >= self.terms.parameters.max_fires_per_actor

    def _reason(self, timer: Timer, expires_at: int) -> str:
        reason = TimerPhase._reason(self, timer, expires_at)
        return "actor_limit" if reason == "lane_full" and self._has_fired_enough(timer.actor) else reason


def next_rate(rate: BiasRate, parameters: Parameters) -> int:
    """λ in millionths after an interval with fires: lower if the bias grew faster than the timers lost value.

    A timer is taken to lose its bid's value evenly over ``VALUE_LIFE_BLOCKS``. Both are judged at the mean wait.
    """
    waited, step = rate.waits // rate.fires, rate.micro * parameters.bias_lambda_step_milli // MILLI
    decay = rate.bids // rate.fires // parameters.value_life_blocks
    growth = bias(waited + 1, rate.micro) - bias(waited, rate.micro) >> FRACTION_BITS
    moved = rate.micro - step if growth > decay else rate.micro + step
    return min(parameters.bias_lambda_max_micro, max(parameters.bias_lambda_min_micro, moved))
