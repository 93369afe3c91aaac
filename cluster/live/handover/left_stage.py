"""The faults of a live run as one driver leaves them to another: in force, scheduled, and their means."""

from __future__ import annotations

import msgspec

from cluster.live.handover.calls import LiveCall
from cluster.live.injection import Injection
from cluster.live.kubernetes.left import LeftMeans
from cluster.live.processes.processes import Process


class LeftCall(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """A scheduled call."""

    at_ms: float
    """Time since the run began."""
    number: int
    """Sequence number: of calls at the same time the lower one is first."""
    what: LiveCall


class LeftAgenda(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scheduled calls (:class:`~cluster.live.driver.live_stage.Agenda`)."""

    count: int
    due: list[LeftCall]

    def __post_init__(self) -> None:
        numbers = {each.number for each in self.due}
        if len(numbers) < len(self.due) or max(numbers, default=0) > self.count:
            raise ValueError(f"each planned call has another number, and none is above {self.count}")


class LeftLooks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a host's process was seen to be stopped, in milliseconds since the run began."""

    host: int
    process: Process
    seen_ms: list[float]


class LeftPauses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The validators that are paused (:class:`~cluster.live.driver.live_stage.Pauses`)."""

    paused: set[int]
    seen: list[LeftLooks]


class LeftStage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of the fault stage of a run (:class:`~cluster.live.driver.live_stage.LiveStage`)."""

    agenda: LeftAgenda
    means: LeftMeans
    injection: Injection
    pauses: LeftPauses
