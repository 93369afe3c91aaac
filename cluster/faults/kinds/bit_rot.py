"""``bit_rot``: a bit of a validator's disk flips."""

from __future__ import annotations

from typing import Any, Literal

from cluster.faults.downtime import DiskLossFault, Downtime
from cluster.faults.events import BitFlipped, FlipBit, LoseDisk, StartValidator
from cluster.faults.kind import Cue


class Rotting(Downtime):
    """Targets that have to refuse their disks."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._rotten: dict[int, str] = {}
        """The place of the flipped bit, keyed by validator."""

    def damage(self, index: int, was_running: bool) -> None:
        if was_running:
            self.stage.order(FlipBit(self.key, index))

    def go_on(self, cue: Cue) -> None:
        super().go_on(cue)
        if isinstance(cue, BitFlipped):
            self._rotten[cue.validator] = cue.place

    def note_effect(self) -> None:
        self.record.took_effect = self.deaths.have_happened() and bool(self._rotten)

    def is_cause(self, index: int, reason: str) -> bool:
        rotten = self._rotten.get(index)
        return rotten is not None and self.is_back and rotten.partition(" at ")[0] in reason

    def note_failure(self, index: int, reason: str) -> None:
        self.failures[index] = reason
        self.stage.notice(f"{self.validators.names[index]} stopped: {reason}")
        self.stage.order(LoseDisk(index))
        self.stage.later(0, f"another disk for {index}", StartValidator(index))

    def say(self, index: int) -> list[str]:
        name, rotten = self.validators.names[index], self._rotten.get(index)
        if rotten is None:
            return super().say(index)
        if index not in self.failures:
            self.record.problem = f"{name} started from a disk on which a bit of {rotten} had flipped"
        return [f"a bit of {rotten} of {name} flipped", *super().say(index)]


class BitRotFault(DiskLossFault):
    """A validator is killed and one bit of its durable data flips: it must refuse to start, and gets an empty disk."""

    COURSE = Rotting
    rots = True

    kind: Literal["bit_rot"]

    def deaths(self, names: set[str]) -> int:
        return 2 * super().deaths(names)
