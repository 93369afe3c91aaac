"""Shares of a bounded room among clients: nobody fills it alone, and whoever comes later finds some of it free.

A client may hold at most :data:`MAX_OF_FREE` times what is left free (a dynamic threshold, as switches have for their
buffers). So one client gets three quarters of a room, two get three sevenths each, and ``n`` of them leave one part in
``3 n + 1``. Nothing is reserved for anybody, and what a client holds is never taken from it.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

MAX_OF_FREE: Final = 3


def fits_share(room: int, held: int, held_by_client: int, more: int) -> bool:
    """Whether a client may hold ``more`` of a room, of which all clients together hold ``held``."""
    return held_by_client + more <= MAX_OF_FREE * (room - held - more)


class Amounts(NamedTuple):
    """What a request for admission takes up while it waits."""

    requests: int
    transactions: int
    bytes: int


class NoShare(Exception):
    """A client holds too much already. The message says of what."""


class Shares:
    """What each client holds of a room."""

    def __init__(self, room: Amounts) -> None:
        self._room = room
        self._held: dict[str, Counter[str]] = {name: Counter() for name in Amounts._fields}
        """By field of the room, and by client; clients that hold nothing are absent."""

    @property
    def clients(self) -> int:
        """How many hold anything."""
        return len({client for held in self._held.values() for client in held})

    @contextlib.contextmanager
    def holding(self, client: str, amounts: Amounts) -> Iterator[None]:
        """Hold so much meanwhile. Raises :class:`NoShare` if it is more than the client's share now."""
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
