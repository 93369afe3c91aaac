"""The due timers: packed rows in the order of ``(trigger_height, sequence)``, with summaries of their chunks.

A row is appended when its trigger height comes, killed when its timer ends, and revived when that is undone. It never
moves while it may still be needed; dead rows are swept only when nothing above the final block refers to them. Stale
summaries are recomputed when they are next needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from validator.scheduler import order
from validator.scheduler.order import CHUNK, FOUND, SUMMARY
from validator.scheduler.rows import (
    DEAD,
    HAS_AGENT,
    OPEN_MAX,
    ROW,
    SUPPLIED,
    WORD_BITS,
    Rows,
    timer_id_of_row,
    words_of,
)

MIN_CAPACITY: Final = CHUNK
FIRST_BATCH: Final = 256
"""Number of rows in the first batch of a search. Each further batch is twice as large, up to a limit."""
LARGEST_BATCH: Final = 4_096
MIN_SWEPT: Final = 4 * CHUNK
"""Number of dead rows below which a sweep is not worth it."""


class WaitingPool:
    """The packed rows of due timers, in the order of ``(trigger_height, sequence)``, with summaries of their chunks."""

    def __init__(self) -> None:
        self.rows: Rows = np.zeros(MIN_CAPACITY, ROW)
        self.count = 0
        self.live = 0
        self._summary = np.zeros(1, SUMMARY)
        self._stale: set[int] = set()
        self._cap = 0

    # --- changes ----------------------------------------------------------------------------------------------------

    def append(self, rows: Rows) -> None:
        """Add rows at the end. They must follow all present rows in the order."""
        self._reserve(self.count + len(rows))
        self.rows[self.count : self.count + len(rows)] = rows
        self._touch(self.count, self.count + len(rows))
        self.count += len(rows)
        self.live += len(rows)

    def cut(self, number: int) -> Rows:
        """Remove the last ``number`` rows and return the live ones."""
        tail = self.rows[self.count - number : self.count].copy()
        self._touch(self.count - number, self.count)
        self.count -= number
        living: Rows = tail[(tail["flags"] & DEAD) == 0]
        self.live -= len(living)
        return living

    def kill(self, places: Sequence[tuple[int, int]]) -> list[bool]:
        """Mark the rows at these ``(trigger_height, sequence)`` as dead, since their timers ended.

        Returns for each whether the default agent had supplied its ``max_fee``.
        """
        triggers, sequences = np.array(places, np.uint64).T
        positions, flags = np.zeros(len(places), np.int64), np.zeros(len(places), np.uint32)
        missing = order.kill(self.rows, self.count, triggers, sequences, positions, flags)
        assert not missing, "a due timer has a row"
        self.live -= len(places)
        self._stale.update((positions // CHUNK).tolist())
        return ((flags & SUPPLIED) != 0).tolist()  # type: ignore[no-any-return]

    def put(self, row: Rows) -> None:
        """Store a row in place of the live or dead row with the same key. A row that was swept is inserted again."""
        trigger, sequence = int(row["trigger"][0]), int(row["sequence"][0])
        position = self._lower_bound(trigger, sequence)
        if position == self.count or int(self.rows["sequence"][position]) != sequence:
            self._insert(position, row)
            return
        was_dead = bool(self.rows["flags"][position] & DEAD)
        self.rows[position : position + 1] = row
        self.live += was_dead
        self._stale.add(position // CHUNK)

    def supply(self, first: int, max_fee: int, answered: npt.NDArray[np.bool_]) -> int:
        """Set the default agent's ``max_fee`` in the live rows that have none, from position ``first`` on.

        Rows of a party whose agent has answered with a max fee (``answered``, by party number) are left out. Returns
        the number of rows that were set.
        """
        part = self.rows[first : self.count]
        flags = part["flags"]
        chosen = (flags & (OPEN_MAX | SUPPLIED | DEAD)) == OPEN_MAX
        chosen &= ((flags & HAS_AGENT) == 0) | ~answered[part["actor"]]
        part["max_low"][chosen], part["max_high"][chosen] = words_of(max_fee)
        part["flags"][chosen] |= SUPPLIED
        self._touch(first, self.count)
        return int(chosen.sum())

    def agents_of_unsupplied(self, first: int) -> list[int]:
        """Party numbers of the live rows, from position ``first`` on, that have no max fee and may have an agent."""
        part = self.rows[first : self.count]
        chosen = (part["flags"] & (OPEN_MAX | SUPPLIED | DEAD | HAS_AGENT)) == (OPEN_MAX | HAS_AGENT)
        return [int(number) for number in np.unique(part["actor"][chosen])]

    def withdraw_supplies(self) -> None:
        """Undo all supplies of the default agent, when the first block that prices timers is undone."""
        rows = self.rows[: self.count]
        chosen = (rows["flags"] & OPEN_MAX) != 0
        rows["flags"][chosen] &= ~np.uint32(SUPPLIED)
        rows["max_low"][chosen] = rows["max_high"][chosen] = 0
        self._touch(0, self.count)

    def sweep(self) -> bool:
        """Drop dead rows if they outnumber the live ones. Only valid when nothing can be undone any more."""
        dead = self.count - self.live
        if dead < MIN_SWEPT or dead <= self.live:
            return False
        living = self.living()
        self.rows = np.zeros(MIN_CAPACITY, ROW)
        self.count = self.live = 0
        self._summary = np.zeros(1, SUMMARY)
        self._stale.clear()
        self.append(living)
        return True

    # --- questions --------------------------------------------------------------------------------------------------

    def position_of(self, trigger: int, sequence: int) -> int:
        """The position of the row with this key, which must exist."""
        position = self._lower_bound(trigger, sequence)
        assert position < self.count and int(self.rows["sequence"][position]) == sequence, "a due timer has a row"
        return position

    def living(self) -> Rows:
        """A copy of the live rows, in order."""
        living: Rows = self.rows[: self.count][(self.rows["flags"][: self.count] & DEAD) == 0]
        return living.copy()

    def positions(self, height: int, cap: int) -> Iterator[int]:
        """Positions of the live rows that have not expired and whose gas is within the cap, in order.

        Later changes of the pool do not count.
        """
        rows = self.rows[: self.count]
        chosen = ((rows["flags"] & DEAD) == 0) & (rows["expires_at"] >= height) & (rows["gas_limit"] <= cap)
        return map(int, np.flatnonzero(chosen))

    def expired(self, height: int, most: int) -> npt.NDArray[np.int64]:
        """Positions of the first expired live rows, at most ``most``."""
        found = np.empty(min(most, self.live), np.int64)
        number = order.expired(self.rows, self.count, self.summary(self._cap), np.uint64(height), found)
        return found[:number]

    def unsupplied(self, parties: Collection[int]) -> list[bytes]:
        """Ids of these parties' due timers with an open ``max_fee`` that the default agent has not supplied."""
        if not parties:
            return []
        rows = self.rows[: self.count]
        chosen = (rows["flags"] & (OPEN_MAX | SUPPLIED | DEAD)) == OPEN_MAX
        chosen &= np.isin(rows["actor"], np.fromiter(parties, np.uint32, len(parties)))
        return [timer_id_of_row(row) for row in rows[chosen]]

    def best_first(
        self,
        actors: npt.NDArray[np.void],
        prices: npt.NDArray[np.void],
        biases: npt.NDArray[np.uint64] = order.NO_BIASES,
    ) -> Iterator[tuple[int, int, int]]:
        """``(position, tip per cycle, score)`` of the rows that pass the gate, best first, searched in batches.

        For :attr:`order.Formula.DENSITY`, ``biases`` has the bias by the number of blocks that a timer is late, as two
        words, and a row's bid takes the place of a tip.
        """
        after = np.zeros(1, FOUND)
        after["position"] = -1
        summary = self.summary(int(prices[0]["cap"]))
        size = FIRST_BATCH
        while True:
            found = np.zeros(min(size, LARGEST_BATCH), FOUND)
            number = order.best(self.rows, self.count, summary, actors, prices[0], biases, after, found)
            for position, score_high, score_low, tip_low, tip_high in found[:number].tolist():
                yield position, tip_high << WORD_BITS | tip_low, score_high << WORD_BITS | score_low
            if number < len(found):
                return
            after = found[number - 1 : number].copy()
            size *= 2

    def summary(self, cap: int) -> npt.NDArray[np.void]:
        """The chunks' summaries for a per-fire cap, recomputed if they are stale."""
        if cap != self._cap:
            self._cap = cap
            self._stale = set(range((self.count + CHUNK - 1) // CHUNK))
        for chunk in self._stale:
            order.summarize(self.rows, self.count, chunk, np.uint64(cap), self._summary)
        self._stale.clear()
        return self._summary

    # --- parts ------------------------------------------------------------------------------------------------------

    def _lower_bound(self, trigger: int, sequence: int) -> int:
        return int(order.find(self.rows, self.count, np.uint64(trigger), np.uint64(sequence)))

    def _insert(self, position: int, row: Rows) -> None:
        """Insert a row that was swept and is needed again. This is slow, but rare."""
        self._reserve(self.count + 1)
        self.rows[position + 1 : self.count + 1] = self.rows[position : self.count].copy()
        self.rows[position : position + 1] = row
        self.count += 1
        self.live += 1
        self._touch(position, self.count)

    def _reserve(self, count: int) -> None:
        if count <= len(self.rows):
            return
        capacity = max(count, len(self.rows) + len(self.rows) // 4 + CHUNK)
        rows = np.zeros(capacity, ROW)
        rows[: self.count] = self.rows[: self.count]
        self.rows = rows
        summary = np.zeros((capacity + CHUNK - 1) // CHUNK, SUMMARY)
        summary[: len(self._summary)] = self._summary
        self._summary = summary

    def _touch(self, first: int, end: int) -> None:
        if end > first:
            self._stale.update(range(first // CHUNK, (end - 1) // CHUNK + 1))
