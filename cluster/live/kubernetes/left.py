"""The faults performed by Kubernetes or Chaos Mesh, as one driver of a run leaves them to another."""

from __future__ import annotations

import msgspec

from cluster.faults.impairment import Stress
from cluster.faults.link_faults import Seen


class LeftLeftovers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The leftovers of faults in a Kubernetes cluster (:class:`~cluster.live.kubernetes.leftovers.Leftovers`)."""

    api: tuple[str, str] | None
    """Namespace and instance of the deployment; ``None`` if its API was not needed so far."""
    objects: dict[str, str]
    """Kinds of the objects of Chaos Mesh, keyed by name."""
    cordoned: dict[str, int]
    """Number of faults that cordon a node, keyed by node."""


class LeftStress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hosts that Chaos Mesh stresses (:class:`~cluster.live.kubernetes.stress.ProcessorStress`)."""

    wanted: dict[int, Stress]
    names: dict[int, str]
    seen: dict[int, Seen]


class LeftMeans(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The faults that Kubernetes or Chaos Mesh performs (:class:`~cluster.live.kubernetes.means.Means`)."""

    leftovers: LeftLeftovers
    token: str
    count: int
    links: dict[int, list[str]]
    seen: dict[int, Seen]
    otherwise: dict[int, str]
    stress: LeftStress
    words: dict[int, str]
