"""The prover: makes proofs for the final state and any retained height.

The state of an older height is the final one with the blocks above it undone, as far as a proof needs it: the entries
that were active, the order of the keys, and the nodes above twigs that have changed since. All of this follows from the
log, because entries name those that they replaced. Of a twig's entry tree the engine keeps the roots of the groups of
32 entries; a group is hashed again from the log when it is needed, and must lead to the kept root. So a proof costs the
hashes of one group and those above the groups. The last few twigs and groups are cached.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from validator.primitives.types import Hash, Height
from validator.state.engine import SECTION_HEAD, Engine, SectionHead
from validator.state.hashing import (
    ABSENT_ENTRY_NODES,
    ABSENT_UPPER_NODES,
    BITMAP_BYTES,
    GROUP_ENTRIES,
    GROUP_LEVELS,
    NO_POSITION,
    NODE_BYTES,
    TWIG_ENTRIES,
    TWIG_GROUPS,
    TWIG_LEVELS,
    UPPER_NODE_KEY,
    decode_entry,
    entry_hash,
    hash_pairs,
    key_hash,
    links_of,
    state_root,
    twig_hash,
    twigs_for,
    upper_depth,
)
from validator.state.log import Section, StateLog, chunk_name
from validator.state.merkle import pruned_peaks
from validator.state.proof import Proof, Witness
from validator.state.snapshot import CHUNK_TWIGS, Manifest, encode_twig, known_nodes, tree_of
from validator.storage.disk import DiskError

REMEMBERED_ENTRIES: Final = 65_536
"""Number of entries above which the oldest blocks are dropped. An entry takes some 150 bytes."""
REMEMBERED_SECTIONS: Final = 24
"""Number of the last read blocks that all stores of a process share."""


@dataclass(frozen=True, slots=True)
class BlockEntries:
    """What one block appended to the log."""

    head: SectionHead
    first_position: int
    """Position of the block's first entry."""
    places: tuple[bytes, ...]
    """The hash of each entry's key, in the order of the entries."""
    previous: tuple[int, ...]
    """The position of the entry that each entry replaced; :data:`~validator.state.hashing.NO_POSITION` for none."""
    deleted: tuple[int, ...]
    """Positions of the entries whose keys the block removed."""

    @staticmethod
    def of(section: Section) -> BlockEntries:
        """Read a block's section of the log."""
        return _entries_of(bytes(section.data), section.first_position)


@lru_cache(REMEMBERED_SECTIONS)
def _entries_of(data: bytes, first_position: int) -> BlockEntries:
    """Read a section. The last ones are cached: the validators of a process are asked about the same blocks."""
    section = Section(SectionHead.decode(data, 0), first_position, memoryview(data))
    links = list(links_of(data, SECTION_HEAD.size, section.head.entries))
    places, previous = tuple(key_hash(key) for _, key in links), tuple(replaced for replaced, _ in links)
    return BlockEntries(section.head, first_position, places, previous, tuple(section.deleted()))


class NewestBlocks:
    """The entries of the newest final blocks, read from the log once and kept. The oldest are dropped first.

    Questions about neighbouring heights need the same blocks.
    """

    def __init__(self, log: StateLog) -> None:
        self._log = log
        self._blocks: list[BlockEntries] = []
        """The blocks above the height ``_above``, ascending."""
        self._above: Height | None = None
        """``None`` if nothing was read yet."""
        self._entries = 0

    def above(self, height: Height) -> Iterator[BlockEntries]:
        """Iterate over the blocks above a height, ascending. Raises :class:`~validator.storage.disk.DiskError`."""
        if self._above is None or height < self._above:
            self._blocks, self._above, self._entries = [], height, 0
        newest = self._blocks[-1].head.height if self._blocks else self._above
        later = [BlockEntries.of(section) for section in self._log.sections_above(newest)]
        self._blocks.extend(reversed(later))
        self._entries += sum(len(block.places) for block in later)
        yield from self._blocks[bisect_right(self._blocks, height, key=_height_of) :]
        self._drop_oldest()

    def place_of(self, position: int) -> bytes | None:
        """The hash of the key of the entry at a position; ``None`` if a block before the kept ones appended it."""
        at = bisect_right(self._blocks, position, key=_first_position_of) - 1
        return None if at < 0 else self._blocks[at].places[position - self._blocks[at].first_position]

    def head_at(self, height: Height) -> SectionHead | None:
        """The head of the newest block at or below a height; ``None`` if the log begins above it."""
        after = bisect_right(self._blocks, height, key=_height_of)
        is_known = 0 < after < len(self._blocks)  # the log may have blocks above the kept ones
        return self._blocks[after - 1].head if is_known else self._log.head_at(height)

    def forget(self) -> None:
        """Drop all blocks."""
        self._blocks, self._above, self._entries = [], None, 0

    def _drop_oldest(self) -> None:
        """Drop the oldest blocks, if there are too many entries. Blocks of one height are dropped together."""
        dropped = 0
        while self._entries > REMEMBERED_ENTRIES:
            self._above = self._blocks[dropped].head.height
            after = bisect_right(self._blocks, self._above, key=_height_of)
            self._entries -= sum(len(block.places) for block in self._blocks[dropped:after])
            dropped = after
        del self._blocks[:dropped]


def _height_of(block: BlockEntries) -> Height:
    return block.head.height


def _first_position_of(block: BlockEntries) -> int:
    return block.first_position


REMEMBERED_TWIGS: Final = 64
REMEMBERED_GROUPS: Final = REMEMBERED_TWIGS * TWIG_GROUPS


@dataclass
class PastState:
    """The state of a retained height (the past state), as its difference from the final state."""

    height: Height
    root: Hash
    next_position: int
    live: int
    oldest: int
    """Position of the oldest active entry of the past state, or a lower one."""
    positions: dict[bytes, int | None] = field(default_factory=dict)
    """For each key that changed since, by its hash: the position of its active entry in the past state; ``None`` if the
    key was absent."""
    reactivated: dict[int, list[int]] = field(default_factory=dict)
    """Positions of entries that were active in the past state and are not in the final one, by twig."""
    upper: list[dict[int, bytes]] = field(default_factory=list)
    """Nodes of the upper tree of the past state that differ from the final one, for each level by index. The last level
    holds the root."""


def _starts(width: int) -> tuple[int, ...]:
    """The index of the first node of each level in a tree over ``width`` nodes, whose levels are concatenated, the root
    last."""
    return tuple(2 * width - (2 * width >> level) for level in range(width.bit_length()))


_GROUP_STARTS: Final = _starts(GROUP_ENTRIES)
_TWIG_STARTS: Final = _starts(TWIG_GROUPS)


class _Group(NamedTuple):
    """Up to 32 neighbouring entries, concatenated, with their ends and the nodes of the subtree over them."""

    data: bytes
    ends: Sequence[int]
    nodes: bytes

    @property
    def root(self) -> bytes:
        return self.nodes[-NODE_BYTES:]

    def entry(self, place: int) -> bytes:
        """The encoded entry at an index of the group."""
        return self.data[self.ends[place - 1] if place else 0 : self.ends[place]]


class _Groups:
    """The groups of entries, read on demand."""

    def __init__(self, engine: Engine, log: StateLog) -> None:
        self._engine = engine
        self._log = log
        self._read: OrderedDict[tuple[int, int], _Group] = OrderedDict()
        """Cached groups by the positions of their first entry and of their end. A complete group never changes."""

    def entry(self, position: int) -> bytes:
        """The encoded entry at a position."""
        return self.group(position // GROUP_ENTRIES, self._engine.next_position).entry(position % GROUP_ENTRIES)

    def group(self, number: int, end: int) -> _Group:
        """The group with a number, as it was when the log had ``end`` entries.

        Raises :class:`DiskError` if the entries in the log do not hash to the group's kept root.
        """
        first = number * GROUP_ENTRIES
        after = min(first + GROUP_ENTRIES, end)
        found = self._read.get((first, after))
        if found is not None:
            return found
        data = self._log.entries(first, after, self._engine.entry_ends)
        try:
            found = _Group(data, *self._engine.group_nodes(data, after - first))
        except ValueError:
            raise _lost(self._log, first, after) from None
        if after - first == GROUP_ENTRIES:
            index, at = first >> TWIG_LEVELS, number % TWIG_GROUPS * NODE_BYTES
            if found.root != self._engine.tree.group_roots(index)[at : at + NODE_BYTES]:
                raise _lost(self._log, first, after)
        self._read[first, after] = found
        if len(self._read) > REMEMBERED_GROUPS:
            self._read.popitem(last=False)
        return found


class _Twig:
    """A twig's entry tree up to some position."""

    def __init__(self, engine: Engine, groups: _Groups, index: int, after: int) -> None:
        self._groups = groups
        self._first_group = index * TWIG_GROUPS
        self._after = after
        full = (after - index * TWIG_ENTRIES) // GROUP_ENTRIES
        roots = engine.tree.group_roots(index)[: full * NODE_BYTES]
        rest = [ABSENT_ENTRY_NODES[GROUP_LEVELS]] * (TWIG_GROUPS - full)
        if after % GROUP_ENTRIES:
            rest[0] = self._group(full).root
        self._nodes = engine.twig_nodes(b"".join((roots, *rest)))

    def entry(self, offset: int) -> bytes:
        """The encoded entry at an offset."""
        return self._group(offset // GROUP_ENTRIES).entry(offset % GROUP_ENTRIES)

    def node(self, level: int, index: int) -> bytes:
        """The node of the entry tree at a level and index. Level 0 are the hashes of entries."""
        if level >= GROUP_LEVELS:
            at = (_TWIG_STARTS[level - GROUP_LEVELS] + index) * NODE_BYTES
            return self._nodes[at : at + NODE_BYTES]
        number, place = divmod(index, GROUP_ENTRIES >> level)
        at = (_GROUP_STARTS[level] + place) * NODE_BYTES
        return self._group(number).nodes[at : at + NODE_BYTES]

    def path(self, offset: int) -> list[bytes]:
        """The siblings of the path from an entry to the root, lowest first."""
        group, place = divmod(offset, GROUP_ENTRIES)
        return _path_of(self._group(group).nodes, _GROUP_STARTS, place) + _path_of(self._nodes, _TWIG_STARTS, group)

    def _group(self, number: int) -> _Group:
        return self._groups.group(self._first_group + number, self._after)


def _path_of(nodes: bytes, starts: Sequence[int], place: int) -> list[bytes]:
    """The siblings of the path from a leaf to the root, lowest first. ``place`` is the leaf's index."""
    places = [(start + (place >> level ^ 1)) * NODE_BYTES for level, start in enumerate(starts[:-1])]
    return [nodes[at : at + NODE_BYTES] for at in places]


def _lost(log: StateLog, first: int, after: int) -> DiskError:
    return DiskError(f"{log.folder}: the log no longer holds the entries {first} to {after}")


@dataclass
class _SnapshotTwig:
    """A twig from a snapshot: the content in the snapshot, and the entries appended since."""

    entries: dict[int, bytes]
    """Entries by offset: those that were active in the snapshot, or were appended later."""
    levels: list[list[bytes]]

    def entry(self, offset: int) -> bytes:
        """The encoded entry at an offset."""
        return self.entries[offset]

    def node(self, level: int, index: int) -> bytes:
        """The node of the entry tree at a level and index.

        It is empty if it is inside a subtree of inactive entries, of which the snapshot has only the root.
        """
        return self.levels[level][index]

    def path(self, offset: int) -> list[bytes]:
        """The siblings of the path from an active entry to the root, lowest first."""
        return [self.levels[level][offset >> level ^ 1] for level in range(TWIG_LEVELS)]


class Prover:
    """Makes proofs and snapshots of a store's final state, and of the retained older ones.

    The engine must be at the final state whenever the prover is used.
    """

    def __init__(self, engine: Engine, log: StateLog, origin: Manifest | None = None) -> None:
        self._engine = engine
        self._log = log
        self._origin = origin
        self._groups = _Groups(engine, log)
        self._blocks = NewestBlocks(log)
        self._twigs: OrderedDict[tuple[int, int], _Twig | _SnapshotTwig] = OrderedDict()
        self._last_chunk: tuple[Hash | None, int, bytes] = (None, 0, b"")
        """State root, number and content of the last chunk: it may be requested piece by piece."""

    def forget_blocks(self) -> None:
        """Forget the blocks that were read, since a height that was read got another block."""
        self._blocks.forget()

    def past(self, height: Height) -> PastState:
        """Compute the state of a retained height. The cost is proportional to the changes of the blocks above it."""
        head = self._blocks.head_at(height)
        if head is not None:
            past = PastState(height, head.root, head.next_position, head.live, head.oldest)
        elif self._origin is not None:
            origin = self._origin
            past = PastState(height, origin.root, origin.next_position, origin.live, origin.first_twig << TWIG_LEVELS)
        else:  # nothing was committed yet
            past = PastState(height, self._engine.root, 0, 0, 0)
        self.extend(past, height)
        return past

    def extend(self, past: PastState, known: Height) -> None:
        """Extend a past state by the blocks above height ``known``. It covers the blocks up to ``known`` already.

        The cost is proportional to the changes of the added blocks. Their order does not matter: each entry of the past
        state is replaced or deleted at most once. Replacements and deletions of later entries do not matter either.
        """
        for block in self._blocks.above(known):
            for place, previous in zip(block.places, block.previous, strict=True):
                if previous == NO_POSITION:
                    past.positions.setdefault(place, None)
                elif previous < past.next_position:
                    self._note(past, place, previous)
            for position in block.deleted:
                if position < past.next_position:
                    self._note(past, self._place_of(position), position)
        past.upper = self._changed_upper(past)
        assert state_root(past.next_position, past.live, past.upper[-1][0]) == past.root, "the log says what it led to"

    def prove(self, key: bytes, past: PastState) -> Proof:
        """The proof of a key's value or absence in a state."""
        if not past.live:
            return Proof(past.next_position, 0, past.upper[-1][0])
        place = key_hash(key)
        position = past.positions[place] if place in past.positions else self._engine.position(key)
        if position is None:
            position = self._position_below(place, past)
        return Proof(past.next_position, past.live, self._witness(position, past))

    def manifest(self, past: PastState) -> Manifest:
        """The manifest of a snapshot of a state."""
        first_twig = past.oldest >> TWIG_LEVELS
        peaks = tuple(self._node(*place, past) for place in pruned_peaks(first_twig))
        roots = tuple(self._node(0, index, past) for index in range(first_twig, twigs_for(past.next_position)))
        return Manifest(past.height, past.next_position, past.live, first_twig, peaks, roots)

    def chunk(self, number: int, past: PastState) -> bytes:
        """One chunk of the snapshot of a state. Raises :class:`IndexError` if there is none."""
        if self._last_chunk[:2] == (past.root, number):
            return self._last_chunk[2]
        manifest = self.manifest(past)
        if not 0 <= number < manifest.chunks:
            raise IndexError(f"chunk {number} of {manifest.chunks}")
        data = b"".join(self.encoded_twig(index, past) for index in manifest.twigs_of(number))
        self._last_chunk = (past.root, number, data)
        return data

    def encoded_twig(self, index: int, past: PastState) -> bytes:
        """The encoding of one twig of a past state, as part of a chunk."""
        twig = self._twig(index, past.next_position)
        count = min(past.next_position - index * TWIG_ENTRIES, TWIG_ENTRIES)
        return encode_twig(self._bits(index, past), count, twig.entry, twig.node)

    def _place_of(self, position: int) -> bytes:
        """The hash of the key of the entry at a position."""
        return self._blocks.place_of(position) or key_hash(decode_entry(self._entry(position)).key)

    def _entry(self, position: int) -> bytes:
        """The encoded entry at a position."""
        index, offset = divmod(position, TWIG_ENTRIES)
        if self._came_with_snapshot(index):
            return self._twig(index, self._engine.next_position).entry(offset)
        return self._groups.entry(position)

    def _came_with_snapshot(self, index: int) -> bool:
        """Whether a twig has entries that are in the snapshot and not in the log."""
        return self._origin is not None and index * TWIG_ENTRIES < self._origin.next_position

    @staticmethod
    def _note(past: PastState, place: bytes, position: int) -> None:
        """Record that a block replaced or deleted the entry, in the past state, of the key with this hash."""
        past.positions[place] = position
        past.reactivated.setdefault(position >> TWIG_LEVELS, []).append(position)

    def _position_below(self, place: bytes, past: PastState) -> int:
        """The position of the active entry, in the past state, of the key before a place of the ring.

        It compares two candidates: the nearest key that is unchanged since, and the nearest one that has changed.
        """
        present = sorted(each for each, position in past.positions.items() if position is not None)
        candidates: dict[bytes, int] = {}
        if present:
            nearest = present[bisect_left(present, place) - 1]
            candidates[nearest] = past.positions[nearest] or 0
        found = self._engine.predecessor(place)
        for _ in range(self._engine.live):
            assert found is not None, "the engine has keys"
            hashed = key_hash(found[0])
            if hashed not in past.positions:
                candidates[hashed] = found[1]
            if past.positions.get(hashed, found[1]) is not None:
                break
            found = self._engine.predecessor(hashed)
        return candidates[max(candidates, key=lambda each: (each < place, each))]

    # --- paths --------------------------------------------------------------------------------------------------------

    def _witness(self, position: int, past: PastState) -> Witness:
        index, offset = divmod(position, TWIG_ENTRIES)
        twig = self._twig(index, past.next_position)
        upper = [self._node(level, index >> level ^ 1, past) for level in range(len(past.upper) - 1)]
        return Witness(position, twig.entry(offset), twig.path(offset), self._bits(index, past), upper)

    def _twig(self, index: int, end: int) -> _Twig | _SnapshotTwig:
        """The entry tree of a twig, as it was when the log had ``end`` entries. Twigs are cached."""
        first = index * TWIG_ENTRIES
        after = min(first + TWIG_ENTRIES, end)
        twig = self._twigs.pop((index, after), None)
        if twig is None:
            twig = self._read_twig(index, after)
            is_whole = after in (first + TWIG_ENTRIES, self._engine.next_position)
            if is_whole and twig.node(TWIG_LEVELS, 0) != self._engine.tree.twig(index).entries_root:
                raise _lost(self._log, first, after)
        self._twigs[index, after] = twig
        if len(self._twigs) > REMEMBERED_TWIGS:
            self._twigs.popitem(last=False)
        return twig

    def _read_twig(self, index: int, after: int) -> _Twig | _SnapshotTwig:
        """Read the entries of a twig up to a position, from the log and from the snapshot with which the log begins."""
        origin, first = self._origin, index * TWIG_ENTRIES
        if origin is None or not self._came_with_snapshot(index):
            return _Twig(self._engine, self._groups, index, after)
        chunk = (index - origin.first_twig) // CHUNK_TWIGS
        data = self._log.disk.read(chunk_name(self._log.folder, chunk))
        known, found = known_nodes(origin, chunk, data)[index]
        if after > origin.next_position:
            data = self._log.entries(origin.next_position, after, self._engine.entry_ends)
            ends = self._engine.entry_ends(data, after - origin.next_position)
            later = enumerate(zip([0, *ends], ends, strict=False), start=origin.next_position)
            found.update((position, data[start:end]) for position, (start, end) in later)
        for position, encoded in found.items():
            known[0, position - first] = entry_hash(encoded)
        entries = {position - first: encoded for position, encoded in found.items()}
        return _SnapshotTwig(entries, tree_of(known, after - first))

    def _bits(self, index: int, past: PastState) -> bytes:
        """The active bits of a twig in the past state."""
        bits = int.from_bytes(self._engine.tree.twig(index).active_bits, "little")
        for position in past.reactivated.get(index, ()):
            bits |= 1 << (position & (TWIG_ENTRIES - 1))
        count = min(past.next_position - index * TWIG_ENTRIES, TWIG_ENTRIES)
        return (bits & (1 << count) - 1).to_bytes(BITMAP_BYTES, "little")

    def _entries_root(self, index: int, past: PastState) -> bytes:
        is_same = (index + 1) * TWIG_ENTRIES <= past.next_position or past.next_position == self._engine.next_position
        return (
            self._engine.tree.twig(index).entries_root
            if is_same
            else self._twig(index, past.next_position).node(TWIG_LEVELS, 0)
        )

    def _node(self, level: int, index: int, past: PastState) -> bytes:
        """The node of the upper tree of the past state at a level and index."""
        if index << level >= twigs_for(past.next_position):
            return ABSENT_UPPER_NODES[level]
        if level < len(past.upper) and index in past.upper[level]:
            return past.upper[level][index]
        return self._engine.tree.upper_node(level, index)

    def _changed_upper(self, past: PastState) -> list[dict[int, bytes]]:
        """The upper nodes above twigs that have changed since, and above the last twig of the past state."""
        twigs = twigs_for(past.next_position)
        if not twigs:
            return [{0: ABSENT_UPPER_NODES[0]}]
        changed = sorted({*past.reactivated, twigs - 1})
        past.upper = [{index: twig_hash(self._entries_root(index, past), self._bits(index, past)) for index in changed}]
        for level in range(upper_depth(twigs)):
            changed = list(dict.fromkeys(index >> 1 for index in changed))
            row = [self._node(level, child, past) for index in changed for child in (2 * index, 2 * index + 1)]
            past.upper.append(dict(zip(changed, hash_pairs(UPPER_NODE_KEY, row), strict=True)))
        return past.upper
