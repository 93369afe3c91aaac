"""The effect of faults on links, for the carrier of messages: the simulator, or a live validator's transport.

A fault in force replaces links of the scenario: :meth:`LinkFaultInForce.change` returns the replacement of a link, and
keeps it, so that the affected messages can be counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple

from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.faults.link_model import Link, Links
from cluster.scenario.sections.faults import (
    CutFault,
    DegradeFault,
    LeaderDelayFault,
    LinkFault,
    OneWayPartitionFault,
    PartitionFault,
)
from consensus.types import quorum


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


class LinkFaultInForce:
    """One fault of links while it is in force. ``names`` are the validators, by index."""

    def __init__(self, plan: LinkFault, names: Sequence[str]) -> None:
        self.plan = plan
        self._links: dict[Link, Link] = {}
        """The replacement of each link that the fault replaced."""
        self._delayed = 0
        if isinstance(plan, PartitionFault):
            sides = plan.sides(names)
            self._groups = [{number for number, side in enumerate(sides) if name in side} for name in names]
        elif not isinstance(plan, LeaderDelayFault):
            senders, receivers = plan.ends(names)
            self._sends = [name in senders for name in names]
            self._receives = [name in receivers for name in names]

    @property
    def changes_links(self) -> bool:
        """Whether the fault replaces links (:meth:`change`). A delay of the leader does not."""
        return not isinstance(self.plan, LeaderDelayFault)

    def change(self, sender: int, receiver: int, link: Link) -> Link:
        """The link to use in place of ``link`` under this fault; ``link`` itself if it is cut or not affected."""
        if link.is_cut or not self.hits(sender, receiver):
            return link
        other = self._links.get(link)
        if other is None:
            changes = self.plan.changes if isinstance(self.plan, DegradeFault) else {}
            other = self._links[link] = link.with_changes(changes)
            other.is_cut = not changes
        return other

    def delay_of_leader_ms(self) -> int:
        """The additional delay of a message that a leader sends now; 0 if the fault delays none.

        Each call counts one delayed message.
        """
        if not isinstance(self.plan, LeaderDelayFault):
            return 0
        self._delayed += 1
        return self.plan.delay_ms

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
        if isinstance(self.plan, PartitionFault):
            return self._groups[sender].isdisjoint(self._groups[receiver])
        is_hit = self._sends[sender] and self._receives[receiver]
        if isinstance(self.plan, CutFault):
            return is_hit or (self._sends[receiver] and self._receives[sender])
        return is_hit


class LinkFaults:
    """The faults of links in force, by key."""

    def __init__(self, links: Links, names: Sequence[str]) -> None:
        self._links = links
        self._names = names
        self._known: dict[int, LinkFaultInForce] = {}
        """All faults that were ever in force, by key."""
        self._leader_delays: list[LinkFaultInForce] = []

    def become(self, faults: Mapping[int, LinkFault]) -> None:
        """Put exactly these faults in force, in this order. Messages under way arrive as before."""
        for key, plan in faults.items():
            if key not in self._known:
                self._known[key] = LinkFaultInForce(plan, self._names)
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


def impaired_by_links(plan: LinkFault, names: Sequence[str]) -> tuple[str, ...]:
    """The validators on whose votes no certificate can rely while the fault is in force."""
    match plan:
        case PartitionFault():
            largest = max(plan.sides(names), key=len)
            whole = largest if len(largest) >= quorum(len(names)) else set()
            return tuple(name for name in names if name not in whole)
        case OneWayPartitionFault() | CutFault() | DegradeFault():
            senders, receivers = plan.ends(names)
            fewer = senders if len(senders) <= len(receivers) else receivers
            return tuple(name for name in names if name in fewer)
        case LeaderDelayFault():
            return tuple(names)


def seen_on_links(plan: LinkFault, counts: LinkCounts) -> Seen:
    """Whether a fault had an observable effect, and the evidence."""
    if isinstance(plan, LeaderDelayFault):
        return Seen(counts.delayed > 0, f"{counts.delayed:,} sends of leaders {plan.delay_ms:,} ms later")
    if not isinstance(plan, DegradeFault):
        return Seen(counts.dropped > 0, f"{counts.dropped:,} messages dropped")
    seen = {
        "with another latency": counts.slower,
        "dropped": counts.dropped if plan.loss or plan.bandwidth_kbps else 0,
        "doubled": counts.duplicated if plan.duplication else 0,
        "held back": counts.reordered if plan.reordering else 0,
        "waiting for others": counts.waited if plan.bandwidth_kbps else 0,
        "on better links": counts.eased,
    }
    words = [f"{count:,} {what}" for what, count in seen.items() if count]
    return Seen(bool(words), f"{counts.sent:,} messages, of them {', '.join(words) or 'none touched'}")
