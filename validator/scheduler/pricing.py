"""Basefees, the lane price and the median tip (SPEC §7, §9). Integer arithmetic only; ``//`` floors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from validator.primitives.params import P50Weight, Parameters
from validator.primitives.types import PRICE_LIMIT

BASEFEE_SLOPE: Final = 8
"""Slope of the cycle's and the cell's basefee, as in EIP-1559: a block with twice the target's use adds 1/8."""


def next_basefee(basefee: int, used: int, target: int, slope: int, parameters: Parameters) -> int:
    """The next block's basefee (SPEC §7): changed by at most 12.5 %, within ``MIN_BASEFEE`` and ``MAX_BASEFEE``."""
    distance = abs(used - target)
    step = basefee * min(8 * distance, slope * target) // (8 * slope * target)
    if used > target:
        return min(basefee + max(step, 1), parameters.max_basefee)
    if used < target:
        return max(parameters.min_basefee, basefee - step)
    return basefee


def lane_price(basefee_lane: int, parameters: Parameters) -> int:
    """The timer lane's price per cycle, with which a timer's fee fields are compared."""
    return basefee_lane * parameters.lane_fee_multiplier_milli // 1_000


def median_tip(fires: Sequence[tuple[int, int]], weight: P50Weight) -> int:
    """The median tip per cycle, ``p50``, of a block's fires; 0 if none fired (SPEC §9).

    ``fires`` has ``(tip per cycle, cycles used)`` of each fire.
    """
    if not fires:
        return 0
    ascending = sorted(fires)
    if weight is P50Weight.FIRES:
        return ascending[(len(ascending) - 1) // 2][0]
    total = sum(cycles for _, cycles in ascending)
    passed = 0
    for tip, cycles in ascending:
        passed += cycles
        if 2 * passed >= total:
            return tip
    raise AssertionError("the last tip reaches the whole")


def default_bid(price: int, p50_tip: int, parameters: Parameters) -> tuple[int, int]:
    """The default agent's bid, ``(max_fee, tip)``, at a lane price (SPEC §9). A fee is always below 2**96."""
    tip = p50_tip
    if parameters.default_tip_cap > 0:
        tip = min(tip, price // parameters.default_tip_cap)
    return min(2 * price, PRICE_LIMIT - 1), tip
