"""The state in which faults keep a validator that runs: paused, slow, or with a clock at another speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cluster.scenario.sections.faults import (
    AnyFault,
    ClockSkewFault,
    PauseFault,
    SlowDiskFault,
    SlowExecutionFault,
)

DELAYED: Final = {
    "slow_disk": "slow syncs",
    "slow_execution": "slow jobs",
    "clock_skew": "timers at another speed",
}
"""The effects that are counted of each kind of impairment."""


@dataclass(frozen=True, slots=True)
class Impairment:
    """The effect on one validator of all faults in force; the default is no effect."""

    is_paused: bool = False
    sync_ms: int | None = None
    job_ms: int | None = None
    clock_speed: float = 1.0

    @classmethod
    def of(cls, plans: Sequence[AnyFault]) -> Impairment:
        """The longest delays of all faults, and the product of their clock speeds."""
        return cls(
            is_paused=any(isinstance(plan, PauseFault) for plan in plans),
            sync_ms=max((plan.sync_ms for plan in plans if isinstance(plan, SlowDiskFault)), default=None),
            job_ms=max((plan.job_ms for plan in plans if isinstance(plan, SlowExecutionFault)), default=None),
            clock_speed=math.prod(plan.clock_speed for plan in plans if isinstance(plan, ClockSkewFault)),
        )


def describe_delays(kind: str, count: int, names: Sequence[str]) -> str:
    """The evidence of an impairment other than a pause: the number of its effects, and the validators concerned."""
    return f"{count:,} {DELAYED[kind]} of {', '.join(names) or 'nobody'}"
