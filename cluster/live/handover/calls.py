"""The scheduled calls of a live run, as plain data for another driver."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cluster.faults.calls import FaultCall, Restart, StartValidator, UpgradeStart
from cluster.live.kubernetes.calls import AwaitKill, AwaitLinks, AwaitStress, Evict, MeansCall


class Prepared(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Make the call ``then``. This call is due once the code of an upgrade is compiled."""

    then: LiveCall


class TakePlace(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Have an actor with other code take the place of a host that was shut down."""

    host: int


class Together(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Make several calls, one after the other."""

    calls: list[LiveCall]


LiveCall = FaultCall | Prepared | TakePlace | Together | MeansCall


def references(call: LiveCall | None) -> Iterator[tuple[str, int]]:
    """The kind and the number of each validator and host that a call looks up when it is made."""
    match call:
        case Restart(_, indices) | UpgradeStart(_, indices):
            yield from (("validator", index) for index in indices)
        case StartValidator(index):
            yield "validator", index
        case TakePlace(host) | Evict(host=host) | AwaitKill(host=host):
            yield "host", host
        case Prepared(then) | AwaitLinks(then=then) | AwaitStress(then=then):
            yield from references(then)
        case Together(calls):
            for each in calls:
                yield from references(each)
