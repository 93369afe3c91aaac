"""The order of waiting timers, as compiled loops over packed rows: best rows, expired rows, position of a row.

They are exact: fees are 96-bit integers in two words, scores are 128-bit ones, ids are compared completely. Rows are in
the order of ``(trigger_height, sequence)``. Each :data:`CHUNK` of rows has a summary, by which a loop skips chunks that
cannot matter, so that its cost depends on the rows that it finds rather than on those that wait.

Numba converts mixed signed and unsigned words to floats, so every constant used with a word is a word itself.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from validator.primitives.compiled import compiled
from validator.scheduler.fairness import rounded_weight, weight_at
from validator.scheduler.rows import DEAD, HAS_AGENT, OPEN_MAX, OPEN_PRIORITY, SUPPLIED

CHUNK: Final = 512
SUMMARY: Final = np.dtype(
    [
        ("live", "<i8"),
        ("least_expiry", "<u8"),
        ("greatest_expiry", "<u8"),
        ("max_high", "<u8"),
        ("max_low", "<u8"),
        ("priority_high", "<u8"),
        ("priority_low", "<u8"),
        ("least_id0", "<u8"),
        ("least_trigger", "<u8"),
        ("least_gas", "<u8"),
        ("candidates", "<i8"),
        ("open", "<i8"),
        ("agents", "<i8"),
    ]
)
"""Summary of a chunk's rows. ``live`` and the expiries cover all live rows. The other fields cover the ``candidates``,
the live rows whose gas is within the cap: their number, their greatest fees, the least first word of an id, the number
with an open field (``open``), and the number of those with an agent (``agents``)."""

PRICES: Final = np.dtype(
    [
        ("height", "<u8"),
        ("price_low", "<u8"),
        ("price_high", "<u8"),
        ("tip_low", "<u8"),
        ("tip_high", "<u8"),
        ("floor", "<u8"),
        ("cap", "<u8"),
        ("divisor", "<u8"),
        ("median", "<i8"),
        ("by_id", "<u8"),
        ("formula", "<u8"),
        ("closed", "<u8"),
        ("epoch", "<i8"),
        ("decay", "<i8"),
        ("least_weight", "<i8"),
        ("most_weight", "<i8"),
        ("starvation_weight", "<i8"),
        ("starvation_blocks", "<u8"),
        ("bid_max_low", "<u8"),
        ("bid_max_high", "<u8"),
        ("bid_priority_low", "<u8"),
        ("bid_priority_high", "<u8"),
    ]
)
"""Height and prices of one block: lane price, default tip, priority floor, per-fire cap, fairness divisor, tie-break (1
for ids, 0 for age), the greatest values of the agents' bids, and the score's formula (:class:`Formula`). For
:attr:`Formula.TIP_FIRST` also the epoch, and the rules of its weights (:class:`validator.scheduler.fairness.Decay`).
For :attr:`Formula.ROUNDED` the median of fires, and the least and the most weight
(:class:`validator.scheduler.fairness.Rounding`)."""


class Formula(IntEnum):
    """How a score is computed from a tip and a weight."""

    PRODUCT = 0
    """The tip, with its floor, times the fairness weight (SPEC §8)."""
    TIP_FIRST = 1
    """The tip, with ties broken by the weight that the actor earned (SPEC §13, ``gba_auction``)."""
    DENSITY = 2
    """The locked bid and the bias of a late timer, for each cycle that it may use (SPEC §13, ``bias_auction``)."""
    ROUNDED = 3
    """As :attr:`PRODUCT`, with a fairness weight that is rounded, for other clip bounds or a smoothed median."""


def blank_prices(formula: Formula, height: int, cap: int, is_by_id: bool) -> npt.NDArray[np.void]:
    """One row of :data:`PRICES` with the fields that every formula reads; the others are 0.

    ``cap``: the per-fire cap, in cycles. ``is_by_id``: whether ids break ties, instead of age.
    """
    prices = np.zeros(1, PRICES)
    prices["formula"], prices["height"], prices["cap"], prices["by_id"] = formula, height, cap, is_by_id
    return prices


ACTOR: Final = np.dtype(
    [
        ("recent", "<u8"),
        ("counted_at", "<i8"),
        ("max_low", "<u8"),
        ("max_high", "<u8"),
        ("priority_low", "<u8"),
        ("priority_high", "<u8"),
        ("has_bid", "<u8"),
        ("closed", "<u8"),
        ("weight_epoch", "<i8"),
        ("weight", "<i8"),
        ("weight_scores", "<i8"),
        ("weight_fires", "<i8"),
    ]
)
"""A party in one block: the fires in the fairness window, and the number of the party whose fires weigh this one, its
agent's last valid bid, which of the two values the bid has (:data:`BIDS_MAX`, :data:`BIDS_PRIORITY`), whether its actor
is closed for the rest of a scan, and its actor's :class:`~validator.chain.records.ActorWeight`, whose fires are 0 if
there is none."""
BIDS_MAX: Final = 1
BIDS_PRIORITY: Final = 2

FOUND: Final = np.dtype(
    [("position", "<i8"), ("score_high", "<u8"), ("score_low", "<u8"), ("tip_low", "<u8"), ("tip_high", "<u8")]
)

NO_BIASES: Final = np.zeros((1, 2), np.uint64)

_U0: Final = np.uint64(0)
_U1: Final = np.uint64(1)
_U2: Final = np.uint64(2)
_U32: Final = np.uint64(32)
_TIP_FIRST: Final = np.uint64(Formula.TIP_FIRST)
_DENSITY: Final = np.uint64(Formula.DENSITY)
_ROUNDED: Final = np.uint64(Formula.ROUNDED)
_LOW_HALF: Final = np.uint64(0xFFFFFFFF)
_DEAD: Final = np.uint32(DEAD)
_OPEN_MAX: Final = np.uint32(OPEN_MAX)
_OPEN_PRIORITY: Final = np.uint32(OPEN_PRIORITY)
_OPEN: Final = np.uint32(OPEN_MAX | OPEN_PRIORITY)
_HAS_AGENT: Final = np.uint32(HAS_AGENT)
_SUPPLIED: Final = np.uint32(SUPPLIED)
_BIDS_MAX: Final = np.uint64(BIDS_MAX)
_BIDS_PRIORITY: Final = np.uint64(BIDS_PRIORITY)


@compiled
def _is_less(high: Any, low: Any, other_high: Any, other_low: Any) -> Any:
    return high < other_high or (high == other_high and low < other_low)


@compiled
def _minus(high: Any, low: Any, other_high: Any, other_low: Any) -> Any:
    return high - other_high - (_U1 if low < other_low else _U0), low - other_low


@compiled
def _times(high: Any, low: Any, factor: Any) -> Any:
    """The product of ``(high, low)``, a number of up to 97 bits, and a factor of up to 31 bits, as two words."""
    lower = (low & _LOW_HALF) * factor
    upper = (low >> _U32) * factor + (lower >> _U32)
    return high * factor + (upper >> _U32), (upper << _U32) | (lower & _LOW_HALF)


@compiled
def _weight(recent: Any, prices: Any) -> Any:
    """The fairness weight for ``recent`` fires: ``2 * D - min(2 * r, D)`` (SPEC §8), or the rounded one."""
    if prices.formula == _ROUNDED:
        return np.uint64(rounded_weight(np.int64(recent), prices.median, prices.least_weight, prices.most_weight))
    twice = _U2 * recent
    return _U2 * prices.divisor - (twice if twice < prices.divisor else prices.divisor)


@compiled
def _divided(high: Any, low: Any, divisor: Any) -> Any:
    """The quotient of ``(high, low)`` and a divisor of up to 32 bits, rounded down, as two words."""
    rest = ((high % divisor) << _U32) | (low >> _U32)
    upper = rest // divisor
    rest = ((rest % divisor) << _U32) | (low & _LOW_HALF)
    return high // divisor, (upper << _U32) | (rest // divisor)


@compiled
def _density(bid_high: Any, bid_low: Any, trigger: Any, height: Any, gas: Any, biases: Any) -> Any:
    """The score of :attr:`Formula.DENSITY`: bid and bias in units of 2**-32, at most 2**128 - 1, by the gas limit."""
    late = height - trigger if trigger < height else _U0
    bias = biases[min(late, np.uint64(len(biases) - 1))]
    low = (bid_low << _U32) + bias[1]
    carry = _U1 if low < bias[1] else _U0
    high = ((bid_high << _U32) | (bid_low >> _U32)) + bias[0]
    if high < bias[0] or high + carry < carry:
        return _divided(~_U0, ~_U0, gas)
    return _divided(high + carry, low, gas)


@compiled
def summarize(rows: Any, count: Any, chunk: Any, cap: Any, summary: Any) -> None:
    """Recompute the summary of a chunk of rows. ``cap`` is the per-fire cap."""
    live, candidates, openings, agents = 0, 0, 0, 0
    least_expiry, greatest_expiry, least_id = ~_U0, _U0, ~_U0
    least_trigger, least_gas = ~_U0, cap
    max_high, max_low, priority_high, priority_low = _U0, _U0, _U0, _U0
    for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, count)):
        row = rows[i]
        if row.flags & _DEAD:
            continue
        live += 1
        least_expiry = min(least_expiry, row.expires_at)
        greatest_expiry = max(greatest_expiry, row.expires_at)
        if np.uint64(row.gas_limit) > cap:
            continue
        candidates += 1
        least_id = min(least_id, row.id0)
        least_trigger = min(least_trigger, row.trigger)
        if row.gas_limit > 0:
            least_gas = min(least_gas, np.uint64(row.gas_limit))
        if row.flags & _OPEN:
            openings += 1
            agents += 1 if row.flags & _HAS_AGENT else 0
        if _is_less(max_high, max_low, np.uint64(row.max_high), row.max_low):
            max_high, max_low = np.uint64(row.max_high), row.max_low
        if _is_less(priority_high, priority_low, np.uint64(row.priority_high), row.priority_low):
            priority_high, priority_low = np.uint64(row.priority_high), row.priority_low
    found = summary[chunk]
    found.live, found.candidates, found.open, found.agents = live, candidates, openings, agents
    found.least_expiry, found.greatest_expiry, found.least_id0 = least_expiry, greatest_expiry, least_id
    found.least_trigger, found.least_gas = least_trigger, least_gas
    found.max_high, found.max_low = max_high, max_low
    found.priority_high, found.priority_low = priority_high, priority_low


@compiled
def find(rows: Any, count: Any, trigger: Any, sequence: Any) -> Any:
    """The position of the first row at or after ``(trigger, sequence)``."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        at = rows[middle].trigger
        if at < trigger or (at == trigger and rows[middle].sequence < sequence):
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def kill(rows: Any, count: Any, triggers: Any, sequences: Any, positions: Any, flags: Any) -> Any:
    """Mark the rows with these triggers and sequences dead. Returns the number of those that do not exist.

    Stores the rows' positions and former flags in ``positions`` and ``flags``.
    """
    missing = 0
    for i in range(len(triggers)):
        position = find(rows, count, triggers[i], sequences[i])
        if position == count or rows[position].trigger != triggers[i] or rows[position].sequence != sequences[i]:
            missing += 1
            continue
        positions[i] = position
        flags[i] = rows[position].flags
        rows[position].flags |= _DEAD
    return missing


@compiled
def expired(rows: Any, count: Any, summary: Any, height: Any, found: Any) -> Any:
    """Store in ``found`` the positions of the first live rows that are expired at ``height``. Returns how many."""
    number = 0
    for chunk in range((count + CHUNK - 1) // CHUNK):
        if summary[chunk].live == 0 or summary[chunk].least_expiry >= height:
            continue
        for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, count)):
            if not rows[i].flags & _DEAD and rows[i].expires_at < height:
                if number == len(found):
                    return number
                found[number] = i
                number += 1
    return number


@compiled
def price(row: Any, actors: Any, prices: Any) -> Any:
    """``(priced, tip_high, tip_low)`` of a row: whether it passes the gate, and its tip per cycle (SPEC §6.4, §9)."""
    max_high, max_low = np.uint64(row.max_high), row.max_low
    if prices.formula == _DENSITY:
        return True, max_high, max_low
    tip_high, tip_low = np.uint64(row.priority_high), row.priority_low
    if row.flags & _OPEN:
        actor = actors[row.actor]
        has_bid = actor.has_bid if row.flags & _HAS_AGENT else _U0
        if row.flags & _OPEN_MAX:
            if has_bid & _BIDS_MAX:
                max_high, max_low = actor.max_high, actor.max_low
            elif not row.flags & _SUPPLIED:
                return False, _U0, _U0
        if row.flags & _OPEN_PRIORITY:
            if has_bid & _BIDS_PRIORITY:
                tip_high, tip_low = actor.priority_high, actor.priority_low
            else:
                tip_high, tip_low = prices.tip_high, prices.tip_low
    if _is_less(max_high, max_low, prices.price_high, prices.price_low):
        return False, _U0, _U0
    room_high, room_low = _minus(max_high, max_low, prices.price_high, prices.price_low)
    if _is_less(room_high, room_low, tip_high, tip_low):
        tip_high, tip_low = room_high, room_low
    return True, tip_high, tip_low


@compiled
def _earned(row: Any, actor: Any, prices: Any) -> Any:
    """The weight of a row under :attr:`Formula.TIP_FIRST`: its actor's, but no less than a starving timer has."""
    weight = prices.least_weight
    if actor.weight_fires > 0:
        weight = weight_at(
            prices.epoch,
            actor.weight_epoch,
            actor.weight,
            actor.weight_scores,
            actor.weight_fires,
            prices.decay,
            prices.least_weight,
            prices.most_weight,
        )
    if row.trigger + prices.starvation_blocks <= prices.height:
        weight = max(weight, prices.starvation_weight)
    return weight


@compiled
def _with(tip_high: Any, tip_low: Any, weight: Any, prices: Any) -> Any:
    """The score, as two words, of a tip and a weight."""
    if prices.formula == _TIP_FIRST:
        return (tip_high << _U32) | (tip_low >> _U32), (tip_low << _U32) | weight
    low = tip_low + prices.floor
    high = tip_high + (_U1 if low < tip_low else _U0)
    return _times(high, low, weight)


@compiled
def _score(tip_high: Any, tip_low: Any, row: Any, actors: Any, prices: Any, biases: Any) -> Any:
    if prices.formula == _DENSITY:
        gas = np.uint64(row.gas_limit) if row.gas_limit > 0 else prices.cap
        return _density(tip_high, tip_low, row.trigger, prices.height, gas, biases)
    if prices.formula == _TIP_FIRST:
        return _with(tip_high, tip_low, np.uint64(_earned(row, actors[row.actor], prices)), prices)
    return _with(tip_high, tip_low, _weight(actors[actors[row.actor].counted_at].recent, prices), prices)


@compiled
def _comes_before(
    rows: Any, by_id: Any, high: Any, low: Any, at: Any, other_high: Any, other_low: Any, other: Any
) -> Any:
    """Whether the row at position ``at``, with score ``(high, low)``, precedes the one at ``other`` (SPEC §8)."""
    if high != other_high:
        return high > other_high
    if low != other_low:
        return low > other_low
    if by_id == _U0:
        return at < other
    if rows[at].id0 != rows[other].id0:
        return rows[at].id0 < rows[other].id0
    if rows[at].id1 != rows[other].id1:
        return rows[at].id1 < rows[other].id1
    if rows[at].id2 != rows[other].id2:
        return rows[at].id2 < rows[other].id2
    return rows[at].id3 < rows[other].id3


@compiled
def _heap_before(rows: Any, by_id: Any, found: Any, i: Any, j: Any) -> Any:
    return _comes_before(
        rows,
        by_id,
        found[i].score_high,
        found[i].score_low,
        found[i].position,
        found[j].score_high,
        found[j].score_low,
        found[j].position,
    )


@compiled
def _sink(rows: Any, by_id: Any, found: Any, i: Any, size: Any) -> None:
    """Move the item ``i`` of the heap ``found`` down to its place. The top of the heap is the worst row found."""
    while True:
        child = 2 * i + 1
        if child >= size:
            return
        if child + 1 < size and _heap_before(rows, by_id, found, child, child + 1):
            child += 1
        if not _heap_before(rows, by_id, found, i, child):
            return
        _swap(found, i, child)
        i = child


@compiled
def _rise(rows: Any, by_id: Any, found: Any, i: Any) -> None:
    while i > 0:
        parent = (i - 1) // 2
        if not _heap_before(rows, by_id, found, parent, i):
            return
        _swap(found, i, parent)
        i = parent


@compiled
def _swap(found: Any, i: Any, j: Any) -> None:
    position, high, low = found[i].position, found[i].score_high, found[i].score_low
    tip_low, tip_high = found[i].tip_low, found[i].tip_high
    found[i].position, found[i].score_high, found[i].score_low = (
        found[j].position,
        found[j].score_high,
        found[j].score_low,
    )
    found[i].tip_low, found[i].tip_high = found[j].tip_low, found[j].tip_high
    found[j].position, found[j].score_high, found[j].score_low = position, high, low
    found[j].tip_low, found[j].tip_high = tip_low, tip_high


@compiled
def _put(found: Any, i: Any, position: Any, high: Any, low: Any, tip_high: Any, tip_low: Any) -> None:
    found[i].position, found[i].score_high, found[i].score_low = position, high, low
    found[i].tip_high, found[i].tip_low = tip_high, tip_low


@compiled
def _bound(chunk: Any, prices: Any, biases: Any) -> Any:
    """``(possible, high, low)``: whether a row of a chunk may pass the gate, and an upper bound of its rows' scores.

    ``chunk`` is the chunk's summary. The bound is reached if one row has all greatest values and its actor the greatest
    weight.
    """
    if chunk.candidates == 0 or chunk.greatest_expiry < prices.height:
        return False, _U0, _U0
    max_high, max_low = chunk.max_high, chunk.max_low
    if prices.formula == _DENSITY:
        high, low = _density(max_high, max_low, chunk.least_trigger, prices.height, chunk.least_gas, biases)
        return True, high, low
    tip_high, tip_low = chunk.priority_high, chunk.priority_low
    if chunk.open and _is_less(tip_high, tip_low, prices.tip_high, prices.tip_low):
        tip_high, tip_low = prices.tip_high, prices.tip_low
    if chunk.agents and _is_less(tip_high, tip_low, prices.bid_priority_high, prices.bid_priority_low):
        tip_high, tip_low = prices.bid_priority_high, prices.bid_priority_low
    if chunk.agents and _is_less(max_high, max_low, prices.bid_max_high, prices.bid_max_low):
        max_high, max_low = prices.bid_max_high, prices.bid_max_low
    if _is_less(max_high, max_low, prices.price_high, prices.price_low):
        return False, _U0, _U0
    room_high, room_low = _minus(max_high, max_low, prices.price_high, prices.price_low)
    if _is_less(room_high, room_low, tip_high, tip_low):
        tip_high, tip_low = room_high, room_low
    weight = np.uint64(prices.most_weight) if prices.formula == _TIP_FIRST else _weight(_U0, prices)
    high, low = _with(tip_high, tip_low, weight, prices)
    return True, high, low


@compiled
def _promising(summary: Any, chunks: Any, prices: Any, biases: Any, bounds: Any) -> Any:
    """Numbers of the chunks that may hold a row that passes the gate, by descending bound.

    Equal bounds are in the order of the tie-break, least id or oldest first. Stores the chunks' bounds in ``bounds``.
    """
    number = np.empty(chunks, np.int64)
    high, low = np.empty(chunks, np.uint64), np.empty(chunks, np.uint64)
    least = np.empty(chunks, np.uint64)
    size = 0
    for chunk in range(chunks):
        possible, bounds[chunk, 0], bounds[chunk, 1] = _bound(summary[chunk], prices, biases)
        if possible:
            number[size], least[size] = chunk, summary[chunk].least_id0
            high[size], low[size] = ~bounds[chunk, 0], ~bounds[chunk, 1]  # so that the highest bound comes first
            size += 1
    order = np.arange(size) if prices.by_id == _U0 else np.argsort(least[:size], kind="mergesort")
    order = order[np.argsort(low[:size][order], kind="mergesort")]
    return number[:size][order[np.argsort(high[:size][order], kind="mergesort")]]


@compiled
def _is_beaten(rows: Any, chunk: Any, least_id0: Any, high: Any, low: Any, worst: Any, by_id: Any) -> Any:
    """Whether a chunk with the bound ``(high, low)`` has no row better than ``worst``, the worst of the rows found."""
    if high != worst.score_high or low != worst.score_low:
        return _is_less(high, low, worst.score_high, worst.score_low)
    if by_id == _U0:
        return chunk * CHUNK > worst.position
    return least_id0 > rows[worst.position].id0


@compiled
def best(rows: Any, count: Any, summary: Any, actors: Any, prices: Any, biases: Any, after: Any, found: Any) -> Any:
    """Store in ``found`` the best rows that pass the gate, best first, as many as fit. Returns how many.

    Only rows that follow ``after[0]`` in this order are considered, unless its position is negative.
    """
    size, room, by_id = 0, len(found), prices.by_id
    chunks = (count + CHUNK - 1) // CHUNK
    bounds = np.empty((chunks, 2), np.uint64)
    for chunk in _promising(summary, chunks, prices, biases, bounds):
        if size == room and _is_beaten(
            rows, chunk, summary[chunk].least_id0, bounds[chunk, 0], bounds[chunk, 1], found[0], by_id
        ):
            continue
        for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, count)):
            row = rows[i]
            if row.flags & _DEAD or np.uint64(row.gas_limit) > prices.cap or row.expires_at < prices.height:
                continue
            if actors[row.actor].closed != prices.closed:
                continue
            cleared, tip_high, tip_low = price(row, actors, prices)
            if not cleared:
                continue
            high, low = _score(tip_high, tip_low, row, actors, prices, biases)
            if after[0].position >= 0 and not _comes_before(
                rows, by_id, after[0].score_high, after[0].score_low, after[0].position, high, low, i
            ):
                continue
            if size < room:
                _put(found, size, i, high, low, tip_high, tip_low)
                _rise(rows, by_id, found, size)
                size += 1
            elif _comes_before(rows, by_id, high, low, i, found[0].score_high, found[0].score_low, found[0].position):
                _put(found, 0, i, high, low, tip_high, tip_low)
                _sink(rows, by_id, found, 0, size)
    for end in range(size - 1, 0, -1):
        _swap(found, 0, end)
        _sink(rows, by_id, found, 0, end)
    return size
