"""A fault that has begun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cluster.faults.link_faults import Seen
from cluster.faults.stage import Stage
from cluster.record.run import FaultRecord
from cluster.scenario.sections.faults import AnyFault, DiskFullFault, FailedSyncFault


def nothing_seen() -> Seen:
    """Of a fault that nobody observes yet."""
    return Seen(False, "")


@dataclass(slots=True, eq=False)
class ActiveFault:
    """A fault that began, until all that was seen of it is in its record."""

    key: int
    number: int
    plan: AnyFault
    record: FaultRecord
    targets: list[int] = field(default_factory=list)
    """Validators that it is aimed at."""
    along: list[int] = field(default_factory=list)
    """Others that share their hosts, and their fate."""
    observe: Callable[[], Seen] = nothing_seen
    """Whether it took effect, and the evidence; asked when it is over."""
    delays_before: int = 0
    """Of an impairment, the effects that were counted before it began."""
    is_in_force: bool = False
    is_to_end: bool = False
    """It was to end before it was in force."""
    is_over: bool = False
    is_noted: bool = False
    """It is over, and its record is complete."""

    @property
    def hit(self) -> list[int]:
        """The targets, and the others that share their fate."""
        return [*self.targets, *self.along]

    def is_awaited(self, stage: Stage) -> bool:
        """Whether the run must not end yet: it is under way, does not just lie in wait for a write, and can end."""
        lies_in_wait = isinstance(self.plan, DiskFullFault | FailedSyncFault) and not self.record.took_effect
        return not (self.is_noted or lies_in_wait or any(stage.is_lost(index) for index in self.targets))


class Deaths:
    """Whether all validators are gone that ran when a fault took them down."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.before: dict[int, int] = {}
        """By validator that is to go down, how often it had gone down before."""

    def expect(self, indices: list[int]) -> list[int]:
        """Those of the validators that run now are to go down. Returns them."""
        running = [index for index in indices if self._stage.is_running(index)]
        self.before.update({index: self._stage.deaths(index) for index in running})
        return running

    def have_happened(self) -> bool:
        """Whether all are gone; ``False`` if none was to go down."""
        gone = [self._stage.deaths(index) > before for index, before in self.before.items()]
        return bool(gone) and all(gone)
