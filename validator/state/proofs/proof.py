"""Proofs of what a state holds under a key, and their verifier: all that a client needs besides a header's state root.

A proof shows one active entry, the *witness*, under the root: its position, its bytes, its twig's active bits, and the
siblings on the way up. What that proves follows from the entry alone:

- it is of the key asked for: the key has the entry's value (inclusion);
- it is of another key, and the key asked for hashes to a place between that key and the one that the entry names as the
  next: the key is absent (exclusion);
- there is none, and the root says that no key is live: every key is absent.

A proof of an older height is one against the state root of that height's header; nothing else tells it apart. This
module needs no store: :mod:`validator.state.hashing` and BLAKE3 are enough. ``docs/state.md`` gives the encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from validator.primitives.types import Hash, ValidatorError
from validator.state.hashing import (
    ABSENT_ENTRY_NODES,
    ABSENT_UPPER_NODES,
    BITMAP_BYTES,
    ENTRY_NODE_KEY,
    NODE_BYTES,
    TWIG_ENTRIES,
    TWIG_LEVELS,
    UPPER_NODE_KEY,
    decode_entry,
    entry_hash,
    hash_pairs,
    key_hash,
    state_root,
    twig_hash,
    twigs_for,
    upper_depth,
)

PROOF_VERSION: Final = 1
WORD_BYTES: Final = 8
NO_WORDS: Final = (bytes(WORD_BYTES),) * (BITMAP_BYTES // WORD_BYTES)

_HEAD: Final = struct.Struct(">BQQ")
_MASK: Final = struct.Struct(">Q")
_WITNESS: Final = struct.Struct(">QI")


class ProofError(ValidatorError):
    """The bytes prove nothing about this key under this root. The message says why."""


@dataclass(frozen=True, slots=True)
class Witness:
    """An active entry and its path."""

    position: int
    entry: bytes
    entry_siblings: tuple[bytes, ...]
    """Beside the path from the entry to its twig's entry root, lowest first: 11."""
    active_bits: bytes
    upper_siblings: tuple[bytes, ...]
    """Beside the path from the twig to the upper root, lowest first."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The statement of a state about one key. The verifier knows the key and the root."""

    next_position: int
    live: int
    witness: Witness | bytes
    """The upper tree's root instead, if no key is live."""

    def encode(self) -> bytes:
        """The compact form: nodes over nothing, and words of active bits that are zero, are a bit each."""
        parts = [_HEAD.pack(PROOF_VERSION, self.next_position, self.live)]
        witness = self.witness
        if isinstance(witness, bytes):
            parts.append(witness)
        else:
            words = [witness.active_bits[i : i + WORD_BYTES] for i in range(0, BITMAP_BYTES, WORD_BYTES)]
            parts += [_WITNESS.pack(witness.position, len(witness.entry)), witness.entry]
            parts.append(_encode_sparse(words, NO_WORDS))
            parts.append(_encode_sparse(witness.entry_siblings, ABSENT_ENTRY_NODES))
            parts.append(_encode_sparse(witness.upper_siblings, ABSENT_UPPER_NODES))
        return b"".join(parts)

    @staticmethod
    def decode(data: bytes) -> Proof:
        """The proof of an encoding; no two encodings have the same. Raises :class:`ProofError`."""
        reader = _Reader(data)
        version, next_position, live = reader.unpack(_HEAD)
        if version != PROOF_VERSION:
            raise ProofError(f"a proof of version {version}: expected {PROOF_VERSION}")
        witness = _read_witness(reader, next_position) if live else reader.take(NODE_BYTES)
        if reader.cursor != len(data):
            raise ProofError(f"{len(data) - reader.cursor} bytes too many")
        return Proof(next_position, live, witness)


def verify(root: Hash, key: bytes, encoded: bytes) -> bytes | None:
    """The value that the state with this root has under a key, or ``None`` if the key is proved absent.

    Raises :class:`ProofError` if the proof is malformed, of another root, or about another key.
    """
    proof = Proof.decode(encoded)
    witness = proof.witness
    upper_root = witness if isinstance(witness, bytes) else _upper_root(witness)
    if state_root(proof.next_position, proof.live, upper_root) != root:
        raise ProofError("the proof leads to another state root")
    if isinstance(witness, bytes):
        return None
    try:
        entry = decode_entry(witness.entry)
    except ValueError as error:
        raise ProofError(str(error)) from None
    if entry.key == key:
        return entry.value
    if not lies_between(key_hash(key), key_hash(entry.key), entry.next_hash):
        raise ProofError("the proof is about another key")
    return None


def lies_between(place: bytes, low: bytes, high: bytes) -> bool:
    """Whether a place of the ring lies behind ``low`` and before ``high``, which may be behind the ring's end."""
    if low < high:
        return low < place < high
    return place > low or place < high


def climb(key: bytes, node: bytes, index: int, siblings: Sequence[bytes]) -> bytes:
    """The root above a node, given the siblings beside its path."""
    for sibling in siblings:
        node = hash_pairs(key, [sibling, node] if index & 1 else [node, sibling])[0]
        index >>= 1
    return node


def _upper_root(witness: Witness) -> bytes:
    """The upper tree's root that a witness leads to. Raises :class:`ProofError` if the entry is not active."""
    twig, offset = divmod(witness.position, TWIG_ENTRIES)
    if not witness.active_bits[offset >> 3] >> (offset & 7) & 1:
        raise ProofError("the entry is not active")
    entries_root = climb(ENTRY_NODE_KEY, entry_hash(witness.entry), offset, witness.entry_siblings)
    return climb(UPPER_NODE_KEY, twig_hash(entries_root, witness.active_bits), twig, witness.upper_siblings)


# --- encoding -------------------------------------------------------------------------------------------------------


class _Reader:
    """Takes an encoding apart from its beginning. Raises :class:`ProofError` if it ends too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.cursor = 0

    def take(self, count: int) -> bytes:
        taken = self._data[self.cursor : self.cursor + count]
        if len(taken) != count:
            raise ProofError("the proof is cut off")
        self.cursor += count
        return taken

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self.take(form.size))


def _read_witness(reader: _Reader, next_position: int) -> Witness:
    position, entry_length = reader.unpack(_WITNESS)
    if position >= next_position:
        raise ProofError(f"position {position} of {next_position} entries")
    entry = reader.take(entry_length)
    active_bits = b"".join(_read_sparse(reader, BITMAP_BYTES // WORD_BYTES, NO_WORDS))
    entry_siblings = _read_sparse(reader, TWIG_LEVELS, ABSENT_ENTRY_NODES)
    upper_siblings = _read_sparse(reader, upper_depth(twigs_for(next_position)), ABSENT_UPPER_NODES)
    return Witness(position, entry, tuple(entry_siblings), active_bits, tuple(upper_siblings))


def _encode_sparse(items: Sequence[bytes], usual: Sequence[bytes]) -> bytes:
    """A bit for each item that is not the usual one, in 8 bytes from the lowest on, then these items."""
    unusual = [i for i, item in enumerate(items) if item != usual[i]]
    return _MASK.pack(sum(1 << i for i in unusual)) + b"".join(items[i] for i in unusual)


def _read_sparse(reader: _Reader, count: int, usual: Sequence[bytes]) -> list[bytes]:
    (mask,) = reader.unpack(_MASK)
    if mask >> count:
        raise ProofError("a mask names more items than there are")
    items = [reader.take(len(usual[i])) if mask >> i & 1 else usual[i] for i in range(count)]
    if any(mask >> i & 1 and items[i] == usual[i] for i in range(count)):
        raise ProofError("a usual item is spelled out")
    return items
