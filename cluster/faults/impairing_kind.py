"""Faults that impair running validators: paused, slow, or with a clock at another speed."""

from __future__ import annotations

from typing import ClassVar

from cluster.faults.events import Count, Counted, InForce, NoteEnd, ObserveDelays
from cluster.faults.impairment import Impairment
from cluster.faults.kind import Cue, Lasting, OfValidators, Target, TargetedCourse


class Impairing(TargetedCourse):
    """Targets that are impaired by one fault."""

    plan: ImpairingFault
    _count_before = 0
    """The number of effects that were counted before it began."""

    def begin(self) -> None:
        self.choose()
        self.stage.order(Count(self.key, self.plan.COUNTED, self.targets))
        self.stage.impair(self.key, self.targets, self.plan.impairment, InForce(self.key))

    def go_on(self, cue: Cue) -> None:
        if isinstance(cue, Counted):
            self._count_before = cue.effects

    def undo(self) -> None:
        self.stage.impair(self.key, self.targets, None, NoteEnd(self.key))

    def observe(self) -> None:
        self.stage.order(ObserveDelays(self.key, self.plan.COUNTED, self.targets, self._count_before))


class ImpairingFault(OfValidators, Lasting):
    """A fault that impairs its targets while they run."""

    COURSE = Impairing
    DRAWN = {"target": lambda drawing: drawing.target(), "for_ms": lambda drawing: drawing.lasting_ms()}
    COUNTED: ClassVar[str]
    """What drivers count of it (:mod:`cluster.faults.impairment`)."""

    target: Target
    """A validator, a list of them, ``region:NAME``, or ``leader``, ``random`` or ``f``."""

    @property
    def impairment(self) -> Impairment:
        """What it does to each target."""
        raise NotImplementedError
