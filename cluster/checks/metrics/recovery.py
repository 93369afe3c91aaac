"""How a network recovers from its faults: when a quorum had finalised something new once all of them were over."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.audit.books import Books
from cluster.record.run import FaultRecord, RunRecord
from consensus.types import quorum


@dataclass(frozen=True, slots=True)
class NetworkRecovery:
    """The recovery of the network from the last fault."""

    last: FaultRecord
    healed_ms: float
    """When it was over."""
    healed_height: int
    """The highest height that was final then."""
    took_ms: float | None
    """How long it took a quorum to finalise a higher one; ``None`` if none did."""


def recovery_of(books: Books) -> NetworkRecovery | None:
    """The recovery from a run's faults; ``None`` if none began, or not all of them were over at the end."""
    record = books.record
    begun = [fault for fault in record.faults if fault.begun_ms is not None]
    if not begun or any(fault.ended_ms is None for fault in begun):
        return None
    last = max(begun, key=lambda fault: fault.ended_ms or 0.0)
    healed_ms, healed_height = last.ended_ms or 0.0, record.height_when_healed
    recovered_ms = _quorum_above(books, healed_height)
    return NetworkRecovery(last, healed_ms, healed_height, None if recovered_ms is None else recovered_ms - healed_ms)


def active_committees(record: RunRecord, views: tuple[int, int]) -> list[set[str]]:
    """The names in each committee that is active in any of these views, from the first to the last one."""
    section = record.scenario.validators
    names, committees = section.names, section.committees
    first, last = views
    newest = max(start for start in committees if start <= first)
    return [{names[index] for index in members} for start, members in committees.items() if newest <= start <= last]


def _quorum_above(books: Books, height: int) -> float | None:
    """When a quorum of a committee that was active then had finalised a block above a height; ``None`` if none did."""
    record, views, names = books.record, books.views, books.record.scenario.validators.names
    moments: dict[str, float] = {}
    for seen in record.finalizations:
        if seen.height > height:
            name = names[seen.validator]
            moments[name] = min(seen.at_ms, moments.get(name, seen.at_ms))
    above = [view for at, view in views.items() if at > height] or [max(views.get(height, 1), 1)]
    reached = []
    for members in active_committees(record, (min(above), max(above))):
        seen_by = sorted(moments[name] for name in members if name in moments)
        reached += seen_by[quorum(len(members)) - 1 :][:1]
    return min(reached, default=None)
