"""Checks how many blocks in a row a timer waits although it pays the price, against a bound (SPEC §6, §7).

A timer *waits at a price that it pays* in a block if it is due, its fee limit reaches the lane price, its gas limit is
within the cap, its payer could pay for its fire, and it did not fire. Each such wait raises a price:

- It did not fit into the lane's cycles. Then the fires used more than ``LANE_TIMER_CYCLES`` less its gas limit, and the
  lane basefee rises by what SPEC §7 gives for that use.
- The lane's cells were used up. Then the cell basefee rises by what SPEC §7 gives for ``LANE_TIMER_CELLS``.

So each wait of a kind raises the price by at least this much, whoever pays for the earlier fires. Once the price is
above what the timer pays, the timer no longer waits at a price that it pays. The bound is the number of rises from the
price of the first wait to the most that the timer pays.

There is no bound across waits of different kinds, since each kind lets the other's price fall; none for a timer whose
gas limit leaves the lane's target free, nor while a price is at ``MAX_BASEFEE``; and none for a wait because
``SCAN_LIMIT`` was reached behind timers that no account can pay for. These begin a new count.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from cluster.audit.fee_market import USUAL_SLOPE, risen
from validator.primitives.params import Parameters

MILLI: Final = 1_000
"""``LANE_FEE_MULTIPLIER_MILLI`` for a multiplier of 1."""


class Full(Enum):
    """The resource of the timer lane that a waiting timer did not fit into."""

    CYCLES = "cycles"
    CELLS = "cells"


class Lane(NamedTuple):
    """The timer lane of a block after its last fire, and the basefees in force."""

    parameters: Parameters
    cycles: int
    """Cycles used by the fires."""
    cells: int
    basefee_lane: int
    basefee_cell: int


class Wait(NamedTuple):
    """A timer that waits in a block at a price that it pays."""

    timer_id: bytes
    gas_limit: int
    max_fee: int
    """The highest lane price that it pays, per cycle."""
    spare: int
    """The payer's balance left after the fire's cycles, to pay for :attr:`Parameters.max_cells_per_fire` cells."""


class _Run(NamedTuple):
    """A series of consecutive blocks in which a timer waited because the same resource was full."""

    full: Full
    length: int
    least_next: int
    """The least basefee of the next block, after the rises that the waits so far must have caused."""


class TooLong(NamedTuple):
    """A timer that waited longer than its price allows."""

    timer_id: bytes
    length: int
    full: Full


class PaidWaits:
    """Counts the consecutive paid waits of each timer of a chain, block after block, and finds those over the bound."""

    def __init__(self) -> None:
        self.longest = 0
        """The most consecutive blocks that a timer waited at a price that it paid."""
        self._runs: dict[bytes, _Run] = {}
        """Runs of waits, keyed by the timers that waited in the newest block."""

    def enter(self, lane: Lane, waits: list[Wait]) -> list[TooLong]:
        """Enter all waits of the next block. Returns those beyond their bound."""
        runs: dict[bytes, _Run] = {}
        found: list[TooLong] = []
        for wait in waits:
            full = _full(lane, wait)
            rise = None if full is None else _least_rise(lane.parameters, wait, full)
            if full is None or rise is None:
                continue
            now = lane.basefee_lane if full is Full.CYCLES else lane.basefee_cell
            run = self._runs.get(wait.timer_id)
            length, least = (1, now) if run is None or run.full is not full else (run.length + 1, run.least_next)
            if not _pays(lane.parameters, wait, full, least):
                found.append(TooLong(wait.timer_id, length, full))
                continue  # a new count begins
            self.longest = max(self.longest, length)
            runs[wait.timer_id] = _Run(full, length, rise.after(least))
        self._runs = runs
        return found


class _Rise(NamedTuple):
    """The smallest rise of a basefee that a full block must cause. ``after`` gives the resulting basefee."""

    used: int
    target: int
    slope: int
    parameters: Parameters

    def after(self, basefee: int) -> int:
        return risen(basefee, self.used, self.target, self.slope, self.parameters)


def _full(lane: Lane, wait: Wait) -> Full | None:
    """The resource that was full for a timer; ``None`` if the lane had room for it after the last fire."""
    p = lane.parameters
    if lane.cycles + _needed(p, wait) > p.lane_timer_cycles:
        return Full.CYCLES
    return Full.CELLS if lane.cells >= p.lane_timer_cells else None


def _needed(p: Parameters, wait: Wait) -> int:
    return max(wait.gas_limit, p.min_gas_limit_per_timer)


def _least_rise(p: Parameters, wait: Wait, full: Full) -> _Rise | None:
    """The rise after a block in which a timer did not fit; ``None`` if none is certain."""
    if full is Full.CYCLES:
        used, target, slope = p.lane_timer_cycles - _needed(p, wait) + 1, p.lane_timer_cycles // 2, p.lane_basefee_slope
    else:
        used, target, slope = p.lane_timer_cells, p.block_cells_target, USUAL_SLOPE
    return _Rise(used, target, slope, p) if used > target else None


def _pays(p: Parameters, wait: Wait, full: Full, basefee: int) -> bool:
    """Whether a timer can pay a computed lower bound of the basefee. The maximum basefee always counts as paid.

    At the maximum the bound is the price in force, which a timer that is a :class:`Wait` pays.
    """
    if basefee >= p.max_basefee:
        return True
    if full is Full.CYCLES:
        return basefee * p.lane_fee_multiplier_milli // MILLI <= wait.max_fee
    return basefee * p.max_cells_per_fire <= wait.spare
