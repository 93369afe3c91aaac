"""Shares of a bounded capacity among clients: no client fills it alone, and later clients find some of it free.

A client may hold at most :data:`MAX_OF_FREE` times the free capacity (a dynamic threshold, as in switch buffers). So
one client gets three quarters of the room, two get three sevenths each, and ``n`` of them leave one part in ``3 n +
1``. Nothing is reserved for any client, and nothing is taken back from a client.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

MAX_OF_FREE: Final = 3


def fits_share(room: int, held: int, held_by_client: int, more: int) -> bool:
    """Whether a client may hold ``more`` of a capacity, of which all clients together hold ``held``."""
    return held_by_client + more <= MAX_OF_FREE * (room - held - more)


class Amounts(NamedTuple):
    """The capacity that a request for admission takes while it waits."""

    requests: int
    transactions: int
    bytes: int


class NoShare(Exception):
    """A client would hold more than its share of a capacity. The message names the resource."""


class Shares:
    """The share of a capacity that each client holds."""

    def __init__(self, room: Amounts) -> None:
        self._room = room
        self._held: dict[str, Counter[str]] = {name: Counter() for name in Amounts._fields}
        """Amounts held, keyed by field of the room, then by client; clients that hold nothing are absent."""

    @property
    def clients(self) -> int:
        """Number of clients that hold anything."""
        return len({client for held in self._held.values() for client in held})

    @contextlib.contextmanager
    def holding(self, client: str, amounts: Amounts) -> Iterator[None]:
        """Hold these amounts inside the block. Raises :class:`NoShare` if they exceed the client's current share."""
        named = list(zip(Amounts._fields, self._room, amounts, strict=True))
        for name, room, more in named:
            held = self._held[name]
            if not fits_share(room, held.total(), held[client], more):
                raise NoShare(f"too many {name} of this client wait for admission; try again")
        for name, _, more in named:
            self._held[name][client] += more
        try:
            yield
        finally:
            for name, _, more in named:
                self._held[name][client] -= more
                if not self._held[name][client]:
                    del self._held[name][client]
