"""The link model: the fate of a message between two validators, independent of its carrier.

From the number of bytes and the time, it computes when each copy arrives. A directed link has a latency, a jitter
around it, shares of messages that are lost, duplicated or held back so that later ones overtake them, and a bandwidth:
bytes leave one after the other, and a message that does not fit into the queue is lost. A validator's uplink also has a
bandwidth and a queue, which all its messages pass first. The link between two validators is one of the scenario's, or a
path over several (:mod:`cluster.scenario.network`). :meth:`Links.change` gives links other parameters or cuts
them; messages under way arrive as planned.

Every number is drawn from the random source that the caller gives, in the order of the messages: one source for all
links, or one for each link if messages have no order among each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from cluster.common.units import MICROSECONDS_PER_MILLISECOND, MICROSECONDS_PER_SECOND
from cluster.scenario.network import Network, Quality

BYTES_PER_KILOBIT: Final = 125
LINK_QUEUE_BYTES: Final = 4 << 20
"""Bytes that may wait for a link; a message that finds more than this waiting is lost."""
UPLINK_QUEUE_BYTES: Final = 64 << 20
"""Bytes that may wait for a validator's uplink; a message that finds more than this waiting is lost."""
MIN_HOLD_BACK_US: Final = 1_000
HELD_BACK_LATENCIES: Final = 3
"""Maximum additional delay of a message that is held back, as a multiple of the link's latency plus jitter."""


@dataclass(slots=True, eq=False)
class Link:
    """The parameters of a kind of link, and counts of the messages that went over such links."""

    latency_us: int = 0
    jitter_us: int = 0
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    bytes_per_second: int = 0
    """Bandwidth; 0 means unbounded."""
    is_cut: bool = False
    sent: int = 0
    dropped: int = 0
    duplicated: int = 0
    reordered: int = 0
    waited: int = 0
    """Messages that waited for earlier ones."""

    @property
    def is_clear(self) -> bool:
        """Whether the link affects no message."""
        return self.only_delays and not (self.latency_us or self.jitter_us)

    @property
    def only_delays(self) -> bool:
        """Whether the link delays messages at most: every message arrives once, and none waits for another."""
        return not (self.is_cut or self.loss or self.duplication or self.reordering or self.bytes_per_second)

    def is_better_than(self, other: Link) -> bool:
        """Whether at least one kind of disturbance is rarer on this link than on the other."""
        is_wider = other.bytes_per_second > 0 and not 0 < self.bytes_per_second <= other.bytes_per_second
        loses_less = self.loss < other.loss
        return is_wider or loses_less or self.duplication < other.duplication or self.reordering < other.reordering

    def with_changes(self, changes: dict[str, float]) -> Link:
        """A copy with zero counts and with these changes; their names and units are those of a scenario's ``links``."""
        fields: dict[str, float] = {}
        for name, value in changes.items():
            field, scale = _UNITS[name]
            fields[field] = value * scale if field in ("loss", "duplication", "reordering") else round(value * scale)
        counts = dict.fromkeys(("sent", "dropped", "duplicated", "reordered", "waited"), 0)
        return replace(self, **fields, **counts)  # type: ignore[arg-type]


_UNITS: Final = {
    "latency_ms": ("latency_us", MICROSECONDS_PER_MILLISECOND),
    "jitter_ms": ("jitter_us", MICROSECONDS_PER_MILLISECOND),
    "loss": ("loss", 1),
    "duplication": ("duplication", 1),
    "reordering": ("reordering", 1),
    "bandwidth_kbps": ("bytes_per_second", BYTES_PER_KILOBIT),
}

Change = Callable[[int, int, Link], Link]
"""``change(sender, receiver, link)`` returns the link's replacement, or the link itself."""


class Links:
    """All directed links of a network."""

    def __init__(self, network: Network, random: Random) -> None:
        self.kinds: dict[Link, None] = {}
        """Every kind of link so far, in the order of creation."""
        self._random = random
        self._changes: list[Change] = []
        self._free_at_us: dict[int, int] = {}
        """The time at which a link or an uplink of bounded bandwidth will have sent everything queued, by its number.

        The number of a link is ``sender * number of validators + receiver``; for uplinks see :func:`_uplink_of`.
        """
        self.become(network)

    def become(self, network: Network) -> None:
        """Use the links of this network from now on. The changes made by :meth:`change` still apply to them."""
        self._network = network
        self.uplink_bytes_per_second = (network.uplink_kbps or 0) * BYTES_PER_KILOBIT
        """Bandwidth of each validator's uplink; 0 means unbounded."""
        self._by_quality: dict[Quality | None, Link] = {}
        self._rows: list[list[Link] | None] = [None] * len(network.names)
        self._only: list[Link | None] = [None] * len(network.names)
        """The link from each sender to all others, if it is the same and does nothing but delay messages."""

    @property
    def sent(self) -> int:
        return sum(kind.sent for kind in self.kinds)

    @property
    def dropped(self) -> int:
        return sum(kind.dropped for kind in self.kinds)

    def change(self, changes: Sequence[Change]) -> None:
        """Apply these changes, in order, to the scenario's links from now on. They replace all earlier changes."""
        self._changes = list(changes)
        self._rows = [None] * len(self._rows)

    def between(self, sender: int, receiver: int) -> Link:
        """The link that messages from one validator to another use now."""
        return (self._rows[sender] or self._row(sender))[receiver]

    def arrivals(
        self, sender: int, receivers: Iterable[int], size: int, now_us: int, random: Random | None = None
    ) -> list[tuple[int, int]]:
        """Send a message. Returns ``(receiver, time in µs)`` of each copy that arrives. The sender gets no copy.

        ``random`` replaces the common random source.
        """
        row = self._rows[sender] or self._row(sender)
        random = random or self._random
        draw = random.random
        found: list[tuple[int, int]] = []
        if (only := self._only[sender]) is not None:
            others = [receiver for receiver in receivers if receiver != sender]
            only.sent += len(others)
            return [(receiver, now_us + self._delay_us(only, random)) for receiver in others]
        for receiver in receivers:
            if receiver == sender:
                continue
            link = row[receiver]
            link.sent += 1
            start_us = now_us
            if self.uplink_bytes_per_second and not link.is_cut:
                start_us = self._transmit(link, _uplink_of(sender), self.uplink_bytes_per_second, size, now_us)
                if start_us < 0:
                    continue
            if link.is_cut or (link.loss and draw() < link.loss):
                link.dropped += 1
                continue
            if link.bytes_per_second:
                start_us = self._transmit(link, sender * len(row) + receiver, link.bytes_per_second, size, start_us)
                if start_us < 0:
                    continue
            found.append((receiver, start_us + self._delay_us(link, random)))
            if link.duplication and draw() < link.duplication:
                link.duplicated += 1
                found.append((receiver, start_us + self._delay_us(link, random)))
        return found

    def _delay_us(self, link: Link, random: Random) -> int:
        delay_us = link.latency_us
        if jitter_us := link.jitter_us:
            delay_us = max(0, delay_us - jitter_us + int(random.random() * (2 * jitter_us + 1)))
        if link.reordering and random.random() < link.reordering:
            link.reordered += 1
            most_us = max(MIN_HOLD_BACK_US, HELD_BACK_LATENCIES * (link.latency_us + link.jitter_us))
            delay_us += 1 + int(random.random() * most_us)
        return delay_us

    def _transmit(self, link: Link, number: int, bytes_per_second: int, size: int, now_us: int) -> int:
        """Queue a message. Returns when its last byte leaves the link or uplink of this number; -1 if it is lost."""
        free_at_us = self._free_at_us.get(number, 0)
        if free_at_us > now_us:
            queue_bytes = UPLINK_QUEUE_BYTES if number < 0 else LINK_QUEUE_BYTES
            if (free_at_us - now_us) * bytes_per_second > queue_bytes * MICROSECONDS_PER_SECOND:
                link.dropped += 1
                return -1
            link.waited += 1
        left_at_us = max(free_at_us, now_us) + -(-size * MICROSECONDS_PER_SECOND // bytes_per_second)
        self._free_at_us[number] = left_at_us
        return left_at_us

    def _row(self, sender: int) -> list[Link]:
        row = self._rows[sender] = [self._link(sender, receiver) for receiver in range(len(self._rows))]
        others = {link for receiver, link in enumerate(row) if receiver != sender}
        only = others.pop() if len(others) == 1 and not self.uplink_bytes_per_second else None
        self._only[sender] = only if only is not None and only.only_delays else None
        return row

    def _link(self, sender: int, receiver: int) -> Link:
        quality = self._network.quality(sender, receiver)
        link = self._by_quality.get(quality)
        if link is None:
            link = self._by_quality[quality] = Link(is_cut=True) if quality is None else _link_of(quality)
            self.kinds[link] = None
        for change in self._changes:
            link = change(sender, receiver, link)
            self.kinds[link] = None
        return link


def _link_of(quality: Quality) -> Link:
    return Link().with_changes({name: value or 0 for name, value in quality._asdict().items()})


def _uplink_of(sender: int) -> int:
    """The number of a validator's uplink. It is negative, which tells it from the numbers of links."""
    return -1 - sender
