"""The network of a scenario: the path between any two validators, and its quality.

With the topology ``full`` every pair has a link of its own. With others, messages take the path of the least latency
over the topology's edges; of several such paths, the one with the fewest hops. Along a path

- latencies and jitters add up;
- loss, duplication and reordering apply at every hop;
- the smallest bandwidth counts, which each pair has for itself.

Before its path, a message passes its sender's uplink.

A validator that is down or paused still forwards messages, and faults of links act on pairs, independent of the path.
Without a path nothing arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from math import prod
from random import Random
from typing import Any, Final, NamedTuple

import networkx as nx

from cluster.common.suggestions import instead
from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.scenario.sections.links import (
    AnyTopology,
    EdgesTopology,
    FullTopology,
    LinksSection,
    RandomRegularTopology,
    RegionsTopology,
    RingTopology,
    SmallWorldTopology,
    StarTopology,
)

MAX_DRAWS: Final = 100
"""So often a random topology is drawn until it is connected."""
HOP_WEIGHT: Final = 1
LATENCY_WEIGHT: Final = 1_024
"""Of a microsecond; there are fewer hops in a path, so that they decide between paths of equal latency alone."""


class Quality(NamedTuple):
    """The quality of a path; fields as in a scenario's ``links``."""

    latency_ms: float
    jitter_ms: float
    loss: float
    duplication: float
    reordering: float
    bandwidth_kbps: int | None


class Network:
    """All routes of a scenario. ``regions`` are validators' names by region; ``seed`` is the scenario's.

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
        """Of each validator; ``None`` is unlimited."""
        self._section = section
        self._overrides: dict[frozenset[int], dict[str, float]] = {}
        self._paths: dict[int, dict[int, list[int]]] = {}
        self._between_regions: dict[tuple[str | None, str | None], Quality] = {}
        self.graph = None if isinstance(section.topology, FullTopology) else self._graph(section.topology, seed)
        """The links between validators, by index; ``None`` if every two have one."""
        if self.graph is not None and not getattr(section.topology, "allow_disconnected", False):
            self._check_connected(self.graph)

    def route(self, sender: int, receiver: int) -> tuple[int, ...] | None:
        """The validators on the path, by index, both ends included; ``None`` without a path."""
        if self.graph is None:
            return sender, receiver
        paths = self._paths.get(sender)
        if paths is None:
            paths = self._paths[sender] = nx.single_source_dijkstra_path(self.graph, sender, weight=self._weight)
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
        """The validators that have a link, each pair once, ascending."""
        if self.graph is None:
            return list(combinations(range(len(self.names)), 2))
        return sorted((min(edge), max(edge)) for edge in self.graph.edges)

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
        overrides = self._overrides.get(frozenset((sender, receiver)))
        if overrides is not None and name in overrides:
            return overrides[name]
        if name == "latency_ms":
            return self._section.region_latency_ms(self.regions[sender], self.regions[receiver])
        value: float | None = getattr(self._section, name)
        return value

    # --- topologies ---------------------------------------------------------------------------------------------------

    def _graph(self, topology: AnyTopology, seed: int) -> nx.Graph:
        count = len(self.names)
        graph: nx.Graph = nx.Graph()
        graph.add_nodes_from(range(count))
        match topology:
            case RingTopology():
                graph.add_edges_from(pairwise([*range(count), 0]) if count > 1 else ())
            case StarTopology():
                hub = 0 if topology.hub is None else self._index(topology.hub, "hub")
                graph.add_edges_from((hub, other) for other in range(count) if other != hub)
            case RandomRegularTopology() | SmallWorldTopology():
                graph = self._drawn(topology, seed if topology.seed is None else topology.seed)
            case RegionsTopology():
                graph.add_edges_from(self._region_edges(topology))
            case EdgesTopology():
                graph.add_edges_from(self._listed(topology))
        return graph

    def _drawn(self, topology: RandomRegularTopology | SmallWorldTopology, seed: int) -> nx.Graph:
        count, random = len(self.names), Random(f"{seed}/topology")
        if isinstance(topology, RandomRegularTopology):
            name, nearest = "degree", topology.degree
            if nearest * count % 2:
                raise ValueError(
                    f"topology.degree: {nearest} links of each of {count} validators cannot be: odd in all"
                )
        else:
            name, nearest = "k", topology.k
        if nearest >= count:
            raise ValueError(f"topology.{name}: {nearest} is not below the number of validators ({count})")
        for _ in range(MAX_DRAWS):
            if isinstance(topology, RandomRegularTopology):
                graph = nx.random_regular_graph(nearest, count, seed=random)
            else:
                graph = nx.watts_strogatz_graph(count, nearest, topology.p, seed=random)
            if topology.allow_disconnected or nx.is_connected(graph):
                break
        plain: nx.Graph = nx.Graph()
        plain.add_nodes_from(range(count))
        plain.add_edges_from(sorted((min(edge), max(edge)) for edge in graph.edges))
        return plain

    def _region_edges(self, topology: RegionsTopology) -> Iterable[tuple[int, int]]:
        members: dict[str, list[int]] = {}
        for index, region in enumerate(self.regions):
            if region is None:
                raise ValueError(f"topology.kind: {self.names[index]} is in no region")
            members.setdefault(region, []).append(index)
        for each in members.values():
            yield from combinations(each, 2)
        for one, other in combinations(members.values(), 2):
            yield from ((a, b) for a in one[: topology.gateways] for b in other[: topology.gateways])

    def _listed(self, topology: EdgesTopology) -> Iterable[tuple[int, int]]:
        for position, edge in enumerate(topology.edges):
            where = f"edges[{position}].between"
            first, second = (self._index(name, where) for name in edge.between)
            if first == second:
                raise ValueError(f"topology.{where}: {edge.between[0]} is not linked to itself")
            if frozenset((first, second)) in self._overrides:
                raise ValueError(f"topology.{where}: {' and '.join(edge.between)} are linked twice")
            self._overrides[frozenset((first, second))] = edge.changes
            yield first, second

    def _index(self, name: str, where: str) -> int:
        if name not in self.names:
            raise ValueError(f"topology.{where}: no validator is named {name!r}; {instead(name, self.names)}")
        return self.names.index(name)

    def _check_connected(self, graph: nx.Graph) -> None:
        parts = sorted((sorted(part) for part in nx.connected_components(graph)), key=lambda part: (-len(part), part))
        if len(parts) > 1:
            raise ValueError(
                f"topology: {self.names[parts[1][0]]} cannot reach {self.names[parts[0][0]]}:"
                f" the validators are in {len(parts)} parts (allow_disconnected permits this)"
            )
