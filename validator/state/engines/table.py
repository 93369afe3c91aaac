"""The arrays of the packed engine: their creation, their growth, and views of them for reads of single keys.

Beyond its key and value, a key costs: 12 bytes of index at a load of 66 to 86 %, 4 bytes of slot, 12 bytes of record
head and up to 7 of padding, and 4 bytes for each position from the oldest active entry to the end of the log, up to 2.5
per key.
"""

from __future__ import annotations

import mmap as mmap_module
import struct
from mmap import mmap
from typing import Any, Final

import numpy as np

from validator.state.engines import kernels
from validator.state.engines.hashes import KEY_WORDS, hash_slots
from validator.state.engines.kernels import Array, Arrays, Lanes
from validator.state.hashing import NODE_BYTES

MIN_CAPACITY: Final = 1024
MIN_LOAD: Final = 66
MAX_LOAD: Final = 86
"""Load of the index, in per cent, at which it grows. After growing, the load is ``MIN_LOAD``."""
INDEXED_AT_ONCE: Final = 65_536
"""Number of keys whose hashes are in memory at once while the index is built."""
HUGE_PAGE_BYTES: Final = 2 * 1024 * 1024

RECORD_HEAD: Final = struct.Struct("<QI")
"""The head of a record in the arena: the position and the key's length in one number, then the value's length."""


class Table:
    """Owns the arrays of one packed engine, and grows them.

    The arrays of the tree are grown by :mod:`validator.state.engines.packed_tree`.
    """

    def __init__(self, mask: int) -> None:
        arena = np.empty(MIN_CAPACITY, dtype=np.uint64)
        self.arrays = Arrays(
            prefixes=np.empty(2 * MIN_CAPACITY, dtype=np.uint64),
            places=np.full(2 * MIN_CAPACITY, kernels.EMPTY, dtype=np.uint32),
            offsets=np.empty(MIN_CAPACITY, dtype=np.uint32),
            free_slots=np.empty(MIN_CAPACITY, dtype=np.uint32),
            words=arena,
            halves=arena.view(np.uint32),
            octets=arena.view(np.uint8),
            free_records=np.full(kernels.SIZE_CLASSES, kernels.EMPTY, dtype=np.uint32),
            window=np.empty(MIN_CAPACITY, dtype=np.uint32),
            twigs=np.empty((0, kernels.TWIG_BYTES), dtype=np.uint8),
            groups=np.empty((0, kernels.HASH_WORDS), dtype=np.uint32),
            dirty=np.empty(0, dtype=np.uint8),
            counters=np.zeros(kernels.COUNTERS, dtype=np.int64),
            mask=np.array([mask], dtype=np.uint64),
            key_words=KEY_WORDS,
            lanes=Lanes(
                np.zeros(10 * kernels.LANES, dtype=np.uint32),
                np.zeros(kernels.LANES, dtype=np.int64),
                np.zeros(kernels.LANES * kernels.BLOCK_BYTES, dtype=np.uint8),
            ),
            scratch=np.zeros(kernels.BLOCK_BYTES + NODE_BYTES, dtype=np.uint8),
        )
        self.arrays.counters[kernels.CAPACITY] = MIN_CAPACITY
        self._look()

    def count(self, counter: int) -> int:
        """A counter of :mod:`validator.state.engines.kernels`, such as ``LIVE``."""
        return int(self.arrays.counters[counter])

    def record(self, slot: int) -> tuple[bytes, bytes, int]:
        """Key, value and position of a slot."""
        at = self.offsets[slot] * kernels.UNIT_BYTES
        head, value_bytes = RECORD_HEAD.unpack_from(self.octets, at)
        middle = at + kernels.RECORD_HEAD_BYTES + (head >> kernels.POSITION_BITS)
        key = bytes(self.octets[at + kernels.RECORD_HEAD_BYTES : middle])
        return key, bytes(self.octets[middle : middle + value_bytes]), head & kernels.POSITION_MASK

    # --- room ---------------------------------------------------------------------------------------------------------

    def reserve(self, keys: int, size: int, entries: int) -> None:
        """Make room in all arrays for these numbers of keys and entries, and for ``size`` bytes of keys and values."""
        self._reserve_index(keys)
        self.reserve_records(keys, size, entries)

    def reserve_records(self, keys: int, size: int, entries: int) -> None:
        """Make room in all arrays except the index."""
        counters = self.arrays.counters
        units = (
            (size + keys * (kernels.RECORD_HEAD_BYTES + kernels.UNIT_BYTES)) * 9 // 8 // kernels.UNIT_BYTES
            + 2 * keys
            + 1
        )
        self._reserve_arena(int(counters[kernels.BUMP]) + units)
        self._reserve_slots(int(counters[kernels.SLOTS_USED]) + keys)
        needed = self.count(kernels.NEXT_POSITION) + entries - self.count(kernels.OLDEST)
        if needed > len(self.arrays.window):
            self.fit_window(max(needed, needed * 9 // 8))
        self._look()

    def _reserve_arena(self, units: int) -> None:
        arrays = self.arrays
        if units > len(arrays.words):
            arena = room(max(units, len(arrays.words) * 5 // 4), np.uint64)
            used = int(arrays.counters[kernels.BUMP])
            arena[:used] = arrays.words[:used]
            self._forget_views()
            self.arrays = arrays._replace(words=arena, halves=arena.view(np.uint32), octets=arena.view(np.uint8))

    def _reserve_slots(self, slots: int) -> None:
        arrays = self.arrays
        if slots > len(arrays.offsets):
            size = max(slots, len(arrays.offsets) * 5 // 4)
            self._forget_views()
            free = int(arrays.counters[kernels.SLOTS_FREE])
            self.arrays = arrays._replace(
                offsets=_grown(arrays.offsets, size), free_slots=_grown(arrays.free_slots[:free], size)
            )

    def _reserve_index(self, keys: int) -> None:
        arrays, needed = self.arrays, self.count(kernels.LIVE) + keys
        capacity = int(arrays.counters[kernels.CAPACITY])
        is_sparse = capacity > MIN_CAPACITY and needed * 8 < capacity
        if (
            needed * 100 <= capacity * MAX_LOAD
            and arrays.counters[kernels.TOP] + keys + 2 < len(arrays.places)
            and not is_sparse
        ):
            return
        self._spread(needed, keys)

    def _spread(self, needed: int, keys: int) -> None:
        """Copy the index into a new one for ``needed`` keys, up to ``keys`` of which are still to be added."""
        arrays = self.arrays
        capacity = max(MIN_CAPACITY, needed * 100 // MIN_LOAD)
        top = kernels.spread_top(arrays.places, arrays.prefixes, capacity)
        length = max(capacity + capacity // 64, top) + keys + MIN_CAPACITY
        places, prefixes = room(length, np.uint32), room(length, np.uint64)
        places.fill(kernels.EMPTY)
        top = kernels.rebuild_index(arrays.places, arrays.prefixes, places, prefixes, capacity)
        arrays.counters[kernels.CAPACITY], arrays.counters[kernels.TOP] = capacity, max(top, 0)
        self._forget_views()
        self.arrays = arrays._replace(places=places, prefixes=prefixes)

    def make_index(self) -> None:
        """Rebuild the index of all keys that have an active entry."""
        arrays = self.arrays
        slots = np.empty(self.count(kernels.LIVE), dtype=np.uint32)
        slots = slots[: kernels.active_slots(arrays, slots)]
        prefixes = np.empty(len(slots), dtype=np.uint64)
        for first in range(0, len(slots), INDEXED_AT_ONCE):
            hashes = hash_slots(arrays, slots[first : first + INDEXED_AT_ONCE]).reshape(-1, NODE_BYTES)
            prefixes[first : first + INDEXED_AT_ONCE] = hashes[:, :8].copy().view(">u8").ravel()
        prefixes &= arrays.mask
        order = np.argsort(prefixes)
        prefixes, slots = prefixes[order], slots[order]
        del order
        kernels.sort_equal(arrays, prefixes, slots)
        self.arrays = arrays._replace(places=slots, prefixes=prefixes)
        self._spread(len(slots), 0)
        self._look()

    def fit_window(self, size: int) -> None:
        """Resize the window, keeping its content from the oldest entry to the end."""
        old = self.arrays.window
        window = room(size, np.uint32)
        first, end = self.count(kernels.OLDEST), self.count(kernels.NEXT_POSITION)
        while first < end:
            count = min(end - first, size - first % size, len(old) - first % len(old))
            window[first % size :][:count] = old[first % len(old) :][:count]
            first += count
        self.arrays = self.arrays._replace(window=window)

    def _forget_views(self) -> None:
        """Drop the views of arrays that will be replaced."""
        self.places = self.prefixes = self.offsets = self.octets = memoryview(b"")

    def _look(self) -> None:
        """Make the views of the arrays for single reads. They are faster than the arrays."""
        arrays = self.arrays
        self.places, self.prefixes = arrays.places.data, arrays.prefixes.data
        self.offsets, self.octets = arrays.offsets.data, arrays.octets.data
        self.capacity = int(arrays.counters[kernels.CAPACITY])


def room(size: int, dtype: Any) -> Array:
    """Allocate an array of zeros in separate memory pages. When it is freed, all its memory returns to the system.

    Large arrays request huge pages. The mapping is private, since the system's settings exclude shared mappings from
    huge pages, and memory should not be shared with a forked process either.
    """
    count = size * np.dtype(dtype).itemsize
    if not hasattr(mmap_module, "MAP_PRIVATE"):
        return np.frombuffer(mmap(-1, count), dtype=dtype)
    pages = mmap(-1, count, flags=mmap_module.MAP_PRIVATE | mmap_module.MAP_ANONYMOUS)
    if count >= HUGE_PAGE_BYTES and hasattr(mmap_module, "MADV_HUGEPAGE"):
        pages.madvise(mmap_module.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype=dtype)


def _grown(array: Array, size: int) -> Array:
    grown = room(size, array.dtype)
    grown[: len(array)] = array
    return grown
