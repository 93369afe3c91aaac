"""The calendar: timers with a future trigger height, in three tiers (SPEC §5).

- *Ring and epoch queue*: a bucket of rows for each trigger height. SPEC requires O(1) of both tiers, and both are
  functions of the timers and the height. So one table of buckets by height serves both, and nothing moves when an epoch
  begins.
- *Overflow*: a Merkleized search tree ordered by ``(trigger_height, sequence)`` (:mod:`validator.scheduler.overflow`).

A bucket notes removed and replaced rows, and applies them when its height comes. So a block reads only the changes of
its height, however many timers of other heights were cancelled or extended. A bucket holds at most as many removed
rows as live ones (plus :data:`MAX_REMOVED_IN_SMALL`): the removal that exceeds this rewrites the bucket, which is O(1)
amortised per removal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Final

import numpy as np
import numpy.typing as npt

from validator.chain.records import Timer
from validator.primitives.params import Parameters
from validator.primitives.types import Hash
from validator.scheduler.overflow import OverflowTree
from validator.scheduler.rows import ROW, Rows

MAX_REMOVED_IN_SMALL: Final = 8
"""Number of removed rows up to which a bucket is never rewritten."""

NO_ROWS: Final[Rows] = np.zeros(0, ROW)


class Bucket:
    """Rows of one trigger height in a packed buffer, in the order of arrival."""

    __slots__ = ("_changed", "_data", "_removed")

    def __init__(self) -> None:
        self._data = bytearray()
        self._removed: set[int] | None = None
        """Sequence numbers of removed rows."""
        self._changed: dict[int, bytes] | None = None
        """Rows that replace those in the buffer with the same sequence number."""

    def __len__(self) -> int:
        return len(self._data) // ROW.itemsize - len(self._removed or ())

    def add(self, packed: bytes, sequence: int) -> None:
        """Add a row. A removed row with its sequence number is replaced; it may be of another branch's timer."""
        if self._removed is not None and sequence in self._removed:
            self._removed.remove(sequence)
            self.change(packed, sequence)
        else:
            self._data += packed

    def change(self, packed: bytes, sequence: int) -> None:
        """Replace the row with this sequence number, which must exist."""
        if self._changed is None:
            self._changed = {}
        self._changed[sequence] = packed

    def remove(self, sequence: int) -> None:
        """Remove a row, which must exist."""
        if self._removed is None:
            self._removed = set()
        self._removed.add(sequence)
        if len(self._removed) > max(len(self), MAX_REMOVED_IN_SMALL):
            self._data = bytearray(self.rows().tobytes())
            self._removed = self._changed = None

    def rows(self) -> Rows:
        """A copy of the rows, by sequence number."""
        rows = np.frombuffer(bytes(self._data), ROW)
        rows = rows[np.argsort(rows["sequence"], kind="stable")]
        if self._changed:
            rows[_positions(rows, self._changed)] = np.frombuffer(b"".join(self._changed.values()), ROW)
        if self._removed:
            rows = np.delete(rows, _positions(rows, self._removed))
        return rows


def _positions(rows: Rows, sequences: Collection[int]) -> npt.NDArray[np.intp]:
    """Positions of the rows with these sequence numbers, which must exist. ``rows`` are in their order."""
    return np.searchsorted(rows["sequence"], np.fromiter(sequences, np.uint64, len(sequences)))


class Calendar:
    """Rows of timers that are not due yet."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._buckets: defaultdict[int, Bucket] = defaultdict(Bucket)
        """Buckets by trigger height; none is empty."""
        self._overflow = OverflowTree()
        self._epoch = 0

    def add(self, timer: Timer, packed: bytes) -> None:
        """Add a timer with its packed row."""
        if self._is_far(timer):
            self._overflow.add(np.frombuffer(packed, ROW), self._part_of(timer))
        else:
            self._buckets[timer.trigger_height].add(packed, timer.sequence)

    def change(self, timer: Timer, packed: bytes) -> None:
        """Replace the packed row of a timer."""
        if self._is_far(timer):
            self._overflow.change(np.frombuffer(packed, ROW), self._part_of(timer))
        else:
            self._buckets[timer.trigger_height].change(packed, timer.sequence)

    def remove(self, timer: Timer) -> None:
        if self._is_far(timer):
            self._overflow.remove(timer.trigger_height, timer.sequence, self._part_of(timer))
            return
        bucket = self._buckets[timer.trigger_height]
        bucket.remove(timer.sequence)
        if not len(bucket):
            del self._buckets[timer.trigger_height]

    def is_beyond(self, timer: Timer) -> bool:
        """Whether a timer is in the Merkleized tree: it was scheduled beyond the horizon, and still is beyond it."""
        return self._is_far(timer) and self._part_of(timer) is None

    def overflow_root(self) -> Hash | None:
        """The overflow tree's root, ``None`` if the tree is empty."""
        return self._overflow.root()

    # --- maintenance --------------------------------------------------------------------------------------------------

    def start_at(self, height: int) -> None:
        """Set the height of the empty calendar."""
        self._epoch = height // self._parameters.epoch_length

    def enter(self, epoch: int) -> None:
        """Begin an epoch (SPEC §5): the timers of the epoch that comes within the horizon leave the tree."""
        self._epoch = epoch
        last = epoch + self._parameters.epoch_horizon
        self._overflow.cut_off(last, (last + 1) * self._parameters.epoch_length)

    def leave(self) -> None:
        """Undo :meth:`enter`."""
        self._overflow.put_back(self._epoch + self._parameters.epoch_horizon)
        self._epoch -= 1

    def forget_until(self, height: int) -> None:
        """Drop the rows of this height and, if it is the last of an epoch, the epoch's part of the overflow tree."""
        self._buckets.pop(height, None)
        if (height + 1) % self._parameters.epoch_length == 0:
            self._overflow.drop(height // self._parameters.epoch_length)

    # --- questions ----------------------------------------------------------------------------------------------------

    def rows_at(self, height: int) -> Rows:
        """A copy of the rows with this trigger height, by sequence number."""
        bucket = self._buckets.get(height)
        near = NO_ROWS if bucket is None else bucket.rows()
        epoch = height // self._parameters.epoch_length
        if not self._overflow.has(epoch):
            return near
        far = self._overflow.rows_at(epoch, height)
        both: Rows = np.concatenate([near, far])
        return both[np.argsort(both["sequence"], kind="stable")]

    def rows(self) -> Rows:
        """A copy of all rows, by ``(trigger_height, sequence)``."""
        parts = [bucket.rows() for bucket in self._buckets.values()]
        parts.extend(self._overflow.rows(part) for part in (None, *self._overflow.parts()))
        both: Rows = np.concatenate([np.zeros(0, ROW), *parts])
        return both[np.lexsort((both["sequence"], both["trigger"]))]

    # --- parts --------------------------------------------------------------------------------------------------------

    def _is_far(self, timer: Timer) -> bool:
        """Whether a timer was beyond the horizon when it was scheduled. One that watches a key never is."""
        if timer.watch is not None:
            return False
        p = self._parameters
        horizon = timer.scheduled_at // p.epoch_length + p.epoch_horizon
        return (
            timer.trigger_height // p.epoch_length > horizon
            and timer.trigger_height >= timer.scheduled_at + p.ring_buffer_size
        )

    def _part_of(self, timer: Timer) -> int | None:
        """The overflow tree's part with this far timer: its trigger's epoch, or ``None`` while beyond the horizon."""
        epoch = timer.trigger_height // self._parameters.epoch_length
        return epoch if epoch <= self._epoch + self._parameters.epoch_horizon else None


def count_tiers(rows: Rows, height: int, parameters: Parameters) -> dict[str, int]:
    """The number of these live timers in each logical tier (SPEC §5) at the end of block ``height``.

    A timer enters the ring when it is scheduled within its reach, or when the epoch of its trigger begins; timers due
    in the next block count as ring, and so do timers that watch a key. It leaves the overflow once its epoch is within
    the horizon.
    """
    trigger = rows["trigger"]
    epoch, current = trigger // np.uint64(parameters.epoch_length), height // parameters.epoch_length
    direct = trigger < rows["scheduled_at"] + np.uint64(parameters.ring_buffer_size)
    direct |= trigger > rows["expires_at"]  # it watches a key
    ring = (trigger <= height + 1) | direct | (epoch <= current)
    within = ring | (epoch <= current + parameters.epoch_horizon)
    return {"ring": int(ring.sum()), "epoch": int((within & ~ring).sum()), "overflow": int((~within).sum())}
