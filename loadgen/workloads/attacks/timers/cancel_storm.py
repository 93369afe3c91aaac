"""Cancel storm: bursts of timers that are cancelled one turn after they were scheduled."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from loadgen.workloads.base import Options
from loadgen.workloads.churn import Churn, ChurnOptions


class CancelStormOptions(ChurnOptions):
    """Options of :class:`CancelStorm`."""

    timers: Annotated[int, Field(ge=1, le=500)] = 200
    """Timers per generation."""
    cancel_percent: Annotated[int, Field(ge=1, le=100)] = 100
    """Share of timers that are cancelled; the others are extended."""


class CancelStorm(Churn):
    """An attack that schedules a generation of timers in each turn, and cancels the previous turn's generation."""

    name: ClassVar[str] = "cancel-storm"
    options_type: ClassVar[type[Options]] = CancelStormOptions
    is_attack: ClassVar[bool] = True
    goal: ClassVar[str] = "cancelled timers leave work behind for the blocks in which they were due"
    defence: ClassVar[str] = (
        "cancelling is paid and O(1) in ring and epoch queue; no block walks what earlier blocks cancelled"
    )
