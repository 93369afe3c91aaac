"""The impairments of a running validator: paused, slow, or with a clock at another speed."""

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
    prefers_chaos_mesh,
)

PAUSE: Final = "pause"
SLOW_EXECUTION: Final = "slow_execution"
DELAYED: Final = {
    "slow_disk": "slow syncs",
    SLOW_EXECUTION: "slow jobs",
    "clock_skew": "timers at another speed",
}
"""The counted effect of each kind of impairment, other than a pause."""


@dataclass(frozen=True, slots=True)
class Stress:
    """Busy threads that take a validator's processors, instead of slow jobs of its executor."""

    threads: int
    job_ms: int | None
    """Duration of an executor's job under the faults that Chaos Mesh does not apply; ``None`` if there are none."""


@dataclass(frozen=True, slots=True)
class Impairment:
    """The combined effect on one validator of all faults in force; the default is no effect."""

    is_paused: bool = False
    sync_ms: int | None = None
    job_ms: int | None = None
    clock_speed: float = 1.0
    stress: Stress | None = None
    """The busy threads of the faults that Chaos Mesh applies where it can; ``None`` without such faults."""

    @classmethod
    def of(cls, plans: Sequence[AnyFault]) -> Impairment:
        """The impairment by several faults at once: the longest delays, the product of the clock speeds, and a pause if
        one of them pauses.
        """
        slow = [plan for plan in plans if isinstance(plan, SlowExecutionFault)]
        stressing = [plan for plan in slow if prefers_chaos_mesh(plan)]
        plain_ms = max((plan.job_ms for plan in slow if plan not in stressing), default=None)
        return cls(
            is_paused=any(isinstance(plan, PauseFault) for plan in plans),
            sync_ms=max((plan.sync_ms for plan in plans if isinstance(plan, SlowDiskFault)), default=None),
            job_ms=max((plan.job_ms for plan in slow), default=None),
            clock_speed=math.prod(plan.clock_speed for plan in plans if isinstance(plan, ClockSkewFault)),
            stress=Stress(max(plan.threads for plan in stressing), plain_ms) if stressing else None,
        )


def describe_delays(kind: str, count: int, names: Sequence[str]) -> str:
    """The evidence of an impairment, other than a pause: the number of its effects, and the affected validators."""
    return f"{count:,} {DELAYED[kind]} of {', '.join(names) or 'no validator'}"
