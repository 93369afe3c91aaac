"""How a report names the faults of a run, and its stalls that were too long.

Faults have a number where there are several, so that bands, badges and table agree.
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
    """Its place among the scenario's faults, from 1; empty where it is the only one."""
    fault: FaultRecord

    @property
    def title(self) -> str:
        """Number, kind and whom it hit."""
        return f"{self.number} {self.fault.title}".strip()

    @property
    def short(self) -> str:
        """For where the title finds no room."""
        return self.number or self.fault.kind

    @property
    def badge(self) -> str:
        """For a validator that it hit."""
        return f"{self.number} {self.fault.kind.replace('_', ' ')}".strip()

    @property
    def hit(self) -> set[str]:
        """The validators that it hit, and those that it kept from taking part otherwise; empty where it never began."""
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
