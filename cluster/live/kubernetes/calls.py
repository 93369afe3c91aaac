"""The scheduled calls of faults by Kubernetes or Chaos Mesh, as plain data for another driver."""

from __future__ import annotations

import msgspec

from cluster.faults.calls import FaultCall


class Uncordon(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Uncordon a Kubernetes node, so that it carries new pods again."""

    node: str


class Evict(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Try again to evict a pod, which a disruption budget has forbidden so far."""

    host: int
    pod: tuple[str, str, str]
    """Name, unique id and node of the pod."""
    tries_left: int


class AwaitKill(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Wait until Chaos Mesh kills a pod."""

    host: int
    pod: tuple[str, str, str]
    name: str
    """Name of the Chaos Mesh object."""
    tries_left: int


class AwaitLinks(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Wait until Chaos Mesh has put link faults in force, by their keys, and removed ended objects."""

    begun: list[int]
    ended: list[str]
    tries_left: int
    then: FaultCall
    """The call to make then."""


class AwaitStress(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Wait until Chaos Mesh stresses hosts, and has removed ended objects."""

    begun: list[int]
    ended: list[str]
    tries_left: int
    then: FaultCall


MeansCall = Uncordon | Evict | AwaitKill | AwaitLinks | AwaitStress
