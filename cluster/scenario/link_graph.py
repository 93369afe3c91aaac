"""The graph of the links of a network in which some validators have no direct link.

:mod:`cluster.scenario.network` finds the paths with it.

Few scenarios have such a topology. NetworkX takes a fifth of the time that importing a scenario's model takes, so this
module is imported only when needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, pairwise
from random import Random
from typing import Any, Final

import networkx as nx

from cluster.common.suggestions import instead
from cluster.scenario.sections.links import (
    AnyTopology,
    EdgesTopology,
    RandomRegularTopology,
    RegionsTopology,
    RingTopology,
    SmallWorldTopology,
    StarTopology,
)

MAX_DRAWS: Final = 100
"""Maximum number of attempts to draw a random topology that is connected."""


class LinkGraph:
    """The links of a topology other than ``full``. ``regions`` has each validator's region or ``None``; ``seed`` is the
    scenario's.

    Raises :class:`ValueError`, with the field's path, if the topology does not fit the validators.
    """

    def __init__(self, topology: AnyTopology, names: Sequence[str], regions: Sequence[str | None], seed: int) -> None:
        self._names, self._regions = names, regions
        self.changes: dict[frozenset[int], dict[str, float]] = {}
        """Parameters that override the scenario's, for each link, keyed by its two validators."""
        self.links = self._linked(topology, seed)
        """The graph of the links; nodes are validators by index."""
        if not getattr(topology, "allow_disconnected", False):
            self._check_connected()

    def paths(self, sender: int, weight: Callable[[int, int, Any], int]) -> dict[int, list[int]]:
        """The path of the least weight to each reachable validator: the validators on it, including both ends."""
        found: dict[int, list[int]] = nx.single_source_dijkstra_path(self.links, sender, weight=weight)
        return found

    # --- topologies ---------------------------------------------------------------------------------------------------

    def _linked(self, topology: AnyTopology, seed: int) -> nx.Graph:
        count = len(self._names)
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
        count, random = len(self._names), Random(f"{seed}/topology")
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
        for index, region in enumerate(self._regions):
            if region is None:
                raise ValueError(f"topology.kind: {self._names[index]} is in no region")
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
            if frozenset((first, second)) in self.changes:
                raise ValueError(f"topology.{where}: {' and '.join(edge.between)} are linked twice")
            self.changes[frozenset((first, second))] = edge.changes
            yield first, second

    def _index(self, name: str, where: str) -> int:
        if name not in self._names:
            raise ValueError(f"topology.{where}: no validator is named {name!r}; {instead(name, self._names)}")
        return self._names.index(name)

    def _check_connected(self) -> None:
        found = nx.connected_components(self.links)
        parts = sorted((sorted(part) for part in found), key=lambda part: (-len(part), part))
        if len(parts) > 1:
            raise ValueError(
                f"topology: {self._names[parts[1][0]]} cannot reach {self._names[parts[0][0]]}:"
                f" the validators are in {len(parts)} parts (allow_disconnected permits this)"
            )
