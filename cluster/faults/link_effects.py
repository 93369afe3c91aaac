"""The effect of faults on links, for the carrier of messages: the simulator, or a live validator's transport.

A fault in force replaces links of the scenario: :meth:`LinkFaultInForce.change` returns the replacement of a link, and
keeps it, so that the affected messages can be counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import NamedTuple

from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.faults.link_model import Link, Links


class Seen(NamedTuple):
    """Whether a fault had an observable effect, and the evidence."""

    took_effect: bool
    evidence: str


@dataclass(slots=True)
class LinkCounts:
    """The messages affected by a fault of links, by effect."""

    sent: int = 0
    dropped: int = 0
    slower: int = 0
    """Messages with another latency or jitter than without the fault."""
    duplicated: int = 0
    reordered: int = 0
    waited: int = 0
    eased: int = 0
    """Messages on links with a lower rate of loss, duplication, reordering or queueing than without the fault."""
    delayed: int = 0
    """How often a leader sent a message with an additional delay."""

    def __add__(self, other: LinkCounts) -> LinkCounts:
        return LinkCounts(*(ours + theirs for ours, theirs in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class LinkEffect:
    """What a fault does to links, as plain data. Validators are given by index."""

    what: str
    """The fault's kind and targets, in words."""
    hits: tuple[tuple[frozenset[int], frozenset[int]], ...] = ()
    """Senders and receivers: it hits what one of the senders sends one of the receivers."""
    changes: dict[str, float] = field(default_factory=dict)
    """New values of the links that it hits, keyed as in a scenario's ``links``; without any it cuts them."""
    leader_delay_ms: int = 0
    """The additional delay of what a leader sends; a fault with one hits no links."""
    for_ms: int | None = None
    """How long it lasts; ``None`` if it ends at a height."""
    prefers_chaos_mesh: bool = False

    def seen(self, counts: LinkCounts) -> Seen:
        """Whether the fault had an observable effect, and the evidence."""
        if self.leader_delay_ms:
            return Seen(counts.delayed > 0, f"{counts.delayed:,} sends of leaders {self.leader_delay_ms:,} ms later")
        if not self.changes:
            return Seen(counts.dropped > 0, f"{counts.dropped:,} messages dropped")
        given = self.changes.get
        seen = {
            "with another latency": counts.slower,
            "dropped": counts.dropped if given("loss") or given("bandwidth_kbps") else 0,
            "doubled": counts.duplicated if given("duplication") else 0,
            "held back": counts.reordered if given("reordering") else 0,
            "waiting for others": counts.waited if given("bandwidth_kbps") else 0,
            "on better links": counts.eased,
        }
        words = [f"{count:,} {what}" for what, count in seen.items() if count]
        return Seen(bool(words), f"{counts.sent:,} messages, of them {', '.join(words) or 'none touched'}")


class LinkFaultInForce:
    """One fault of links while it is in force."""

    def __init__(self, effect: LinkEffect) -> None:
        self._effect = effect
        self._links: dict[Link, Link] = {}
        """The replacement of each link that the fault replaced."""
        self._delayed = 0

    @property
    def changes_links(self) -> bool:
        """Whether the fault replaces links (:meth:`change`). A delay of the leader does not."""
        return not self._effect.leader_delay_ms

    def change(self, sender: int, receiver: int, link: Link) -> Link:
        """The link to use in place of ``link`` under this fault; ``link`` itself if it is cut or not affected."""
        if link.is_cut or not self.hits(sender, receiver):
            return link
        other = self._links.get(link)
        if other is None:
            other = self._links[link] = link.with_changes(self._effect.changes)
            other.is_cut = not self._effect.changes
        return other

    def delay_of_leader_ms(self) -> int:
        """The additional delay of a message that a leader sends now. Each call counts one delayed message."""
        self._delayed += 1
        return self._effect.leader_delay_ms

    def counts(self) -> LinkCounts:
        """The messages affected so far."""
        counts = LinkCounts(delayed=self._delayed)
        for old, link in self._links.items():
            counts.sent += link.sent
            counts.dropped += link.dropped
            counts.duplicated += link.duplicated
            counts.reordered += link.reordered
            counts.waited += link.waited
            if (old.latency_us, old.jitter_us) != (link.latency_us, link.jitter_us):
                counts.slower += link.sent
            if link.is_better_than(old):
                counts.eased += link.sent
        return counts

    def hits(self, sender: int, receiver: int) -> bool:
        """Whether the fault affects what one validator sends another."""
        return any(sender in senders and receiver in receivers for senders, receivers in self._effect.hits)


class LinkFaults:
    """The faults of links in force, by key."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._known: dict[int, LinkFaultInForce] = {}
        """All faults that were ever in force, by key."""
        self._leader_delays: list[LinkFaultInForce] = []

    def become(self, faults: Mapping[int, LinkEffect]) -> None:
        """Put exactly these faults in force, in this order. Messages under way arrive as before."""
        for key, effect in faults.items():
            if key not in self._known:
                self._known[key] = LinkFaultInForce(effect)
        in_force = [self._known[key] for key in faults]
        self._leader_delays = [each for each in in_force if not each.changes_links]
        self._links.change([each.change for each in in_force if each.changes_links])

    @property
    def delay_leaders(self) -> bool:
        """Whether a fault in force delays the messages of leaders, by :meth:`leader_delay_us`."""
        return bool(self._leader_delays)

    def leader_delay_us(self) -> int:
        """The additional delay, by all faults in force, of a message that a leader sends now.

        Each call counts one delayed message.
        """
        return sum(each.delay_of_leader_ms() for each in self._leader_delays) * MICROSECONDS_PER_MILLISECOND

    def counts(self) -> dict[int, LinkCounts]:
        """The messages affected so far by each fault that was ever in force, by key."""
        return {key: fault.counts() for key, fault in self._known.items()}
