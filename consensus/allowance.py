"""Allowances: how many bytes of answers each peer may be sent. One token bucket per peer, refilled by ticks.

A request has a few bytes, its answer many thousands, and the peer decides how often it asks. So the bytes sent to it
are bounded over time, and not per view: views may follow each other quickly. An engine has no clock except its timers.
A *tick* is the expiry of a timer that runs independently of the views.
"""

from __future__ import annotations


class Allowances:
    """Token buckets that limit the bytes of answers sent to each peer. Full buckets are not stored."""

    def __init__(self, burst_bytes: int, tick_bytes: int, max_peers: int) -> None:
        """A full bucket holds ``burst_bytes``; a tick adds ``tick_bytes``. ``max_peers`` buckets may be below full."""
        self._burst_bytes = burst_bytes
        self._tick_bytes = tick_bytes
        self._max_peers = max_peers
        self._taken: dict[int, int] = {}
        """Bytes taken from each peer's bucket and not refilled yet."""

    def __len__(self) -> int:
        """Number of peers whose buckets are not full."""
        return len(self._taken)

    def tick(self) -> None:
        """Add ``tick_bytes`` to each bucket."""
        left = ((peer, taken - self._tick_bytes) for peer, taken in self._taken.items())
        self._taken = {peer: taken for peer, taken in left if taken > 0}

    def take(self, peer: int, size: int) -> bool:
        """Take ``size`` bytes from the bucket of ``peer``. Returns whether an answer of this size may be sent.

        It may not if the bucket is empty, or if it is full and ``max_peers`` others are below full. An answer may be
        larger than what the bucket holds; later ticks refill the difference. So no answer is too large to be sent.
        """
        taken = self._taken.get(peer, 0)
        if taken >= self._burst_bytes or (not taken and len(self._taken) >= self._max_peers):
            return False
        self._taken[peer] = taken + size
        return True
