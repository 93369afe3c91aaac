"""``clock_skew``: clocks run faster or slower."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import model_validator

from cluster.faults.impairing_kind import ImpairingFault
from cluster.faults.impairment import CLOCK_SKEW, Impairment
from cluster.scenario.sections.base import ClockSpeed

DRAWN_SPEEDS: Final = (0.2, 0.5, 0.9, 1.1, 2.0, 5.0)


class ClockSkewFault(ImpairingFault):
    """A validator's clock runs faster or slower: 2 is twice as fast, so its timers expire after half the time."""

    COUNTED = CLOCK_SKEW
    SHOWN = ("clock_speed",)
    DRAWN = ImpairingFault.DRAWN | {"clock_speed": lambda drawing: drawing.random.choice(DRAWN_SPEEDS)}
    OLD_NAMES = {"factor": "clock_speed"}

    kind: Literal["clock_skew"]
    clock_speed: ClockSpeed
    """Speed of its clock: at 2, timers expire after half the time."""

    @model_validator(mode="after")
    def _something_changes(self) -> Self:
        if self.clock_speed == 1:
            raise ValueError("clock_speed: 1 is the normal speed; expected another one")
        return self

    @property
    def impairment(self) -> Impairment:
        return Impairment(clock_speed=self.clock_speed)
