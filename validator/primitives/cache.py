"""A cache that is bounded by the total size of its entries and evicts the least recently used one."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Kept = TypeVar("Kept")


class SizedCache(Generic[Kept]):
    """Keeps the most recently used values by name; their sizes add up to at most ``most``.

    Validators of one process may share a cache between threads: each statement changes one thing, so the worst effect
    of a race is a miss.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self._entries: OrderedDict[str, tuple[int, Kept]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def names(self) -> list[str]:
        """The names of the entries, in the order of their use."""
        return list(self._entries)

    def get(self, name: str) -> Kept | None:
        """Get a value, which counts as a use."""
        entry = self._entries.pop(name, None)
        if entry is None:
            return None
        self._entries[name] = entry
        return entry[1]

    def put(self, name: str, value: Kept, size: int) -> None:
        """Store a value, and evict others if there is no room. The newest one stays whatever its size."""
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
