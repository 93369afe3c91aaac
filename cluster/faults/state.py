"""What a fault engine knows, as plain data: another process builds the engine again from it.

Faults are referred to by number, so that each record of a fault is written once. An :class:`EngineState` that refers to
what it does not have is refused (:class:`ValueError`).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cluster.record.run import FaultRecord
from cluster.scenario.sections.faults import BaseFault


class PlannedState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault of the scenario."""

    number: int
    """In the scenario."""
    plan: BaseFault
    record: FaultRecord
    is_withdrawn: bool
    """It is to begin no more."""


class ListeningState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault that waits for votes."""

    planned: int
    senders: dict[int, set[int]]
    """By view, the validators that have sent one."""


class ActiveState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault that began (:class:`~cluster.faults.active.ActiveFault`)."""

    number: int
    plan: BaseFault
    record: int
    """The place of its record: first all that were planned, then those that nobody planned."""
    targets: list[int]
    along: list[int]
    delays_before: int
    is_in_force: bool
    is_to_end: bool
    is_over: bool
    is_noted: bool


class DowntimeState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a fault took validators down (:class:`~cluster.faults.downtime.Downtime`). Dictionaries are by validator."""

    key: int
    """Of the fault."""
    is_back: bool
    deaths_before: dict[int, int]
    failures: dict[int, str]
    loss: str
    lost: set[int]
    snapshots: dict[int, int]
    rotten: dict[int, str]


class UpgradeState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far an upgrade is (:class:`~cluster.faults.upgrade.RollingUpgrade`)."""

    key: int
    """Of the fault."""
    chosen: list[int]
    left: list[list[int]]
    settles_from: int | None
    deaths_before: dict[int, int]


class EngineState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All faults of a run (:class:`~cluster.faults.engine.FaultEngine`)."""

    planned: list[PlannedState]
    """All that were ever planned."""
    current: list[int]
    """Those that the scenario has, in its order."""
    waiting: list[int]
    listening: list[ListeningState]
    unplanned: list[FaultRecord]
    active: list[ActiveState]
    """By key."""
    downtimes: list[DowntimeState]
    upgrades: list[UpgradeState]
    held_down: dict[int, int]
    """By validator, how many faults hold it down."""

    def __post_init__(self) -> None:
        for what, found, count in self._references():
            if not 0 <= found < count:
                raise ValueError(f"{what} {found} is not one of {count}")

    def _references(self) -> Iterator[tuple[str, int, int]]:
        """What is referred to, its number, and how many of it there are."""
        planned = [*self.current, *self.waiting, *(each.planned for each in self.listening)]
        yield from (("planned fault", number, len(self.planned)) for number in planned)
        records = len(self.planned) + len(self.unplanned)
        yield from (("record of a fault", each.record, records) for each in self.active)
        keys = [*(each.key for each in self.downtimes), *(each.key for each in self.upgrades)]
        yield from (("fault", key, len(self.active)) for key in keys)
