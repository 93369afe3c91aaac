"""The calendar: timers whose trigger height is still to come, in three tiers (SPEC §5).

- *Ring*: a bag of rows for each height within reach of the block in which they were scheduled.
- *Epoch queue*: a bag for each epoch within the horizon. When its epoch begins, a bag is sorted once by trigger
  height, so that each block of the epoch finds its own timers as a slice.
- *Overflow*: a Merkleized search tree ordered by ``(trigger_height, sequence)`` (:mod:`validator.scheduler.overflow`).

Adding and removing is O(1) in ring and epoch: a removed timer's sequence number is noted, and its row dropped when the
bag is next gone through. A bag has no order of its own; what it gives out is sorted.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from validator.params import Parameters
from validator.records import Timer
from validator.scheduler.overflow import OverflowTree
from validator.scheduler.rows import ROW, Rows
from validator.types import Hash

LEAST_DROPPED: Final = 64
"""Removed timers in a bag below which rewriting it is not worth it."""


class Bag:
    """Rows in no order, in one packed buffer; a sorted copy is made when they are first taken out by height."""

    __slots__ = ("_changed", "_data", "_removed", "_sorted")

    def __init__(self) -> None:
        self._data = bytearray()
        self._removed: set[int] = set()
        self._changed: dict[int, bytes] = {}
        """Rows that stand for the ones in the buffer with the same sequence number."""
        self._sorted: Rows | None = None

    def __len__(self) -> int:
        return len(self._data) // ROW.itemsize - len(self._removed)

    def add(self, packed: bytes, sequence: int) -> None:
        """Put a row in, or bring one back that was removed."""
        if sequence in self._removed:
            self._removed.discard(sequence)
            self._changed[sequence] = packed
        else:
            self._data += packed
            self._sorted = None

    def add_all(self, rows: Rows) -> None:
        """Put rows in, none of which was ever here."""
        self._data += rows.tobytes()
        self._sorted = None

    def change(self, packed: bytes, sequence: int) -> None:
        """Replace a row that is here."""
        self._changed[sequence] = packed

    def remove(self, sequence: int) -> None:
        """Take a row out; it must be here."""
        self._removed.add(sequence)
        if len(self._removed) >= LEAST_DROPPED and len(self._removed) > len(self):
            rows = self.rows()
            self._data = bytearray(rows.tobytes())
            self._removed.clear()
            self._changed.clear()
            self._sorted = None

    def rows(self) -> Rows:
        """A copy of what is in it, by ``(trigger_height, sequence)``."""
        return self._living(self._in_order())

    def rows_at(self, height: int) -> Rows:
        """A copy of the rows with this trigger height, by sequence number."""
        ordered = self._in_order()
        first, end = np.searchsorted(ordered["trigger"], np.array([height, height + 1], np.uint64))
        return self._living(ordered[first:end])

    def _in_order(self) -> Rows:
        if self._sorted is None:
            rows = np.frombuffer(bytes(self._data), ROW)
            self._sorted = rows[np.lexsort((rows["sequence"], rows["trigger"]))]
        return self._sorted

    def _living(self, rows: Rows) -> Rows:
        if self._removed:
            removed = np.fromiter(self._removed, np.uint64, len(self._removed))
            rows = rows[~np.isin(rows["sequence"], removed)]
        rows = rows.copy()
        if self._changed:
            for position in np.flatnonzero(np.isin(rows["sequence"], list(self._changed))):
                rows[position : position + 1] = np.frombuffer(self._changed[int(rows["sequence"][position])], ROW)
        return rows


class Calendar:
    """Rows of timers that are not due yet."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._ring: dict[int, Bag] = {}
        self._epochs: dict[int, Bag] = {}
        self._overflow = OverflowTree()
        self._epoch = 0

    def add(self, timer: Timer, row: Rows) -> None:
        if self.is_beyond(timer):
            self._overflow.add(row)
        else:
            self._bag_of(timer).add(row.tobytes(), timer.sequence)

    def change(self, timer: Timer, row: Rows) -> None:
        if self.is_beyond(timer):
            self._overflow.change(row)
        else:
            self._bag_of(timer).change(row.tobytes(), timer.sequence)

    def remove(self, timer: Timer) -> None:
        if self.is_beyond(timer):
            self._overflow.remove(timer.trigger_height, timer.sequence)
        else:
            self._bag_of(timer).remove(timer.sequence)

    def is_beyond(self, timer: Timer) -> bool:
        """Whether a timer is in the overflow tree: out of the ring's reach when scheduled, and beyond the horizon
        now."""
        p = self._parameters
        return (
            timer.trigger_height // p.epoch_length > self._epoch + p.epoch_horizon
            and timer.trigger_height >= timer.scheduled_at + p.ring_buffer_size
        )

    def overflow_root(self) -> Hash | None:
        """The overflow tree's root, ``None`` where the tree is empty."""
        return self._overflow.root() if len(self._overflow) else None

    def enter(self, epoch: int) -> None:
        """Maintenance (SPEC §5): an epoch begins; what is within the horizon now moves from the tree to its epoch's
        bag."""
        self._epoch = epoch
        last = epoch + self._parameters.epoch_horizon
        rows = self._overflow.take_below((last + 1) * self._parameters.epoch_length)
        if len(rows):
            self._epochs.setdefault(last, Bag()).add_all(rows)

    def leave(self) -> None:
        """Undo :meth:`enter`. Until an epoch is within the horizon its bag holds nothing, so all it holds came from
        there."""
        bag = self._epochs.pop(self._epoch + self._parameters.epoch_horizon, None)
        self._epoch -= 1
        if bag is not None:
            rows = bag.rows()
            for position in range(len(rows)):
                self._overflow.add(rows[position : position + 1])

    def start_at(self, height: int) -> None:
        """Stand at a block, before anything is in it."""
        self._epoch = height // self._parameters.epoch_length

    def rows_at(self, height: int) -> Rows:
        """A copy of the rows with this trigger height, by sequence number."""
        bags = (self._ring.get(height), self._epochs.get(height // self._parameters.epoch_length))
        parts = [bag.rows_at(height) for bag in bags if bag is not None]
        if len(parts) == 1:
            return parts[0]
        both: Rows = np.concatenate([np.zeros(0, ROW), *parts])
        return both[np.argsort(both["sequence"], kind="stable")]

    def rows(self) -> Rows:
        """A copy of all rows, by ``(trigger_height, sequence)``."""
        parts = [bag.rows() for bag in (*self._ring.values(), *self._epochs.values())]
        parts.append(self._overflow.rows())
        both: Rows = np.concatenate([np.zeros(0, ROW), *parts])
        return both[np.lexsort((both["sequence"], both["trigger"]))]

    def forget_until(self, height: int) -> None:
        """Let go of what was for heights up to this one; nothing of it will be asked for again."""
        for past in [at for at in self._ring if at <= height]:
            del self._ring[past]
        current = (height + 1) // self._parameters.epoch_length
        for epoch in [number for number in self._epochs if number < current]:
            del self._epochs[epoch]

    def _bag_of(self, timer: Timer) -> Bag:
        p = self._parameters
        if timer.trigger_height < timer.scheduled_at + p.ring_buffer_size:
            return self._ring.setdefault(timer.trigger_height, Bag())
        return self._epochs.setdefault(timer.trigger_height // p.epoch_length, Bag())
