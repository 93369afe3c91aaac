"""The calls to come of faults that Kubernetes or Chaos Mesh does, as plain data: another driver makes them."""

from __future__ import annotations

import msgspec

from cluster.faults.calls import FaultCall


class Uncordon(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A node of Kubernetes carries new pods again."""

    node: str


class Evict(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A pod is to be evicted, which a disruption budget forbade so far."""

    host: int
    pod: tuple[str, str, str]
    """Its name, its unique id, and its node."""
    tries_left: int


class AwaitKill(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Chaos Mesh is to kill a pod."""

    host: int
    pod: tuple[str, str, str]
    name: str
    """Of the object; so in what follows."""
    tries_left: int


class AwaitLinks(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Chaos Mesh is to put faults of links in force, by their keys, and to take objects back."""

    begun: list[int]
    ended: list[str]
    tries_left: int
    then: FaultCall | None
    """``None`` if nobody waits for it."""


class AwaitStress(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Chaos Mesh is to stress hosts, and to take objects back."""

    begun: list[int]
    ended: list[str]
    tries_left: int
    then: FaultCall | None


MeansCall = Uncordon | Evict | AwaitKill | AwaitLinks | AwaitStress
