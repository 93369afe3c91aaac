"""The names of faults, and of stalls that were too long, in a report.

Several faults are numbered, so that bands, badges and table agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cluster.checks.metrics.metrics import Stall, stalls_beyond_limit
from cluster.record.run import FaultRecord, RunRecord

STALL: Final = "stall"
MAX_STALLS: Final = 8
"""Marked: the longest ones."""


@dataclass(frozen=True, slots=True)
class NamedFault:
    """A fault with its number in the report."""

    number: str
    """Its position among the scenario's faults, from 1; empty if there is only one."""
    fault: FaultRecord

    @property
    def title(self) -> str:
        """Number, kind and targets."""
        return f"{self.number} {self.fault.title}".strip()

    @property
    def short(self) -> str:
        """A short title."""
        return self.number or self.fault.kind

    @property
    def badge(self) -> str:
        """The badge of a target."""
        return f"{self.number} {self.fault.kind.replace('_', ' ')}".strip()

    @property
    def hit(self) -> set[str]:
        """Its targets and the validators that it impaired otherwise; empty if it never began."""
        return set() if self.fault.begun_ms is None else {*self.fault.targets, *self.fault.impaired}


def named_faults(record: RunRecord) -> list[NamedFault]:
    """The faults of a run, in the scenario's order."""
    is_alone = len(record.faults) == 1
    return [NamedFault("" if is_alone else str(place), fault) for place, fault in enumerate(record.faults, start=1)]


def named_stalls(record: RunRecord) -> list[tuple[str, Stall]]:
    """The times without a final block that were longer than the scenario allows, with their titles, in their order."""
    longest = sorted(stalls_beyond_limit(record), key=lambda stall: -stall.length_ms)[:MAX_STALLS]
    return [
        (f"no final block for {stall.length_ms / 1_000:,.1f} s", stall)
        for stall in sorted(longest, key=lambda stall: stall.began_ms)
    ]
