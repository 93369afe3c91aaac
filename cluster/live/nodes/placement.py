"""Places hosts on nodes, spread so that the loss of a node takes few validators. Pure.

- A host with a dedicated node goes there, and one that had such a node goes nowhere else: its disk is there. No other
  host goes to a dedicated node. The other rules are for the other hosts and nodes.
- Only nodes for validators carry hosts, if there are any (:mod:`cluster.live.nodes.ray_nodes`).
- Otherwise every node except the head does: without its head a cluster is lost. The head carries hosts, too, if it is
  alone, or if another node would otherwise carry more than ``f`` validators, and fewer with its help.
- A host whose validators are all in one region goes to the nodes of that region, if there are any.
- A host goes to the node that has the fewest validators so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.common.wording import counted
from cluster.live.nodes.ray_nodes import VALIDATORS, RayNode, with_role
from cluster.scenario import Scenario


@dataclass(frozen=True, slots=True)
class HostToPlace:
    """A host to place."""

    number: int
    validators: Sequence[int]
    region: str | None = None
    """Region of all its validators; ``None`` if they are in several, or in none."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The result of placing hosts: the node of each host."""

    nodes: dict[int, RayNode]
    """Nodes keyed by host number, without hosts that found no node."""
    counts: dict[str, int]
    """Number of validators on each node after the placement, keyed by node id."""
    warnings: list[str] = field(default_factory=list)
    """Warnings of one line each."""

    @property
    def most(self) -> int:
        """The maximum number of validators that are lost with one node."""
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
    hosts: Sequence[HostToPlace],
    nodes: Sequence[RayNode],
    withstood: int,
    carried: Mapping[str, int] | None = None,
    pinned: Collection[int] = (),
) -> Placement:
    """Choose a node for each host.

    ``withstood`` is the number of validators whose loss the network survives. ``carried`` are the numbers of validators
    already on nodes, by id of the node. ``pinned`` are the hosts that go only to dedicated nodes.
    """
    before = carried or {}
    own = {number: node for node in nodes if node.is_alive for number in node.own_hosts}
    free = [node for node in nodes if not node.own_hosts]
    loose = [host for host in hosts if host.number not in own and host.number not in pinned]
    candidates = with_role(free, VALIDATORS)
    everybody = candidates or [node for node in free if node.is_alive]
    candidates = candidates or [node for node in everybody if not node.is_head] or everybody
    found = _spread(loose, candidates, before)
    if found.most > withstood and len(candidates) < len(everybody):
        helped = _spread(loose, everybody, before)
        found, candidates = (helped, everybody) if helped.most < found.most else (found, candidates)
    found = _with_own_nodes(found, [host for host in hosts if host.number in own], own, before)
    found.warnings.extend(_warnings(hosts, nodes, found, withstood))
    found.warnings.extend(_missing_regions(loose, candidates))
    return found


def _with_own_nodes(
    found: Placement, hosts: Sequence[HostToPlace], own: Mapping[int, RayNode], carried: Mapping[str, int]
) -> Placement:
    """Add the hosts with dedicated nodes to a placement."""
    counts = Counter({node.node_id: carried.get(node.node_id, 0) for node in own.values()})
    for host in hosts:
        counts[own[host.number].node_id] += len(host.validators)
    return Placement(found.nodes | {host.number: own[host.number] for host in hosts}, found.counts | counts)


def _spread(hosts: Sequence[HostToPlace], nodes: Sequence[RayNode], carried: Mapping[str, int]) -> Placement:
    counts = Counter({node.node_id: carried.get(node.node_id, 0) for node in nodes})
    placed: dict[int, RayNode] = {}
    for host in hosts:
        near = [node for node in nodes if host.region is not None and node.region == host.region] or nodes
        if near:
            placed[host.number] = chosen = min(near, key=lambda node: counts[node.node_id])
            counts[chosen.node_id] += len(host.validators)
    return Placement(placed, dict(counts))


def _warnings(
    hosts: Sequence[HostToPlace], nodes: Sequence[RayNode], found: Placement, withstood: int
) -> Sequence[str]:
    if found.most <= withstood or sum(len(host.validators) for host in hosts) <= 1:
        return []
    fullest = max(found.counts, key=lambda node_id: found.counts[node_id])
    (name,) = [node.name for node in nodes if node.node_id == fullest]
    return [
        f"the loss of node {name} would take {counted(found.most, 'validator')}, and the network survives"
        f" the loss of {withstood}"
    ]


def _missing_regions(hosts: Sequence[HostToPlace], nodes: Sequence[RayNode]) -> Sequence[str]:
    regions = {node.region for node in nodes} - {None}
    missing = sorted({host.region for host in hosts if host.region is not None} - regions)
    return [f"no node is in region {', '.join(missing)}: its hosts go to any node"] if missing and regions else []
