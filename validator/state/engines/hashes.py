"""Keys and entries hashed many at a time, by the compiled loops of :mod:`validator.state.engines.kernels`."""

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
_ENTRY_WORDS: Final = words_of(ENTRY_KEY)


def starts_of(lengths: Array) -> Array:
    """Starts of pieces of these lengths, one behind the other."""
    starts = np.zeros(len(lengths), dtype=np.int64)
    np.cumsum(lengths[:-1], out=starts[1:])
    return starts


def hash_keys(keys: Pieces, arrays: Arrays) -> Array:
    """The hashes of keys, one behind the other, as bytes."""
    size = int(((keys.lengths + kernels.BLOCK_BYTES - 1) // kernels.BLOCK_BYTES).sum()) * kernels.BLOCK_BYTES
    stage, stage_starts = np.zeros(size, dtype=np.uint8), np.empty(len(keys.starts), dtype=np.int64)
    kernels.stage_keys(keys, stage, stage_starts)
    return _hash_staged(stage, stage_starts, keys.lengths, KEY_WORDS, arrays)


def hash_slots(arrays: Arrays, slots: Array, staged: int) -> Array:
    """The hashes of the keys of some slots, one behind the other, as bytes."""
    stage = np.zeros(staged, dtype=np.uint8)
    starts, lengths = np.empty(len(slots), dtype=np.int64), np.empty(len(slots), dtype=np.int64)
    kernels.stage_slots(arrays, slots, stage, starts, lengths)
    return _hash_staged(stage, starts, lengths, KEY_WORDS, arrays)


def _hash_staged(stage: Array, starts: Array, lengths: Array, key: Array, arrays: Arrays) -> Array:
    out = np.empty(len(starts) * kernels.HASH_WORDS, dtype=np.uint32)
    out_starts = np.arange(0, len(out), kernels.HASH_WORDS)
    kernels.hash_messages(stage.view(np.uint32), starts, lengths, key, out, out_starts, arrays.lanes)
    return out.view(np.uint8)


def entry_spans(data: Array, count: int) -> tuple[Array, Array, Array]:
    """Starts of encoded entries, and the lengths of their keys and values."""
    starts, key_lengths, value_lengths = (np.empty(count, dtype=np.int64) for _ in range(3))
    kernels.entry_spans(data, 0, starts, key_lengths, value_lengths)
    return starts, key_lengths, value_lengths


def entry_leaves(entries: bytes, sizes: Array, arrays: Arrays) -> Array:
    """The hashes of encoded entries of these sizes, a row of words each; ``sizes`` is used up."""
    whole = (sizes + kernels.BLOCK_BYTES - 1) // kernels.BLOCK_BYTES * kernels.BLOCK_BYTES
    staged = int(whole[sizes <= kernels.MESSAGE_BYTES_LIMIT].sum())
    stage, stage_starts = np.zeros(staged, dtype=np.uint8), np.empty(len(sizes), dtype=np.int64)
    kernels.stage_entries(np.frombuffer(entries, dtype=np.uint8), starts_of(sizes), sizes, stage, stage_starts)
    return hash_entries(entries, stage, stage_starts, sizes, arrays)


def hash_entries(encoded: bytes, stage: Array, starts: Array, lengths: Array, arrays: Arrays) -> Array:
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
