"""Work conservation (SPEC §6): no timer that was due, eligible and would have fitted is left waiting.

An observer cannot see why a timer was carried over, but it can rule reasons out. After the fires of a block, the lane
had at every timer's turn at least the room that was left at the end, since what fires use only adds up. So a timer
that still waits, although its gas limit fits in what was left, its fee passes the gate and no scan limit or budget was
in the way, was passed over; one that could not have paid would have been destroyed. What a timer bids is known where
its schedule follows from the chain (a ``builtin:script``'s own input) and its actor has no agent; nothing is claimed of
others.

Before activation the first timer that does not fit ends the phase (SPEC §13), so only the first one in turn is judged.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from cluster.timer_ids import ScheduledTerms
from validator.genesis import Genesis
from validator.params import Parameters

DEFAULT_MAX_FEE_FACTOR: Final = 2
"""The default agent's maximum fee, in lane prices of the first block that it prices the timer in (SPEC §9)."""


class Life(Protocol):
    """What the audit looks at of a timer (:class:`cluster.ledger.TimerLife`)."""

    @property
    def is_pending(self) -> bool: ...
    @property
    def expires_at(self) -> int: ...


@dataclass(slots=True)
class _Waiting:
    """A timer that is due."""

    turn: tuple[int, int]
    timer_id: bytes
    life: Life
    terms: ScheduledTerms | None
    """``None`` where they cannot be told."""
    default_max_fee: int | None = None


@dataclass(frozen=True, slots=True)
class LaneUse:
    """What the timer phase of a block came to. ``lane_price`` is ``None`` where there was no auction."""

    height: int
    cycles: int
    cells: int
    fires: int
    gc_cycles: int
    lane_price: int | None


class WorkAudit:
    """Follows the timers of a chain that wait, block after block."""

    def __init__(self, genesis: Genesis) -> None:
        self._genesis = genesis
        self._coming: list[tuple[int, int, _Waiting]] = []
        """A heap, by trigger height and sequence."""
        self._due: dict[bytes, _Waiting] = {}
        self._unpriced = False
        """Whether timers became due before there was an auction."""

    def scheduled(
        self, timer_id: bytes, actor: bytes, turn: tuple[int, int], life: Life, terms: ScheduledTerms | None
    ) -> None:
        """A timer was scheduled; ``turn`` is its trigger height and sequence."""
        agents = self._genesis.actors.get(actor)  # type: ignore[call-overload]
        known = None if agents is not None and agents.agent is not None else terms
        heapq.heappush(self._coming, (*turn, _Waiting(turn, timer_id, life, known)))

    def begin_phase(self, height: int, lane_price: int | None) -> None:
        """The timers of a height are due now, and priced by the default where they left it open."""
        priced = list(self._due.values()) if self._unpriced and lane_price is not None else []
        while self._coming and self._coming[0][0] <= height:
            waiting = heapq.heappop(self._coming)[2]
            if waiting.life.is_pending:
                self._due[waiting.timer_id] = waiting
                priced.append(waiting)
        self._unpriced = lane_price is None
        if lane_price is not None:
            for waiting in priced:
                waiting.default_max_fee = DEFAULT_MAX_FEE_FACTOR * lane_price

    def ended(self, timer_id: bytes) -> None:
        """A timer is pending no more."""
        self._due.pop(timer_id, None)

    def problems(self, use: LaneUse, parameters: Parameters) -> Iterator[tuple[bytes, str]]:
        """The timers that were passed over in a block whose fires are entered, and why they should not have been."""
        room = parameters.lane_timer_cycles - use.cycles
        if (
            room < parameters.min_gas_limit_per_timer
            or use.cells >= parameters.lane_timer_cells
            or use.fires + len(self._due) >= parameters.scan_limit
            or use.gc_cycles + parameters.gc_cycles_per_removal > parameters.timer_gc_cycles
        ):
            return
        auctioned = use.lane_price is not None
        cap = parameters.max_cycles_per_fire_auction_phase if auctioned else parameters.max_cycles_per_fire
        for waiting in self._judged(use, cap):
            if waiting.terms is None or waiting.life.expires_at < use.height:
                continue
            gas_limit = cap if waiting.terms.gas_limit is None else waiting.terms.gas_limit
            if gas_limit <= min(cap, room) and self._passes_gate(waiting, waiting.terms, use.lane_price):
                del self._due[waiting.timer_id]  # told once
                yield waiting.timer_id, f"though it fitted in the {room} cycles that the lane had left"

    def _judged(self, use: LaneUse, cap: int) -> list[_Waiting]:
        if use.lane_price is not None:
            return list(self._due.values())
        alive = [waiting for waiting in self._due.values() if waiting.life.expires_at >= use.height]
        runnable = [w for w in alive if w.terms is None or w.terms.gas_limit is None or w.terms.gas_limit <= cap]
        return [min(runnable, key=lambda waiting: waiting.turn)] if runnable else []

    def _passes_gate(self, waiting: _Waiting, terms: ScheduledTerms, lane_price: int | None) -> bool:
        if lane_price is None:
            return True
        max_fee = waiting.default_max_fee if terms.max_fee_per_cycle is None else terms.max_fee_per_cycle
        return max_fee is not None and max_fee >= lane_price
