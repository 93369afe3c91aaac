"""The engine for large states: all data in arrays, and compiled loops over them
(:mod:`validator.state.engines.kernels`).

No key has a Python object. The arrays and the room in them are a :class:`~validator.state.engines.table.Table`, the
tree is a :class:`~validator.state.engines.packed_tree.PackedTree`.

A batch is applied in these steps: hash its keys, sort them by hash, look them up; change the ring; hash the next keys
of all entries to be appended; append these; do the same for entries that compaction moves; hash the entries, the twigs,
and the upper tree level by level. Positions must stay below 2**48, and the arena below 32 GiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import numpy as np
from blake3 import blake3

from validator.primitives.types import Hash, Height
from validator.state.engine import POSITION, SECTION_HEAD, SectionHead, Step
from validator.state.engines import kernels
from validator.state.engines.hashes import entry_spans, hash_entries, hash_keys, hash_slots, starts_of
from validator.state.engines.kernels import RECORD_HEAD_BYTES, UNIT_BYTES, Array, Pieces
from validator.state.engines.packed_tree import PackedTree, TreeMark
from validator.state.engines.table import MIN_CAPACITY, RECORD_HEAD, Table
from validator.state.hashing import (
    COMPACTION_SLACK,
    COMPACTION_STEPS,
    KEY_BYTES_LIMIT,
    KEY_KEY,
    NODE_BYTES,
    TWIG_ENTRIES,
    VALUE_BYTES_LIMIT,
    check_bounds,
    key_hash,
    twigs_for,
    window_limit,
)
from validator.state.interface import Batch
from validator.state.snapshot import SnapshotTwig


class Columns(NamedTuple):
    """The keys and values of a batch, as arrays."""

    keys: Pieces
    values: Pieces


class Part(NamedTuple):
    """The result of :func:`append`: the encoded entries, their hashes, and the block's undo data up to then."""

    entries: bytes
    leaves: Array
    undo: Array


def columns_of(batch: Batch) -> Columns:
    """A batch as arrays. Raises :class:`ValueError` if a key or value is out of its bounds."""
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
    return Columns(
        Pieces(octets, starts_of(key_lengths), key_lengths),
        Pieces(value_octets, starts_of(np.maximum(value_lengths, 0)), value_lengths),
    )


def change_ring(table: Table, columns: Columns) -> tuple[Array, Array, Array, Array]:
    """Look up the keys of a batch, and add and remove keys in the index.

    Returns four arrays: the index places of the keys that get an entry, ascending; for each of them, the batch item
    with its new value, or -1; the positions of the deleted entries; the undo data.
    """
    arrays, (keys, values) = table.arrays, columns
    total = len(keys.starts)
    hashes = hash_keys(keys, arrays)
    order = np.argsort(hashes.reshape(total, NODE_BYTES)[:, :8].copy().view(">u8").ravel(), kind="stable")
    actions, found, places = np.empty(total, np.uint8), np.empty(total, np.int64), np.empty(total, np.int64)
    if total >= kernels.LANES:
        kernels.approach(arrays, hashes, order, np.empty((2, total), dtype=np.int64))
    inserts, deletes = kernels.lookup(arrays, keys, values, hashes, order, actions, found, places)
    deleted = np.empty(deletes, dtype=np.int64)
    undo = np.empty(_undo_bytes(table, columns, actions, found), dtype=np.uint8)
    length = kernels.change_ring(arrays, keys, values, hashes, order, actions, found, deleted, undo)
    touched, items = np.empty(2 * total, dtype=np.int64), np.empty(2 * total, dtype=np.int64)
    is_same = not inserts and not deletes
    count = kernels.touched_places(arrays, keys, hashes, order, actions, places, is_same, touched, items)
    touched, items = touched[:count], items[:count]
    if not is_same:
        touched, first = np.unique(touched, return_index=True)
        items = items[first]
    return touched, items, deleted, undo[:length]


def _undo_bytes(table: Table, columns: Columns, actions: Array, found: Array) -> int:
    """Bound of the undo data of keys that are added or removed, in bytes."""
    come = columns.keys.lengths[actions == kernels.INSERT]
    gone = found[actions == kernels.DELETE].tolist()
    sizes = sum(len(key) + len(value) for key, value, _ in map(table.record, gone))
    return int(come.sum()) + sizes + (len(come) + len(gone)) * (RECORD_HEAD_BYTES + UNIT_BYTES)


def append(table: Table, height: Height, touched: Array, items: Array, columns: Columns, undo: Array) -> Part:
    """Append an entry for the key at each index place of ``touched``, in this order.

    ``items`` has the batch item with the new value of each, or -1 if the value stays.
    """
    arrays, count = table.arrays, len(touched)
    if not count:
        return Part(b"", np.empty((0, 8), dtype=np.uint32), undo)
    slots, sizes = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    size, undone = kernels.measure(arrays, touched, items, columns.values.lengths, slots)
    next_hashes = hash_slots(arrays, slots)
    entries = np.empty(size, dtype=np.uint8)
    saved = np.empty(len(undo) + undone, dtype=np.uint8)
    saved[: len(undo)] = undo
    end = kernels.append_entries(
        arrays, height, touched, items, columns.values, next_hashes, entries, sizes, saved, len(undo)
    )
    return Part(entries.tobytes(), hash_entries(entries, starts_of(sizes), sizes, arrays), saved[:end])


def oldest_places(table: Table, limit: int, most: int) -> Array:
    """The index places of the oldest active entries, which compaction appends again.

    There are at most ``most``, and only as many as bring the window down to ``limit``.
    """
    slots = np.empty(most, dtype=np.int64)
    slots = slots[: kernels.choose_oldest(table.arrays, limit, most, slots)]
    touched = np.empty(len(slots), dtype=np.int64)
    if len(slots):
        hashes = hash_slots(table.arrays, slots)
        kernels.find_slots(table.arrays, slots, hashes, touched)
    return touched


FULL_MASK: Final = 2**64 - 1
REPLAY_BYTES: Final = 2 * 1024 * 1024
"""Size of the sections of the log that recovery collects before it applies them together."""


@dataclass(slots=True)
class _Undo:
    records: Array
    """The concatenated records that the touched keys had before the block."""
    oldest: int
    mark: TreeMark


class PackedEngine:
    """One state in arrays; implements :class:`validator.state.engine.Engine`, whose docstrings apply."""

    def __init__(self, slack: int = COMPACTION_SLACK, mask: int = FULL_MASK) -> None:
        self._slack = slack
        self._mask = mask
        self._table = Table(mask)
        self.tree = PackedTree(self._table)
        self._pending: list[tuple[memoryview, SectionHead]] = []
        """Sections of the log that were read but not applied yet: for each, the data after its head, and the head."""
        self._pending_bytes = 0
        self._is_fresh = True
        """Whether nothing has been loaded or replayed yet."""

    @property
    def root(self) -> Hash:
        return self.tree.root

    @property
    def next_position(self) -> int:
        return self._table.count(kernels.NEXT_POSITION)

    @property
    def live(self) -> int:
        return self._table.count(kernels.LIVE)

    @property
    def oldest(self) -> int:
        return self._table.count(kernels.OLDEST)

    # --- reads --------------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        table = self._table
        prefix = int.from_bytes(blake3(key, key=KEY_KEY).digest(8), "big") & self._mask
        place = (prefix >> 32) * table.capacity >> 32
        places, prefixes = table.places, table.prefixes
        while (slot := places[place]) != kernels.EMPTY:
            found = prefixes[place]
            if found > prefix:
                return None
            if found == prefix:
                at = table.offsets[slot] * kernels.UNIT_BYTES
                head, value_bytes = RECORD_HEAD.unpack_from(table.octets, at)
                middle = at + kernels.RECORD_HEAD_BYTES + (head >> kernels.POSITION_BITS)
                if table.octets[at + kernels.RECORD_HEAD_BYTES : middle] == key:
                    return bytes(table.octets[middle : middle + value_bytes])
            place += 1
        return None

    def items(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """The keys that begin with ``prefix`` and their values, keys ascending. Costs O(all keys)."""
        slots = kernels.slots_with_prefix(self._table.arrays, np.frombuffer(prefix, dtype=np.uint8))
        return sorted(self._table.record(slot)[:2] for slot in slots.tolist())

    def position(self, key: bytes) -> int | None:
        octets = np.frombuffer(key, dtype=np.uint8)
        hashed = np.frombuffer(key_hash(key), dtype=np.uint8)
        place, is_there = kernels.find_one(self._table.arrays, octets, hashed)
        return self._table.record(self._table.places[place])[2] if is_there else None

    def predecessor(self, place: bytes) -> tuple[bytes, int] | None:
        if not self.live:
            return None
        nothing = np.empty(0, dtype=np.uint8)
        slot = kernels.slot_below(self._table.arrays, nothing, np.frombuffer(place, dtype=np.uint8))
        key, _, position = self._table.record(slot)
        return key, position

    def entry_ends(self, data: bytes | memoryview, count: int) -> Sequence[int]:
        starts, key_lengths, value_lengths = entry_spans(np.frombuffer(data, dtype=np.uint8), count)
        return cast(Sequence[int], (starts + key_lengths + value_lengths + kernels.ENTRY_HEAD_BYTES).data)

    def group_nodes(self, data: bytes, count: int) -> tuple[Sequence[int], bytes]:
        ends = np.empty(count, dtype=np.int64)
        nodes = self.tree.group_nodes(np.frombuffer(data, dtype=np.uint8), ends)
        return cast(Sequence[int], ends.data), nodes

    def twig_nodes(self, roots: bytes) -> bytes:
        return self.tree.nodes_above(np.frombuffer(roots, dtype=np.uint32).reshape(-1, kernels.HASH_WORDS))

    # --- one block ----------------------------------------------------------------------------------------------------

    def apply(self, height: Height, batch: Batch) -> Step:
        columns, table = columns_of(batch), self._table
        total, size = len(batch), len(columns.keys.octets) + len(columns.values.octets)
        self._reserve(total, size, (1 + COMPACTION_STEPS) * min(2 * total, self.live + total))
        oldest, mark = self.oldest, self.tree.mark()
        touched, items, deleted, undo = change_ring(table, columns)
        parts = [append(table, height, touched, items, columns, undo)]
        moved = oldest_places(table, window_limit(self.live, self._slack), COMPACTION_STEPS * len(touched))
        if len(moved):
            kept = np.full(len(moved), -1, dtype=np.int64)
            parts.append(append(table, height, moved, kept, columns, parts[0].undo))
        table.arrays.counters[kernels.OLDEST] = kernels.raise_oldest(table.arrays, oldest)
        self.tree.extend(mark.next_position, [part.leaves for part in parts])
        self.tree.climb(twigs_for(self.next_position))
        head = SectionHead(
            height,
            self.next_position,
            self.live,
            self.oldest,
            self.root,
            sum(len(part.entries) for part in parts),
            self.next_position - mark.next_position,
            len(deleted),
        )
        section = b"".join((head.encode(), *(part.entries for part in parts), deleted.astype(">u8").tobytes()))
        saved = _Undo(parts[-1].undo, oldest, mark)
        return Step(section, self.root, self.next_position, self.live, self.oldest, saved)

    def undo(self, step: Step) -> None:
        undo: _Undo = step.undo
        records, next_position = undo.records, self.next_position
        most = len(records) // (2 * kernels.UNIT_BYTES) + 1
        starts, lengths = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
        count = kernels.undo_spans(records, len(records), starts, lengths)
        starts, lengths = starts[:count], lengths[:count]
        self._reserve(count, 2 * len(records), 0)
        arrays = self._table.arrays
        hashes = hash_keys(Pieces(records, starts, lengths), arrays)
        kernels.take_back(arrays, records, starts, lengths, hashes, undo.mark.next_position)
        arrays.counters[kernels.OLDEST] = undo.oldest
        self.tree.revert(undo.mark, next_position)

    def before(self, step: Step) -> dict[bytes, bytes | None]:
        """The values that the keys of an applied step had before it, including keys whose entry only moved."""
        undo: _Undo = step.undo
        data = undo.records.tobytes()
        found: dict[bytes, bytes | None] = {}
        cursor = 0
        while cursor < len(data):
            head, value_bytes = RECORD_HEAD.unpack_from(data, cursor)
            middle = cursor + kernels.RECORD_HEAD_BYTES + (head >> kernels.POSITION_BITS)
            is_new = head & kernels.POSITION_MASK == kernels.NO_RECORD_POSITION
            key = data[cursor + kernels.RECORD_HEAD_BYTES : middle]
            found.setdefault(key, None if is_new else data[middle : middle + value_bytes])
            cursor += -(-(middle - cursor + value_bytes) // kernels.UNIT_BYTES) * kernels.UNIT_BYTES
        return found

    def _reserve(self, keys: int, size: int, entries: int) -> None:
        """Make room in the arrays for these numbers of keys and entries, and for ``size`` bytes of keys and values."""
        self._table.reserve(keys, size, entries)
        self.tree.reserve(entries)

    # --- opening and pruning ------------------------------------------------------------------------------------------

    def seed(self, first_twig: int, peaks: Sequence[bytes]) -> None:
        counters = self._table.arrays.counters
        counters[kernels.FIRST_TWIG] = first_twig
        counters[kernels.NEXT_POSITION] = counters[kernels.OLDEST] = first_twig * TWIG_ENTRIES
        self.tree.seed(first_twig, peaks)

    def forget(self, first_twig: int) -> None:
        self.tree.forget(first_twig)

    def replay(self, section: memoryview, head: SectionHead, first_position: int) -> None:
        if self._is_fresh:
            # the log may begin below the first retained twig: earlier positions are replayed without leaves
            counters = self._table.arrays.counters
            counters[kernels.NEXT_POSITION] = counters[kernels.OLDEST] = counters[kernels.REPLAYED_FROM] = (
                first_position
            )
            self._is_fresh = False
        self._pending.append((section[SECTION_HEAD.size :], head))
        self._pending_bytes += len(section)
        if self._pending_bytes >= REPLAY_BYTES:
            self._absorb()

    def load_twig(self, twig: SnapshotTwig) -> None:
        """Load a twig of a snapshot; twigs come in order."""
        self._is_fresh = False
        nothing = np.empty(0, dtype=np.int64)
        self.tree.reserve(TWIG_ENTRIES)
        positions = np.array(list(twig.entries), dtype=np.int64)
        self._take_over(b"".join(twig.entries.values()), positions, True, nothing, nothing)
        self.tree.load(twig)
        self._table.arrays.counters[kernels.NEXT_POSITION] = (twig.index + 1) * TWIG_ENTRIES

    def end_load(self, next_position: int) -> None:
        self._table.arrays.counters[kernels.NEXT_POSITION] = next_position

    def finish(self) -> None:
        self._absorb()
        self._table.make_index()
        arrays = self._table.arrays
        arrays.counters[kernels.OLDEST] = kernels.raise_oldest(arrays, max(self.oldest, self._first_kept))
        self.tree.climb(twigs_for(self.next_position))
        self._table.fit_window(self.next_position - self.oldest + MIN_CAPACITY)

    @property
    def _first_kept(self) -> int:
        return self._table.count(kernels.FIRST_TWIG) * TWIG_ENTRIES

    def _absorb(self) -> None:
        """Apply the pending sections."""
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        entries = b"".join(data[: head.entries_bytes] for data, head in pending)
        deleted, deleted_after, total = [], [], 0
        for data, head in pending:
            total += head.entries
            deleted += [position for (position,) in POSITION.iter_unpack(data[head.entries_bytes :])]
            deleted_after += [total] * head.deleted
        if total or deleted:
            gone = (np.array(deleted, dtype=np.int64), np.array(deleted_after, dtype=np.int64))
            first = self.next_position
            leaves = self._take_over(entries, np.arange(first, first + total), False, *gone)
            skipped = min(max(self._first_kept - first, 0), total)
            self.tree.extend(first + skipped, [leaves[skipped:]])

    def _take_over(
        self, entries: bytes, positions: Array, are_new: bool, deleted: Array, deleted_after: Array
    ) -> Array:
        """Replay encoded entries at these positions, with deletions between them; returns their hashes."""
        total = len(positions)
        data = np.frombuffer(entries, dtype=np.uint8)
        starts, key_lengths, value_lengths = entry_spans(data, total)
        self._table.reserve_records(total, len(entries), total + TWIG_ENTRIES)
        self.tree.reserve(total + TWIG_ENTRIES)
        arrays = self._table.arrays
        kernels.replay_entries(
            arrays, data, starts, key_lengths, value_lengths, positions, are_new, deleted, deleted_after
        )
        return hash_entries(data, starts, key_lengths + value_lengths + kernels.ENTRY_HEAD_BYTES, arrays)
