"""A compact table of how timers and jobs ended, at about 17 bytes an id: a run of days ends millions of timers.

The rules of a chain need little about a timer or job that has ended: that its id was used, how it ended, and at which
height. An id is a hash, so its first eight bytes identify it. Among :math:`n` ids, two collide with a probability of
:math:`n^2 / 2^{65}`: two in a million for eight million ids.

The table uses open addressing, in segments, so that growing one copies little. A ``dict`` takes ten times the memory.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

SEGMENTS: Final = 256
FIRST_SLOTS: Final = 64
GROWTH: Final = 1.25
MAX_LOAD: Final = 0.8
KEY_BYTES: Final = 8
OUTCOME_BITS: Final = 3
"""Bits of a slot's four bytes that hold the outcome. The others hold the height: up to 536 million."""


class Ended(NamedTuple):
    """How a timer or job ended, and at which height."""

    outcome: int
    """A code for how it ended, below ``2 ** OUTCOME_BITS``. The table's user defines the codes."""
    height: int


class EndedIds:
    """A mapping from ids to how and when each ended. An id that is entered again keeps its newest end."""

    def __init__(self) -> None:
        self._segments = [_Segment() for _ in range(SEGMENTS)]

    def __len__(self) -> int:
        return sum(segment.used for segment in self._segments)

    def __contains__(self, key: bytes) -> bool:
        return self._value_of(key) != 0

    def get(self, key: bytes) -> Ended | None:
        """How and when the timer or job with this id ended; ``None`` if its end was not entered."""
        told = self._value_of(key)
        return Ended(told & ((1 << OUTCOME_BITS) - 1), told >> OUTCOME_BITS) if told else None

    def _value_of(self, key: bytes) -> int:
        """The value of an id in its segment; 0 if its end was not entered."""
        number = _number(key)
        return self._segments[number % SEGMENTS].get(number // SEGMENTS + 1)

    def add(self, key: bytes, outcome: int, height: int) -> None:
        """Enter the end of an id at a height above 0."""
        number = _number(key)
        self._segments[number % SEGMENTS].put(number // SEGMENTS + 1, height << OUTCOME_BITS | outcome)


class _Segment:
    """One segment of the hash table: maps numbers to values, both above 0. A slot with value 0 is free."""

    __slots__ = ("_numbers", "_values", "used")

    def __init__(self) -> None:
        self._make(FIRST_SLOTS)

    def _make(self, slots: int) -> None:
        self._numbers, self._values, self.used = array("Q", bytes(8 * slots)), array("I", bytes(4 * slots)), 0

    def get(self, number: int) -> int:
        return self._values[self._slot(number)]

    def put(self, number: int, value: int) -> None:
        slot = self._slot(number)
        if not self._values[slot]:
            if self.used >= MAX_LOAD * len(self._numbers):
                self._grow()
                slot = self._slot(number)
            self.used += 1
        self._numbers[slot], self._values[slot] = number, value

    def _slot(self, number: int) -> int:
        """The slot that holds a number, or would hold it."""
        numbers, values = self._numbers, self._values
        slots = len(numbers)
        slot = number % slots
        while values[slot] and numbers[slot] != number:
            slot = slot + 1 if slot + 1 < slots else 0
        return slot

    def _grow(self) -> None:
        numbers, values = self._numbers, self._values
        self._make(int(len(numbers) * GROWTH) + 1)
        for number, value in zip(numbers, values, strict=True):
            if value:
                self.put(number, value)


def _number(key: bytes) -> int:
    return int.from_bytes(key[:KEY_BYTES], "big")
