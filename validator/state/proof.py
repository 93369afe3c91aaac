"""Proofs of a key's value in a state, and their verifier: all that a client needs, apart from a header's state root.

A proof shows one active entry, the *witness*, under the root: its position, its bytes, its twig's active bits, and the
siblings on the path up. The entry determines what is proved:

- it is of the requested key: the key has the entry's value (inclusion);
- it is of another key, and the requested key's hash is between that key and the entry's next key: the key is absent
  (exclusion);
- there is no witness, and the root covers no live key: every key is absent.

A proof of an older height is a proof against the state root of that height's header. This module needs no store, only
:mod:`validator.state.hashing` and BLAKE3. ``docs/state.md`` gives the encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import eq
from typing import Final, NamedTuple

from blake3 import blake3

from validator.primitives.types import Hash, ValidatorError
from validator.state.hashing import (
    ABSENT_ENTRY_NODES,
    ABSENT_UPPER_NODES,
    BITMAP_BYTES,
    ENTRY_NODE_KEY,
    NODE_BYTES,
    TWIG_ENTRIES,
    TWIG_LEVELS,
    UPPER_LEVELS,
    UPPER_NODE_KEY,
    decode_entry,
    entry_hash,
    key_hash,
    state_root,
    twig_hash,
    twigs_for,
    upper_depth,
)

PROOF_VERSION: Final = 1
WORD_BYTES: Final = 8
WORDS: Final = BITMAP_BYTES // WORD_BYTES

_HEAD: Final = struct.Struct(">BQQ")
_MASK: Final = struct.Struct(">Q")
_WITNESS: Final = struct.Struct(">QI")
_BITS: Final = struct.Struct(f">{WORDS}Q")
_ALL_WORDS: Final = (1 << WORDS) - 1
_NODES: Final = tuple(struct.Struct(f"{NODE_BYTES}s" * count) for count in range(UPPER_LEVELS + 1))
_ENTRY_USUAL: Final = ABSENT_ENTRY_NODES[:TWIG_LEVELS]
_UPPER_USUAL: Final = tuple(ABSENT_UPPER_NODES[:depth] for depth in range(UPPER_LEVELS + 1))


class ProofError(ValidatorError):
    """A proof is malformed, for another state root, or about another key. The message gives the reason."""


class Witness(NamedTuple):
    """An active entry and its path."""

    position: int
    entry: bytes
    entry_siblings: Sequence[bytes]
    """Siblings of the path from the entry to its twig's entry root, lowest first: 11."""
    active_bits: bytes
    upper_siblings: Sequence[bytes]
    """Siblings of the path from the twig to the upper root, lowest first."""


class Proof(NamedTuple):
    """A proof that one key has a value, or is absent. The verifier knows the key and the state root."""

    next_position: int
    live: int
    witness: Witness | bytes
    """The witness; if no key is live, the upper tree's root."""

    def encode(self) -> bytes:
        """The encoding of the proof. Nodes over nothing, and words of active bits that are zero, take one bit each."""
        parts = [_HEAD.pack(PROOF_VERSION, self.next_position, self.live)]
        witness = self.witness
        if isinstance(witness, bytes):
            parts.append(witness)
        else:
            parts += [_WITNESS.pack(witness.position, len(witness.entry)), witness.entry]
            parts.append(_encode_bits(witness.active_bits))
            parts.append(_encode_siblings(witness.entry_siblings, ABSENT_ENTRY_NODES))
            parts.append(_encode_siblings(witness.upper_siblings, ABSENT_UPPER_NODES))
        return b"".join(parts)


def verify(root: Hash, key: bytes, encoded: bytes) -> bytes | None:
    """The value of a key in the state with this root; ``None`` if the key is proved absent.

    Raises :class:`ProofError` if the proof is malformed, for another root, or about another key.
    """
    try:
        witness = _verify_witness(root, encoded)
    except struct.error:
        raise ProofError("the proof is cut off") from None
    if witness is None:
        return None
    try:
        entry = decode_entry(witness)
    except ValueError as error:
        raise ProofError(str(error)) from None
    if entry.key == key:
        return entry.value
    if not lies_between(key_hash(key), key_hash(entry.key), entry.next_hash):
        raise ProofError("the proof is about another key")
    return None


def lies_between(place: bytes, low: bytes, high: bytes) -> bool:
    """Whether ``place`` is after ``low`` and before ``high`` in the ring of key hashes, which may wrap between them."""
    if low < high:
        return low < place < high
    return place > low or place < high


def _verify_witness(root: Hash, encoded: bytes) -> bytes | None:
    """Check a proof's witness against a state root, and return its encoded entry.

    ``None`` if the proof shows that no key is live. Raises :class:`ProofError`, or :class:`struct.error` if the
    encoding is too short.
    """
    version, next_position, live = _HEAD.unpack_from(encoded)
    if version != PROOF_VERSION:
        raise ProofError(f"a proof of version {version}: expected {PROOF_VERSION}")
    cursor = _HEAD.size
    if live:
        position, entry_length = _WITNESS.unpack_from(encoded, cursor)
        if position >= next_position:
            raise ProofError(f"position {position} of {next_position} entries")
        cursor += _WITNESS.size + entry_length
        entry = encoded[cursor - entry_length : cursor]
        bits, cursor = _read_bits(encoded, cursor)
        twig, offset = divmod(position, TWIG_ENTRIES)
        if not bits[offset >> 3] >> (offset & 7) & 1:
            raise ProofError("the entry is not active")
        beside_entry, cursor = _read_siblings(encoded, cursor, _ENTRY_USUAL)
        beside_twig, cursor = _read_siblings(encoded, cursor, _UPPER_USUAL[upper_depth(twigs_for(next_position))])
        node = _climb(ENTRY_NODE_KEY, entry_hash(entry), offset, beside_entry)
        node = _climb(UPPER_NODE_KEY, twig_hash(node, bits), twig, beside_twig)
    else:
        entry, node = None, encoded[cursor : cursor + NODE_BYTES]
        cursor += NODE_BYTES
    if cursor != len(encoded):
        raise ProofError("the proof is cut off" if cursor > len(encoded) else f"{len(encoded) - cursor} bytes too many")
    if state_root(next_position, live, node) != root:
        raise ProofError("the proof leads to another state root")
    return entry


def _climb(key: bytes, node: bytes, index: int, siblings: Sequence[bytes]) -> bytes:
    """Compute a tree's root from a node, its index, and the siblings of the path above it.

    ``key`` is the BLAKE3 key of the tree's nodes.
    """
    hasher = blake3(key=key)  # reset takes less than half of the time of a new hasher
    reset, update, digest = hasher.reset, hasher.update, hasher.digest
    for sibling in siblings:
        update(sibling + node if index & 1 else node + sibling)
        node = digest()
        reset()
        index >>= 1
    return node


# --- sparse lists ---------------------------------------------------------------------------------------------------


def _read_bits(encoded: bytes, cursor: int) -> tuple[bytes, int]:
    """Decode a twig's active bits from the sparse list at the cursor. Returns them and the next cursor."""
    (mask,) = _MASK.unpack_from(encoded, cursor)
    cursor += _MASK.size
    if mask == _ALL_WORDS:
        words = _BITS.unpack_from(encoded, cursor)
        bits, end = encoded[cursor : cursor + BITMAP_BYTES], cursor + BITMAP_BYTES
    else:
        if mask >> WORDS:
            raise ProofError("a mask names more items than there are")
        count = mask.bit_count()
        words = struct.unpack_from(f">{count}Q", encoded, cursor)
        given = iter(words)
        bits = _BITS.pack(*(next(given) if mask >> i & 1 else 0 for i in range(WORDS)))
        end = cursor + count * WORD_BYTES
    if 0 in words:
        raise ProofError("a usual item is spelled out")
    return bits, end


def _read_siblings(encoded: bytes, cursor: int, usual: Sequence[bytes]) -> tuple[Sequence[bytes], int]:
    """Decode siblings from the sparse list at the cursor. Returns them and the next cursor.

    ``usual`` are the nodes over nothing, one for each sibling. The list leaves out siblings that equal them.
    """
    (mask,) = _MASK.unpack_from(encoded, cursor)
    cursor += _MASK.size
    count, nodes = mask.bit_count(), len(usual)
    if mask >> nodes:
        raise ProofError("a mask names more items than there are")
    siblings: Sequence[bytes] = _NODES[count].unpack_from(encoded, cursor)
    if count < nodes:
        given = iter(siblings)
        siblings = [next(given) if mask >> i & 1 else usual[i] for i in range(nodes)]
    if sum(map(eq, siblings, usual)) != nodes - count:
        raise ProofError("a usual item is spelled out")
    return siblings, cursor + count * NODE_BYTES


def _encode_bits(bits: bytes) -> bytes:
    """Encode a twig's active bits as a sparse list: a mask of 8 bytes, then the words that are not zero.

    Bit ``i`` of the mask says that word ``i`` is not zero.
    """
    words = _BITS.unpack(bits)
    if 0 not in words:
        return _MASK.pack(_ALL_WORDS) + bits
    given = [word for word in words if word]
    mask = sum(1 << i for i, word in enumerate(words) if word)
    return struct.pack(f">{1 + len(given)}Q", mask, *given)


def _encode_siblings(siblings: Sequence[bytes], usual: Sequence[bytes]) -> bytes:
    """Encode siblings as a sparse list: a mask of 8 bytes, then the siblings that differ from the ``usual`` ones.

    Bit ``i`` of the mask says that sibling ``i`` differs.
    """
    are_usual = list(map(eq, siblings, usual))
    if True not in are_usual:
        return _MASK.pack((1 << len(siblings)) - 1) + b"".join(siblings)
    mask = sum(1 << i for i, is_usual in enumerate(are_usual) if not is_usual)
    return _MASK.pack(mask) + b"".join(sibling for i, sibling in enumerate(siblings) if not are_usual[i])
