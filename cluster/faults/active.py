"""A fault that has begun."""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster.faults.stage import Stage
from cluster.record.run import FaultRecord
from cluster.scenario.sections.faults import AnyFault, DiskFullFault, FailedSyncFault


@dataclass(slots=True, eq=False)
class ActiveFault:
    """The state of a fault that has begun: its plan, its record, its targets and how far it has come."""

    key: int
    number: int
    plan: AnyFault
    record: FaultRecord
    targets: list[int] = field(default_factory=list)
    along: list[int] = field(default_factory=list)
    """Other validators on the same hosts, which go down with the targets."""
    delays_before: int = 0
    """For an impairment: the number of effects counted before it began."""
    is_in_force: bool = False
    is_to_end: bool = False
    """Whether the fault was to end before it was in force. It then ends as soon as it is in force."""
    is_over: bool = False
    is_noted: bool = False
    """Whether the fault is over, and its record is complete."""

    @property
    def hit(self) -> list[int]:
        """The targets, and the validators that go down with them."""
        return [*self.targets, *self.along]

    def is_awaited(self, stage: Stage) -> bool:
        """Whether the run must wait for the fault to end.

        It need not if the fault is over, if it still waits for a disk operation, or if a target is lost for good.
        """
        lies_in_wait = isinstance(self.plan, DiskFullFault | FailedSyncFault) and not self.record.took_effect
        return not (self.is_noted or lies_in_wait or any(stage.seat(index).is_lost for index in self.targets))


class Deaths:
    """Tells whether all running validators that a fault was to take down have gone down."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.before: dict[int, int] = {}
        """For each validator that is to go down, how often it had gone down before."""

    def expect(self, indices: list[int]) -> list[int]:
        """Expect these validators to go down, except those that do not run now. Returns the expected ones."""
        running = [index for index in indices if self._stage.seat(index).is_running]
        self.before.update({index: self._stage.seat(index).deaths for index in running})
        return running

    def have_happened(self) -> bool:
        """Whether every expected validator has gone down; ``False`` if none was expected to."""
        gone = [self._stage.seat(index).deaths > before for index, before in self.before.items()]
        return bool(gone) and all(gone)
