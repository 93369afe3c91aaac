"""The state tree: what each block changes of the leaves, and the state root after it (``docs/state.md``).

The hashes of entries are kept, and the roots of the entries of full twigs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping

from blake3 import blake3

from spec.encoding import NO_HASH, Hash, number8

TWIG_LEVELS = 11
TWIG_ENTRIES = 2**TWIG_LEVELS
NO_POSITION = 2**64 - 1
SLACK = 4_096
"""Entries from the oldest active one on that are allowed beyond 5 / 2 of the live keys."""
KINDS = {
    kind: f"stampede/state/2/{kind}".encode().ljust(32, b"\0")
    for kind in ("key", "entry", "entry-node", "twig", "upper-node", "root")
}
"""The key of each kind of hash."""


def digest(kind: str, data: bytes) -> Hash:
    return blake3(data, key=KINDS[kind]).digest()


def perfect(kind: str, row: list[Hash], levels: int) -> Hash:
    """The root of the perfect binary tree of ``2**levels`` leaves. Those after the given ones are zero."""
    absent = NO_HASH
    for _ in range(levels):
        row = row + [absent] * (len(row) % 2)
        row = [digest(kind, left + right) for left, right in zip(row[::2], row[1::2], strict=True)]
        absent = digest(kind, absent + absent)
    return row[0] if row else absent


class Tree:
    """A state tree, empty at first. ``slack`` is another one than :data:`SLACK` in tests alone."""

    def __init__(self, slack: int = SLACK) -> None:
        self.values: dict[bytes, bytes] = {}
        """The value of each live key."""
        self._slack = slack
        self._ring: list[tuple[Hash, bytes]] = []
        """The live keys, each after its hash, ascending."""
        self._positions: dict[bytes, int] = {}
        """The positions of the active entries, by key."""
        self.entries: list[Hash] = []
        """The hashes of all entries."""
        self._active: list[bytes | None] = []
        """The key of each active entry, by position; ``None`` for an inactive one."""
        self._oldest = 0
        """No entry before this position is active."""
        self._bits = Counter[int]()
        """The active bits of each twig."""
        self._full: dict[int, Hash] = {}
        """The roots of the entry trees of twigs that are full, which no longer change."""

    def apply(self, height: int, batch: Mapping[bytes, bytes | None]) -> None:
        """Apply a block's batch: the new values of keys, ``None`` for those that are deleted."""
        touched, moved = set(), []
        for key, value in batch.items():
            before = self.values.get(key)
            if value == before:
                continue
            link = digest("key", key), key
            if value is None:
                del self._ring[bisect_left(self._ring, link)], self.values[key]
                self._retire(key)
            else:
                self.values[key] = value
                touched.add(link)
            if before is None:
                insort(self._ring, link)
            if before is None or value is None:
                moved.append(link)
        if self._ring:  # before each key that came or went is one with another next key
            touched |= {self._ring[bisect_left(self._ring, link) - 1] for link in moved}
        for link in sorted(touched):
            self._append(height, link)
        for _ in range(2 * len(touched)):
            while (oldest := self._active[self._oldest]) is None:
                self._oldest += 1
            if len(self.entries) - self._oldest <= len(self._ring) * 5 // 2 + self._slack:
                break
            self._append(height, (digest("key", oldest), oldest))

    @property
    def root(self) -> Hash:
        """The state root."""
        twigs = [self._twig(number) for number in range(-(-len(self.entries) // TWIG_ENTRIES))]
        upper = perfect("upper-node", twigs, max(len(twigs) - 1, 0).bit_length())
        return digest("root", number8(len(self.entries)) + number8(len(self._ring)) + upper)

    def _append(self, height: int, link: tuple[Hash, bytes]) -> None:
        """Append the entry of a live key."""
        (following, _), key = self._ring[(bisect_left(self._ring, link) + 1) % len(self._ring)], link[1]
        value = self.values[key]
        lengths = len(key).to_bytes(2, "big") + len(value).to_bytes(4, "big")
        entry = number8(height) + number8(self._retire(key)) + following + lengths + key + value
        self._positions[key] = len(self.entries)
        self.entries.append(digest("entry", entry))
        self._active.append(key)
        self._flip(self._positions[key])

    def _retire(self, key: bytes) -> int:
        """Make the active entry of a key inactive; returns its position."""
        position = self._positions.pop(key, NO_POSITION)
        if position != NO_POSITION:
            self._active[position] = None
            self._flip(position)
        return position

    def _flip(self, position: int) -> None:
        """Change whether an entry is active."""
        self._bits[position // TWIG_ENTRIES] ^= 1 << position % TWIG_ENTRIES

    def _twig(self, number: int) -> Hash:
        inside = slice(number * TWIG_ENTRIES, (number + 1) * TWIG_ENTRIES)
        root = self._full.get(number) or perfect("entry-node", self.entries[inside], TWIG_LEVELS)
        if len(self.entries) >= inside.stop:
            self._full[number] = root
        return digest("twig", root + self._bits[number].to_bytes(TWIG_ENTRIES // 8, "little"))
