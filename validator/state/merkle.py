"""The Merkle tree over the entries of the log, in plain Python: it updates a state root, and undoes the updates.

A :class:`Tree` is changed in place; each :meth:`Tree.extend` returns the data with which :meth:`Tree.revert` undoes it
exactly. Of the nodes over entries these are kept: the *frontier*, the complete left siblings on the path up from the
next position, which suffice to append; and the roots of the *groups* of 32 entries, 64 hashes per twig instead of
4,096. A path to an old entry is computed by hashing its group again, from the log, and the nodes above the groups. A
group's root is valid once the group is full: until then each entry overwrites it, and after an undo it is overwritten
before the group is full again. So group roots need no undo.

Twigs below the first retained one are pruned: they hold no active entry, and only those of their upper nodes are known
that are siblings on the path of a retained twig (:func:`pruned_peaks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from validator.primitives.types import Hash
from validator.state.hashing import (
    ABSENT_ENTRY_NODES,
    ABSENT_TWIG,
    ABSENT_UPPER_NODES,
    BITMAP_BYTES,
    EMPTY_FRONTIER,
    EMPTY_ROOT,
    ENTRY_NODE_KEY,
    GROUP_ENTRIES,
    GROUP_LEVELS,
    NODE_BYTES,
    TWIG_ENTRIES,
    TWIG_GROUPS,
    TWIG_LEVELS,
    UPPER_NODE_KEY,
    Frontier,
    Twig,
    hash_pairs,
    state_root,
    twig_hash,
    twigs_for,
    upper_depth,
)


def pruned_peaks(first_twig: int) -> list[tuple[int, int]]:
    """The peaks over the twigs below ``first_twig``: the roots of the perfect subtrees that cover them together.

    Each is given by its level and index in the upper tree, lowest level first.
    """
    return [(level, (first_twig >> level) - 1) for level in range(first_twig.bit_length()) if first_twig >> level & 1]


@dataclass(slots=True)
class TreeUndo:
    """The data with which :meth:`Tree.revert` undoes one extension: what it changed, as it was before."""

    next_position: int
    frontier: Frontier
    root: Hash
    twigs: dict[int, Twig | None] = field(default_factory=dict)
    upper: dict[tuple[int, int], bytes | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TreeRecord:
    """The data with which :meth:`Tree.repeat` repeats one extension: what it changed, as it was after it."""

    next_position: int
    frontier: Frontier
    root: Hash
    twigs: tuple[tuple[int, Twig], ...]
    upper: tuple[tuple[tuple[int, int], bytes], ...]
    first_group: int
    groups: tuple[bytes, ...]


class Tree:
    """The Merkle tree of one state, from the entries to the state root."""

    def __init__(self) -> None:
        self.next_position = 0
        self.frontier = EMPTY_FRONTIER
        self.root: Hash = EMPTY_ROOT
        self._twigs: dict[int, Twig] = {}
        self._groups: dict[int, bytearray] = {}
        self._upper: dict[tuple[int, int], bytes] = {}

    @property
    def upper_root(self) -> bytes:
        """Root of the tree over the twig roots."""
        return self.upper_node(upper_depth(twigs_for(self.next_position)), 0)

    def twig(self, index: int) -> Twig:
        """The entry root and the active bits of twig ``index``; those of an empty twig if it has no entry yet."""
        return self._twigs.get(index, ABSENT_TWIG)

    def group_roots(self, index: int) -> bytes:
        """The concatenated roots of the groups of twig ``index``; those of incomplete groups are undefined."""
        return bytes(self._groups.get(index, b""))

    def upper_node(self, level: int, index: int) -> bytes:
        """Node of the upper tree; the twig roots are level 0."""
        return self._upper.get((level, index), ABSENT_UPPER_NODES[level])

    def seed(self, first_twig: int, peaks: Sequence[bytes]) -> None:
        """Begin an empty tree after pruned twigs, whose peaks are in the order of :func:`pruned_peaks`."""
        self.next_position = first_twig * TWIG_ENTRIES
        for place, peak in zip(pruned_peaks(first_twig), peaks, strict=True):
            self._upper[place] = peak

    def load(self, index: int, twig: Twig, frontier: Frontier) -> None:
        """Load a twig of a snapshot. ``frontier`` becomes the tree's frontier, so the last twig must be loaded last."""
        self._twigs[index] = twig
        self.frontier = frontier

    def end_load(self, next_position: int) -> None:
        """End the loading of a snapshot's twigs, which have entries below ``next_position``."""
        self.next_position = next_position
        self._climb(sorted(self._twigs), TreeUndo(0, EMPTY_FRONTIER, EMPTY_ROOT))

    def forget(self, first_twig: int) -> None:
        """Drop the nodes that only twigs below ``first_twig`` need; these hold no active entry."""
        for index in [index for index in self._twigs if index < first_twig]:
            del self._twigs[index]
        for index in [index for index in self._groups if index < first_twig]:
            del self._groups[index]
        peaks = set(pruned_peaks(first_twig))
        pruned = [(level, i) for level, i in self._upper if (i + 1) << level <= first_twig and (level, i) not in peaks]
        for place in pruned:
            del self._upper[place]

    def extend(self, leaves: Sequence[bytes], deactivated: Iterable[int], live: int) -> TreeUndo:
        """Append active entries with the hashes ``leaves``, then clear the active bits at ``deactivated`` positions.

        Costs O(changes * log(entries)): each node above a change is hashed once, level by level.
        """
        first = self.next_position
        after = first + len(leaves)
        undo = TreeUndo(first, self.frontier, self.root)
        self.frontier, entries_roots, groups = append_leaves(first, self.frontier, leaves)
        self._keep_groups(first >> GROUP_LEVELS, groups)
        bits = self._changed_bits(first, after, deactivated)
        for index in sorted(bits):
            undo.twigs[index] = self._twigs.get(index)
            root = entries_roots.get(index) or self.twig(index).entries_root
            self._twigs[index] = Twig(root, bytes(bits[index]))
        self.next_position = after
        self._climb(sorted(bits), undo)
        self.root = state_root(after, live, self.upper_root)
        return undo

    def revert(self, undo: TreeUndo) -> None:
        """Undo the last extension that was not undone."""
        for index, twig in undo.twigs.items():
            if twig is None:
                del self._twigs[index]
            else:
                self._twigs[index] = twig
        for place, node in undo.upper.items():
            if node is None:
                del self._upper[place]
            else:
                self._upper[place] = node
        self.next_position, self.frontier, self.root = undo.next_position, undo.frontier, undo.root

    def record(self, undo: TreeUndo) -> TreeRecord:
        """The record of the last extension, whose undo data is given."""
        first = undo.next_position >> GROUP_LEVELS
        after = self.next_position + GROUP_ENTRIES - 1 >> GROUP_LEVELS
        has_leaves = self.next_position > undo.next_position
        return TreeRecord(
            self.next_position,
            self.frontier,
            self.root,
            tuple((index, self._twigs[index]) for index in undo.twigs),
            tuple((place, self._upper[place]) for place in undo.upper),
            first,
            tuple(self._group(number) for number in (range(first, after) if has_leaves else ())),
        )

    def repeat(self, record: TreeRecord) -> TreeUndo:
        """Extend the tree like another tree, which was equal to this one. Nothing is hashed."""
        undo = TreeUndo(self.next_position, self.frontier, self.root)
        for index, twig in record.twigs:
            undo.twigs[index] = self._twigs.get(index)
            self._twigs[index] = twig
        for place, node in record.upper:
            undo.upper[place] = self._upper.get(place)
            self._upper[place] = node
        self._keep_groups(record.first_group, record.groups)
        self.next_position, self.frontier, self.root = record.next_position, record.frontier, record.root
        return undo

    def _group(self, number: int) -> bytes:
        """The root of a group, counted from the first twig on."""
        index, group = divmod(number, TWIG_GROUPS)
        return bytes(self._groups[index][group * NODE_BYTES : (group + 1) * NODE_BYTES])

    def _keep_groups(self, first: int, roots: Sequence[bytes]) -> None:
        """Store the roots of the groups from ``first`` on."""
        for number, root in enumerate(roots, start=first):
            index, group = divmod(number, TWIG_GROUPS)
            if index not in self._groups:
                self._groups[index] = bytearray(TWIG_GROUPS * NODE_BYTES)
            self._groups[index][group * NODE_BYTES : (group + 1) * NODE_BYTES] = root

    def _changed_bits(self, first: int, after: int, deactivated: Iterable[int]) -> dict[int, bytearray]:
        """The new active bits of every twig with changes.

        The bits from ``first`` up to ``after`` are set, then those of ``deactivated`` are cleared.
        """
        changed: dict[int, bytearray] = {}
        for index in range(first >> TWIG_LEVELS, twigs_for(after)) if after > first else ():
            low = max(first - index * TWIG_ENTRIES, 0)
            high = min(after - index * TWIG_ENTRIES, TWIG_ENTRIES)
            bits = int.from_bytes(self.twig(index).active_bits, "little") | (1 << high) - (1 << low)
            changed[index] = bytearray(bits.to_bytes(BITMAP_BYTES, "little"))
        for position in deactivated:
            index, offset = position >> TWIG_LEVELS, position & (TWIG_ENTRIES - 1)
            if index not in changed:
                changed[index] = bytearray(self.twig(index).active_bits)
            changed[index][offset >> 3] &= ~(1 << (offset & 7))
        return changed

    def _climb(self, indexes: list[int], undo: TreeUndo) -> None:
        """Hash the roots of the changed twigs and everything above them, including new levels."""
        row = [twig_hash(*self._twigs[index]) for index in indexes]
        self._put(0, indexes, row, undo)
        for level in range(upper_depth(twigs_for(self.next_position))):
            indexes = list(dict.fromkeys(index >> 1 for index in indexes))
            children = [self.upper_node(level, child) for index in indexes for child in (2 * index, 2 * index + 1)]
            self._put(level + 1, indexes, hash_pairs(UPPER_NODE_KEY, children), undo)

    def _put(self, level: int, indexes: list[int], row: list[bytes], undo: TreeUndo) -> None:
        for index, node in zip(indexes, row, strict=True):
            undo.upper[level, index] = self._upper.get((level, index))
            self._upper[level, index] = node


def append_leaves(
    first: int, frontier: Frontier, leaves: Sequence[bytes]
) -> tuple[Frontier, dict[int, bytes], list[bytes]]:
    """Append leaves from position ``first`` on.

    Returns the new frontier, the entry root of each twig that got leaves, and the roots of the groups that got leaves.
    """
    if not leaves:
        return frontier, {}, []
    after = first + len(leaves)
    start, row = first, list(leaves)
    siblings, groups = [], list[bytes]()
    for level in range(TWIG_LEVELS):
        if level == GROUP_LEVELS:
            groups = list(row)
        if start & 1:
            start -= 1
            row.insert(0, frontier[level])
        complete = after >> level
        siblings.append(row[complete - 1 - start] if complete & 1 else b"")
        if len(row) & 1:
            row.append(ABSENT_ENTRY_NODES[level])
        row = hash_pairs(ENTRY_NODE_KEY, row)
        start >>= 1
    return tuple(siblings), {start + i: root for i, root in enumerate(row)}, groups


def tree_nodes(lowest: Sequence[bytes]) -> bytes:
    """The nodes of the entry tree from the nodes ``lowest`` up, level by level, these first.

    Their number is a power of two.
    """
    levels = [list(lowest)]
    while len(levels[-1]) > 1:
        levels.append(hash_pairs(ENTRY_NODE_KEY, levels[-1]))
    return b"".join(map(b"".join, levels))
