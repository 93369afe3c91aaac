"""The tree over the entry log: how a state root is made, and how it is kept up to date.

Entries stand at positions 0, 1, 2 … of an endless log; ``docs/state.md`` gives every encoding exactly. The rules:

- 2,048 neighbouring entries are a *twig*. A twig's root is over the Merkle root of its entry hashes, which only grows,
  and over its active bits, which change when an entry is replaced or deleted;
- an *upper tree* stands over the twig roots, as deep as their number asks for;
- the state root is over the upper tree's root and the next position, so positions are part of it;
- every kind of hash is BLAKE3 in keyed mode under its own public key, so that no two kinds can be mistaken for another,
  and a node stays one 64-byte block: what is hashed in a node is nothing but its two children.

A :class:`Tree` is the final state's tree, a :class:`TreeOverlay` the difference that one block made to its parent's.
Of the entry hashes only the *frontier* is kept, the complete left siblings on the way up from the next position: enough
to append, and 12 hashes instead of 4,096 a twig. Whoever needs a path to an old entry rebuilds its twig from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from blake3 import blake3

from validator.types import Hash

TWIG_LEVELS: Final = 11
TWIG_ENTRIES: Final = 1 << TWIG_LEVELS
BITMAP_BYTES: Final = TWIG_ENTRIES // 8
NODE_BYTES: Final = 32
POSITION_BYTES: Final = 8
UPPER_LEVELS: Final = 8 * POSITION_BYTES - TWIG_LEVELS
"""Levels that the upper tree can ever have: positions are u64."""

ABSENT: Final = bytes(NODE_BYTES)
"""Stands where there is no entry, and where there is no twig."""

NO_BITS: Final = bytes(BITMAP_BYTES)


def domain_key(name: str) -> bytes:
    """The BLAKE3 key of one kind of hash: its name in ASCII, filled up with zero bytes to 32."""
    return name.encode("ascii").ljust(NODE_BYTES, b"\0")


ENTRY_KEY: Final = domain_key("stampede/state/1/entry")
ENTRY_NODE_KEY: Final = domain_key("stampede/state/1/entry-node")
TWIG_KEY: Final = domain_key("stampede/state/1/twig")
UPPER_NODE_KEY: Final = domain_key("stampede/state/1/upper-node")
ROOT_KEY: Final = domain_key("stampede/state/1/root")


def entry_hash(encoded_entry: bytes) -> bytes:
    """Leaf of a twig's entry tree."""
    return blake3(encoded_entry, key=ENTRY_KEY).digest()


def twig_hash(entries_root: bytes, active_bits: bytes) -> bytes:
    """Root of one twig: the root of its 2,048 entry hashes, then its active bits."""
    return blake3(entries_root + active_bits, key=TWIG_KEY).digest()


def state_root(next_position: int, upper_root: bytes) -> Hash:
    """The state root: how many entries were ever appended, then the root of the upper tree."""
    return Hash(blake3(next_position.to_bytes(POSITION_BYTES, "big") + upper_root, key=ROOT_KEY).digest())


def hash_pairs(key: bytes, row: Sequence[bytes]) -> list[bytes]:
    """The parents of an even number of neighbouring nodes: one level in one call, the place for a faster kernel."""
    return [blake3(row[i] + row[i + 1], key=key).digest() for i in range(0, len(row), 2)]


def _absent_nodes(key: bytes, levels: int) -> tuple[bytes, ...]:
    """What stands at each level over nothing but absent leaves."""
    nodes = [ABSENT]
    for _ in range(levels):
        nodes += hash_pairs(key, [nodes[-1], nodes[-1]])
    return tuple(nodes)


ABSENT_ENTRY_NODES: Final = _absent_nodes(ENTRY_NODE_KEY, TWIG_LEVELS)
ABSENT_UPPER_NODES: Final = _absent_nodes(UPPER_NODE_KEY, UPPER_LEVELS)


def twigs_for(next_position: int) -> int:
    """Twigs that hold the entries before ``next_position``."""
    return (next_position + TWIG_ENTRIES - 1) >> TWIG_LEVELS


def upper_depth(twigs: int) -> int:
    """Levels between the twig roots and the upper root: the smallest depth with ``2**depth >= twigs``."""
    return (twigs - 1).bit_length() if twigs else 0


class Twig(NamedTuple):
    """What a twig's root is made of."""

    entries_root: bytes
    active_bits: bytes
    """Bit ``i % 8`` (from the lowest) of byte ``i // 8`` says that the twig's entry ``i`` is active."""


ABSENT_TWIG: Final = Twig(ABSENT_ENTRY_NODES[TWIG_LEVELS], NO_BITS)

Frontier = tuple[bytes, ...]
"""Per level below the twig's entry root: the complete left sibling beside the next position, empty where none."""

EMPTY_FRONTIER: Final[Frontier] = (b"",) * TWIG_LEVELS


class Tree:
    """The whole tree of the final state, changed in place by :meth:`absorb`."""

    def __init__(self) -> None:
        self.next_position = 0
        self.frontier = EMPTY_FRONTIER
        self.root: Hash = state_root(0, ABSENT)
        self._entries_roots = bytearray()
        self._active_bits = bytearray()
        self._upper: list[bytearray] = [bytearray()]

    def twig(self, index: int) -> Twig:
        """Twig ``index``, or an empty one where no entry stands yet."""
        low = index * NODE_BYTES
        if low >= len(self._entries_roots):
            return ABSENT_TWIG
        bits = index * BITMAP_BYTES
        return Twig(
            bytes(self._entries_roots[low : low + NODE_BYTES]), bytes(self._active_bits[bits : bits + BITMAP_BYTES])
        )

    def upper_node(self, level: int, index: int) -> bytes:
        """Node of the upper tree; level 0 is the twig roots."""
        low = index * NODE_BYTES
        if level >= len(self._upper) or low >= len(self._upper[level]):
            return ABSENT_UPPER_NODES[level]
        return bytes(self._upper[level][low : low + NODE_BYTES])

    def absorb(self, overlay: TreeOverlay) -> None:
        """Take over what an overlay over this very state changed; the overlay then reads through to this tree."""
        for index, twig in overlay.twigs.items():
            _put(self._entries_roots, index, twig.entries_root)
            _put(self._active_bits, index, twig.active_bits)
        for level, nodes in enumerate(overlay.upper):
            if level == len(self._upper):
                self._upper.append(bytearray())
            for index, node in nodes.items():
                _put(self._upper[level], index, node)
        self.next_position, self.frontier, self.root = overlay.next_position, overlay.frontier, overlay.root
        overlay.settle(self)


class TreeOverlay:
    """What one block changed in its parent's tree. Made by :func:`derive`, and never changed by its children."""

    __slots__ = ("frontier", "next_position", "parent", "root", "twigs", "upper")

    def __init__(
        self,
        parent: Tree | TreeOverlay,
        next_position: int,
        frontier: Frontier,
        twigs: dict[int, Twig],
        upper: list[dict[int, bytes]],
    ) -> None:
        self.parent = parent
        self.next_position = next_position
        self.frontier = frontier
        self.twigs = twigs
        self.upper = upper
        depth = upper_depth(twigs_for(next_position))
        self.root: Hash = state_root(next_position, self.upper_node(depth, 0)) if twigs else parent.root

    def twig(self, index: int) -> Twig:
        """Twig ``index`` as this overlay and those below it leave it."""
        layer: Tree | TreeOverlay = self
        while isinstance(layer, TreeOverlay):
            found = layer.twigs.get(index)
            if found is not None:
                return found
            layer = layer.parent
        return layer.twig(index)

    def upper_node(self, level: int, index: int) -> bytes:
        """Node of the upper tree; level 0 is the twig roots."""
        layer: Tree | TreeOverlay = self
        while isinstance(layer, TreeOverlay):
            found = layer.upper[level].get(index) if level < len(layer.upper) else None
            if found is not None:
                return found
            layer = layer.parent
        return layer.upper_node(level, index)

    def settle(self, base: Tree) -> None:
        """Become a mere pointer at ``base``, which has taken over everything that this overlay held."""
        self.parent = base
        self.twigs = {}
        self.upper = []


def derive(parent: Tree | TreeOverlay, leaves: Sequence[bytes], deactivated: Iterable[int]) -> TreeOverlay:
    """The tree after appending entries with these hashes, active, and then clearing the active bits of some positions.

    Costs O(changes * log(entries)): each node above a change is hashed once, level by level.
    """
    first = parent.next_position
    frontier, entries_roots = _append_leaves(first, parent.frontier, leaves)
    bits = _changed_bits(parent, first, first + len(leaves), deactivated)
    twigs = {
        index: Twig(entries_roots.get(index) or parent.twig(index).entries_root, bytes(bits[index]))
        for index in sorted(bits)
    }
    upper = _changed_upper(parent, twigs, upper_depth(twigs_for(first + len(leaves)))) if twigs else []
    return TreeOverlay(parent, first + len(leaves), frontier, twigs, upper)


def _append_leaves(first: int, frontier: Frontier, leaves: Sequence[bytes]) -> tuple[Frontier, dict[int, bytes]]:
    """The frontier after the leaves, and the entry roots of the twigs that they fall into."""
    if not leaves:
        return frontier, {}
    after = first + len(leaves)
    start, row = first, list(leaves)
    siblings = []
    for level in range(TWIG_LEVELS):
        if start & 1:
            start -= 1
            row.insert(0, frontier[level])
        complete = after >> level
        siblings.append(row[complete - 1 - start] if complete & 1 else b"")
        if len(row) & 1:
            row.append(ABSENT_ENTRY_NODES[level])
        row = hash_pairs(ENTRY_NODE_KEY, row)
        start >>= 1
    return tuple(siblings), {start + i: root for i, root in enumerate(row)}


def _changed_bits(
    parent: Tree | TreeOverlay, first: int, after: int, deactivated: Iterable[int]
) -> dict[int, bytearray]:
    """The active bits of every twig in which one changes: ``first`` to ``after`` set, then ``deactivated`` cleared."""
    changed: dict[int, bytearray] = {}
    for index in range(first >> TWIG_LEVELS, twigs_for(after)) if after > first else ():
        low = max(first - index * TWIG_ENTRIES, 0)
        high = min(after - index * TWIG_ENTRIES, TWIG_ENTRIES)
        bits = int.from_bytes(parent.twig(index).active_bits, "little") | (1 << high) - (1 << low)
        changed[index] = bytearray(bits.to_bytes(BITMAP_BYTES, "little"))
    for position in deactivated:
        index, offset = position >> TWIG_LEVELS, position & (TWIG_ENTRIES - 1)
        if index not in changed:
            changed[index] = bytearray(parent.twig(index).active_bits)
        changed[index][offset >> 3] &= ~(1 << (offset & 7))
    return changed


def _changed_upper(parent: Tree | TreeOverlay, twigs: dict[int, Twig], depth: int) -> list[dict[int, bytes]]:
    """The nodes of the upper tree over the changed twigs, one mapping a level, the twig roots first."""
    levels = [{index: twig_hash(*twig) for index, twig in twigs.items()}]
    for level in range(depth):
        below = levels[-1]
        indexes = list(dict.fromkeys(index >> 1 for index in below))
        row = []
        for child in (child for index in indexes for child in (2 * index, 2 * index + 1)):
            node = below.get(child)
            row.append(parent.upper_node(level, child) if node is None else node)
        levels.append(dict(zip(indexes, hash_pairs(UPPER_NODE_KEY, row), strict=True)))
    return levels


def _put(row: bytearray, index: int, item: bytes) -> None:
    """Write item ``index`` of a row of items of equal size, in place or at its end."""
    low = index * len(item)
    if low > len(row):
        raise ValueError(f"item {index} would leave a gap in a row of {len(row) // len(item)}")
    row[low : low + len(item)] = item
