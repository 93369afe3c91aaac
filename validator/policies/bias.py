"""The bias of ``bias_auction``: ``e^(n·λ)``, by which a timer's score grows with the blocks that it waited (SPEC §13).

It is computed with integers alone, so it is the same everywhere: ``x = n·λ`` is reduced to ``k·ln 2 + r``, ``e^r`` is
summed as a Taylor series in :data:`PRECISION` fractional bits, and the result is shifted by ``k``.

Error: ``x`` and ``ln 2`` are rounded down by less than a unit of 2**-192, so ``r`` is at most one unit below and 96
above its exact value. Each of the fewer than 64 terms of the series loses at most 2 units. So ``e^r`` is off by less
than 2**-183, and a bias in units of 2**-32, below 2**128, by less than 2**-55: it equals the exact value rounded down,
unless that is within 2**-55 of an integer, and then differs by at most one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

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
