"""The calls to come of a live run, as plain data (:class:`~cluster.faults.calls.Call`): another driver makes them."""

from __future__ import annotations

import msgspec

from cluster.faults.calls import FaultCall
from cluster.live.kubernetes.calls import MeansCall


class Prepared(msgspec.Struct, frozen=True, tag=True):
    """The code of an upgrade is compiled."""

    then: LiveCall


class TakePlace(msgspec.Struct, frozen=True, tag=True):
    """A host was shut down: an actor with other code takes its place."""

    host: int


class Together(msgspec.Struct, frozen=True, tag=True):
    """Calls, one after the other."""

    calls: list[LiveCall]


LiveCall = FaultCall | Prepared | TakePlace | Together | MeansCall
