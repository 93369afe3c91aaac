"""The packed engine's tree: twigs in rows, the upper tree in a heap, and compiled hashing of what changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from validator.primitives.types import Hash
from validator.state.engines import kernels
from validator.state.engines.hashes import words_of
from validator.state.engines.kernels import Array
from validator.state.engines.table import Table
from validator.state.hashing import (
    ABSENT_ENTRY_NODES,
    ABSENT_UPPER_NODES,
    BITMAP_BYTES,
    ENTRY_NODE_KEY,
    NODE_BYTES,
    TWIG_ENTRIES,
    TWIG_KEY,
    TWIG_LEVELS,
    UPPER_NODE_KEY,
    Twig,
    state_root,
    twigs_for,
    upper_depth,
)
from validator.state.merkle import pruned_peaks
from validator.state.snapshot import SnapshotTwig

MIN_TWIGS: Final = 64

_ENTRY_NODE_WORDS: Final = words_of(ENTRY_NODE_KEY)
_TWIG_WORDS: Final = words_of(TWIG_KEY)
_UPPER_NODE_WORDS: Final = words_of(UPPER_NODE_KEY)
_ABSENT_ENTRY_WORDS: Final = np.stack([words_of(node) for node in ABSENT_ENTRY_NODES])


@dataclass(slots=True)
class TreeMark:
    """The end of the log before a block."""

    next_position: int
    frontier: Array
    entries_root: bytes
    """Of the twig in which the next position stood."""


class PackedTree:
    """The tree over the entries of a :class:`~validator.state.engines.table.Table`."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._frontier = np.zeros((TWIG_LEVELS, 8), dtype=np.uint32)
        self._width = MIN_TWIGS
        self._heap = _empty_heap(MIN_TWIGS)
        table.arrays = table.arrays._replace(twigs=_empty_twigs(MIN_TWIGS), dirty=np.zeros(MIN_TWIGS, dtype=np.uint8))
        self.root = self._make_root()
        """The state root, as of the last :meth:`climb`."""

    def twig(self, index: int) -> Twig:
        """Parts of twig ``index``, which must not be pruned."""
        row = self._table.arrays.twigs[index - self._table.count(kernels.FIRST_TWIG)].tobytes()
        return Twig(row[:NODE_BYTES], row[NODE_BYTES : NODE_BYTES + BITMAP_BYTES])

    def upper_node(self, level: int, index: int) -> bytes:
        """Node of the upper tree, which must not be pruned; level 0 is the twig roots."""
        if index >= self._width >> level:
            return ABSENT_UPPER_NODES[level]
        node: bytes = self._heap[(self._width >> level) + index].tobytes()
        return node

    def levels(self, leaves: Array) -> list[bytes]:
        """The entry tree over up to 2,048 entry hashes: each level's nodes one behind the other, leaves first."""
        levels = np.zeros((2 * TWIG_ENTRIES, kernels.HASH_WORDS), dtype=np.uint32)
        levels[: len(leaves)] = leaves
        kernels.twig_levels(levels.reshape(-1), _ENTRY_NODE_WORDS, self._table.arrays.lanes)
        nodes, rows = levels.tobytes(), [2 * TWIG_ENTRIES - (2 * TWIG_ENTRIES >> level) for level in range(13)]
        return [nodes[rows[i] * NODE_BYTES : rows[i + 1] * NODE_BYTES] for i in range(TWIG_LEVELS + 1)]

    # --- one block ----------------------------------------------------------------------------------------------------

    def mark(self) -> TreeMark:
        """The data with which :meth:`revert` undoes the next block."""
        next_position = self._table.count(kernels.NEXT_POSITION)
        return TreeMark(next_position, self._frontier.copy(), self.twig(next_position >> TWIG_LEVELS).entries_root)

    def extend(self, first: int, parts: Sequence[Array]) -> None:
        """Put the roots of new leaves, which begin at position ``first``, into their twigs."""
        count = sum(len(part) for part in parts)
        if not count:
            return
        arrays = self._table.arrays
        rows, other = (np.empty((count + 4) * 8, dtype=np.uint32) for _ in range(2))
        rows[8 : (count + 1) * 8] = np.concatenate(parts).ravel()
        start, twigs, swapped = kernels.extend_leaves(
            first, rows, other, count, self._frontier, _ABSENT_ENTRY_WORDS, _ENTRY_NODE_WORDS, arrays.lanes
        )
        found = (other if swapped else rows)[8 : 8 + twigs * 8].view(np.uint8).reshape(twigs, NODE_BYTES)
        row = start - int(arrays.counters[kernels.FIRST_TWIG])
        arrays.twigs[row : row + twigs, :NODE_BYTES] = found

    def climb(self, twigs: int) -> None:
        """Hash everything above the rows that changed; ``twigs`` is how many there are or were, the larger number."""
        arrays = self._table.arrays
        rows = np.flatnonzero(arrays.dirty)
        if len(rows):
            arrays.dirty[rows] = 0
            changed = rows + arrays.counters[kernels.FIRST_TWIG]
            present = rows[changed < twigs_for(self._table.count(kernels.NEXT_POSITION))]
            words = self._heap.reshape(-1)
            kernels.hash_messages(
                arrays.twigs.reshape(-1).view(np.uint32),
                present * (kernels.TWIG_ROW_BYTES // 4),
                np.full(len(present), kernels.TWIG_BYTES, dtype=np.int64),
                _TWIG_WORDS,
                words,
                (present + arrays.counters[kernels.FIRST_TWIG] + self._width) * kernels.HASH_WORDS,
                arrays.lanes,
            )
            scratch = np.empty((3, len(rows)), dtype=np.int64)
            depth = upper_depth(twigs)
            kernels.climb(words, self._width, changed, depth, _UPPER_NODE_WORDS, scratch, arrays.lanes)
        self.root = self._make_root()

    def revert(self, mark: TreeMark, next_position: int) -> None:
        """Move back to a mark from ``next_position``. The counters and the active bits are those of the mark again."""
        arrays, twigs, kept = self._table.arrays, twigs_for(next_position), twigs_for(mark.next_position)
        self._frontier = mark.frontier.copy()
        first = int(arrays.counters[kernels.FIRST_TWIG])
        arrays.twigs[kept - first : twigs - first] = _empty_twigs(1)
        self._heap[self._width + kept : self._width + twigs] = 0
        tail = (mark.next_position >> TWIG_LEVELS) - first
        arrays.twigs[tail, :NODE_BYTES] = np.frombuffer(mark.entries_root, dtype=np.uint8)
        self.climb(twigs)

    def _make_root(self) -> Hash:
        next_position = self._table.count(kernels.NEXT_POSITION)
        depth = upper_depth(twigs_for(next_position))
        return state_root(next_position, self._table.count(kernels.LIVE), self.upper_node(depth, 0))

    # --- opening, pruning and room ------------------------------------------------------------------------------------

    def seed(self, first_twig: int, peaks: Sequence[bytes]) -> None:
        """Begin behind pruned twigs."""
        self.reserve(0)
        for (level, index), peak in zip(pruned_peaks(first_twig), peaks, strict=True):
            self._heap[(self._width >> level) + index] = np.frombuffer(peak, dtype=np.uint32)

    def load(self, twig: SnapshotTwig) -> None:
        """Take over the entry root of a snapshot's twig, which becomes the last one; its bits are set already."""
        arrays = self._table.arrays
        row = twig.index - int(arrays.counters[kernels.FIRST_TWIG])
        arrays.twigs[row, :NODE_BYTES] = np.frombuffer(twig.entries_root, dtype=np.uint8)
        arrays.dirty[row] = 1
        self._frontier = np.stack([words_of(node or bytes(NODE_BYTES)) for node in twig.frontier])

    def forget(self, first_twig: int) -> None:
        """Drop the rows of pruned twigs."""
        arrays = self._table.arrays
        shift = first_twig - int(arrays.counters[kernels.FIRST_TWIG])
        arrays.twigs[: len(arrays.twigs) - shift] = arrays.twigs[shift:].copy()
        arrays.twigs[len(arrays.twigs) - shift :] = _empty_twigs(1)
        arrays.counters[kernels.FIRST_TWIG] = first_twig

    def reserve(self, entries: int) -> None:
        """Make room for so many more entries."""
        arrays = self._table.arrays
        total = twigs_for(int(arrays.counters[kernels.NEXT_POSITION]) + entries) + 1
        rows = total - int(arrays.counters[kernels.FIRST_TWIG])
        if rows > len(arrays.twigs):
            twigs = _empty_twigs(max(rows, len(arrays.twigs) * 5 // 4))
            twigs[: len(arrays.twigs)] = arrays.twigs
            dirty = np.zeros(len(twigs), dtype=np.uint8)
            dirty[: len(arrays.dirty)] = arrays.dirty
            self._table.arrays = arrays._replace(twigs=twigs, dirty=dirty)
        while total > self._width:
            heap = _empty_heap(2 * self._width)
            for level in range(self._width.bit_length()):
                row = self._width >> level
                heap[2 * row : 3 * row] = self._heap[row : 2 * row]
            self._heap, self._width = heap, 2 * self._width


def _empty_twigs(rows: int) -> Array:
    """Rows of twigs without entries."""
    twigs = np.zeros((rows, kernels.TWIG_ROW_BYTES), dtype=np.uint8)
    twigs[:, :NODE_BYTES] = np.frombuffer(ABSENT_ENTRY_NODES[TWIG_LEVELS], dtype=np.uint8)
    return twigs


def _empty_heap(width: int) -> Array:
    """An upper tree of so many absent twigs: the root in row 1, the children of row ``i`` in ``2 * i`` and the next."""
    heap = np.zeros((2 * width, kernels.HASH_WORDS), dtype=np.uint32)
    for level in range(width.bit_length()):
        row = width >> level
        heap[row : 2 * row] = np.frombuffer(ABSENT_UPPER_NODES[level], dtype=np.uint32)
    return heap
