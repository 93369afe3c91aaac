"""The calendar's third tier: a Merkleized search tree over ``(trigger_height, sequence)`` (SPEC §5).

It is a binary radix tree (a crit-bit tree): a branch is at one of the 128 bits of the key, the first in which keys
differ, with the keys that have a 0 there to its left. So its shape, and with it its root, follows from its content, and
no path is longer than 128 for any keys. (A treap with hashed priorities is not balanced against an attacker, who can
find keys with paths of thousands in seconds.) A branch's hash covers its bit and its children, a leaf's hash its timer;
the state root covers the root.

- ``hash(leaf) = BLAKE3("stampede/overflow/leaf" ‖ trigger[8] ‖ sequence[8] ‖ timer_id[32])``
- ``hash(branch) = BLAKE3("stampede/overflow/branch" ‖ bit[1] ‖ hash(left) ‖ hash(right))``

Integers are big-endian, bits count from the first of the trigger height.

Nodes are packed records, with separate rows for leaves; the walks are compiled. Stale hashes are recomputed together,
children first, when the root is read: once per block.

When an epoch comes within the horizon, its timers are split off as a separate tree (a *part*), by one walk down for any
number of timers. They need no hashes any more, and each block of the epoch finds its timers among them by another walk.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
from blake3 import blake3

from validator.primitives.compiled import compiled
from validator.primitives.types import Hash
from validator.scheduler.rows import ROW, Rows

NODE: Final = np.dtype(
    [("trigger", "<u8"), ("sequence", "<u8"), ("left", "<i4"), ("right", "<i4"), ("bit", "<i4"), ("stale", "<u4")]
)
"""A node of the tree. A leaf has its key in ``trigger`` and ``sequence``, and the index of its row in ``left``. A
branch has the key of some leaf below it: all leaves below it share the bits before ``bit``."""
NO_NODE: Final = -1
LEAF: Final = 128
"""Value of ``bit`` in a leaf: the number of bits of a key."""
MIN_CAPACITY: Final = 64
GROWTH: Final = 16
"""Divisor: a full array grows by its size divided by this. With millions of timers, more unused room costs memory."""
LONGEST_WALK: Final = 2 * (LEAF + 2)

_LEAF_TAG: Final = b"stampede/overflow/leaf"
_BRANCH_TAG: Final = b"stampede/overflow/branch"
_IDENTITY: Final = struct.Struct(">QQ4Q")
_U1: Final = np.uint64(1)
_U63: Final = np.uint64(63)


class OverflowTree:
    """Packed rows of timers in the order of ``(trigger_height, sequence)``.

    Rows are in the Merkleized tree or in a part, a separate tree that was split off from it for one epoch. In the
    methods, the part ``None`` is the Merkleized tree.
    """

    def __init__(self) -> None:
        self._nodes = np.zeros(MIN_CAPACITY, NODE)
        self._rows: Rows = np.zeros(MIN_CAPACITY, ROW)
        self._hashes = bytearray(32 * MIN_CAPACITY)
        self._free: list[int] = list(range(MIN_CAPACITY - 1, -1, -1))
        self._free_rows: list[int] = list(range(MIN_CAPACITY - 1, -1, -1))
        self._count = 0
        """Number of leaves, in all parts."""
        self._roots: dict[int | None, int] = {}
        """Root nodes by part; ``None`` is the Merkleized tree."""

    # --- changes ----------------------------------------------------------------------------------------------------

    def add(self, row: Rows, part: int | None = None) -> None:
        """Add a row to a part. The part must not have a row with the same key."""
        leaf, branch, place = self._take_node(), self._take_node(), self._take_row()
        self._rows[place : place + 1] = row
        self._nodes[leaf] = (int(row["trigger"][0]), int(row["sequence"][0]), place, NO_NODE, LEAF, 1)
        root, spare = _insert(self._nodes, self._root_of(part), leaf, branch)
        self._keep(part, root, spare)
        self._count += 1

    def remove(self, trigger: int, sequence: int, part: int | None = None) -> None:
        """Remove a row from a part; it must exist."""
        root, leaf, branch = _delete(self._nodes, self._root_of(part), np.uint64(trigger), np.uint64(sequence))
        assert leaf != NO_NODE, "a timer beyond the horizon has a leaf"
        self._free_rows.append(self._row_of(leaf))
        self._keep(part, root, leaf, branch)
        self._count -= 1

    def change(self, row: Rows, part: int | None = None) -> None:
        """Replace the row with the same key in a part. The timer's id, which the leaf's hash covers, is unchanged."""
        leaf = int(_find(self._nodes, self._root_of(part), row["trigger"][0], row["sequence"][0]))
        assert leaf != NO_NODE, "a timer beyond the horizon has a leaf"
        place = self._row_of(leaf)
        self._rows[place : place + 1] = row

    def cut_off(self, part: int, below: int) -> None:
        """Move all rows of the Merkleized tree with a trigger height below ``below`` into a new part."""
        low, high, spare = _split(self._nodes, self._root_of(None), np.uint64(below))
        self._keep(part, low)
        self._keep(None, high, spare)

    def put_back(self, part: int) -> None:
        """Undo :meth:`cut_off`: move a part's rows back into the Merkleized tree."""
        joined, spare = _join(self._nodes, self._root_of(part), self._root_of(None), self._take_node())
        self._keep(None, joined, spare)
        self._keep(part, NO_NODE)

    def drop(self, part: int) -> None:
        """Remove a part with all its rows."""
        nodes = self._walk(self._root_of(part), leaves_only=False)
        leaves = nodes[self._nodes["bit"][nodes] == LEAF]
        self._free_rows.extend(self._nodes["left"][leaves].tolist())
        self._free.extend(nodes.tolist())
        self._count -= len(leaves)
        self._keep(part, NO_NODE)

    # --- questions --------------------------------------------------------------------------------------------------

    def parts(self) -> list[int]:
        """The parts that are not empty, ascending."""
        return sorted(part for part in self._roots if part is not None)

    def has(self, part: int) -> bool:
        """Whether a part is not empty."""
        return part in self._roots

    def rows(self, part: int | None = None) -> Rows:
        """A copy of a part's rows, in order."""
        return self._rows_of(self._walk(self._root_of(part), leaves_only=True))

    def rows_at(self, part: int, height: int) -> Rows:
        """A copy of a part's rows with this trigger height, in order."""
        found = np.empty(self._count, np.int64)
        return self._rows_of(found[: _in_order(self._nodes, self._root_of(part), True, np.uint64(height), found)])

    def root(self) -> Hash | None:
        """The tree's Merkle root, ``None`` if the tree is empty."""
        top = self._root_of(None)
        if top == NO_NODE:
            return None
        stale = np.empty(2 * self._count, np.int64)
        for node in stale[: _stale_nodes(self._nodes, top, stale)].tolist():
            self._hashes[32 * node : 32 * node + 32] = self._node_hash(node)
            self._nodes["stale"][node] = 0
        return Hash(self._hash_of(top))

    # --- parts ------------------------------------------------------------------------------------------------------

    def _node_hash(self, node: int) -> bytes:
        _, _, left, right, bit, _ = self._nodes[node].item()
        if bit < LEAF:
            return blake3(_BRANCH_TAG + bytes((bit,)) + self._hash_of(left) + self._hash_of(right)).digest()
        row = self._rows[left].item()
        return blake3(_LEAF_TAG + _IDENTITY.pack(row[4], row[5], *row[:4])).digest()

    def _hash_of(self, node: int) -> bytes:
        return bytes(self._hashes[32 * node : 32 * node + 32])

    def _walk(self, root: int, leaves_only: bool) -> np.ndarray[Any, np.dtype[np.int64]]:
        found = np.empty(2 * self._count, np.int64)
        return found[: _in_order(self._nodes, root, leaves_only, None, found)]

    def _root_of(self, part: int | None) -> int:
        return self._roots.get(part, NO_NODE)

    def _keep(self, part: int | None, root: int, *freed: int) -> None:
        """Set a part's root; free nodes that are no longer used."""
        if root == NO_NODE:
            self._roots.pop(part, None)
        else:
            self._roots[part] = int(root)
        self._free.extend(int(node) for node in freed if node != NO_NODE)

    def _row_of(self, leaf: int) -> int:
        return int(self._nodes["left"][leaf])

    def _rows_of(self, leaves: np.ndarray[Any, np.dtype[np.int64]]) -> Rows:
        rows: Rows = self._rows[self._nodes["left"][leaves]]
        return rows

    def _take_node(self) -> int:
        if not self._free:
            capacity, larger = len(self._nodes), _larger(len(self._nodes))
            self._nodes = np.concatenate([self._nodes, np.zeros(larger - capacity, NODE)])
            self._hashes += bytes(32 * (larger - capacity))
            self._free = list(range(larger - 1, capacity - 1, -1))
        return self._free.pop()

    def _take_row(self) -> int:
        if not self._free_rows:
            capacity, larger = len(self._rows), _larger(len(self._rows))
            self._rows = np.concatenate([self._rows, np.zeros(larger - capacity, ROW)])
            self._free_rows = list(range(larger - 1, capacity - 1, -1))
        return self._free_rows.pop()


def _larger(capacity: int) -> int:
    return capacity + capacity // GROWTH + MIN_CAPACITY


# --- compiled walks -------------------------------------------------------------------------------------------------


@compiled
def _bit_of(trigger: Any, sequence: Any, bit: Any) -> Any:
    word = trigger if bit < 64 else sequence
    return (word >> (_U63 - np.uint64(bit & 63))) & _U1


@compiled
def _first_difference(trigger: Any, sequence: Any, other_trigger: Any, other_sequence: Any) -> Any:
    """The first bit in which two keys differ, 128 if they are equal."""
    word, bit = trigger ^ other_trigger, 0
    if word == np.uint64(0):
        word, bit = sequence ^ other_sequence, 64
        if word == np.uint64(0):
            return LEAF
    while not (word >> _U63) & _U1:
        word <<= _U1
        bit += 1
    return bit


@compiled
def _branch(nodes: Any, node: Any, bit: Any, left: Any, right: Any) -> None:
    nodes[node].trigger, nodes[node].sequence = nodes[left].trigger, nodes[left].sequence
    nodes[node].left, nodes[node].right, nodes[node].bit, nodes[node].stale = left, right, bit, 1


@compiled
def _insert(nodes: Any, root: Any, leaf: Any, branch: Any) -> Any:
    """Insert a leaf into a tree. Returns the new root, and the node ``branch`` if it was not needed, else -1.

    ``branch`` becomes the parent of the leaf and of the subtree from which its key first differs.
    """
    if root == NO_NODE:
        return leaf, branch
    trigger, sequence = nodes[leaf].trigger, nodes[leaf].sequence
    parent, at = NO_NODE, root
    while True:
        difference = _first_difference(trigger, sequence, nodes[at].trigger, nodes[at].sequence)
        if difference < nodes[at].bit:
            break
        nodes[at].stale = 1
        parent = at
        at = nodes[at].right if _bit_of(trigger, sequence, nodes[at].bit) else nodes[at].left
    if _bit_of(trigger, sequence, difference):
        _branch(nodes, branch, difference, at, leaf)
    else:
        _branch(nodes, branch, difference, leaf, at)
    if parent == NO_NODE:
        return branch, NO_NODE
    if nodes[parent].left == at:
        nodes[parent].left = branch
    else:
        nodes[parent].right = branch
    return root, NO_NODE


@compiled
def _delete(nodes: Any, root: Any, trigger: Any, sequence: Any) -> Any:
    """Remove the leaf with this key, and the branch above it. Returns the new root, the leaf and the branch.

    The leaf is -1 if the tree does not have the key. The branch is -1 if no branch was removed.
    """
    above, parent, at = NO_NODE, NO_NODE, root
    while at != NO_NODE and nodes[at].bit < LEAF:
        nodes[at].stale = 1
        above, parent = parent, at
        at = nodes[at].right if _bit_of(trigger, sequence, nodes[at].bit) else nodes[at].left
    if at == NO_NODE or nodes[at].trigger != trigger or nodes[at].sequence != sequence:
        return root, NO_NODE, NO_NODE
    if parent == NO_NODE:
        return NO_NODE, at, NO_NODE
    sibling = nodes[parent].right if nodes[parent].left == at else nodes[parent].left
    if above == NO_NODE:
        return sibling, at, parent
    if nodes[above].left == parent:
        nodes[above].left = sibling
    else:
        nodes[above].right = sibling
    return root, at, parent


@compiled
def _find(nodes: Any, root: Any, trigger: Any, sequence: Any) -> Any:
    at = root
    while at != NO_NODE and nodes[at].bit < LEAF:
        at = nodes[at].right if _bit_of(trigger, sequence, nodes[at].bit) else nodes[at].left
    if at == NO_NODE or nodes[at].trigger != trigger or nodes[at].sequence != sequence:
        return NO_NODE
    return at


@compiled
def _split(nodes: Any, root: Any, trigger: Any) -> Any:
    """Split a tree into the keys below a trigger height and the others.

    Returns the roots of both trees, and the branch that is no longer used; -1 for one that does not exist.

    Walks down along the border, then up again: each branch on the way keeps one child unchanged, and the remaining part
    of the other.
    """
    path = np.empty(LONGEST_WALK, np.int64)
    depth, at, zero = 0, root, np.uint64(0)
    while at != NO_NODE and nodes[at].bit <= _first_difference(trigger, zero, nodes[at].trigger, nodes[at].sequence):
        if nodes[at].bit == LEAF:
            break
        path[depth] = at
        depth += 1
        at = nodes[at].right if _bit_of(trigger, zero, nodes[at].bit) else nodes[at].left
    low, high, spare = NO_NODE, NO_NODE, NO_NODE
    if at != NO_NODE:
        if nodes[at].trigger < trigger:
            low = at
        else:
            high = at
    while depth:
        depth -= 1
        branch = path[depth]
        if _bit_of(trigger, zero, nodes[branch].bit):
            if low == NO_NODE:
                low, spare = nodes[branch].left, branch
            else:
                nodes[branch].right, nodes[branch].stale = low, 1
                low = branch
        elif high == NO_NODE:
            high, spare = nodes[branch].right, branch
        else:
            nodes[branch].left, nodes[branch].stale = high, 1
            high = branch
    return low, high, spare


@compiled
def _join(nodes: Any, low: Any, high: Any, branch: Any) -> Any:
    """Join two trees. Returns the root, and the node ``branch`` if it was not needed, else -1.

    All keys of the tree ``low`` must precede those of ``high``.
    """
    if low == NO_NODE or high == NO_NODE:
        return (high if low == NO_NODE else low), branch
    root, parent, on_right = NO_NODE, NO_NODE, False
    while True:
        difference = _first_difference(
            nodes[low].trigger, nodes[low].sequence, nodes[high].trigger, nodes[high].sequence
        )
        if difference < nodes[low].bit and difference < nodes[high].bit:
            _branch(nodes, branch, difference, low, high)
            top = branch
        else:
            top = low if nodes[low].bit < nodes[high].bit else high
        if parent == NO_NODE:
            root = top
        elif on_right:
            nodes[parent].right = top
        else:
            nodes[parent].left = top
        if top == branch:
            return root, NO_NODE
        nodes[top].stale = 1
        parent, on_right = top, top == low
        if on_right:
            low = nodes[low].right
        else:
            high = nodes[high].left


@compiled
def _in_order(nodes: Any, root: Any, leaves_only: Any, trigger: Any, found: Any) -> Any:
    """Store in ``found`` the nodes of a tree, leaves in the order of their keys. Returns how many.

    ``leaves_only`` leaves out the branches. If ``trigger`` is not ``None``, only the leaves with this trigger height
    and the branches on the way to them.
    """
    path = np.empty(LONGEST_WALK, np.int64)
    depth, number = 0, 0
    if root != NO_NODE:
        path[0], depth = root, 1
    while depth:
        depth -= 1
        at = path[depth]
        if trigger is not None:
            difference = _first_difference(trigger, nodes[at].sequence, nodes[at].trigger, nodes[at].sequence)
            if difference < min(nodes[at].bit, 64):
                continue
        if nodes[at].bit == LEAF or not leaves_only:
            found[number] = at
            number += 1
        if nodes[at].bit < LEAF:
            path[depth], path[depth + 1] = nodes[at].right, nodes[at].left
            depth += 2
    return number


@compiled
def _stale_nodes(nodes: Any, root: Any, found: Any) -> Any:
    """Store in ``found`` the nodes with a stale hash, children before parents. Returns how many.

    All nodes below a fresh node are fresh.
    """
    path = np.empty(LONGEST_WALK, np.int64)
    path[0], depth, number = root, 1, 0
    while depth:
        depth -= 1
        at = path[depth]
        if not nodes[at].stale:
            continue
        found[number] = at
        number += 1
        if nodes[at].bit < LEAF:
            path[depth], path[depth + 1] = nodes[at].right, nodes[at].left
            depth += 2
    for i in range(number // 2):
        found[i], found[number - 1 - i] = found[number - 1 - i], found[i]
    return number
