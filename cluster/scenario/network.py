"""The network of a scenario: the path between any two validators, and its quality.

With the topology ``full`` every pair has its own link. With others, messages take the path of the least latency over
the topology's edges; among equal paths, the one with the fewest hops. Along a path

- latencies and jitters add up;
- loss, duplication and reordering apply at every hop;
- the smallest bandwidth counts, separately for each pair.

Before its path, a message passes its sender's uplink.

A validator that is down or paused still forwards messages, and faults of links act on pairs, independent of the path.
Without a path nothing arrives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.scenario.sections.links import FullTopology, LinksSection

if TYPE_CHECKING:
    from cluster.scenario.link_graph import LinkGraph

HOP_WEIGHT: Final = 1
LATENCY_WEIGHT: Final = 1_024
"""Weight of a microsecond of latency when paths are compared, to a hop's :data:`HOP_WEIGHT`. A path has fewer hops than
this, so hops decide only between paths of equal latency."""


class Quality(NamedTuple):
    """The quality of a path; fields as in a scenario's ``links``."""

    latency_ms: float
    jitter_ms: float
    loss: float
    duplication: float
    reordering: float
    bandwidth_kbps: int | None


class Network:
    """The paths between all validators of a scenario, and their quality.

    ``regions`` has validators' names by region; ``seed`` is the scenario's.

    Raises :class:`ValueError`, with the field's path, if the topology does not fit the validators.
    """

    def __init__(
        self, section: LinksSection, names: Sequence[str], regions: Mapping[str, Sequence[str]], seed: int
    ) -> None:
        self.names = tuple(names)
        region_of = {name: region for region, members in regions.items() for name in members}
        self.regions = tuple(region_of.get(name) for name in names)
        """Each validator's region or ``None``."""
        self.uplink_kbps = section.uplink_kbps
        """Bandwidth of each validator's uplink, in kilobits per second; ``None`` is unlimited."""
        self._section = section
        self._paths: dict[int, dict[int, list[int]]] = {}
        self._between_regions: dict[tuple[str | None, str | None], Quality] = {}
        self.graph: LinkGraph | None = None
        """The links of the topology; ``None`` if every two validators have a link."""
        if not isinstance(section.topology, FullTopology):
            from cluster.scenario.link_graph import LinkGraph

            self.graph = LinkGraph(section.topology, self.names, self.regions, seed)

    def route(self, sender: int, receiver: int) -> tuple[int, ...] | None:
        """The validators on the path, by index, including both ends; ``None`` without a path."""
        if self.graph is None:
            return sender, receiver
        paths = self._paths.get(sender)
        if paths is None:
            paths = self._paths[sender] = self.graph.paths(sender, self._weight)
        return tuple(paths[receiver]) if receiver in paths else None

    def quality(self, sender: int, receiver: int) -> Quality | None:
        """The quality of the path from one validator to another; ``None`` without one."""
        route = self.route(sender, receiver)
        if route is None:
            return None
        if self.graph is not None:
            return self._along(route)
        ends = self.regions[sender], self.regions[receiver]
        if ends not in self._between_regions:
            self._between_regions[ends] = self._along(route)
        return self._between_regions[ends]

    @property
    def links(self) -> list[tuple[int, int]]:
        """The pairs of validators that have a link, each pair once, ascending."""
        if self.graph is None:
            return list(combinations(range(len(self.names)), 2))
        return sorted((min(edge), max(edge)) for edge in self.graph.links.edges)

    def link(self, sender: int, receiver: int) -> Quality:
        """The quality of the link between two linked validators, in one direction."""
        return self._along((sender, receiver))

    # --- paths --------------------------------------------------------------------------------------------------------

    def _weight(self, sender: int, receiver: int, _: Any) -> int:
        latency_ms = self._value("latency_ms", sender, receiver) or 0
        return round(latency_ms * MICROSECONDS_PER_MILLISECOND) * LATENCY_WEIGHT + HOP_WEIGHT

    def _along(self, route: tuple[int, ...]) -> Quality:
        edges = list(pairwise(route))

        def values(name: str) -> list[float]:
            return [value for edge in edges if (value := self._value(name, *edge)) is not None]

        def composed(name: str) -> float:
            found = values(name)
            return found[0] if len(found) == 1 else 1 - prod(1 - value for value in found)

        return Quality(
            latency_ms=sum(values("latency_ms")),
            jitter_ms=sum(values("jitter_ms")),
            loss=composed("loss"),
            duplication=composed("duplication"),
            reordering=composed("reordering"),
            bandwidth_kbps=min((int(value) for value in values("bandwidth_kbps")), default=None),
        )

    def _value(self, name: str, sender: int, receiver: int) -> float | None:
        """A parameter of the link between two validators."""
        changes = {} if self.graph is None else self.graph.changes.get(frozenset((sender, receiver)), {})
        if name in changes:
            return changes[name]
        if name == "latency_ms":
            return self._section.region_latency_ms(self.regions[sender], self.regions[receiver])
        value: float | None = getattr(self._section, name)
        return value
