"""``stampede nodes``: the nodes of the cluster at ``RAY_ADDRESS``, and the validators of a scenario on each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from cluster.commands.console.output import plain_table, print_line
from cluster.common.errors import BadInput
from cluster.common.wording import counted, first_few
from cluster.live.driver.ray_session import ADDRESS_VARIABLE, RaySession, is_joining
from cluster.live.nodes.placement import Placement, hosts_to_place, place
from cluster.live.nodes.ray_nodes import RAYS_OWN_LABELS, RayNode
from cluster.scenario import Scenario

GIB: Final = 2**30
NAMED: Final = 6
"""Maximum number of validators named in a node's row."""


def read_cluster() -> list[RayNode]:
    """The nodes of the cluster, including lost ones. Raises :class:`BadInput` if there is no cluster to join."""
    if not is_joining():
        raise BadInput(
            f"{ADDRESS_VARIABLE} names no cluster; expected the address of its head. Without one, a live run starts a"
            " separate Ray on this machine, with validators.ray_nodes nodes"
        )
    session = RaySession.start()
    try:
        return session.nodes()
    finally:
        session.close([])


def place_scenario(nodes: Sequence[RayNode], scenario: Scenario) -> Placement:
    """The placement that a live run would choose for a scenario's hosts on these nodes."""
    return place(hosts_to_place(scenario), nodes, scenario.validators.withstood)


def page_of(nodes: Sequence[RayNode], scenario: Scenario | None) -> dict[str, Any]:
    """The nodes and the placement as JSON."""
    found = None if scenario is None else place_scenario(nodes, scenario)
    page: dict[str, Any] = {
        "nodes": [
            {
                "id": node.node_id,
                "address": node.address,
                "is_alive": node.is_alive,
                "why_lost": node.why_lost,
                "is_head": node.is_head,
                "roles": node.roles,
                "region": node.region,
                "labels": dict(node.labels),
                "resources": dict(node.resources),
            }
            for node in nodes
        ]
    }
    if scenario is not None and found is not None:
        for row, node in zip(page["nodes"], nodes, strict=True):
            row["validators"] = [scenario.validators.names[index] for index in _carried(node, scenario, found)]
        page["warnings"] = found.warnings
    return page


def print_nodes(console: Console, nodes: Sequence[RayNode], scenario: Scenario | None) -> None:
    """Print a row per node, and the number of validators lost with a node."""
    found = None if scenario is None else place_scenario(nodes, scenario)
    headings = ["node", "state", "carries", "region", "CPUs", "memory", "labels", "resources"]
    table = plain_table(headings + (["validators"] if found is not None else []), right=("CPUs", "memory"))
    for node in nodes:
        row = _row(node)
        if scenario is not None and found is not None:
            names = [scenario.validators.names[index] for index in _carried(node, scenario, found)]
            row.append(f"{len(names)}: {first_few(names, NAMED)}" if names else "–")
        table.add_row(*map(Text, row))
    console.print(table)
    if scenario is None or found is None:
        return
    if len(found.nodes) < scenario.validators.host_count:
        print_line(console, "no node can carry validators")
        return
    section = scenario.validators
    most, withstood = counted(found.most, "validator"), section.withstood
    print_line(
        console, f"{section.count} validators: the loss of a node takes at most {most}, {withstood} are withstood"
    )
    for warning in found.warnings:
        print_line(console, f"warning: {warning}")


def _row(node: RayNode) -> list[str]:
    own = {label: value for label, value in node.labels.items() if not label.startswith(RAYS_OWN_LABELS)}
    usual = ("CPU", "memory", "object_store_memory")
    custom = {name: size for name, size in node.resources.items() if name not in usual and not name.startswith("node:")}
    state = "alive" if node.is_alive else f"lost: {node.why_lost or 'Ray does not say why'}"
    return [
        node.name + (", head" if node.is_head else ""),
        state,
        ", ".join(node.roles) or "–",
        node.region or "–",
        f"{node.resources.get('CPU', 0):g}" if node.is_alive else "–",
        f"{node.resources.get('memory', 0) / GIB:.1f} GiB" if node.is_alive else "–",
        ", ".join(f"{label}={value}" for label, value in sorted(own.items())) or "–",
        ", ".join(f"{name}={size:g}" for name, size in sorted(custom.items())) or "–",
    ]


def _carried(node: RayNode, scenario: Scenario, found: Placement) -> list[int]:
    section = scenario.validators
    hosts = {number for number, where in found.nodes.items() if where.node_id == node.node_id}
    return [index for index in range(section.count) if section.host_of(index) in hosts]
