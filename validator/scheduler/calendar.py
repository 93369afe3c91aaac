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
import numpy.typing as npt

from validator.params import Parameters
from validator.records import Timer
from validator.scheduler import kernels
from validator.scheduler.overflow import OverflowTree
from validator.scheduler.rows import ROW, Rows
from validator.types import Hash

LEAST_DROPPED: Final = 64
"""Removed timers in a bag below which rewriting it is not worth it."""


NO_ROWS: Final[Rows] = np.zeros(0, ROW)


class Bag:
    """Rows in no order, in one packed buffer; they are counted out by height when they are first asked for by
    height."""

    __slots__ = ("_by_height", "_changed", "_data", "_first", "_removed", "_sorted_count")

    def __init__(self) -> None:
        self._data = bytearray()
        self._removed: dict[int, int] = {}
        """Trigger heights of removed rows, by sequence number. On another branch the number may be another timer's."""
        self._changed: dict[int, bytes] = {}
        """Rows that stand for the ones in the buffer with the same sequence number."""
        self._by_height: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None
        """Where each height's rows begin among the positions in the order of heights, and those positions."""
        self._first = 0
        self._sorted_count = 0

    def __len__(self) -> int:
        return len(self._data) // ROW.itemsize - len(self._removed)

    def add(self, packed: bytes, trigger: int, sequence: int) -> None:
        """Put a row in, or bring one back that was removed."""
        removed = self._removed.get(sequence)
        if removed == trigger:
            del self._removed[sequence]
            self._changed[sequence] = packed
            return
        if removed is not None:
            self._drop_removed()
        self._data += packed
        self._by_height = None

    def change(self, packed: bytes, sequence: int) -> None:
        """Replace a row that is here."""
        self._changed[sequence] = packed

    def remove(self, trigger: int, sequence: int) -> None:
        """Take a row out; it must be here."""
        self._removed[sequence] = trigger
        if len(self._removed) >= LEAST_DROPPED and len(self._removed) > len(self):
            self._drop_removed()

    def _drop_removed(self) -> None:
        rows = self.rows()
        self._data = bytearray(rows.tobytes())
        self._removed.clear()
        self._changed.clear()
        self._by_height = None

    def rows(self) -> Rows:
        """A copy of what is in it, by ``(trigger_height, sequence)``."""
        rows = np.frombuffer(bytes(self._data), ROW)
        return self._living(rows[np.lexsort((rows["sequence"], rows["trigger"]))])

    def rows_at(self, height: int) -> Rows:
        """A copy of the rows with this trigger height, by sequence number."""
        if self._by_height is None or self._sorted_count != len(self._data):
            rows = np.frombuffer(self._data, ROW)
            self._first, starts, order = kernels.by_height(rows)
            self._by_height, self._sorted_count = (starts, order), len(self._data)
        starts, order = self._by_height
        bucket = height - int(self._first)
        if not 0 <= bucket < len(starts) - 1:
            return NO_ROWS
        chosen = np.frombuffer(self._data, ROW)[order[starts[bucket] : starts[bucket + 1]]]
        return self._living(chosen[np.argsort(chosen["sequence"], kind="stable")])

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
        if self._is_far(timer):
            self._overflow.add(row, self._part_of(timer))
        else:
            self._bag_of(timer).add(row.tobytes(), timer.trigger_height, timer.sequence)

    def change(self, timer: Timer, row: Rows) -> None:
        if self._is_far(timer):
            self._overflow.change(row, self._part_of(timer))
        else:
            self._bag_of(timer).change(row.tobytes(), timer.sequence)

    def remove(self, timer: Timer) -> None:
        if self._is_far(timer):
            self._overflow.remove(timer.trigger_height, timer.sequence, self._part_of(timer))
        else:
            self._bag_of(timer).remove(timer.trigger_height, timer.sequence)

    def is_beyond(self, timer: Timer) -> bool:
        """Whether a timer is in the Merkleized tree: scheduled beyond the horizon, and beyond it still."""
        return self._is_far(timer) and self._part_of(timer) is None

    def overflow_root(self) -> Hash | None:
        """The overflow tree's root, ``None`` where the tree is empty."""
        return self._overflow.root()

    # --- maintenance --------------------------------------------------------------------------------------------------

    def start_at(self, height: int) -> None:
        """Stand at a block, before anything is in it."""
        self._epoch = height // self._parameters.epoch_length

    def enter(self, epoch: int) -> None:
        """An epoch begins (SPEC §5): the one that comes within the horizon with it leaves the tree."""
        self._epoch = epoch
        last = epoch + self._parameters.epoch_horizon
        self._overflow.cut_off(last, (last + 1) * self._parameters.epoch_length)

    def leave(self) -> None:
        """Undo :meth:`enter`."""
        self._overflow.put_back(self._epoch + self._parameters.epoch_horizon)
        self._epoch -= 1

    def forget_until(self, height: int) -> None:
        """Let go of what was for heights up to this one; nothing of it will be asked for again."""
        self._ring.pop(height, None)
        if (height + 1) % self._parameters.epoch_length == 0:
            epoch = height // self._parameters.epoch_length
            self._epochs.pop(epoch, None)
            self._overflow.drop(epoch)

    # --- questions ----------------------------------------------------------------------------------------------------

    def rows_at(self, height: int) -> Rows:
        """A copy of the rows with this trigger height, by sequence number."""
        epoch = height // self._parameters.epoch_length
        bags = [bag for bag in (self._ring.get(height), self._epochs.get(epoch)) if bag is not None]
        parts = [bag.rows_at(height) for bag in bags]
        if self._overflow.has(epoch):
            parts.append(self._overflow.rows_at(epoch, height))
        parts = [part for part in parts if len(part)]
        if not parts:
            return NO_ROWS
        if len(parts) == 1:
            return parts[0]
        both: Rows = np.concatenate(parts)
        return both[np.argsort(both["sequence"], kind="stable")]

    def rows(self) -> Rows:
        """A copy of all rows, by ``(trigger_height, sequence)``."""
        parts = [bag.rows() for bag in (*self._ring.values(), *self._epochs.values())]
        parts.extend(self._overflow.rows(part) for part in (None, *self._overflow.parts()))
        both: Rows = np.concatenate([np.zeros(0, ROW), *parts])
        return both[np.lexsort((both["sequence"], both["trigger"]))]

    # --- parts --------------------------------------------------------------------------------------------------------

    def _is_far(self, timer: Timer) -> bool:
        """Whether a timer was beyond the horizon when it was scheduled."""
        p = self._parameters
        horizon = timer.scheduled_at // p.epoch_length + p.epoch_horizon
        return (
            timer.trigger_height // p.epoch_length > horizon
            and timer.trigger_height >= timer.scheduled_at + p.ring_buffer_size
        )

    def _part_of(self, timer: Timer) -> int | None:
        """Where such a timer is now: in the part of its epoch, or still in the tree."""
        epoch = timer.trigger_height // self._parameters.epoch_length
        return epoch if epoch <= self._epoch + self._parameters.epoch_horizon else None

    def _bag_of(self, timer: Timer) -> Bag:
        p = self._parameters
        if timer.trigger_height < timer.scheduled_at + p.ring_buffer_size:
            return self._ring.setdefault(timer.trigger_height, Bag())
        return self._epochs.setdefault(timer.trigger_height // p.epoch_length, Bag())
