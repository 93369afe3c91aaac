"""The state of a fault engine as plain data, from which another process rebuilds the engine.

Faults are referred to by number, so that each record of a fault is written once. An :class:`EngineState` with a
dangling reference is rejected (:class:`ValueError`).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cluster.record.run import FaultRecord
from cluster.scenario.sections.faults import BaseFault


class PlannedState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault of the scenario."""

    number: int
    """The fault's number in the scenario."""
    plan: BaseFault
    record: FaultRecord
    is_withdrawn: bool
    """Whether the fault must not begin any more."""


class ListeningState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault that waits for votes."""

    planned: int
    senders: dict[int, set[int]]
    """The validators that have sent such a vote, keyed by view."""


class ActiveState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault that began (:class:`~cluster.faults.active.ActiveFault`)."""

    number: int
    plan: BaseFault
    record: int
    """The index of the fault's record. The records of all planned faults come first, then those of unplanned ones."""
    targets: list[int]
    along: list[int]
    delays_before: int
    is_in_force: bool
    is_to_end: bool
    is_over: bool
    is_noted: bool


class DowntimeState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a fault took validators down (:class:`~cluster.faults.downtime.Downtime`), in dictionaries by validator."""

    key: int
    is_back: bool
    deaths_before: dict[int, int]
    failures: dict[int, str]
    loss: str
    lost: set[int]
    snapshots: dict[int, int]
    rotten: dict[int, str]


class UpgradeState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The progress of an upgrade (:class:`~cluster.faults.upgrade.RollingUpgrade`)."""

    key: int
    chosen: list[int]
    left: list[list[int]]
    settles_from: int | None
    deaths_before: dict[int, int]


class EngineState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All faults of a run (:class:`~cluster.faults.engine.FaultEngine`)."""

    planned: list[PlannedState]
    """All faults that were ever planned."""
    current: list[int]
    """The scenario's current faults, in order, as indices of ``planned``."""
    waiting: list[int]
    listening: list[ListeningState]
    unplanned: list[FaultRecord]
    active: list[ActiveState]
    """All faults that began, in the order of their keys."""
    downtimes: list[DowntimeState]
    upgrades: list[UpgradeState]
    held_down: dict[int, int]
    """The number of faults that hold each validator down."""

    @property
    def records(self) -> list[FaultRecord]:
        """The records of the scenario's faults, in order, then of the unplanned ones."""
        return [*(self.planned[number].record for number in self.current), *self.unplanned]

    def __post_init__(self) -> None:
        for what, found, count in self._references():
            if not 0 <= found < count:
                raise ValueError(f"{what} {found} is not one of {count}")

    def _references(self) -> Iterator[tuple[str, int, int]]:
        """Each reference: what it refers to, its number, and how many of these there are."""
        planned = [*self.current, *self.waiting, *(each.planned for each in self.listening)]
        yield from (("planned fault", number, len(self.planned)) for number in planned)
        records = len(self.planned) + len(self.unplanned)
        yield from (("record of a fault", each.record, records) for each in self.active)
        keys = [*(each.key for each in self.downtimes), *(each.key for each in self.upgrades)]
        yield from (("fault", key, len(self.active)) for key in keys)
