"""A compact index from hashes to their places in the chain: the first bytes of each hash, in sorted arrays.

A *name* is a hash that is in the chain once, such as a transaction's. A found place is a *candidate*: another name may
begin with the same bytes, so the caller compares the name at the place. Only the newest names are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validator.primitives.types import Height

KEY_BYTES: Final = 8
"""Bytes kept of each name. With its place, a name takes sixteen bytes."""
POSITION_BITS: Final = 24
"""Number of bits of a position in a block. They suffice for more items than a block has bytes."""
MAX_RECENT: Final = 16_384
"""Number of the newest names that are kept in full. Then all of them are moved to the sorted arrays together."""
_KEYS: Final = np.dtype(f">u{KEY_BYTES}")


class Place(NamedTuple):
    """A place in the chain: a block, and a position among the block's items of one kind."""

    height: Height
    position: int


class Places:
    """An index from names to places. It holds at least the last ``most`` names, and at most :data:`MAX_RECENT` more."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._recent: dict[bytes, int] = {}
        self._keys: NDArray[np.uint64] = np.empty(0, np.uint64)
        """The first bytes of the sorted names, as ascending integers."""
        self._places: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._loaded: deque[tuple[NDArray[np.uint64], NDArray[np.uint64]]] = deque()
        """Loaded keys and places that are not in the sorted arrays yet."""

    def __len__(self) -> int:
        return len(self._recent) + len(self._keys)

    def add(self, name: bytes, height: int, position: int) -> None:
        """Add a name of the newest block."""
        self._recent[name] = height << POSITION_BITS | position
        if len(self._recent) >= MAX_RECENT:
            keys = np.frombuffer(keys_of(self._recent), _KEYS).astype(np.uint64)
            self._sort_in(keys, np.fromiter(self._recent.values(), np.uint64, len(keys)))
            self._recent.clear()

    def load(self, first_height: int, names: Sequence[bytes]) -> None:
        """Add the names of consecutive blocks, which are newer than all blocks before.

        ``names`` has the result of :func:`keys_of` for each block. The names can be found after :meth:`settle`.
        """
        self._loaded.append(_placed(first_height, names))
        count = sum(len(keys) for keys, _ in self._loaded)
        while count - len(self._loaded[0][0]) >= self._most:
            count -= len(self._loaded.popleft()[0])

    def settle(self) -> None:
        """Finish loading: move the loaded names to the sorted arrays."""
        if self._loaded:
            keys, places = (np.concatenate(arrays) for arrays in zip(*self._loaded, strict=True))
            self._loaded.clear()
            self._sort_in(keys, places)

    def find(self, name: bytes) -> list[Place]:
        """Candidate places of a name, newest first."""
        recent = self._recent.get(name)
        key = np.uint64(int.from_bytes(name[:KEY_BYTES], "big"))
        begin, end = np.searchsorted(self._keys, key), np.searchsorted(self._keys, key, "right")
        found = sorted(map(int, self._places[begin:end]), reverse=True)
        every = found if recent is None else [recent, *found]
        return [Place(Height(place >> POSITION_BITS), place & (1 << POSITION_BITS) - 1) for place in every]

    def forget(self, height: int) -> None:
        """Drop every name whose place is at or below a height."""
        least = (height + 1) << POSITION_BITS
        self._keep(self._places >= np.uint64(least))
        self._recent = {name: place for name, place in self._recent.items() if place >= least}

    def _sort_in(self, keys: NDArray[np.uint64], places: NDArray[np.uint64]) -> None:
        order = np.argsort(keys)
        keys, places = keys[order], places[order]
        if len(self._keys):
            at = np.searchsorted(self._keys, keys)
            keys, places = np.insert(self._keys, at, keys), np.insert(self._places, at, places)
        self._keys, self._places = keys, places
        excess = len(places) - self._most
        if excess > 0:
            self._keep(places >= np.partition(places, excess)[excess])

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        self._keys, self._places = self._keys[kept], self._places[kept]


def _placed(first_height: int, names: Sequence[bytes]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Keys and places of the names of consecutive blocks."""
    keys = np.frombuffer(b"".join(names), _KEYS).astype(np.uint64)
    counts = np.array([len(each) // KEY_BYTES for each in names], np.int64)
    heights = np.repeat(np.arange(first_height, first_height + len(names), dtype=np.int64), counts)
    positions = np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)
    return keys, (heights << POSITION_BITS | positions).astype(np.uint64)


def keys_of(names: Iterable[bytes]) -> bytes:
    """The first :data:`KEY_BYTES` bytes of each name, concatenated, for :meth:`Places.load`."""
    return b"".join(name[:KEY_BYTES] for name in names)
