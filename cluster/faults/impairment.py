"""The impairments of a running validator: paused, slow, or with a clock at another speed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

PAUSE: Final = "pause"
SLOW_DISK: Final = "slow_disk"
SLOW_EXECUTION: Final = "slow_execution"
CLOCK_SKEW: Final = "clock_skew"
DELAYED: Final = {
    SLOW_DISK: "slow syncs",
    SLOW_EXECUTION: "slow jobs",
    CLOCK_SKEW: "timers at another speed",
}
"""The counted effect of each kind of impairment, other than a pause."""


@dataclass(frozen=True, slots=True)
class Stress:
    """Busy threads that take a validator's processors, instead of slow jobs of its executor."""

    threads: int
    job_ms: int | None = None
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
    def together(cls, parts: Sequence[Impairment]) -> Impairment:
        """The impairment by several faults at once: the longest delays, the product of the clock speeds, and a pause if
        one of them pauses.
        """
        stresses = [part.stress for part in parts if part.stress is not None]
        plain_ms = _longest_ms(part.job_ms for part in parts if part.stress is None)
        return cls(
            is_paused=any(part.is_paused for part in parts),
            sync_ms=_longest_ms(part.sync_ms for part in parts),
            job_ms=_longest_ms(part.job_ms for part in parts),
            clock_speed=math.prod(part.clock_speed for part in parts),
            stress=Stress(max(stress.threads for stress in stresses), plain_ms) if stresses else None,
        )


def _longest_ms(delays: Iterable[int | None]) -> int | None:
    return max((delay_ms for delay_ms in delays if delay_ms is not None), default=None)


def describe_delays(kind: str, count: int, names: Sequence[str]) -> str:
    """The evidence of an impairment, other than a pause: the number of its effects, and the affected validators."""
    return f"{count:,} {DELAYED[kind]} of {', '.join(names) or 'no validator'}"
