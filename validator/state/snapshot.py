"""Snapshots: one final state in pieces, each of which is verified separately.

A *manifest* has the numbers of entries and live keys, the roots of all twigs from the oldest active entry on, and the
peaks over the earlier twigs. It is checked against a state root that a finalization proves. Each *chunk* holds some of
these twigs: their active bits and active entries, and the nodes over the inactive entries, so that each twig's root
follows from it and is checked against the manifest. So a wrong chunk is never accepted, and the peer that sent it is
known. With all chunks, a joining validator has everything that a state root depends on, so it computes the same roots
as all other validators from then on.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from validator.primitives.types import Hash, Height, ValidatorError
from validator.state.hashing import (
    ABSENT,
    ABSENT_ENTRY_NODES,
    ABSENT_UPPER_NODES,
    BITMAP_BYTES,
    EMPTY_FRONTIER,
    ENTRY_NODE_KEY,
    NODE_BYTES,
    TWIG_ENTRIES,
    TWIG_LEVELS,
    UPPER_NODE_KEY,
    Frontier,
    entry_bytes,
    entry_hash,
    hash_pairs,
    state_root,
    twig_hash,
    twigs_for,
    upper_depth,
)
from validator.state.merkle import pruned_peaks

CHUNK_TWIGS: Final = 2
"""Number of twigs per chunk: at most 4,096 entries."""
SNAPSHOT_VERSION: Final = 1

_MANIFEST: Final = struct.Struct(">BQQQQ")


class SnapshotError(ValidatorError):
    """A manifest or chunk does not match the state root. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a snapshot: the numbers and the nodes from which the state root follows."""

    height: Height
    next_position: int
    live: int
    first_twig: int
    """The first twig that is included; earlier ones hold no active entry."""
    peaks: tuple[bytes, ...]
    """Upper nodes over the earlier twigs, in the order of :func:`validator.state.merkle.pruned_peaks`."""
    twig_roots: tuple[bytes, ...]
    """Roots of the twigs from ``first_twig`` on."""

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return -(-len(self.twig_roots) // CHUNK_TWIGS)

    @property
    def root(self) -> Hash:
        """The state root that follows from the manifest."""
        return state_root(self.next_position, self.live, self._upper_root())

    def twigs_of(self, chunk: int) -> range:
        """The twigs that a chunk holds."""
        first = self.first_twig + chunk * CHUNK_TWIGS
        return range(first, min(first + CHUNK_TWIGS, self.first_twig + len(self.twig_roots)))

    def encode(self) -> bytes:
        """The manifest as it is sent and kept."""
        head = _MANIFEST.pack(SNAPSHOT_VERSION, self.height, self.next_position, self.live, self.first_twig)
        return b"".join((head, *self.peaks, *self.twig_roots))

    @staticmethod
    def decode(data: bytes, height: Height, root: Hash) -> Manifest:
        """Decode the manifest of the state at a height. Raises :class:`SnapshotError` if it leads to another root."""
        if len(data) < _MANIFEST.size or (len(data) - _MANIFEST.size) % NODE_BYTES:
            raise SnapshotError("the manifest is cut off")
        version, found_height, next_position, live, first_twig = _MANIFEST.unpack_from(data)
        nodes = [data[i : i + NODE_BYTES] for i in range(_MANIFEST.size, len(data), NODE_BYTES)]
        count = first_twig.bit_count()
        if version != SNAPSHOT_VERSION or found_height != height:
            raise SnapshotError(f"a manifest of version {version} and height {found_height}: expected {height}")
        if first_twig + len(nodes) - count != twigs_for(next_position):
            raise SnapshotError("the manifest names another number of twigs than there are")
        manifest = Manifest(height, next_position, live, first_twig, tuple(nodes[:count]), tuple(nodes[count:]))
        if manifest.root != root:
            raise SnapshotError("the manifest leads to another state root")
        return manifest

    def _upper_root(self) -> bytes:
        """The upper tree's root, from the peaks and the twig roots."""
        twigs = self.first_twig + len(self.twig_roots)
        peaks = dict(zip(pruned_peaks(self.first_twig), self.peaks, strict=True))
        first, row = self.first_twig, list(self.twig_roots)
        for level in range(upper_depth(twigs)):
            if first & 1:
                first -= 1
                row.insert(0, peaks[level, first])
            if len(row) & 1:
                row.append(ABSENT_UPPER_NODES[level])
            row = hash_pairs(UPPER_NODE_KEY, row)
            first >>= 1
        return row[0] if row else peaks.get((upper_depth(twigs), 0), ABSENT)


@dataclass(frozen=True, slots=True)
class SnapshotTwig:
    """One twig of a checked chunk."""

    index: int
    entries_root: bytes
    active_bits: bytes
    entries: dict[int, bytes]
    """The encoded active entries by position."""
    frontier: Frontier
    """Frontier of the twig, which is needed to append to it; empty nodes if the twig is full."""
    group_roots: bytes = b""
    """The concatenated roots of the twig's groups. Only an engine that copies its state to another one knows them;
    empty otherwise."""


def encode_twig(bits: bytes, count: int, entry: Callable[[int], bytes], node: Callable[[int, int], bytes]) -> bytes:
    """Encode a twig of ``count`` entries as part of a chunk.

    The encoding has the active bits, then from left to right each active entry, and the root of each largest subtree
    over only inactive entries. ``entry`` gives an entry by its offset in the twig, ``node`` a node of the entry tree by
    level and index.
    """
    parts = [bits]
    active = int.from_bytes(bits, "little")

    def walk(level: int, index: int) -> None:
        first = index << level
        if first >= count:
            return
        is_whole = (index + 1) << level <= count
        if is_whole and not active >> first & (1 << (1 << level)) - 1:
            parts.append(node(level, index))
        elif level:
            walk(level - 1, 2 * index)
            walk(level - 1, 2 * index + 1)
        else:
            parts.append(entry(first))

    walk(TWIG_LEVELS, 0)
    return b"".join(parts)


class _TwigReader:
    """Decodes one twig of a chunk, from ``cursor`` on, and hashes its entry tree."""

    def __init__(self, data: bytes, cursor: int, index: int, count: int) -> None:
        self.data = data
        self.cursor = cursor
        self.count = count
        self.first_position = index * TWIG_ENTRIES
        self.entries: dict[int, bytes] = {}
        self.known: dict[tuple[int, int], bytes] = {}
        self.bits = self.take(BITMAP_BYTES)
        self.active = int.from_bytes(self.bits, "little")

    def take(self, count: int) -> bytes:
        taken = self.data[self.cursor : self.cursor + count]
        if len(taken) != count:
            raise SnapshotError("the chunk is cut off")
        self.cursor += count
        return taken

    def node(self, level: int, index: int) -> bytes:
        """Read everything below a node of the entry tree, and return the node's hash."""
        first = index << level
        if first >= self.count:
            return ABSENT_ENTRY_NODES[level]
        is_whole = (index + 1) << level <= self.count
        if is_whole and not self.active >> first & (1 << (1 << level)) - 1:
            found = self.take(NODE_BYTES)
        elif level:
            found = hash_pairs(ENTRY_NODE_KEY, [self.node(level - 1, 2 * index), self.node(level - 1, 2 * index + 1)])[
                0
            ]
        else:
            found = self._entry(first)
        self.known[level, index] = found
        return found

    def _entry(self, offset: int) -> bytes:
        try:
            encoded = self.take(entry_bytes(self.data, self.cursor))
        except struct.error:
            raise SnapshotError("the chunk is cut off") from None
        self.entries[self.first_position + offset] = encoded
        return entry_hash(encoded)

    def frontier(self) -> Frontier:
        """The frontier of the twig, for appending to it; empty nodes if the twig is full."""
        if self.count == TWIG_ENTRIES:
            return EMPTY_FRONTIER
        places = [(level, (self.count >> level) - 1) for level in range(TWIG_LEVELS)]
        return tuple(self.known[place] if self.count >> place[0] & 1 else b"" for place in places)


def decode_chunk(manifest: Manifest, chunk: int, data: bytes) -> list[SnapshotTwig]:
    """The twigs of a chunk. Raises :class:`SnapshotError` if they do not match the manifest."""
    found, cursor = [], 0
    for index in manifest.twigs_of(chunk):
        count = min(manifest.next_position - index * TWIG_ENTRIES, TWIG_ENTRIES)
        reader = _TwigReader(data, cursor, index, count)
        if reader.active >> count:
            raise SnapshotError(f"twig {index} has active bits of entries that do not exist")
        root = reader.node(TWIG_LEVELS, 0)
        if twig_hash(root, reader.bits) != manifest.twig_roots[index - manifest.first_twig]:
            raise SnapshotError(f"twig {index} has another root")
        found.append(SnapshotTwig(index, root, reader.bits, reader.entries, reader.frontier()))
        cursor = reader.cursor
    if cursor != len(data):
        raise SnapshotError(f"{len(data) - cursor} bytes too many")
    return found


def known_nodes(
    manifest: Manifest, chunk: int, data: bytes
) -> dict[int, tuple[dict[tuple[int, int], bytes], dict[int, bytes]]]:
    """For each twig of a checked chunk, the nodes of its entry tree that the chunk gives, and its entries by position.

    Only nodes over complete subtrees are included.
    """
    found, cursor = {}, 0
    for index in manifest.twigs_of(chunk):
        count = min(manifest.next_position - index * TWIG_ENTRIES, TWIG_ENTRIES)
        reader = _TwigReader(data, cursor, index, count)
        reader.node(TWIG_LEVELS, 0)
        whole = {place: node for place, node in reader.known.items() if (place[1] + 1) << place[0] <= count}
        found[index] = (whole, reader.entries)
        cursor = reader.cursor
    return found


def tree_of(known: dict[tuple[int, int], bytes], count: int) -> list[list[bytes]]:
    """All levels of an entry tree over ``count`` entries, computed from the known nodes.

    A node that does not follow from them is empty. Only nodes below the root of an inactive subtree are.
    """
    levels: list[list[bytes]] = []
    for level in range(TWIG_LEVELS + 1):
        row = []
        for index in range(TWIG_ENTRIES >> level):
            node = known.get((level, index), b"")
            if index << level >= count:
                node = ABSENT_ENTRY_NODES[level]
            elif not node and level:
                below = levels[-1][2 * index : 2 * index + 2]
                node = hash_pairs(ENTRY_NODE_KEY, below)[0] if all(below) else b""
            row.append(node)
        levels.append(row)
    return levels
