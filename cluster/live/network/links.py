"""The links from one live validator to the others: the simulator's link model, in front of real streams.

The sender applies the model before a message reaches the stream: it is dropped, or every copy is delayed until its
modelled arrival time, in addition to the latency of the real network. Each directed link has its own random source,
seeded by the run's seed and the pair, so that messages to one peer do not shift the fate of messages to another. A link
without impairments costs nothing.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, NamedTuple

from cluster.common.units import MICROSECONDS_PER_SECOND
from cluster.faults.link_effects import LinkEffect, LinkFaults
from cluster.faults.link_model import Links
from cluster.scenario.network import Network

MAX_WAITING_MESSAGES: Final = 65_536
"""Limit of messages under way from one validator to all others; further ones are lost."""
MAX_WAITING_BYTES: Final = 128 * 1024 * 1024

Deliver = Callable[[int, bytes], None]
"""The function ``deliver(receiver, frame)``, which hands a frame to the stream to its receiver."""


class _Waiting(NamedTuple):
    at_us: int
    number: int
    """Sequence number: of messages with the same arrival time the older one goes first."""
    receiver: int
    frame: bytes


class OutgoingLinks:
    """One validator's links to the others in ``network``; ``index`` is its own."""

    def __init__(self, network: Network, index: int, seed: int) -> None:
        self._index = index
        self._names = network.names
        self._randoms = [Random(f"{seed}/link/{index}/{receiver}") for receiver in range(len(network.names))]
        self._links = Links(network, Random(f"{seed}/link/{index}"))
        self.faults = LinkFaults(self._links)
        self._clear: list[bool] = []
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._number = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_us = 0
        self._delayed = 0
        self._overflowed = 0
        """Number of messages lost because too many were under way."""
        self.set_faults({})

    def set_faults(self, faults: Mapping[int, LinkEffect]) -> None:
        """From now on exactly these faults are in force, by their keys. Messages under way arrive as planned."""
        self.faults.become(faults)
        links, everybody = self._links, range(len(self._names))
        is_free = not links.uplink_bytes_per_second
        self._clear = [is_free and links.between(self._index, receiver).is_clear for receiver in everybody]

    def send(
        self, receiver: int, frame: bytes, later_us: int, loop: asyncio.AbstractEventLoop, deliver: Deliver
    ) -> None:
        """Send a frame over the modelled link: ``deliver`` is called for every copy that arrives, when it arrives.

        That is at once on a link without impairments. ``later_us`` is an additional delay.
        """
        if self._clear[receiver] and not later_us:
            self._links.between(self._index, receiver).sent += 1
            deliver(receiver, frame)
            return
        now_us = round(loop.time() * MICROSECONDS_PER_SECOND)
        random = self._randoms[receiver]
        for _, at_us in self._links.arrivals(self._index, (receiver,), len(frame), now_us, random):
            if at_us + later_us <= now_us:
                deliver(receiver, frame)
            else:
                self._let_wait(at_us + later_us, receiver, frame)
        self._arm(loop, deliver)

    def close(self) -> None:
        """Drop all messages under way."""
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def totals(self) -> dict[str, int]:
        """Numbers of messages, keyed by their effect; faults and the scenario's own settings together."""
        kinds = self._links.kinds
        return {
            "delayed": self._delayed,
            "dropped": self._links.dropped,
            "duplicated": sum(kind.duplicated for kind in kinds),
            "reordered": sum(kind.reordered for kind in kinds),
            "overflowed": self._overflowed,
        }

    def _let_wait(self, at_us: int, receiver: int, frame: bytes) -> None:
        if len(self._waiting) >= MAX_WAITING_MESSAGES or self._waiting_bytes + len(frame) > MAX_WAITING_BYTES:
            self._overflowed += 1
            return
        self._number += 1
        self._delayed += 1
        self._waiting_bytes += len(frame)
        heapq.heappush(self._waiting, _Waiting(at_us, self._number, receiver, frame))

    def _arm(self, loop: asyncio.AbstractEventLoop, deliver: Deliver) -> None:
        """Schedule the next arrival."""
        if not self._waiting:
            return
        first_us = self._waiting[0].at_us
        if self._alarm is not None:
            if self._alarm_us <= first_us:
                return
            self._alarm.cancel()
        self._alarm_us = first_us
        self._alarm = loop.call_at(first_us / MICROSECONDS_PER_SECOND, lambda: self._arrive(loop, deliver))

    def _arrive(self, loop: asyncio.AbstractEventLoop, deliver: Deliver) -> None:
        self._alarm = None
        now_us = round(loop.time() * MICROSECONDS_PER_SECOND)
        while self._waiting and self._waiting[0].at_us <= now_us:
            each = heapq.heappop(self._waiting)
            self._waiting_bytes -= len(each.frame)
            deliver(each.receiver, each.frame)
        self._arm(loop, deliver)
