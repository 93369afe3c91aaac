"""The packed engine's tree: twigs in rows, the upper tree in a heap, and compiled hashing of what changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from validator.primitives.types import Hash
from validator.state.engines import kernels
from validator.state.engines.hashes import ENTRY_WORDS, entry_spans, hash_entries, words_of
from validator.state.engines.kernels import Array
from validator.state.engines.table import Table, room
from validator.state.hashing import (
    ABSENT_ENTRY_NODES,
    ABSENT_UPPER_NODES,
    BITMAP_BYTES,
    ENTRY_NODE_KEY,
    GROUP_ENTRIES,
    NODE_BYTES,
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
    """The data of the tree before a block, with which :meth:`PackedTree.revert` undoes the block."""

    next_position: int
    frontier: Array
    entries_root: bytes
    """Entry root of the twig with the next position."""


class PackedTree:
    """The tree over the entries of a :class:`~validator.state.engines.table.Table`."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._frontier = np.zeros((TWIG_LEVELS, 8), dtype=np.uint32)
        self._width = MIN_TWIGS
        self._heap = _empty_heap(MIN_TWIGS)
        table.arrays = table.arrays._replace(
            twigs=_empty_twigs(MIN_TWIGS),
            groups=np.empty((MIN_TWIGS * kernels.TWIG_GROUPS, kernels.HASH_WORDS), dtype=np.uint32),
            dirty=np.zeros(MIN_TWIGS, dtype=np.uint8),
        )
        self.root = self._make_root()
        """The state root as of the last :meth:`climb`."""

    def twig(self, index: int) -> Twig:
        """The entry root and the active bits of twig ``index``, which must not be pruned."""
        row = self._table.arrays.twigs[index - self._table.count(kernels.FIRST_TWIG)].tobytes()
        return Twig(row[:NODE_BYTES], row[NODE_BYTES : NODE_BYTES + BITMAP_BYTES])

    def group_roots(self, index: int) -> bytes:
        """The concatenated roots of the groups of twig ``index``; those of incomplete groups are undefined."""
        row = (index - self._table.count(kernels.FIRST_TWIG)) * kernels.TWIG_GROUPS
        roots: bytes = self._table.arrays.groups[row : row + kernels.TWIG_GROUPS].tobytes()
        return roots

    def upper_node(self, level: int, index: int) -> bytes:
        """Node of the upper tree, which must not be pruned; the twig roots are level 0."""
        if index >= self._width >> level:
            return ABSENT_UPPER_NODES[level]
        node: bytes = self._heap[(self._width >> level) + index].tobytes()
        return node

    def group_nodes(self, data: Array, ends: Array) -> bytes:
        """The nodes of the subtree over one group's entries, level by level. Writes the entries' end offsets to
        ``ends``.

        Raises :class:`ValueError` if the bytes are not exactly ``len(ends)`` entries.
        """
        nodes = np.zeros((2 * GROUP_ENTRIES - 1, kernels.HASH_WORDS), dtype=np.uint32)
        arrays = self._table.arrays
        longest = kernels.hash_group(data, ends, nodes, ENTRY_WORDS, _ENTRY_NODE_WORDS, arrays.lanes)
        if longest < 0:
            raise ValueError(f"{len(data)} bytes are not {len(ends)} entries")
        if longest > kernels.MESSAGE_BYTES_LIMIT:
            starts, key_lengths, value_lengths = entry_spans(data, len(ends))
            sizes = key_lengths + value_lengths + kernels.ENTRY_HEAD_BYTES
            nodes[: len(ends)] = hash_entries(data, starts, sizes, arrays)
            kernels.hash_levels(nodes, GROUP_ENTRIES, _ENTRY_NODE_WORDS, arrays.lanes)
        found: bytes = nodes.tobytes()
        return found

    def nodes_above(self, lowest: Array) -> bytes:
        """The nodes of the entry tree from the nodes ``lowest`` up, level by level, these first.

        Their number is a power of two.
        """
        nodes = np.empty((2 * len(lowest) - 1, kernels.HASH_WORDS), dtype=np.uint32)
        nodes[: len(lowest)] = lowest
        kernels.hash_levels(nodes, len(lowest), _ENTRY_NODE_WORDS, self._table.arrays.lanes)
        found: bytes = nodes.tobytes()
        return found

    # --- one block ----------------------------------------------------------------------------------------------------

    def mark(self) -> TreeMark:
        """The data with which :meth:`revert` undoes the next block."""
        next_position = self._table.count(kernels.NEXT_POSITION)
        return TreeMark(next_position, self._frontier.copy(), self.twig(next_position >> TWIG_LEVELS).entries_root)

    def extend(self, first: int, parts: Sequence[Array]) -> None:
        """Add new leaves from position ``first`` on to the entry trees of their twigs."""
        count = sum(len(part) for part in parts)
        if not count:
            return
        arrays = self._table.arrays
        rows, other = (np.empty((count + 4, kernels.HASH_WORDS), dtype=np.uint32) for _ in range(2))
        rows[1 : count + 1] = np.concatenate(parts)
        start, twigs, swapped = kernels.extend_leaves(
            arrays, first, rows, other, count, self._frontier, _ABSENT_ENTRY_WORDS, _ENTRY_NODE_WORDS
        )
        row = start - int(arrays.counters[kernels.FIRST_TWIG])
        arrays.twigs[row : row + twigs, :NODE_BYTES] = (other if swapped else rows)[1 : 1 + twigs].view(np.uint8)

    def climb(self, twigs: int) -> None:
        """Hash the changed twigs and all nodes above them, and compute the state root.

        ``twigs`` is the number of twigs before or after the change, whichever is larger.
        """
        arrays = self._table.arrays
        rows = np.flatnonzero(arrays.dirty)
        if len(rows):
            arrays.dirty[rows] = 0
            changed = rows + arrays.counters[kernels.FIRST_TWIG]
            present = rows[changed < twigs_for(self._table.count(kernels.NEXT_POSITION))]
            kernels.hash_messages(
                arrays.twigs.reshape(-1),
                present * kernels.TWIG_BYTES,
                np.full(len(present), kernels.TWIG_BYTES, dtype=np.int64),
                _TWIG_WORDS,
                self._heap,
                present + arrays.counters[kernels.FIRST_TWIG] + self._width,
                arrays.lanes,
            )
            octets = self._heap.view(np.uint8).reshape(-1)
            depth = upper_depth(twigs)
            kernels.climb(self._heap, octets, self._width, changed, depth, _UPPER_NODE_WORDS, arrays.lanes)
        self.root = self._make_root()

    def revert(self, mark: TreeMark, next_position: int) -> None:
        """Move the tree back to a mark. ``next_position`` is that before the call.

        The caller has restored the counters and the active bits.
        """
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
        """Begin an empty tree after the pruned twigs below ``first_twig``. ``peaks`` are the upper nodes over them."""
        self.reserve(0)
        for (level, index), peak in zip(pruned_peaks(first_twig), peaks, strict=True):
            self._heap[(self._width >> level) + index] = np.frombuffer(peak, dtype=np.uint32)

    def load(self, twig: SnapshotTwig) -> None:
        """Load the entry root of a snapshot's twig, which becomes the last twig. Its active bits are set already."""
        arrays = self._table.arrays
        row = twig.index - int(arrays.counters[kernels.FIRST_TWIG])
        arrays.twigs[row, :NODE_BYTES] = np.frombuffer(twig.entries_root, dtype=np.uint8)
        arrays.dirty[row] = 1
        if twig.group_roots:
            groups = np.frombuffer(twig.group_roots, dtype=np.uint32).reshape(-1, kernels.HASH_WORDS)
            arrays.groups[row * kernels.TWIG_GROUPS :][: len(groups)] = groups
        self._frontier = np.stack([words_of(node or bytes(NODE_BYTES)) for node in twig.frontier])

    def forget(self, first_twig: int) -> None:
        """Drop the rows of pruned twigs."""
        arrays = self._table.arrays
        shift = first_twig - int(arrays.counters[kernels.FIRST_TWIG])
        arrays.twigs[: len(arrays.twigs) - shift] = arrays.twigs[shift:].copy()
        arrays.twigs[len(arrays.twigs) - shift :] = _empty_twigs(1)
        kept = arrays.groups[shift * kernels.TWIG_GROUPS :].copy()
        arrays.groups[: len(kept)] = kept
        arrays.counters[kernels.FIRST_TWIG] = first_twig

    def reserve(self, entries: int) -> None:
        """Make room for this many further entries."""
        arrays = self._table.arrays
        total = twigs_for(int(arrays.counters[kernels.NEXT_POSITION]) + entries) + 1
        rows = total - int(arrays.counters[kernels.FIRST_TWIG])
        if rows > len(arrays.twigs):
            twigs = _empty_twigs(max(rows, len(arrays.twigs) * 5 // 4))
            twigs[: len(arrays.twigs)] = arrays.twigs
            dirty = np.zeros(len(twigs), dtype=np.uint8)
            dirty[: len(arrays.dirty)] = arrays.dirty
            groups = room(len(twigs) * kernels.TWIG_GROUPS * kernels.HASH_WORDS, np.uint32).reshape(
                -1, kernels.HASH_WORDS
            )
            groups[: len(arrays.groups)] = arrays.groups
            self._table.arrays = arrays._replace(twigs=twigs, groups=groups, dirty=dirty)
        while total > self._width:
            heap = _empty_heap(2 * self._width)
            for level in range(self._width.bit_length()):
                row = self._width >> level
                heap[2 * row : 3 * row] = self._heap[row : 2 * row]
            self._heap, self._width = heap, 2 * self._width


def _empty_twigs(rows: int) -> Array:
    """Rows of twigs without entries."""
    twigs = np.zeros((rows, kernels.TWIG_BYTES), dtype=np.uint8)
    twigs[:, :NODE_BYTES] = np.frombuffer(ABSENT_ENTRY_NODES[TWIG_LEVELS], dtype=np.uint8)
    return twigs


def _empty_heap(width: int) -> Array:
    """An upper tree over ``width`` absent twigs, as a heap.

    Row 1 is the root. The children of row ``i`` are rows ``2 * i`` and ``2 * i + 1``.
    """
    heap = np.zeros((2 * width, kernels.HASH_WORDS), dtype=np.uint32)
    for level in range(width.bit_length()):
        row = width >> level
        heap[row : 2 * row] = np.frombuffer(ABSENT_UPPER_NODES[level], dtype=np.uint32)
    return heap
