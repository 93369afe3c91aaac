"""The engine for large states: everything in arrays, and compiled loops over them
(:mod:`validator.state.engines.kernels`).

No key has a Python object. Beyond its key and value, a key costs: 12 bytes of index at a load of 66 to 86 %, 4 bytes of
slot, 12 bytes of record head and up to 7 of padding, and 4 bytes for each position between the oldest active entry and
the end of the log, of which there are up to 2.5 a key.

A batch goes through in this order: hash all its keys, sort them by hash, look them up; change the ring; hash the next
keys of all entries that are to be appended; append these; the same for what compaction moves; hash the entries, the
twigs, the upper tree, level by level. Positions must stay below 2**48, and the arena below 32 GiB.
"""

from __future__ import annotations

import mmap as mmap_module
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Any, Final

import numpy as np
from blake3 import blake3

from validator.primitives.types import Hash, Height
from validator.state.engine import POSITION, SECTION_HEAD, SectionHead, Step
from validator.state.engines import kernels
from validator.state.engines.kernels import (
    BUMP,
    CAPACITY,
    COUNTERS,
    EMPTY,
    ENTRY_HEAD_BYTES,
    FIRST_TWIG,
    LIVE,
    NEXT_POSITION,
    NO_RECORD_POSITION,
    OLDEST,
    POSITION_BITS,
    POSITION_MASK,
    RECORD_HEAD_BYTES,
    REPLAYED_FROM,
    SIZE_CLASSES,
    SLOTS_FREE,
    SLOTS_USED,
    TOP,
    TWIG_BYTES,
    TWIG_ROW_BYTES,
    UNIT_BYTES,
    Array,
    Arrays,
)
from validator.state.hashing import (
    ABSENT_ENTRY_NODES,
    ABSENT_UPPER_NODES,
    BITMAP_BYTES,
    COMPACTION_SLACK,
    COMPACTION_STEPS,
    ENTRY_KEY,
    ENTRY_NODE_KEY,
    KEY_BYTES_LIMIT,
    KEY_KEY,
    NODE_BYTES,
    TWIG_ENTRIES,
    TWIG_KEY,
    TWIG_LEVELS,
    UPPER_NODE_KEY,
    VALUE_BYTES_LIMIT,
    Twig,
    check_bounds,
    entry_hash,
    key_hash,
    state_root,
    twigs_for,
    upper_depth,
    window_limit,
)
from validator.state.interface import Batch
from validator.state.merkle import pruned_peaks
from validator.state.snapshot import SnapshotTwig

FULL_MASK: Final = 2**64 - 1
MIN_CAPACITY: Final = 1024
MIN_TWIGS: Final = 64
MIN_LOAD: Final = 66
MAX_LOAD: Final = 86
"""Per cent of the index that are in use after it grew, and when it grows."""
HUGE_PAGE_BYTES: Final = 2 * 1024 * 1024
REPLAY_BYTES: Final = 2 * 1024 * 1024
"""Entries that recovery takes over at once."""

_RECORD_HEAD: Final = struct.Struct("<QI")


def _key_words(key: bytes) -> Array:
    return np.frombuffer(key, dtype="<u4").astype(np.uint32)


_KEY_WORDS: Final = _key_words(KEY_KEY)
_ENTRY_WORDS: Final = _key_words(ENTRY_KEY)
_ENTRY_NODE_WORDS: Final = _key_words(ENTRY_NODE_KEY)
_TWIG_WORDS: Final = _key_words(TWIG_KEY)
_UPPER_NODE_WORDS: Final = _key_words(UPPER_NODE_KEY)
_ABSENT_ENTRY_WORDS: Final = np.stack([_key_words(node) for node in ABSENT_ENTRY_NODES])


@dataclass(slots=True)
class _Undo:
    records: Array
    """What the touched keys had before, one record behind the other."""
    next_position: int
    oldest: int
    frontier: Array
    entries_root: bytes
    """Of the twig in which the next position stood."""


@dataclass(slots=True)
class _Columns:
    """A batch as arrays: bytes of all keys and of all values, where each begins, and how long it is."""

    keys: Array
    key_starts: Array
    key_lengths: Array
    values: Array
    value_starts: Array
    value_lengths: Array
    """-1 deletes."""


class PackedEngine:
    """One state in arrays; implements :class:`validator.state.engine.Engine`."""

    def __init__(self, slack: int = COMPACTION_SLACK, mask: int = FULL_MASK) -> None:
        self._slack = slack
        self._mask = mask
        self._frontier = np.zeros((TWIG_LEVELS, 8), dtype=np.uint32)
        self._width = MIN_TWIGS
        self._heap = _empty_heap(MIN_TWIGS)
        self._pending: list[bytes] = []
        self._pending_heads: list[SectionHead] = []
        self._pending_bytes = 0
        self._is_fresh = True
        """Whether nothing was replayed yet."""
        arena = np.empty(MIN_CAPACITY, dtype=np.uint64)
        self._arrays = Arrays(
            prefixes=np.empty(2 * MIN_CAPACITY, dtype=np.uint64),
            places=np.full(2 * MIN_CAPACITY, EMPTY, dtype=np.uint32),
            offsets=np.empty(MIN_CAPACITY, dtype=np.uint32),
            free_slots=np.empty(MIN_CAPACITY, dtype=np.uint32),
            words=arena,
            halves=arena.view(np.uint32),
            octets=arena.view(np.uint8),
            free_records=np.full(SIZE_CLASSES, EMPTY, dtype=np.uint32),
            window=np.empty(MIN_CAPACITY, dtype=np.uint32),
            twigs=_empty_twigs(MIN_TWIGS),
            dirty=np.zeros(MIN_TWIGS, dtype=np.uint8),
            counters=np.zeros(COUNTERS, dtype=np.int64),
            mask=np.array([mask], dtype=np.uint64),
            key_words=_KEY_WORDS,
            lanes=np.zeros((48, kernels.LANES), dtype=np.uint32),
            scratch=np.zeros(kernels.BLOCK_BYTES + NODE_BYTES, dtype=np.uint8),
        )
        self._arrays.counters[CAPACITY] = MIN_CAPACITY
        self._look()
        self._root = self._make_root()

    @property
    def root(self) -> Hash:
        return self._root

    @property
    def next_position(self) -> int:
        """Entries ever appended."""
        return int(self._arrays.counters[NEXT_POSITION])

    @property
    def live(self) -> int:
        """Keys that have a value."""
        return int(self._arrays.counters[LIVE])

    @property
    def oldest(self) -> int:
        """Position of the oldest active entry; :attr:`next_position` where there is none."""
        return int(self._arrays.counters[OLDEST])

    # --- reads --------------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or ``None``."""
        prefix = int.from_bytes(blake3(key, key=KEY_KEY).digest(8), "big") & self._mask
        place = (prefix >> 32) * self._capacity >> 32
        places, prefixes = self._places, self._prefixes
        while (slot := places[place]) != EMPTY:
            found = prefixes[place]
            if found > prefix:
                return None
            if found == prefix:
                at = self._offsets[slot] * UNIT_BYTES
                head, value_bytes = _RECORD_HEAD.unpack_from(self._octets, at)
                middle = at + RECORD_HEAD_BYTES + (head >> POSITION_BITS)
                if self._octets[at + RECORD_HEAD_BYTES : middle] == key:
                    return bytes(self._octets[middle : middle + value_bytes])
            place += 1
        return None

    def items(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """The keys that begin with ``prefix`` and their values, keys ascending. Costs O(all keys)."""
        slots = kernels.slots_with_prefix(self._arrays, np.frombuffer(prefix, dtype=np.uint8))
        return sorted(self._record(slot)[:2] for slot in slots.tolist())

    def position(self, key: bytes) -> int | None:
        """Position of a key's active entry."""
        octets = np.frombuffer(key, dtype=np.uint8)
        place, is_there = kernels.find_one(self._arrays, octets, np.frombuffer(key_hash(key), dtype=np.uint8))
        return self._record(self._places[place])[2] if is_there else None

    def predecessor(self, place: bytes) -> tuple[bytes, int] | None:
        """The live key whose hash is the last below ``place``, or the last of all, and its entry's position."""
        if not self.live:
            return None
        nothing = np.empty(0, dtype=np.uint8)
        slot = kernels.slot_below(self._arrays, nothing, np.frombuffer(place, dtype=np.uint8))
        key, _, position = self._record(slot)
        return key, position

    def twig(self, index: int) -> Twig:
        """What twig ``index`` is made of, where it is not pruned."""
        row = self._arrays.twigs[index - int(self._arrays.counters[FIRST_TWIG])].tobytes()
        return Twig(row[:NODE_BYTES], row[NODE_BYTES : NODE_BYTES + BITMAP_BYTES])

    def upper_node(self, level: int, index: int) -> bytes:
        """Node of the upper tree, where it is not pruned; level 0 is the twig roots."""
        if index >= self._width >> level:
            return ABSENT_UPPER_NODES[level]
        node: bytes = self._heap[(self._width >> level) + index].tobytes()
        return node

    def entry_ends(self, data: bytes | memoryview, count: int) -> Sequence[int]:
        """Where each of so many encoded entries ends; they begin with ``data`` and stand one behind the other."""
        starts, key_lengths, value_lengths = _spans_of(np.frombuffer(data, dtype=np.uint8), count)
        ends: list[int] = (starts + key_lengths + value_lengths + ENTRY_HEAD_BYTES).tolist()
        return ends

    def entry_levels(self, data: bytes, ends: Sequence[int]) -> list[bytes]:
        """The entry tree over up to 2,048 encoded entries: each level's nodes one behind the other, leaves first."""
        sizes = np.diff(np.array(ends, dtype=np.int64), prepend=0)
        leaves = _entry_leaves(data, sizes, self._arrays)
        levels = np.zeros((2 * TWIG_ENTRIES, kernels.HASH_WORDS), dtype=np.uint32)
        levels[: len(leaves)] = leaves
        kernels.twig_levels(levels.reshape(-1), _ENTRY_NODE_WORDS, self._arrays.lanes)
        nodes, rows = levels.tobytes(), [2 * TWIG_ENTRIES - (2 * TWIG_ENTRIES >> level) for level in range(13)]
        return [nodes[rows[i] * NODE_BYTES : rows[i + 1] * NODE_BYTES] for i in range(TWIG_LEVELS + 1)]

    def _record(self, slot: int) -> tuple[bytes, bytes, int]:
        """Key, value and position of a slot."""
        at = self._offsets[slot] * UNIT_BYTES
        head, value_bytes = _RECORD_HEAD.unpack_from(self._octets, at)
        middle = at + RECORD_HEAD_BYTES + (head >> POSITION_BITS)
        key = bytes(self._octets[at + RECORD_HEAD_BYTES : middle])
        return key, bytes(self._octets[middle : middle + value_bytes]), head & POSITION_MASK

    # --- one block ----------------------------------------------------------------------------------------------------

    def apply(self, height: Height, batch: Batch) -> Step:
        """Move to the child state after a batch. Raises :class:`ValueError`, and changes nothing, where it is wrong."""
        columns = _columns(batch)
        self._reserve(columns)
        counters = self._arrays.counters
        next_position, oldest = self.next_position, self.oldest
        root = self._tail_root()
        frontier = self._frontier.copy()
        touched, items, deleted, undo = self._change_ring(columns)
        parts = [self._append(height, touched, items, columns, undo)]
        limit = window_limit(self.live, self._slack)
        chosen = np.empty(COMPACTION_STEPS * len(touched), dtype=np.int64)
        count = kernels.choose_oldest(self._arrays, limit, len(chosen), chosen)
        if count:
            moved = self._places_of(chosen[:count])
            parts.append(self._append(height, moved, np.full(count, -1, dtype=np.int64), columns, parts[0].undo))
        counters[OLDEST] = kernels.raise_oldest(self._arrays, oldest)
        self._extend(next_position, [part.leaves for part in parts])
        self._climb(twigs_for(self.next_position))
        sizes = [len(part.entries) for part in parts]
        head = SectionHead(
            height,
            self.next_position,
            self.live,
            self.oldest,
            self._root,
            sum(sizes),
            self.next_position - next_position,
            len(deleted),
        )
        ends = deleted.astype(">u8").tobytes()
        section = b"".join((head.encode(), *(part.entries for part in parts), ends))
        saved = _Undo(parts[-1].undo, next_position, oldest, frontier, root)
        return Step(section, self._root, self.next_position, self.live, saved)

    def _change_ring(self, columns: _Columns) -> tuple[Array, Array, Array, Array]:
        """Look the batch up and change the ring. Places that get an entry (ascending), the items of the batch that give
        their values (or -1), positions of deleted entries, and undo data."""
        arrays, total = self._arrays, len(columns.key_starts)
        hashes = _hash_keys(columns.keys, columns.key_starts, columns.key_lengths, arrays)
        order = np.argsort(hashes.reshape(total, NODE_BYTES)[:, :8].copy().view(">u8").ravel(), kind="stable")
        actions, found, places = np.empty(total, np.uint8), np.empty(total, np.int64), np.empty(total, np.int64)
        keys = (columns.keys, columns.key_starts, columns.key_lengths)
        values = (columns.values, columns.value_starts, columns.value_lengths)
        if total >= kernels.LANES:
            kernels.approach(arrays, hashes, order, np.empty((2, total), dtype=np.int64))
        inserts, deletes = kernels.lookup(arrays, *keys, *values, hashes, order, actions, found, places)
        deleted = np.empty(deletes, dtype=np.int64)
        undo = np.empty(self._undo_bytes(columns, actions, found), dtype=np.uint8)
        length = kernels.change_ring(arrays, *keys, *values, hashes, order, actions, found, deleted, undo)
        touched, items = np.empty(2 * total, dtype=np.int64), np.empty(2 * total, dtype=np.int64)
        is_same = not inserts and not deletes
        count = kernels.touched_places(arrays, *keys, hashes, order, actions, places, is_same, touched, items)
        touched, items = touched[:count], items[:count]
        if not is_same:
            touched, first = np.unique(touched, return_index=True)
            items = items[first]
        return touched, items, deleted, undo[:length]

    def _undo_bytes(self, columns: _Columns, actions: Array, found: Array) -> int:
        """Bytes that the undo data of keys that come and go may take."""
        come = columns.key_lengths[actions == kernels.INSERT]
        gone = found[actions == kernels.DELETE].tolist()
        sizes = sum(len(key) + len(value) for key, value, _ in map(self._record, gone))
        return int(come.sum()) + sizes + (len(come) + len(gone)) * (RECORD_HEAD_BYTES + UNIT_BYTES)

    def _append(self, height: Height, touched: Array, items: Array, columns: _Columns, undo: Array) -> _Part:
        """Append entries for some places, in this order."""
        arrays, count = self._arrays, len(touched)
        if not count:
            return _Part(b"", np.empty((0, 8), dtype=np.uint32), undo)
        slots = np.empty(count, dtype=np.int64)
        size, staged, next_staged, undone = kernels.measure(arrays, touched, items, columns.value_lengths, slots)
        next_hashes = _hash_slots(arrays, slots, next_staged)
        entries, stage = np.empty(size, dtype=np.uint8), np.zeros(staged, dtype=np.uint8)
        starts, lengths = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        saved = np.empty(len(undo) + undone, dtype=np.uint8)
        saved[: len(undo)] = undo
        values = (columns.values, columns.value_starts, columns.value_lengths)
        end = kernels.append_entries(
            arrays, height, touched, items, *values, next_hashes, entries, stage, starts, lengths, saved, len(undo)
        )
        encoded = entries.tobytes()
        leaves = _hash_entries(encoded, stage, starts, lengths, arrays)
        return _Part(encoded, leaves, saved[:end])

    def _places_of(self, slots: Array) -> Array:
        """Places of some slots in the index."""
        touched = np.empty(len(slots), dtype=np.int64)
        hashes = _hash_slots(self._arrays, slots, len(slots) * KEY_BYTES_LIMIT)
        kernels.find_slots(self._arrays, slots, hashes, touched)
        return touched

    # --- the tree -----------------------------------------------------------------------------------------------------

    def _tail_root(self) -> bytes:
        """Entry root of the twig in which the next position stands."""
        return self.twig(self.next_position >> TWIG_LEVELS).entries_root

    def _extend(self, first: int, parts: Sequence[Array]) -> None:
        """Put the roots of new leaves, which begin at position ``first``, into their twigs."""
        count = sum(len(part) for part in parts)
        if not count:
            return
        rows, other = (np.empty((count + 4) * 8, dtype=np.uint32) for _ in range(2))
        rows[8 : (count + 1) * 8] = np.concatenate(parts).ravel()
        start, twigs, swapped = kernels.extend_leaves(
            first,
            rows,
            other,
            count,
            self._frontier,
            _ABSENT_ENTRY_WORDS,
            _ENTRY_NODE_WORDS,
            self._arrays.lanes,
        )
        found = (other if swapped else rows)[8 : 8 + twigs * 8].view(np.uint8).reshape(twigs, NODE_BYTES)
        row = start - int(self._arrays.counters[FIRST_TWIG])
        self._arrays.twigs[row : row + twigs, :NODE_BYTES] = found

    def _climb(self, twigs: int) -> None:
        """Hash everything above the rows that changed; ``twigs`` is how many there are or were, the larger number."""
        arrays = self._arrays
        rows = np.flatnonzero(arrays.dirty)
        if len(rows):
            arrays.dirty[rows] = 0
            changed = rows + arrays.counters[FIRST_TWIG]
            present = rows[changed < twigs_for(self.next_position)]
            words = self._heap.reshape(-1)
            kernels.hash_messages(
                arrays.twigs.reshape(-1).view(np.uint32),
                present * (TWIG_ROW_BYTES // 4),
                np.full(len(present), TWIG_BYTES, dtype=np.int64),
                _TWIG_WORDS,
                words,
                (present + arrays.counters[FIRST_TWIG] + self._width) * kernels.HASH_WORDS,
                arrays.lanes,
            )
            scratch = np.empty((3, len(rows)), dtype=np.int64)
            depth = upper_depth(twigs)
            kernels.climb(words, self._width, changed, depth, _UPPER_NODE_WORDS, scratch, arrays.lanes)
        self._root = self._make_root()

    def _make_root(self) -> Hash:
        depth = upper_depth(twigs_for(self.next_position))
        return state_root(self.next_position, self.live, self.upper_node(depth, 0))

    # --- back ---------------------------------------------------------------------------------------------------------

    def undo(self, step: Step) -> None:
        """Move back to the state before ``step``, the latest one that was applied and not undone."""
        undo: _Undo = step.undo
        arrays, twigs = self._arrays, twigs_for(self.next_position)
        starts, lengths = self._spans(undo.records)
        self._reserve_for(len(starts), 2 * len(undo.records), 0)
        arrays = self._arrays
        hashes = _hash_keys(undo.records, starts, lengths, arrays)
        kernels.take_back(arrays, undo.records, starts, lengths, hashes, undo.next_position)
        arrays.counters[OLDEST] = undo.oldest
        self._frontier = undo.frontier.copy()
        first = int(arrays.counters[FIRST_TWIG])
        kept = twigs_for(undo.next_position)
        arrays.twigs[kept - first : twigs - first] = _empty_twigs(1)
        self._heap[self._width + kept : self._width + twigs] = 0
        tail = (undo.next_position >> TWIG_LEVELS) - first
        arrays.twigs[tail, :NODE_BYTES] = np.frombuffer(undo.entries_root, dtype=np.uint8)
        self._climb(twigs)

    def before(self, step: Step) -> dict[bytes, bytes | None]:
        """The values that an applied step's keys had before it; keys whose entry only moved are among them."""
        undo: _Undo = step.undo
        data = undo.records.tobytes()
        found: dict[bytes, bytes | None] = {}
        cursor = 0
        while cursor < len(data):
            head, value_bytes = _RECORD_HEAD.unpack_from(data, cursor)
            middle = cursor + RECORD_HEAD_BYTES + (head >> POSITION_BITS)
            is_new = head & POSITION_MASK == NO_RECORD_POSITION
            key = data[cursor + RECORD_HEAD_BYTES : middle]
            found.setdefault(key, None if is_new else data[middle : middle + value_bytes])
            cursor += -(-(middle - cursor + value_bytes) // UNIT_BYTES) * UNIT_BYTES
        return found

    def _spans(self, records: Array) -> tuple[Array, Array]:
        """Where the keys of undo data begin, and how long they are."""
        most = len(records) // (2 * UNIT_BYTES) + 1
        starts, lengths = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
        count = kernels.undo_spans(records, len(records), starts, lengths)
        return starts[:count], lengths[:count]

    # --- opening ------------------------------------------------------------------------------------------------------

    def seed(self, first_twig: int, peaks: Sequence[bytes]) -> None:
        """Begin, empty, behind pruned twigs."""
        counters = self._arrays.counters
        counters[FIRST_TWIG] = first_twig
        counters[NEXT_POSITION] = counters[OLDEST] = first_twig * TWIG_ENTRIES
        self._reserve_twigs(0)
        for (level, index), peak in zip(pruned_peaks(first_twig), peaks, strict=True):
            self._heap[(self._width >> level) + index] = np.frombuffer(peak, dtype=np.uint32)

    def forget(self, first_twig: int) -> None:
        """Drop what belongs to pruned twigs alone."""
        arrays = self._arrays
        shift = first_twig - int(arrays.counters[FIRST_TWIG])
        arrays.twigs[: len(arrays.twigs) - shift] = arrays.twigs[shift:].copy()
        arrays.twigs[len(arrays.twigs) - shift :] = _empty_twigs(1)
        arrays.counters[FIRST_TWIG] = first_twig

    def replay(self, section: memoryview, head: SectionHead, first_position: int) -> None:
        """Take over one block's part of the log, whose entries begin at ``first_position``; roots come at the end."""
        if self._is_fresh:
            self._rebase(first_position)
            self._is_fresh = False
        self._pending.append(bytes(section))
        self._pending_heads.append(head)
        self._pending_bytes += len(section)
        if self._pending_bytes >= REPLAY_BYTES:
            self._absorb()

    def finish(self) -> None:
        """Everything was replayed: make the root."""
        self._absorb()
        counters = self._arrays.counters
        counters[OLDEST] = kernels.raise_oldest(self._arrays, max(self.oldest, self._first_kept))
        self._climb(twigs_for(self.next_position))
        self._fit_window(self.next_position - self.oldest + MIN_CAPACITY)

    @property
    def _first_kept(self) -> int:
        return int(self._arrays.counters[FIRST_TWIG]) * TWIG_ENTRIES

    def _rebase(self, first_position: int) -> None:
        """The log begins below the first twig that is kept: the positions before it are replayed without leaves."""
        self._arrays.counters[NEXT_POSITION] = first_position
        self._arrays.counters[OLDEST] = first_position
        self._arrays.counters[REPLAYED_FROM] = first_position

    def _absorb(self) -> None:
        """Take over the sections that wait."""
        regions = [data[SECTION_HEAD.size :] for data in self._pending]
        heads = self._pending_heads
        entries = b"".join(region[: head.entries_bytes] for region, head in zip(regions, heads, strict=True))
        deleted, deleted_after, total = [], [], 0
        for region, head in zip(regions, heads, strict=True):
            total += head.entries
            deleted += [position for (position,) in POSITION.iter_unpack(region[head.entries_bytes :])]
            deleted_after += [total] * head.deleted
        self._pending, self._pending_heads, self._pending_bytes = [], [], 0
        if total or deleted:
            gone = (np.array(deleted, dtype=np.int64), np.array(deleted_after, dtype=np.int64))
            first = self.next_position
            leaves = self._take_over(entries, np.arange(first, first + total), *gone)
            skipped = min(max(self._first_kept - first, 0), total)
            self._extend(first + skipped, [leaves[skipped:]])

    def load_twig(self, twig: SnapshotTwig) -> None:
        """Take over a twig of a snapshot; twigs come in order."""
        self._is_fresh = False
        nothing = np.empty(0, dtype=np.int64)
        positions = np.array(list(twig.entries), dtype=np.int64)
        self._reserve_twigs(TWIG_ENTRIES)
        self._take_over(b"".join(twig.entries.values()), positions, nothing, nothing)
        row = twig.index - int(self._arrays.counters[FIRST_TWIG])
        self._arrays.twigs[row, :NODE_BYTES] = np.frombuffer(twig.entries_root, dtype=np.uint8)
        self._arrays.dirty[row] = 1
        self._arrays.counters[NEXT_POSITION] = (twig.index + 1) * TWIG_ENTRIES
        self._frontier = np.stack([_key_words(node or bytes(NODE_BYTES)) for node in twig.frontier])

    def end_load(self, next_position: int) -> None:
        """All twigs of the snapshot were loaded, which had so many entries."""
        self._arrays.counters[NEXT_POSITION] = next_position

    def _take_over(self, entries: bytes, positions: Array, deleted: Array, deleted_after: Array) -> Array:
        """Replay encoded entries, which stand at these positions, with deletions between them; returns their hashes."""
        total = len(positions)
        data = np.frombuffer(entries, dtype=np.uint8)
        starts, key_lengths, value_lengths = _spans_of(data, total)
        self._reserve_for(total, len(entries), total + TWIG_ENTRIES)
        arrays = self._arrays
        leaves = _entry_leaves(entries, key_lengths + value_lengths + ENTRY_HEAD_BYTES, arrays)
        hashes = _hash_keys(data, starts + ENTRY_HEAD_BYTES, key_lengths, arrays)
        kernels.replay_entries(
            arrays, data, starts, key_lengths, value_lengths, hashes, positions, deleted, deleted_after
        )
        return leaves

    # --- room ---------------------------------------------------------------------------------------------------------

    def _reserve(self, columns: _Columns) -> None:
        """Make room for whatever a batch may lead to."""
        total = len(columns.key_starts)
        touched = min(2 * total, self.live + total)
        size = len(columns.keys) + len(columns.values)
        self._reserve_for(total, size, (1 + COMPACTION_STEPS) * touched)

    def _reserve_for(self, keys: int, size: int, entries: int) -> None:
        """Make room for so many keys, bytes of keys and values, and entries."""
        counters = self._arrays.counters
        units = (size + keys * (RECORD_HEAD_BYTES + UNIT_BYTES)) * 9 // 8 // UNIT_BYTES + 2 * keys + 1
        self._reserve_arena(int(counters[BUMP]) + units)
        self._reserve_slots(int(counters[SLOTS_USED]) + keys)
        self._reserve_index(keys)
        self._reserve_twigs(entries)
        needed = self.next_position + entries - self.oldest
        if needed > len(self._arrays.window):
            self._fit_window(max(needed, needed * 9 // 8))
        self._look()

    def _reserve_arena(self, units: int) -> None:
        arrays = self._arrays
        if units > len(arrays.words):
            arena = _room(max(units, len(arrays.words) * 5 // 4), np.uint64)
            used = int(arrays.counters[BUMP])
            arena[:used] = arrays.words[:used]
            self._forget_views()
            self._arrays = arrays._replace(words=arena, halves=arena.view(np.uint32), octets=arena.view(np.uint8))

    def _reserve_slots(self, slots: int) -> None:
        arrays = self._arrays
        if slots > len(arrays.offsets):
            size = max(slots, len(arrays.offsets) * 5 // 4)
            self._forget_views()
            free = int(arrays.counters[SLOTS_FREE])
            self._arrays = arrays._replace(
                offsets=_grown(arrays.offsets, size), free_slots=_grown(arrays.free_slots[:free], size)
            )

    def _reserve_index(self, keys: int) -> None:
        arrays, needed = self._arrays, self.live + keys
        capacity = int(arrays.counters[CAPACITY])
        is_sparse = capacity > MIN_CAPACITY and needed * 8 < capacity
        if (
            needed * 100 <= capacity * MAX_LOAD
            and arrays.counters[TOP] + keys + 2 < len(arrays.places)
            and not is_sparse
        ):
            return
        capacity = max(MIN_CAPACITY, needed * 100 // MIN_LOAD)
        top = kernels.spread_top(arrays.places, arrays.prefixes, capacity)
        length = max(capacity + capacity // 64, top) + keys + MIN_CAPACITY
        places, prefixes = _room(length, np.uint32), _room(length, np.uint64)
        places.fill(EMPTY)
        top = kernels.rebuild_index(arrays.places, arrays.prefixes, places, prefixes, capacity)
        arrays.counters[CAPACITY], arrays.counters[TOP] = capacity, max(top, 0)
        self._forget_views()
        self._arrays = arrays._replace(places=places, prefixes=prefixes)

    def _reserve_twigs(self, entries: int) -> None:
        arrays = self._arrays
        total = twigs_for(self.next_position + entries) + 1
        rows = total - int(arrays.counters[FIRST_TWIG])
        if rows > len(arrays.twigs):
            twigs = _empty_twigs(max(rows, len(arrays.twigs) * 5 // 4))
            twigs[: len(arrays.twigs)] = arrays.twigs
            dirty = np.zeros(len(twigs), dtype=np.uint8)
            dirty[: len(arrays.dirty)] = arrays.dirty
            self._arrays = arrays._replace(twigs=twigs, dirty=dirty)
        while total > self._width:
            heap = _empty_heap(2 * self._width)
            for level in range(self._width.bit_length()):
                row = self._width >> level
                heap[2 * row : 3 * row] = self._heap[row : 2 * row]
            self._heap, self._width = heap, 2 * self._width

    def _fit_window(self, size: int) -> None:
        """Give the window another size, with what stands in it between the oldest entry and the end."""
        old = self._arrays.window
        window = _room(size, np.uint32)
        first = self.oldest
        while first < self.next_position:
            count = min(self.next_position - first, size - first % size, len(old) - first % len(old))
            window[first % size :][:count] = old[first % len(old) :][:count]
            first += count
        self._arrays = self._arrays._replace(window=window)

    def _forget_views(self) -> None:
        """Let go of the arrays that are about to be replaced."""
        self._places = self._prefixes = self._offsets = self._octets = memoryview(b"")

    def _look(self) -> None:
        """Views of the arrays for single reads, which are quicker than the arrays themselves."""
        arrays = self._arrays
        self._places, self._prefixes = arrays.places.data, arrays.prefixes.data
        self._offsets, self._octets = arrays.offsets.data, arrays.octets.data
        self._capacity = int(arrays.counters[CAPACITY])


@dataclass(slots=True)
class _Part:
    """What one pass of a block appended."""

    entries: bytes
    leaves: Array
    undo: Array


def _columns(batch: Batch) -> _Columns:
    """A batch as arrays. Raises :class:`ValueError` where a key or value is out of its bounds."""
    keys, values = list(batch), list(batch.values())
    total = len(keys)
    key_lengths = np.fromiter(map(len, keys), np.int64, total)
    value_lengths = np.fromiter([-1 if value is None else len(value) for value in values], np.int64, total)
    if total and (
        key_lengths.min() < 1 or key_lengths.max() > KEY_BYTES_LIMIT or value_lengths.max() > VALUE_BYTES_LIMIT
    ):
        for key, value in batch.items():
            check_bounds(key, value)
    octets = np.frombuffer(b"".join(keys), dtype=np.uint8)
    value_octets = np.frombuffer(b"".join([value for value in values if value]), dtype=np.uint8)
    value_starts = _starts(np.maximum(value_lengths, 0))
    return _Columns(octets, _starts(key_lengths), key_lengths, value_octets, value_starts, value_lengths)


def _starts(lengths: Array) -> Array:
    """Where pieces of these lengths begin, one behind the other."""
    starts = np.zeros(len(lengths), dtype=np.int64)
    np.cumsum(lengths[:-1], out=starts[1:])
    return starts


def _hash_keys(keys: Array, starts: Array, lengths: Array, arrays: Arrays) -> Array:
    """The hashes of keys, one behind the other, as bytes."""
    size = int(((lengths + kernels.BLOCK_BYTES - 1) // kernels.BLOCK_BYTES).sum()) * kernels.BLOCK_BYTES
    stage, stage_starts = np.zeros(size, dtype=np.uint8), np.empty(len(starts), dtype=np.int64)
    kernels.stage_keys(keys, starts, lengths, stage, stage_starts)
    return _hash_staged(stage, stage_starts, lengths, _KEY_WORDS, arrays)


def _hash_slots(arrays: Arrays, slots: Array, staged: int) -> Array:
    """The hashes of the keys of some slots, one behind the other, as bytes."""
    stage = np.zeros(staged, dtype=np.uint8)
    starts, lengths = np.empty(len(slots), dtype=np.int64), np.empty(len(slots), dtype=np.int64)
    kernels.stage_slots(arrays, slots, stage, starts, lengths)
    return _hash_staged(stage, starts, lengths, _KEY_WORDS, arrays)


def _hash_staged(stage: Array, starts: Array, lengths: Array, key: Array, arrays: Arrays) -> Array:
    out = np.empty(len(starts) * kernels.HASH_WORDS, dtype=np.uint32)
    out_starts = np.arange(0, len(out), kernels.HASH_WORDS)
    kernels.hash_messages(stage.view(np.uint32), starts, lengths, key, out, out_starts, arrays.lanes)
    return out.view(np.uint8)


def _spans_of(data: Array, count: int) -> tuple[Array, Array, Array]:
    """Where encoded entries begin, and the lengths of their keys and values."""
    starts, key_lengths, value_lengths = (np.empty(count, dtype=np.int64) for _ in range(3))
    kernels.entry_spans(data, 0, starts, key_lengths, value_lengths)
    return starts, key_lengths, value_lengths


def _entry_leaves(entries: bytes, sizes: Array, arrays: Arrays) -> Array:
    """The hashes of encoded entries of these sizes, a row of words each; ``sizes`` is used up."""
    whole = (sizes + kernels.BLOCK_BYTES - 1) // kernels.BLOCK_BYTES * kernels.BLOCK_BYTES
    staged = int(whole[sizes <= kernels.MESSAGE_BYTES_LIMIT].sum())
    stage, stage_starts = np.zeros(staged, dtype=np.uint8), np.empty(len(sizes), dtype=np.int64)
    kernels.stage_entries(np.frombuffer(entries, dtype=np.uint8), _starts(sizes), sizes, stage, stage_starts)
    return _hash_entries(entries, stage, stage_starts, sizes, arrays)


def _hash_entries(encoded: bytes, stage: Array, starts: Array, lengths: Array, arrays: Arrays) -> Array:
    """The hashes of entries, a row of words each. Those of more than 1,024 bytes, whose lengths are negative, are
    hashed by the package."""
    hashes = _hash_staged(stage, starts, np.maximum(lengths, 0), _ENTRY_WORDS, arrays)
    leaves = hashes.view(np.uint32).reshape(len(lengths), kernels.HASH_WORDS)
    ends = np.cumsum(np.abs(lengths))
    data = memoryview(encoded)
    for j in np.flatnonzero(lengths < 0).tolist():
        end = int(ends[j])
        leaves[j] = np.frombuffer(entry_hash(data[end + int(lengths[j]) : end]), dtype=np.uint32)
    return leaves


def _empty_twigs(rows: int) -> Array:
    """Rows of twigs in which no entry stands yet."""
    twigs = np.zeros((rows, TWIG_ROW_BYTES), dtype=np.uint8)
    twigs[:, :NODE_BYTES] = np.frombuffer(ABSENT_ENTRY_NODES[TWIG_LEVELS], dtype=np.uint8)
    return twigs


def _empty_heap(width: int) -> Array:
    """An upper tree of so many absent twigs: the root in row 1, the children of row ``i`` in ``2 * i`` and the next."""
    heap = np.zeros((2 * width, kernels.HASH_WORDS), dtype=np.uint32)
    for level in range(width.bit_length()):
        row = width >> level
        heap[row : 2 * row] = np.frombuffer(ABSENT_UPPER_NODES[level], dtype=np.uint32)
    return heap


def _room(size: int, dtype: Any) -> Array:
    """An array of its own pages, zero as long as untouched: freed, it goes back to the system whole.

    Large ones ask for huge pages. Those are given to private mappings only, where shared ones, which are what a mapping
    is by default, are left out by the system's settings; nor is memory to be shared with a forked process.
    """
    count = size * np.dtype(dtype).itemsize
    if not hasattr(mmap_module, "MAP_PRIVATE"):
        return np.frombuffer(mmap(-1, count), dtype=dtype)
    pages = mmap(-1, count, flags=mmap_module.MAP_PRIVATE | mmap_module.MAP_ANONYMOUS)
    if count >= HUGE_PAGE_BYTES and hasattr(mmap_module, "MADV_HUGEPAGE"):
        pages.madvise(mmap_module.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype=dtype)


def _grown(array: Array, size: int) -> Array:
    grown = _room(size, array.dtype)
    grown[: len(array)] = array
    return grown
