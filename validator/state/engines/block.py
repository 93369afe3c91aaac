"""The steps with which the packed engine applies one block: changing the keys, and appending the entries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from validator.primitives.types import Height
from validator.state.engines import kernels
from validator.state.engines.hashes import hash_entries, hash_keys, hash_slots, starts_of
from validator.state.engines.kernels import RECORD_HEAD_BYTES, UNIT_BYTES, Array, Pieces
from validator.state.engines.table import Table
from validator.state.hashing import KEY_BYTES_LIMIT, NODE_BYTES, VALUE_BYTES_LIMIT, check_bounds
from validator.state.interface import Batch


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
