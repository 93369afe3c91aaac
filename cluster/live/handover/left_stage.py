"""The faults of a live run as one driver leaves them to another: in force, scheduled, and their means."""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec

from cluster.faults.impairment import Impairment
from cluster.faults.state import EngineState
from cluster.live.handover.calls import LiveCall
from cluster.live.kubernetes.left import LeftMeans
from cluster.live.processes.processes import Process
from cluster.scenario.sections.faults import BaseFault

Word = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
"""One word of the state of a random source."""


class LeftCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A scheduled call."""

    at_ms: float
    """Time since the run began."""
    number: int
    """Sequence number: of calls at the same time the lower one is first."""
    what: LiveCall | None


class LeftAgenda(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scheduled calls (:class:`~cluster.live.driver.live_stage.Agenda`)."""

    began_ms: float
    """Time from which fault times count, since the run began."""
    count: int
    due: list[LeftCall]

    def __post_init__(self) -> None:
        numbers = {each.number for each in self.due}
        if len(numbers) < len(self.due) or max(numbers, default=0) > self.count:
            raise ValueError(f"each planned call has another number, and none is above {self.count}")


class LeftInjection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The faults in force on hosts (:class:`~cluster.live.injection.Injection`)."""

    number: int
    links: dict[int, BaseFault]
    impairments: dict[int, Impairment]
    traps: dict[int, tuple[int, BaseFault]]


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

    random: tuple[int, tuple[Word, ...], float | None]
    """The state of the random source (:meth:`random.Random.getstate`)."""
    agenda: LeftAgenda
    means: LeftMeans
    injection: LeftInjection
    pauses: LeftPauses
    height_performed: int
    engine: EngineState

    def __post_init__(self) -> None:
        Random().setstate(self.random)  # a ValueError refuses it
