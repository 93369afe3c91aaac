"""A cache that is bounded by the total size of its entries and evicts the least recently used one."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Kept = TypeVar("Kept")


class SizedCache(Generic[Kept]):
    """A cache of values by name. It evicts the least recently used values when the sizes add up to more than ``most``.

    Threads may share a cache without a lock. The worst effect of a race is that a value is not found.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self._entries: OrderedDict[str, tuple[int, Kept]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def names(self) -> list[str]:
        """The names of the entries, least recently used first."""
        return list(self._entries)

    def get(self, name: str) -> Kept | None:
        """The value with this name, or ``None``. The call marks it as the most recently used."""
        entry = self._entries.pop(name, None)
        if entry is None:
            return None
        self._entries[name] = entry
        return entry[1]

    def put(self, name: str, value: Kept, size: int) -> None:
        """Store a value, and evict others if the cache is full. A value larger than the cache is stored too, alone."""
        self._drop(self._entries.pop(name, None))
        self._entries[name] = (size, value)
        self.used += size
        while self.used > self.most and len(self._entries) > 1:
            self._drop(self._entries.popitem(last=False)[1])

    def clear(self) -> None:
        while self._entries:
            self._drop(self._entries.popitem()[1])

    def _drop(self, entry: tuple[int, Kept] | None) -> None:
        if entry is not None:
            self.used -= entry[0]
