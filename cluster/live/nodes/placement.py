"""Which node carries which host: spread so that the loss of a node takes few validators. Pure.

- Only nodes for validators carry hosts, if there are any (:mod:`cluster.live.nodes.ray_nodes`).
- Else every node but the head does: without its head a cluster is lost. The head carries hosts, too, if it is alone, or
  if another node would otherwise carry more than ``f`` validators, and fewer with its help.
- A host whose validators are all in one region goes to the nodes of that region, if there are any.
- A host goes to the node that has the fewest validators by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cluster.common.wording import counted
from cluster.live.nodes.ray_nodes import VALIDATORS, RayNode, with_role
from cluster.scenario import Scenario


@dataclass(frozen=True, slots=True)
class HostToPlace:
    """A host, by its number."""

    number: int
    validators: Sequence[int]
    region: str | None = None
    """Of all its validators; ``None`` if they are in several, or in none."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where hosts go."""

    nodes: Mapping[int, RayNode]
    """By the number of the host; without those that found no node."""
    counts: Mapping[str, int]
    """The validators on each node afterwards, by its id."""
    warnings: list[str] = field(default_factory=list)
    """In one line each."""

    @property
    def most(self) -> int:
        """The validators that are lost with one node at most."""
        return max(self.counts.values(), default=0)


def hosts_to_place(scenario: Scenario) -> list[HostToPlace]:
    """The hosts of a scenario."""
    section = scenario.validators
    region_of = {name: region for region, names in scenario.regions.items() for name in names}
    found = []
    for number in range(section.host_count):
        carried = [index for index in range(section.count) if section.host_of(index) == number]
        regions = {region_of.get(section.names[index]) for index in carried}
        found.append(HostToPlace(number, carried, regions.pop() if len(regions) == 1 else None))
    return found


def place(
    hosts: Sequence[HostToPlace], nodes: Sequence[RayNode], withstood: int, carried: Mapping[str, int] | None = None
) -> Placement:
    """A node for each host. ``withstood`` is the number of validators whose loss the network survives; ``carried`` are
    the validators that nodes have already, by id.
    """
    before = carried or {}
    candidates = with_role(nodes, VALIDATORS)
    if not candidates:
        everybody = [node for node in nodes if node.is_alive]
        candidates = [node for node in everybody if not node.is_head] or everybody
        found = _spread(hosts, candidates, before)
        if found.most > withstood and len(candidates) < len(everybody):
            helped = _spread(hosts, everybody, before)
            found, candidates = (helped, everybody) if helped.most < found.most else (found, candidates)
    else:
        found = _spread(hosts, candidates, before)
    found.warnings.extend(_warnings(hosts, candidates, found, withstood))
    return found


def _spread(hosts: Sequence[HostToPlace], nodes: Sequence[RayNode], carried: Mapping[str, int]) -> Placement:
    counts = Counter({node.node_id: carried.get(node.node_id, 0) for node in nodes})
    placed: dict[int, RayNode] = {}
    for host in hosts:
        near = [node for node in nodes if host.region is not None and node.region == host.region] or nodes
        if near:
            placed[host.number] = chosen = min(near, key=lambda node: counts[node.node_id])
            counts[chosen.node_id] += len(host.validators)
    return Placement(placed, counts)


def _warnings(
    hosts: Sequence[HostToPlace], nodes: Sequence[RayNode], found: Placement, withstood: int
) -> Sequence[str]:
    names = {node.node_id: node.name for node in nodes}
    lines = []
    if found.most > withstood and sum(len(host.validators) for host in hosts) > 1:
        fullest = max(found.counts, key=lambda node_id: found.counts[node_id])
        lines.append(
            f"the loss of node {names[fullest]} would take {counted(found.most, 'validator')}, and the network survives"
            f" the loss of {withstood}"
        )
    regions = {node.region for node in nodes} - {None}
    missing = sorted({host.region for host in hosts if host.region is not None} - regions)
    if missing and regions:
        lines.append(f"no node is in region {', '.join(missing)}: its hosts go to any node")
    return lines
