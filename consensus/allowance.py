"""Allowances: how many bytes of answers each peer may be sent. A token bucket a peer, filled by ticks and not by views.

A request has some bytes, its answer many thousands. Views may follow each other quickly, and whoever asks decides how
often it asks; so what it is sent is bounded over time. An engine has no clock but its timers: a *tick* is the expiry of
a timer that runs whatever the views do.
"""

from __future__ import annotations


class Allowances:
    """The buckets of all peers. A peer whose bucket is full is not remembered."""

    def __init__(self, burst_bytes: int, tick_bytes: int, max_peers: int) -> None:
        """A full bucket holds ``burst_bytes``; a tick adds ``tick_bytes``. At most ``max_peers`` are not full."""
        self._burst_bytes = burst_bytes
        self._tick_bytes = tick_bytes
        self._max_peers = max_peers
        self._taken: dict[int, int] = {}
        """By peer, the bytes that its bucket lacks."""

    def __len__(self) -> int:
        """Peers whose buckets are not full."""
        return len(self._taken)

    def tick(self) -> None:
        """Fill each bucket a little."""
        left = ((peer, taken - self._tick_bytes) for peer, taken in self._taken.items())
        self._taken = {peer: taken for peer, taken in left if taken > 0}

    def take(self, peer: int, size: int) -> bool:
        """Take ``size`` bytes for ``peer``; ``False`` if its bucket is empty, or too many peers' buckets are not full.

        The last answer may be larger than what is left: so each gets through, however large, a few ticks later at the
        most.
        """
        taken = self._taken.get(peer, 0)
        if taken >= self._burst_bytes or (not taken and len(self._taken) >= self._max_peers):
            return False
        self._taken[peer] = taken + size
        return True
