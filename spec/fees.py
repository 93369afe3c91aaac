"""Basefees and the median tip (``docs/protocol.md``, *Basefees*)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from spec.encoding import PRICE_LIMIT
from spec.world import World

CYCLE_SLOPE = 8
"""The slope of the cycle's and the cell's basefee: a block of twice the target raises it by an eighth."""


def next_basefee(world: World, basefee: int, used: int, target: int, slope: int) -> int:
    p = world.parameters
    distance = 8 * abs(used - target)
    world.reached("F-09", distance > slope * target)
    step = basefee * min(distance, slope * target) // (8 * slope * target)
    if used == target:
        world.reached("F-07")
        return basefee
    if used > target:
        world.reached("F-08", step == 0)
        world.reached("F-10", basefee + max(1, step) > p["MAX_BASEFEE"])
        return int(min(p["MAX_BASEFEE"], basefee + max(1, step)))
    world.reached("F-11", basefee - step < p["MIN_BASEFEE"])
    return int(max(p["MIN_BASEFEE"], basefee - step))


def median_tip(world: World, fires: Sequence[tuple[int, int]]) -> int:
    """The median tip a cycle of fires, each a pair of tip and cycles; 0 if there are none."""
    if not fires:
        world.reached("F-16", world.p50)
        return 0
    ascending = sorted(fires)
    if world.parameters["P50_WEIGHT"] == "fires":
        world.reached("F-14")
        return ascending[(len(ascending) - 1) // 2][0]
    world.reached("F-15")
    total = sum(cycles for _, cycles in ascending)
    sums = accumulate(cycles for _, cycles in ascending)
    return next(tip for (tip, _), passed in zip(ascending, sums, strict=True) if 2 * passed >= total)


def default_bid(world: World) -> tuple[int, int]:
    """The default agent's max fee and priority in this block."""
    price, cap, priority = world.fee_floor, world.parameters["DEFAULT_TIP_CAP"], world.p50
    if cap and priority > price // cap:
        world.reached("L-06")
        priority = price // cap
    return min(2 * price, PRICE_LIMIT - 1), priority
