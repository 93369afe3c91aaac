"""Packed rows: a timer in the scheduler's indexes, 96 bytes in one NumPy record.

A row holds the fields that decide about a timer: identity, order, expiry, fees, gas, actor. All others (payload,
handler, payer) stay in state and are read when the timer fires. Fees have up to 96 bits, in two words; ids are four
words, the first eight bytes first, so that comparing words compares ids. An actor is represented by numbers of the
index, one for each agent that bids for some of its timers (:class:`PartyNumbers`).
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import numpy.typing as npt

from validator.chain.records import Timer
from validator.primitives.types import Address
from validator.scheduler.agents import Party

ROW: Final = np.dtype(
    [
        ("id0", "<u8"),
        ("id1", "<u8"),
        ("id2", "<u8"),
        ("id3", "<u8"),
        ("trigger", "<u8"),
        ("sequence", "<u8"),
        ("expires_at", "<u8"),
        ("max_low", "<u8"),
        ("priority_low", "<u8"),
        ("max_high", "<u4"),
        ("priority_high", "<u4"),
        ("gas_limit", "<u4"),
        ("actor", "<u4"),
        ("flags", "<u4"),
        ("scheduled_at", "<u4"),
    ]
)
"""A packed row. ``gas_limit`` is 0 if the timer has none; ``actor`` is the number of the timer's party."""

Rows = npt.NDArray[np.void]

OPEN_MAX: Final = 1
"""Flag: the timer has no explicit ``max_fee_per_cycle``. The row has the default agent's, once that is supplied."""
OPEN_PRIORITY: Final = 2
HAS_AGENT: Final = 4
"""Flag: the timer's actor has a gas bidding agent or may get one."""
SUPPLIED: Final = 8
"""Flag: the default agent has supplied ``max_fee_per_cycle``."""
DEAD: Final = 16
"""Flag: the timer ended; the row waits to be swept."""

WORD_BITS: Final = 64
WORD_MASK: Final = 2**64 - 1

_PACKED: Final = struct.Struct("<9Q6I")
_WORDS: Final = struct.Struct(">4Q")
assert _PACKED.size == ROW.itemsize
_ID: Final = struct.Struct("<4Q")
_GAS_LIMIT: Final = struct.Struct("<80xI")
"""These two read the fields of one row faster than NumPy does."""


class PartyNumbers:
    """Small numbers for parties, in the order in which the index met them. They have no meaning outside one index."""

    def __init__(self) -> None:
        self._numbers: dict[Party, int] = {}
        self._parties: list[Party] = []
        self._of: dict[Address, list[int]] = {}

    def __len__(self) -> int:
        return len(self._parties)

    def number(self, party: Party) -> int:
        """The number of a party; a new party gets the next one."""
        number = self._numbers.get(party)
        if number is None:
            number = self._numbers[party] = len(self._parties)
            self._parties.append(party)
            self._of.setdefault(party.actor, []).append(number)
        return number

    def find(self, party: Party) -> int | None:
        """The number of a party; ``None`` if it has none."""
        return self._numbers.get(party)

    def __contains__(self, party: Party) -> bool:
        return party in self._numbers

    def party(self, number: int) -> Party:
        return self._parties[number]

    def address(self, number: int) -> Address:
        return self._parties[number].actor

    def of(self, actor: Address) -> list[int]:
        """The numbers of an actor's parties."""
        return self._of.get(actor, [])


def pack_row(timer: Timer, party: int, has_agent: bool, locks_bids: bool = False) -> bytes:
    """The row of a timer; ``party`` is the number of its party. With ``locks_bids`` its max fee is the locked bid."""
    flags = HAS_AGENT if has_agent else 0
    max_fee, priority = timer.max_fee_per_cycle, timer.max_priority_fee_per_cycle
    if locks_bids:
        max_fee, priority = timer.bid or 0, 0
    if max_fee is None:
        flags |= OPEN_MAX
        max_fee = timer.default_max_fee
        if max_fee is None:
            max_fee = 0
        else:
            flags |= SUPPLIED
    if priority is None:
        flags |= OPEN_PRIORITY
        priority = 0
    return _PACKED.pack(
        *_WORDS.unpack(timer.timer_id),
        timer.trigger_height,
        timer.sequence,
        timer.expires_at,
        max_fee & WORD_MASK,
        priority & WORD_MASK,
        max_fee >> WORD_BITS,
        priority >> WORD_BITS,
        timer.gas_limit or 0,
        party,
        flags,
        timer.scheduled_at,
    )


def words_of(fee: int) -> tuple[int, int]:
    """A fee as two words, ``(low, high)``."""
    return fee & WORD_MASK, fee >> WORD_BITS


def timer_id_of_row(row: np.void) -> bytes:
    """The id of a row's timer."""
    return _WORDS.pack(*_ID.unpack_from(row))  # type: ignore[arg-type]


def gas_limit_of_row(row: np.void) -> int:
    """The gas limit of a row's timer, 0 if it has none."""
    (gas_limit,) = _GAS_LIMIT.unpack_from(row)  # type: ignore[arg-type]
    return int(gas_limit)
