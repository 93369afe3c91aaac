"""Checks how many blocks in a row a timer waits although it pays the price, against a bound (SPEC §6, §7).

A timer *waits at a price that it pays* in a block if it is due, its fee limit reaches the lane price, its gas limit is
within the cap, its payer can pay for its fire after the block, and it did not fire. Each such wait raises a price:

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

from spec.fees import CYCLE_SLOPE, next_basefee
from spec.parameters import Parameters
from spec.phase import NO_ROOM, Phase

MILLI: Final = 1_000
"""``LANE_FEE_MULTIPLIER_MILLI`` for a multiplier of 1."""


class Full(Enum):
    """The resource of the timer lane that a waiting timer did not fit into."""

    CYCLES = "cycles"
    CELLS = "cells"


class Wait(NamedTuple):
    """A timer that waits in a block at a price that it pays."""

    timer_id: bytes
    gas_limit: int
    """``MIN_GAS_LIMIT_PER_TIMER`` at least."""
    max_fee: int
    """The highest lane price that it pays, per cycle."""
    spare: int
    """The payer's balance left after the fire's cycles, to pay for ``MAX_CELLS_PER_FIRE`` cells."""


class Waited(NamedTuple):
    """A series of consecutive blocks in which a timer waited because the same resource was full."""

    timer_id: bytes
    length: int
    full: Full
    least_next: int = 0
    """The least basefee of the next block, after the rises that the waits so far must have caused."""


class PaidWaits:
    """Counts the consecutive paid waits of each timer of a chain, block after block, and finds those over the bound."""

    def __init__(self) -> None:
        self.longest = 0
        """The most consecutive blocks that a timer waited at a price that it paid."""
        self.judged = 0
        """The number of waits entered."""
        self._newest: dict[bytes, Waited] = {}
        """The series of the timers that waited in the newest block."""

    def enter(self, phase: Phase, waits: list[Wait]) -> list[Waited]:
        """Enter all waits of the next block, whose timer phase is over. Returns those beyond their bound."""
        series: dict[bytes, Waited] = {}
        found: list[Waited] = []
        world, p = phase.world, phase.world.parameters
        self.judged += len(waits)
        for wait in waits:
            full = _full(phase, wait)
            rise = None if full is None else _least_rise(p, wait, full)
            if full is None or rise is None:
                continue
            before = self._newest.get(wait.timer_id)
            length, least = 1, world.basefee_lane if full is Full.CYCLES else world.basefee_cell
            if before is not None and before.full is full:
                length, least = before.length + 1, before.least_next
            if not _pays(p, wait, full, least):
                found.append(Waited(wait.timer_id, length, full))
                continue  # a new count begins
            self.longest = max(self.longest, length)
            series[wait.timer_id] = Waited(wait.timer_id, length, full, next_basefee(world, least, *rise))
        self._newest = series
        return found


def paid_waits(phase: Phase) -> list[Wait]:
    """The timers that wait after a block's timer phase at prices that they pay, if its lane has a price."""
    world, p, found = phase.world, phase.world.parameters, list[Wait]()
    for timer_id, reason in phase.waits.items():
        timer = world.timers.get(timer_id)
        if reason == NO_ROOM and timer is not None:
            gas_limit = max(world.policy.gas_limit(world, timer), p["MIN_GAS_LIMIT_PER_TIMER"])
            max_fee = phase.max_fees[timer_id]
            spare = phase.available(timer) - gas_limit * (world.basefee_cycle + max_fee)
            if spare >= p["MAX_CELLS_PER_FIRE"] * world.basefee_cell:
                found.append(Wait(timer_id, gas_limit, max_fee, spare))
    return found


def _full(phase: Phase, wait: Wait) -> Full | None:
    """The resource that was full for a timer; ``None`` if the lane had room for it after the last fire."""
    p = phase.world.parameters
    if phase.cycles + wait.gas_limit > p["LANE_TIMER_CYCLES"]:
        return Full.CYCLES
    return Full.CELLS if phase.cells >= p["LANE_TIMER_CELLS"] else None


def _least_rise(p: Parameters, wait: Wait, full: Full) -> tuple[int, int, int] | None:
    """The least use in a block in which a timer did not fit, its target, and the slope of the price; ``None`` if no
    rise is certain."""
    if full is Full.CYCLES:
        used, target = p["LANE_TIMER_CYCLES"] - wait.gas_limit + 1, p["LANE_TIMER_CYCLES"] // 2
        slope = p["LANE_BASEFEE_SLOPE"]
    else:
        used, target, slope = p["LANE_TIMER_CELLS"], p["BLOCK_CELLS_TARGET"], CYCLE_SLOPE
    return (used, target, slope) if used > target else None


def _pays(p: Parameters, wait: Wait, full: Full, basefee: int) -> bool:
    """Whether a timer can pay a computed lower bound of the basefee. The maximum basefee always counts as paid.

    At the maximum the bound is the price in force, which a timer that is a :class:`Wait` pays.
    """
    if basefee >= p["MAX_BASEFEE"]:
        return True
    if full is Full.CYCLES:
        return bool(basefee * p["LANE_FEE_MULTIPLIER_MILLI"] // MILLI <= wait.max_fee)
    return bool(basefee * p["MAX_CELLS_PER_FIRE"] <= wait.spare)
