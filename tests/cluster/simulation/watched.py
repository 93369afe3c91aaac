"""A simulation that keeps what the scenarios that ship are named for: who knew what when, and what kills took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cluster.record.run import RunRecord
from cluster.simulation.clock import VirtualClock
from cluster.simulation.machine import Machine
from cluster.simulation.observer import Observer
from cluster.watches.watched_simulation import WatchedSimulation
from consensus.messages import Certificate, VoteKind
from consensus.types import Digest, View
from validator.node.events import Certified


class Alone(NamedTuple):
    """A block that one validator knew to be certified, and nobody else did."""

    view: View
    validator: int
    from_ms: float
    until_ms: float


class Entered(NamedTuple):
    """A validator came to another view."""

    at_ms: float
    validator: int
    view: int


@dataclass(slots=True)
class Seen:
    """What was seen of a run."""

    record: RunRecord
    known: dict[tuple[View, Digest], dict[int, float]] = field(default_factory=dict)
    """By certified block, since when who knows its notarization or finalization."""
    entered: list[Entered] = field(default_factory=list)
    bytes_unsynced: list[int] = field(default_factory=list)
    """By kill, bytes that were written and not synced."""
    bytes_lost: list[int] = field(default_factory=list)
    """By kill, bytes that were written and are not there any more: of those that were not synced a part is drawn."""

    def alone(self, at_least_ms: float) -> list[Alone]:
        """Blocks whose certificate was one validator's alone for so long, in the order of their views."""
        found = []
        for (view, _), known in sorted(self.known.items()):
            (from_ms, validator), *others = sorted((since, index) for index, since in known.items())
            until_ms = others[0][0] if others else self.record.duration_ms
            if until_ms - from_ms >= at_least_ms:
                found.append(Alone(view, validator, from_ms, until_ms))
        return found

    def jumps(self) -> list[int]:
        """How many views validators went ahead at once, wherever it was more than one."""
        at: dict[int, int] = {}
        found = []
        for _, validator, view in self.entered:
            found.append(view - at.get(validator, view))
            at[validator] = view
        return [ahead for ahead in found if ahead > 1]

    def splits_ms(self) -> list[float]:
        """For how long validators were not all in one view, each time, longest first."""
        at = dict.fromkeys(range(self.record.scenario.validators.count), 0)
        found, since = [], 0.0
        for at_ms, validator, view in self.entered:
            was_split = len(set(at.values())) > 1
            at[validator] = view
            is_split = len(set(at.values())) > 1
            if was_split and not is_split:
                found.append(at_ms - since)
            elif is_split and not was_split:
                since = at_ms
        return sorted(found, reverse=True)


class Eyes(Observer):
    """Notes what is seen."""

    effects = frozenset({Certified})

    def __init__(self, clock: VirtualClock, seen: Seen) -> None:
        self.clock = clock
        self.seen = seen
        self.before: dict[int, dict[str, int]] = {}
        """By validator that is down, the sizes of its files just before the kill."""

    def stops(self, machine: Machine, is_crash: bool) -> None:
        disk = machine.disk
        before = self.before[machine.index] = {name: disk.size(name) for name in disk.names()}
        self.seen.bytes_unsynced.append(sum(size - disk.durable_size(name) for name, size in before.items()))

    def starts(self, machine: Machine) -> None:
        before = self.before.pop(machine.index, None)
        if before is not None:
            lost = sum(max(0, size - machine.disk.size(name)) for name, size in before.items())
            self.seen.bytes_lost.append(lost)

    def performs(self, machine: Machine, effect: Certified) -> None:
        certificate, known = effect.certificate, self.seen.known
        if isinstance(certificate, Certificate) and certificate.kind != VoteKind.NULLIFY:
            since = known.setdefault((certificate.view, certificate.digest), {})
            since.setdefault(machine.index, self.clock.now_ms)

    def enters(self, machine: Machine, view: int) -> None:
        self.seen.entered.append(Entered(self.clock.now_ms, machine.index, view))


class Watched(WatchedSimulation):
    """Changes nothing of the run."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.seen = Seen(self.record)
        self.observe(Eyes(self.clock, self.seen))
