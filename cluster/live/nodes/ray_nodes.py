"""The nodes of a Ray cluster, as Ray lists them, with their roles and regions.

A node has a role if it has a custom resource (``ray start --resources='{"stampede_validators": 1}'``) or a label
(``ray start --labels=stampede.io/validators=true``) for it. If no node has a role, every node may have it. Ray's labels
and their selectors are in beta, so they are read here, and hosts are pinned to the ids of nodes.

A node with the custom resource ``stampede_host_N`` is for host N alone: the host's disk is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

HEAD_RESOURCE: Final = "node:__internal_head__"
VALIDATORS: Final = "validators"
SEEDS: Final = "seeds"
LOAD: Final = "load"
ROLES: Final = (VALIDATORS, SEEDS, LOAD)
RESOURCE_PREFIX: Final = "stampede_"
HOST_RESOURCE_PREFIX: Final = f"{RESOURCE_PREFIX}host_"
LABEL_PREFIX: Final = "stampede.io/"
REGION_LABELS: Final = ("stampede.io/region", "ray.io/availability-region")
"""Labels for the region of a node; the first one that it has counts."""
RAYS_OWN_LABELS: Final = "ray.io/"


class KeptRay(NamedTuple):
    """A Ray that outlives its driver: how another driver finds it."""

    address: str
    namespace: str
    """Ray namespace of the run's actors."""
    lease_s: float
    """How long the hosts go on without a driver."""
    folder: str | None = None
    """Folder of a Ray that the run started itself."""
    token: str | None = None
    """Token of a Ray that the run started itself."""
    nodes: int = 1


class Place(NamedTuple):
    """The place of a host: a Ray node and the address to listen on there."""

    node_id: str
    bind: str
    is_own: bool = False
    """Whether the node is dedicated to this host and has its disk: the host moves only to a node that replaces it."""


class RayNode(NamedTuple):
    """One node of a Ray cluster."""

    node_id: str
    address: str
    labels: Mapping[str, str]
    resources: Mapping[str, float]
    is_alive: bool = True
    why_lost: str = ""
    """Ray's reason, if the node is not alive."""

    @property
    def is_head(self) -> bool:
        return HEAD_RESOURCE in self.resources

    @property
    def name(self) -> str:
        """A short name for users: the address alone does not identify one of several nodes on a machine."""
        return f"{self.address} ({self.node_id[:6]})"

    @property
    def region(self) -> str | None:
        return next((self.labels[label] for label in REGION_LABELS if label in self.labels), None)

    def has_role(self, role: str) -> bool:
        """Whether the node was started for a role."""
        is_labelled = self.labels.get(LABEL_PREFIX + role, "").lower() in ("true", "1", "yes")
        return is_labelled or self.resources.get(RESOURCE_PREFIX + role, 0) > 0

    @property
    def own_hosts(self) -> frozenset[int]:
        """Numbers of the hosts to which the node is dedicated; empty if any host may use it."""
        marks = {name for name, amount in self.resources.items() if amount > 0}
        numbers = [name.removeprefix(HOST_RESOURCE_PREFIX) for name in marks if name.startswith(HOST_RESOURCE_PREFIX)]
        return frozenset(int(number) for number in numbers if number.isdecimal())

    @property
    def roles(self) -> list[str]:
        return [role for role in ROLES if self.has_role(role)]


def read_nodes(ray: Any) -> list[RayNode]:
    """All nodes that Ray knows, including lost ones: the head first, then by address."""
    found = [
        RayNode(
            page["NodeID"],
            page["NodeManagerAddress"],
            dict(page.get("Labels") or {}),
            dict(page.get("Resources") or {}),
            bool(page["Alive"]),
            page.get("DeathReasonMessage") or "",
        )
        for page in ray.nodes()
    ]
    return sorted(found, key=lambda node: (not node.is_head, node.address, node.node_id))


def with_role(nodes: Sequence[RayNode], role: str) -> list[RayNode]:
    """The living nodes with a role; empty if none has it."""
    return [node for node in nodes if node.is_alive and node.has_role(role)]


def hosts_with_nodes(nodes: Iterable[RayNode]) -> set[int]:
    """Numbers of the hosts that have a living dedicated node."""
    return {number for node in nodes if node.is_alive for number in node.own_hosts}


def host_resource(number: int) -> str:
    """The name of the custom resource of the Ray node that carries a host."""
    return f"{HOST_RESOURCE_PREFIX}{number}"
