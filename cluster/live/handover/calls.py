"""The calls to come of a live run, as plain data (:class:`~cluster.faults.calls.Call`): another driver makes them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cluster.faults.calls import (
    Begin,
    End,
    FaultCall,
    InForce,
    NoteEnd,
    Restart,
    StartValidator,
    UpgradeNext,
    UpgradeStart,
)
from cluster.live.kubernetes.calls import AwaitKill, AwaitLinks, AwaitStress, Evict, MeansCall


class Prepared(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The code of an upgrade is compiled."""

    then: LiveCall


class TakePlace(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A host was shut down: an actor with other code takes its place."""

    host: int


class Together(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Calls, one after the other."""

    calls: list[LiveCall]


LiveCall = FaultCall | Prepared | TakePlace | Together | MeansCall


def references(call: LiveCall | None) -> Iterator[tuple[str, int]]:
    """Everything that a call looks up by its number when it is made: what it is, and the number."""
    match call:
        case Begin(planned):
            yield "planned fault", planned
        case End(key) | InForce(key) | NoteEnd(key):
            yield "fault", key
        case Restart(key, indices):
            yield "downtime of fault", key
            yield from (("validator", index) for index in indices)
        case StartValidator(index):
            yield "validator", index
        case UpgradeNext(key):
            yield "upgrade of fault", key
        case UpgradeStart(key, group):
            yield "upgrade of fault", key
            yield from (("validator", index) for index in group)
        case TakePlace(host) | Evict(host=host) | AwaitKill(host=host):
            yield "host", host
        case Prepared(then) | AwaitLinks(then=then) | AwaitStress(then=then):
            yield from references(then)
        case Together(calls):
            for each in calls:
                yield from references(each)
