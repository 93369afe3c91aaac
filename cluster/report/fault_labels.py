"""The names of faults, and of stalls that were too long, in a report.

If there are several faults, they are numbered. Bands, badges and table use the same numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cluster.checks.metrics.metrics import stalls_beyond_limit
from cluster.record.run import FaultRecord, RunRecord

STALL: Final = "stall"
MAX_STALLS: Final = 8
"""Maximum number of stalls that are marked: the longest ones."""
MAX_LISTED: Final = 100
"""Maximum number of faults that a page lists one by one. With more, it lists the kinds, and all faults in a folded
table."""


@dataclass(frozen=True, slots=True)
class NamedFault:
    """A fault with its number in the report."""

    number: str
    """The fault's position among the run's faults, from 1; empty if there is only one."""
    fault: FaultRecord

    @property
    def short(self) -> str:
        """The short title for drawings with little room: the fault's number, or its kind if it has no number."""
        return self.number or self.fault.kind

    @property
    def badge(self) -> str:
        """The text of the badge that marks a validator hit by the fault: the fault's number and kind."""
        return f"{self.number} {self.fault.kind.replace('_', ' ')}".strip()

    @property
    def hit(self) -> set[str]:
        """The fault's targets and the other validators that it impaired; empty if it never began."""
        return set() if self.fault.begun_ms is None else {*self.fault.targets, *self.fault.impaired}


@dataclass(frozen=True, slots=True)
class Marked:
    """A span of a run that charts and timeline mark: a fault, or a stall that was too long."""

    name: str
    number: str
    short: str
    begun_ms: float
    ended_ms: float
    """When the fault or stall ended; the run's end if it was not over then."""
    begun_height: int
    ended_height: int | None
    hit: set[str]
    """The validators that a fault hit; empty for a fault of links and for a stall."""
    is_stall: bool = False

    @property
    def title(self) -> str:
        """The number, if any, and the name."""
        return f"{self.number} {self.name}".strip()


def named_faults(record: RunRecord) -> list[NamedFault]:
    """The faults of a run, in the scenario's order."""
    is_alone = len(record.faults) == 1
    return [NamedFault("" if is_alone else str(place), fault) for place, fault in enumerate(record.faults, start=1)]


def marked(record: RunRecord) -> list[Marked]:
    """The faults that began, in the scenario's order, and the stalls that were longer than the scenario allows."""
    faults = [
        Marked(
            fault.title,
            named.number,
            named.short,
            fault.begun_ms,
            record.duration_ms if fault.ended_ms is None else fault.ended_ms,
            fault.height_when_begun,
            fault.height_when_ended,
            named.hit,
        )
        for named in named_faults(record)
        if (fault := named.fault).begun_ms is not None
    ]
    longest = sorted(stalls_beyond_limit(record), key=lambda stall: -stall.length_ms)[:MAX_STALLS]
    for stall in sorted(longest, key=lambda stall: stall.began_ms):
        name, height = f"no final block for {stall.length_ms / 1_000:,.1f} s", stall.after_height
        faults.append(Marked(name, "", STALL, stall.began_ms, stall.ended_ms, height, height + 1, set(), is_stall=True))
    return faults


def kinds_text(faults: Iterable[FaultRecord]) -> str:
    """The number of faults of each kind, in words."""
    kinds = Counter(fault.kind.replace("_", " ") for fault in faults)
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())


def marked_text(record: RunRecord, marks: Sequence[Marked]) -> str:
    """All marks in words, for readers who do not see the drawing; for many faults, the number of each kind."""
    begun = [fault for fault in record.faults if fault.begun_ms is not None]
    names = [f"{fault.kind} of {fault.whom}" for fault in begun]
    if len(begun) > MAX_LISTED:
        names = [f"{len(begun):,} faults ({kinds_text(begun)})"]
    names += [f"{each.name} after height {each.begun_height}" for each in marks if each.is_stall]
    return f"Marked: {', '.join(names)}." if names else "There were no faults."
