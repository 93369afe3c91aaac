"""The calendar's third tier: a Merkleized balanced search tree over ``(trigger_height, sequence)`` (SPEC §5).

It is a treap: a binary search tree by key that is at the same time a heap by priority, and priorities are hashed from
keys. So its shape, and with it its root, follows from its content alone, not from the order in which timers came and
went. A node's hash covers its children's hashes and its own timer; the root stands in the chain's counters, and so
under the state root.

``hash(node) = BLAKE3("stampede/overflow/node" ‖ hash(left) ‖ hash(right) ‖ trigger[8] ‖ sequence[8] ‖ timer_id[32])``,
32 zero bytes standing for no child; ``priority = BLAKE3("stampede/overflow/priority" ‖ trigger[8] ‖ sequence[8])``,
its first eight bytes. Integers are big-endian.

Nodes are packed records beside their rows; the walks are compiled. Hashes that a change made stale are worked out anew
together, children first, when the root is asked for: once a block, whatever it changed.

When an epoch comes within the horizon, its timers are cut off as a tree of their own (a *part*), by one walk down,
however many they are. They need no hashes any more, and each block of the epoch finds its own among them by another
walk.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
from blake3 import blake3
from numba import njit

from validator.scheduler.rows import ROW, Rows
from validator.types import Hash

NODE: Final = np.dtype(
    [
        ("trigger", "<u8"),
        ("sequence", "<u8"),
        ("priority", "<u8"),
        ("left", "<i4"),
        ("right", "<i4"),
        ("stale", "<u4"),
        ("row", "<u4"),
    ]
)
NO_NODE: Final = -1
NO_CHILD: Final = bytes(32)
LEAST_CAPACITY: Final = 64
DEEPEST: Final = 4_096
"""No path is longer; a treap of a billion nodes with honest priorities has paths of about a hundred."""

_NODE_TAG: Final = b"stampede/overflow/node"
_PRIORITY_TAG: Final = b"stampede/overflow/priority"
_KEY: Final = struct.Struct(">QQ")
_IDENTITY: Final = struct.Struct(">QQ4Q")

_compiled: Final = njit(cache=True, nogil=True)


class OverflowTree:
    """Rows by ``(trigger_height, sequence)``: the Merkleized tree, and the parts that were cut off it."""

    def __init__(self) -> None:
        self._nodes = np.zeros(LEAST_CAPACITY, NODE)
        self._rows: Rows = np.zeros(LEAST_CAPACITY, ROW)
        self._hashes = bytearray(32 * LEAST_CAPACITY)
        self._free: list[int] = list(range(LEAST_CAPACITY - 1, -1, -1))
        self._count = 0
        """Of all nodes in use."""
        self._roots: dict[int | None, int] = {}
        """By part; ``None`` is the Merkleized tree."""

    # --- changes ----------------------------------------------------------------------------------------------------

    def add(self, row: Rows, part: int | None = None) -> None:
        """Put a row into a part; its key must not be there."""
        node = self._take_node()
        trigger, sequence = int(row["trigger"][0]), int(row["sequence"][0])
        self._rows[node : node + 1] = row
        self._nodes[node] = (trigger, sequence, _priority(trigger, sequence), NO_NODE, NO_NODE, 1, 0)
        self._set_root(part, int(_insert(self._nodes, self._root_of(part), node)))
        self._count += 1

    def remove(self, trigger: int, sequence: int, part: int | None = None) -> None:
        """Take a row out of a part; it must be there."""
        root, node = _delete(self._nodes, self._root_of(part), np.uint64(trigger), np.uint64(sequence))
        assert node != NO_NODE, "a timer beyond the horizon has a node"
        self._set_root(part, int(root))
        self._free.append(int(node))
        self._count -= 1

    def change(self, row: Rows, part: int | None = None) -> None:
        """Replace a row of a part; what its node's hash covers stays."""
        node = int(_find(self._nodes, self._root_of(part), row["trigger"][0], row["sequence"][0]))
        assert node != NO_NODE, "a timer beyond the horizon has a node"
        self._rows[node : node + 1] = row

    def cut_off(self, part: int, below: int) -> None:
        """Make a part of every row of the tree whose trigger height is below ``below``."""
        low, high = _split(self._nodes, self._root_of(None), np.uint64(below), np.uint64(0))
        self._set_root(part, int(low))
        self._set_root(None, int(high))

    def put_back(self, part: int) -> None:
        """Undo :meth:`cut_off`."""
        low, high = self._root_of(part), self._root_of(None)
        self._set_root(None, int(_join(self._nodes, low, high)))
        self._set_root(part, NO_NODE)

    def drop(self, part: int) -> None:
        """Forget a part with all its rows."""
        nodes = self._walk(self._root_of(part))
        self._free.extend(nodes.tolist())
        self._count -= len(nodes)
        self._set_root(part, NO_NODE)

    # --- questions --------------------------------------------------------------------------------------------------

    def rows(self, part: int | None = None) -> Rows:
        """A copy of a part's rows, in order."""
        rows: Rows = self._rows[self._walk(self._root_of(part))]
        return rows

    def parts(self) -> list[int]:
        """The parts that hold anything, ascending."""
        return sorted(part for part in self._roots if part is not None)

    def rows_at(self, part: int, height: int) -> Rows:
        """A copy of a part's rows with this trigger height, in order."""
        low, rest = _split(self._nodes, self._root_of(part), np.uint64(height), np.uint64(0))
        middle, high = _split(self._nodes, rest, np.uint64(height + 1), np.uint64(0))
        rows: Rows = self._rows[self._walk(int(middle))]
        joined = _join(self._nodes, _join(self._nodes, low, middle), high)
        self._set_root(part, int(joined))
        return rows

    def root(self) -> Hash | None:
        """The tree's Merkle root, ``None`` where the tree is empty."""
        top = self._root_of(None)
        if top == NO_NODE:
            return None
        stale = np.empty(self._count, np.int64)
        for node in stale[: _stale_nodes(self._nodes, top, stale)].tolist():
            self._hashes[32 * node : 32 * node + 32] = self._node_hash(node)
            self._nodes["stale"][node] = 0
        return Hash(self._hash_of(top))

    # --- parts ------------------------------------------------------------------------------------------------------

    def _node_hash(self, node: int) -> bytes:
        _, _, _, left, right, _, _ = self._nodes[node].item()
        row = self._rows[node].item()
        identity = _IDENTITY.pack(row[4], row[5], *row[:4])
        return blake3(_NODE_TAG + self._hash_of(left) + self._hash_of(right) + identity).digest()

    def _hash_of(self, node: int) -> bytes:
        return NO_CHILD if node == NO_NODE else bytes(self._hashes[32 * node : 32 * node + 32])

    def _walk(self, root: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        found = np.empty(self._count, np.int64)
        return found[: _in_order(self._nodes, root, found)]

    def _root_of(self, part: int | None) -> int:
        return self._roots.get(part, NO_NODE)

    def _set_root(self, part: int | None, root: int) -> None:
        if root == NO_NODE:
            self._roots.pop(part, None)
        else:
            self._roots[part] = root

    def _take_node(self) -> int:
        if not self._free:
            capacity = len(self._nodes)
            larger = capacity + capacity // 4 + LEAST_CAPACITY
            self._nodes = np.concatenate([self._nodes, np.zeros(larger - capacity, NODE)])
            self._rows = np.concatenate([self._rows, np.zeros(larger - capacity, ROW)])
            self._hashes += bytes(32 * (larger - capacity))
            self._free = list(range(larger - 1, capacity - 1, -1))
        return self._free.pop()


def _priority(trigger: int, sequence: int) -> int:
    return int.from_bytes(blake3(_PRIORITY_TAG + _KEY.pack(trigger, sequence)).digest(length=8), "big")


# --- compiled walks -------------------------------------------------------------------------------------------------


@_compiled
def _is_before(nodes: Any, node: Any, trigger: Any, sequence: Any) -> Any:
    at = nodes[node].trigger
    return at < trigger or (at == trigger and nodes[node].sequence < sequence)


@_compiled
def _split(nodes: Any, root: Any, trigger: Any, sequence: Any) -> Any:
    """The trees of what is before the key, and of what is not. Everything on the path becomes stale."""
    low, high = NO_NODE, NO_NODE
    low_end, high_end = NO_NODE, NO_NODE
    while root != NO_NODE:
        nodes[root].stale = 1
        if _is_before(nodes, root, trigger, sequence):
            if low_end == NO_NODE:
                low = root
            else:
                nodes[low_end].right = root
            low_end = root
            root = nodes[root].right
        else:
            if high_end == NO_NODE:
                high = root
            else:
                nodes[high_end].left = root
            high_end = root
            root = nodes[root].left
    if low_end != NO_NODE:
        nodes[low_end].right = NO_NODE
    if high_end != NO_NODE:
        nodes[high_end].left = NO_NODE
    return low, high


@_compiled
def _insert(nodes: Any, root: Any, node: Any) -> Any:
    """Put a node in: down to where its priority is the greatest, and there between the halves of what was below."""
    trigger, sequence, priority = nodes[node].trigger, nodes[node].sequence, nodes[node].priority
    parent, at = NO_NODE, root
    while at != NO_NODE and nodes[at].priority >= priority:
        nodes[at].stale = 1
        parent = at
        at = nodes[at].right if _is_before(nodes, at, trigger, sequence) else nodes[at].left
    low, high = _split(nodes, at, trigger, sequence)
    nodes[node].left, nodes[node].right = low, high
    if parent == NO_NODE:
        return node
    if _is_before(nodes, parent, trigger, sequence):
        nodes[parent].right = node
    else:
        nodes[parent].left = node
    return root


@_compiled
def _delete(nodes: Any, root: Any, trigger: Any, sequence: Any) -> Any:
    """Take a node out; returns the new root, and the node or -1."""
    parent, at = NO_NODE, root
    while at != NO_NODE and (nodes[at].trigger != trigger or nodes[at].sequence != sequence):
        nodes[at].stale = 1
        parent = at
        at = nodes[at].right if _is_before(nodes, at, trigger, sequence) else nodes[at].left
    if at == NO_NODE:
        return root, NO_NODE
    joined = _join(nodes, nodes[at].left, nodes[at].right)
    if parent == NO_NODE:
        return joined, at
    if nodes[parent].left == at:
        nodes[parent].left = joined
    else:
        nodes[parent].right = joined
    return root, at


@_compiled
def _join(nodes: Any, low: Any, high: Any) -> Any:
    """One tree of two, everything in the first being before everything in the second."""
    root, end, on_right = NO_NODE, NO_NODE, False
    while low != NO_NODE or high != NO_NODE:
        takes_low = high == NO_NODE or (low != NO_NODE and nodes[low].priority >= nodes[high].priority)
        top = low if takes_low else high
        if end == NO_NODE:
            root = top
        elif on_right:
            nodes[end].right = top
        else:
            nodes[end].left = top
        if low == NO_NODE or high == NO_NODE:
            return root
        nodes[top].stale = 1
        end, on_right = top, takes_low
        if takes_low:
            low = nodes[low].right
        else:
            high = nodes[high].left
    return root


@_compiled
def _find(nodes: Any, root: Any, trigger: Any, sequence: Any) -> Any:
    at = root
    while at != NO_NODE and (nodes[at].trigger != trigger or nodes[at].sequence != sequence):
        at = nodes[at].right if _is_before(nodes, at, trigger, sequence) else nodes[at].left
    return at


@_compiled
def _in_order(nodes: Any, root: Any, found: Any) -> Any:
    """All nodes in the order of their keys; returns how many."""
    path = np.empty(DEEPEST, np.int64)
    depth, number, at = 0, 0, root
    while depth or at != NO_NODE:
        while at != NO_NODE:
            if depth == DEEPEST:
                raise OverflowError("the overflow tree is too deep")
            path[depth] = at
            depth += 1
            at = nodes[at].left
        depth -= 1
        at = path[depth]
        found[number] = at
        number += 1
        at = nodes[at].right
    return number


@_compiled
def _stale_nodes(nodes: Any, root: Any, found: Any) -> Any:
    """The stale nodes, children before parents. A node that is not stale has nothing stale below it."""
    path = np.empty(2 * DEEPEST, np.int64)
    path[0], depth, number = root, 1, 0
    while depth:
        if depth > DEEPEST:
            raise OverflowError("the overflow tree is too deep")
        depth -= 1
        at = path[depth]
        if not nodes[at].stale:
            continue
        found[number] = at
        number += 1
        if nodes[at].left != NO_NODE:
            path[depth] = nodes[at].left
            depth += 1
        if nodes[at].right != NO_NODE:
            path[depth] = nodes[at].right
            depth += 1
    for i in range(number // 2):
        found[i], found[number - 1 - i] = found[number - 1 - i], found[i]
    return number
