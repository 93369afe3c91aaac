"""Batch hashing of keys and entries, by the compiled loops of :mod:`validator.state.engines.kernels`."""

from __future__ import annotations

from typing import Final

import numpy as np

from validator.state.engines import kernels
from validator.state.engines.kernels import Array, Arrays, Pieces
from validator.state.hashing import ENTRY_KEY, KEY_KEY, entry_hash


def words_of(key: bytes) -> Array:
    """A hash or a BLAKE3 key as words."""
    return np.frombuffer(key, dtype="<u4").astype(np.uint32)


KEY_WORDS: Final = words_of(KEY_KEY)
ENTRY_WORDS: Final = words_of(ENTRY_KEY)


def starts_of(lengths: Array) -> Array:
    """Start offsets of concatenated pieces of these lengths."""
    starts = np.zeros(len(lengths), dtype=np.int64)
    np.cumsum(lengths[:-1], out=starts[1:])
    return starts


def hash_keys(keys: Pieces, arrays: Arrays) -> Array:
    """The concatenated hashes of keys, as bytes."""
    return _hash(keys.octets, keys.starts, keys.lengths, KEY_WORDS, arrays).view(np.uint8).ravel()


def hash_slots(arrays: Arrays, slots: Array) -> Array:
    """The concatenated hashes of the slots' keys, as bytes."""
    starts, lengths = np.empty(len(slots), dtype=np.int64), np.empty(len(slots), dtype=np.int64)
    kernels.key_spans(arrays, slots, starts, lengths)
    return hash_keys(Pieces(arrays.octets, starts, lengths), arrays)


def _hash(octets: Array, starts: Array, lengths: Array, key: Array, arrays: Arrays) -> Array:
    out = np.empty((len(starts), kernels.HASH_WORDS), dtype=np.uint32)
    kernels.hash_messages(octets, starts, lengths, key, out, np.arange(len(starts)), arrays.lanes)
    return out


def entry_spans(data: Array, count: int) -> tuple[Array, Array, Array]:
    """Start offsets of encoded entries, and the lengths of their keys and values."""
    starts, key_lengths, value_lengths = (np.empty(count, dtype=np.int64) for _ in range(3))
    kernels.entry_spans(data, 0, starts, key_lengths, value_lengths)
    return starts, key_lengths, value_lengths


def hash_entries(entries: Array, starts: Array, sizes: Array, arrays: Arrays) -> Array:
    """The hashes of encoded entries, one row of words each. Entries of more than 1,024 bytes are hashed by the
    ``blake3`` package."""
    leaves = _hash(entries, starts, sizes, ENTRY_WORDS, arrays)
    for j in np.flatnonzero(sizes > kernels.MESSAGE_BYTES_LIMIT).tolist():
        found = entry_hash(entries[starts[j] : starts[j] + sizes[j]].data)
        leaves[j] = np.frombuffer(found, dtype=np.uint32)
    return leaves
