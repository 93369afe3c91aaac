"""The encodings and hashes that a state root is computed with. Stores and verifiers share them.

``docs/state.md`` gives every encoding exactly. The rules:

- every kind of hash is BLAKE3 in keyed mode with a separate public key, so that no kind can be mistaken for another;
- an inner node of a tree is the hash of one 64-byte block, its two children;
- an *entry* has a key's new value, the block's height, the position of the entry that it replaced, and the next key in
  the ring of all keys, which is ordered by the keys' hashes;
- 2,048 neighbouring entries are a *twig*. A twig's root is over the Merkle root of its entry hashes, which only grows,
  and over its active bits, which change when an entry is replaced or deleted;
- the *upper tree* is over the twig roots, as deep as their number requires;
- the state root is over the number of entries ever appended, the number of live keys and the upper tree's root.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import add
from typing import Final, NamedTuple

from blake3 import blake3

from validator.primitives.types import Hash, Height

TWIG_LEVELS: Final = 11
TWIG_ENTRIES: Final = 1 << TWIG_LEVELS
BITMAP_BYTES: Final = TWIG_ENTRIES // 8
GROUP_LEVELS: Final = 5
GROUP_ENTRIES: Final = 1 << GROUP_LEVELS
"""Number of neighbouring entries in a group. Only the roots of groups are kept of an entry tree, and a proof hashes one
group again."""
TWIG_GROUPS: Final = TWIG_ENTRIES // GROUP_ENTRIES
NODE_BYTES: Final = 32
POSITION_BYTES: Final = 8
UPPER_LEVELS: Final = 8 * POSITION_BYTES - TWIG_LEVELS
"""Maximum depth of the upper tree: positions are u64."""

KEY_BYTES_LIMIT: Final = 512
VALUE_BYTES_LIMIT: Final = 2**24

REMEMBERED_KEYS: Final = 16_384
"""Number of keys whose hashes are kept. A key and its hash take some 200 bytes, and at most 700."""

ABSENT: Final = bytes(NODE_BYTES)
"""Node for an absent entry or twig."""

NO_BITS: Final = bytes(BITMAP_BYTES)

NO_POSITION: Final = 2**64 - 1
"""The value of :attr:`Entry.previous` if the key was absent before."""


def domain_key(name: str) -> bytes:
    """The BLAKE3 key for one kind of hash: a fixed prefix and the name in ASCII, padded with zero bytes to 32 bytes."""
    return f"stampede/state/2/{name}".encode("ascii").ljust(NODE_BYTES, b"\0")


KEY_KEY: Final = domain_key("key")
ENTRY_KEY: Final = domain_key("entry")
ENTRY_NODE_KEY: Final = domain_key("entry-node")
TWIG_KEY: Final = domain_key("twig")
UPPER_NODE_KEY: Final = domain_key("upper-node")
ROOT_KEY: Final = domain_key("root")

ENTRY_HEAD: Final = struct.Struct(">QQ32sHI")
ROOT_RECORD: Final = struct.Struct(">QQ32s")


class Entry(NamedTuple):
    """One entry of the log: the value that a key got in a block."""

    height: Height
    """Height of the block that appended the entry."""
    previous: int
    """Position of the key's former entry, which this entry replaced; :data:`NO_POSITION` if there was none."""
    next_hash: bytes
    """Hash of the next key in the ring; the hash of the entry's key if there is no other key."""
    key: bytes
    value: bytes

    def encode(self) -> bytes:
        """The encoding of the entry, as hashed and logged."""
        return encode_entry(*self)


def encode_entry(height: int, previous: int, next_hash: bytes, key: bytes, value: bytes) -> bytes:
    """The encoding of the entry with these fields (:class:`Entry`)."""
    return ENTRY_HEAD.pack(height, previous, next_hash, len(key), len(value)) + key + value


def entry_bytes(data: bytes | memoryview, offset: int) -> int:
    """Length of the encoded entry that begins at an offset. Raises :class:`struct.error` if its head is cut."""
    *_, key_bytes, value_bytes = ENTRY_HEAD.unpack_from(data, offset)
    return int(ENTRY_HEAD.size + key_bytes + value_bytes)


def links_of(data: bytes | memoryview, offset: int, count: int) -> Iterator[tuple[int, bytes]]:
    """Iterate over encoded entries that begin at an offset: the field ``previous`` and the key of each."""
    for _ in range(count):
        _, previous, _, key_bytes, value_bytes = ENTRY_HEAD.unpack_from(data, offset)
        middle = offset + ENTRY_HEAD.size + key_bytes
        yield previous, bytes(data[middle - key_bytes : middle])
        offset = middle + value_bytes


def decode_entry(encoded: bytes) -> Entry:
    """Decode an entry. Raises :class:`ValueError` if the bytes are not exactly one entry."""
    if len(encoded) < ENTRY_HEAD.size:
        raise ValueError(f"an entry of {len(encoded)} bytes: its head alone has {ENTRY_HEAD.size}")
    height, previous, next_hash, key_bytes, value_bytes = ENTRY_HEAD.unpack_from(encoded)
    middle = ENTRY_HEAD.size + key_bytes
    if len(encoded) != middle + value_bytes:
        raise ValueError(f"an entry of {len(encoded)} bytes: its lengths say {middle + value_bytes}")
    return Entry(Height(height), previous, next_hash, encoded[ENTRY_HEAD.size : middle], encoded[middle:])


def check_bounds(key: bytes, value: bytes | None) -> None:
    """Raise :class:`ValueError` if the length of a key or value is outside the interface's bounds."""
    if not 1 <= len(key) <= KEY_BYTES_LIMIT:
        raise ValueError(f"a key of {len(key)} bytes: expected 1 to {KEY_BYTES_LIMIT}")
    if value is not None and len(value) > VALUE_BYTES_LIMIT:
        raise ValueError(f"a value of {len(value)} bytes: expected at most {VALUE_BYTES_LIMIT}")


@lru_cache(maxsize=REMEMBERED_KEYS)
def key_hash(key: bytes) -> bytes:
    """A key's place in the ring. The same keys are hashed again when their values change, and for proofs."""
    return blake3(key, key=KEY_KEY).digest()


def entry_hash(encoded_entry: bytes | memoryview) -> bytes:
    """The hash of an encoded entry, which is its leaf in a twig's entry tree."""
    return blake3(encoded_entry, key=ENTRY_KEY).digest()


def entry_hashes(encoded_entries: Iterable[bytes]) -> list[bytes]:
    """The hash of each encoded entry."""
    return _hashes(ENTRY_KEY, encoded_entries)


def twig_hash(entries_root: bytes, active_bits: bytes) -> bytes:
    """The root of a twig: the hash of the root of its entry tree and its active bits."""
    return blake3(entries_root + active_bits, key=TWIG_KEY).digest()


def state_root(next_position: int, live: int, upper_root: bytes) -> Hash:
    """The state root: the hash of the number of entries ever appended, the number of live keys, and the upper root."""
    return Hash(blake3(ROOT_RECORD.pack(next_position, live, upper_root), key=ROOT_KEY).digest())


def hash_pairs(key: bytes, row: Sequence[bytes]) -> list[bytes]:
    """The parents of neighbouring nodes, whose number is even. ``key`` is the BLAKE3 key of the tree's nodes."""
    return _hashes(key, map(add, row[::2], row[1::2]))


def _hashes(key: bytes, contents: Iterable[bytes]) -> list[bytes]:
    """The BLAKE3 hash of each content, with a key."""
    hasher = blake3(key=key)  # reset takes less than half of the time of a new hasher
    reset, update, digest = hasher.reset, hasher.update, hasher.digest
    hashes = []
    for content in contents:
        reset()
        update(content)
        hashes.append(digest())
    return hashes


def _absent_nodes(key: bytes, levels: int) -> tuple[bytes, ...]:
    """For each level from the leaves up, the node below which all leaves are absent."""
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


EMPTY_ROOT: Final = state_root(0, 0, ABSENT)


class Twig(NamedTuple):
    """A twig as its root covers it: the root of its entry tree, and its active bits."""

    entries_root: bytes
    active_bits: bytes
    """Bit ``i % 8`` (from the lowest) of byte ``i // 8`` says that the twig's entry ``i`` is active."""


ABSENT_TWIG: Final = Twig(ABSENT_ENTRY_NODES[TWIG_LEVELS], NO_BITS)

Frontier = tuple[bytes, ...]
"""The nodes of the last twig's entry tree that are needed to append to it: for each level below its root, the complete
left sibling on the path up from the next position, or empty bytes if there is none."""

EMPTY_FRONTIER: Final[Frontier] = (b"",) * TWIG_LEVELS

COMPACTION_SLACK: Final = 2 * TWIG_ENTRIES
"""Number of entries that the window, from the oldest active entry to the end of the log, may hold without any live
key."""


def window_limit(live: int, slack: int = COMPACTION_SLACK) -> int:
    """Maximum size of the window, from the oldest active entry to the end of the log: 2.5 entries per live key, plus a
    slack. Above it, a block appends the oldest active entries again (compaction)."""
    return live * 5 // 2 + slack


COMPACTION_STEPS: Final = 2
"""Maximum number of entries that compaction appends again for each entry that the block's changes appended."""
