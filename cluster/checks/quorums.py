"""Progress during a fault: heights become final with a quorum of the active committees, and must not without one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from cluster.audit.books import Books
from cluster.checks.details import excuse_for, unless_too_slow
from cluster.checks.metrics.recovery import (
    active_committees_during,
    longest_view_change_ms,
    recovery_limit_ms,
)
from cluster.checks.verdict import Result
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.misbehaviour.byzantine.registry import Twins
from cluster.record.run import FaultRecord, RunRecord
from cluster.scenario.sections.faults import SLOWING
from consensus.types import fault_bound, quorum

LOST_ONCE_MORE: Final = 2
"""Factor on the time that views may fail, if the links lose messages."""

HEIGHTS_UNTIL_IT_VOTES: Final = 4
"""A validator that joined by a snapshot abstains in views in which it may have voted before, for so many heights at
most."""


def progress_during(books: Books, fault: FaultRecord) -> Result:
    """Whether heights became final during a fault, as they must with a quorum and must not without one.

    Quorums are those of the committees that were active during the fault.
    """
    assert fault.begun_ms is not None
    assert fault.ended_ms is not None
    record = books.record
    length = fault.ended_ms - fault.begun_ms
    first = record.first_finalizations
    during = sum(fault.begun_ms < at <= fault.ended_ms for at in first.values())
    text = f"{counted(during, 'height')} finalised in the {length:,.0f} ms that it lasted"
    committees = active_committees_during(books, fault.begun_ms, fault.ended_ms)
    if fault.is_hard and all(_quorums_lost(committees, [_without_twins(record, fault)], set())):
        # votes may have been cast already for blocks proposed before the fault, or within a view change of its begin
        proposed, proposed_by = record.proposals, fault.begun_ms + longest_view_change_ms(books)
        until = fault.ended_ms if fault.first_back_ms is None else fault.first_back_ms
        late = [height for height, at in first.items() if proposed_by < proposed.get(height, at) and at <= until]
        if late:
            were = "was" if len(late) == 1 else "were"
            return Outcome.FAIL, f"{counted(len(late), 'height')} from {late[0]} on {were} finalised without a quorum"
        return Outcome.PASS, f"{text}, without a quorum"
    # with a quorum that other faults, byzantine or joining validators may take away, or slow links: either may happen
    at_once = [other for other in record.faults if _overlap(fault, other)]
    if (
        during
        or any(_quorums_lost(committees, at_once, _never_there(record, fault)))
        or any(other.kind in SLOWING for other in at_once)
    ):
        return Outcome.PASS, text
    needed_ms = recovery_limit_ms(books) * (LOST_ONCE_MORE if record.scenario.links.loss else 1)
    if length < needed_ms:
        return (
            Outcome.INCONCLUSIVE,
            f"no height finalised, but it lasted {length:,.0f} ms only, and consecutive views may fail for"
            f" {needed_ms:,} ms",
        )
    excuse = excuse_for(books, fault.begun_ms, fault.ended_ms, needed_ms)
    stood_still = f"no height was finalised in the {length:,.0f} ms that it lasted"
    check = unless_too_slow("faults", Outcome.FAIL, stood_still, excuse)
    return check.verdict, check.detail


def _quorums_lost(committees: Iterable[set[str]], faults: Sequence[FaultRecord], others: set[str]) -> list[bool]:
    """For each committee, whether it has no quorum without the validators that the faults impair and the others."""
    return [len(_missing(members, faults, others)) > fault_bound(len(members)) for members in committees]


def _missing(members: set[str], faults: Sequence[FaultRecord], others: set[str]) -> set[str]:
    """The members of a committee on which no certificate can count at the worst moment."""
    missing = (others & members).union(*(_impaired_in(members, fault) for fault in faults))
    for fault in faults:
        missing |= max(((members & set(group)) - missing for group in fault.one_at_a_time), key=len, default=set())
    return missing


def _without_twins(record: RunRecord, fault: FaultRecord) -> FaultRecord:
    """The fault without validators that have a twin: the twin votes on. A partition isolates both."""
    section = record.scenario.validators
    doubled = {name for index, name in enumerate(section.names) if Twins.name in section.node(index).byzantine}
    return replace(fault, impaired=tuple(name for name in fault.impaired if name not in doubled))


def _impaired_in(members: set[str], fault: FaultRecord) -> set[str]:
    """The members of a committee on which no certificate can count."""
    if not fault.sides:
        return members.intersection(fault.impaired)
    whole = next((set(side) for side in fault.sides if len(members.intersection(side)) >= quorum(len(members))), set())
    return members - whole


def _never_there(record: RunRecord, fault: FaultRecord) -> set[str]:
    """Validators that count as missing during a fault: byzantine and mutated ones, those that join later, and those
    that joined or lost their disks so recently that they may still abstain."""
    assert fault.begun_ms is not None
    begun_ms = fault.begun_ms
    first = sorted(at for at in record.first_finalizations.values() if at <= begun_ms)
    settled_ms = first[-HEIGHTS_UNTIL_IT_VOTES] if len(first) >= HEIGHTS_UNTIL_IT_VOTES else 0.0
    late = {join.target for join in record.joins if join.ended_ms is None or join.ended_ms > settled_ms}
    for other in record.faults:
        if other.without_disks and other.ended_ms is not None and settled_ms < other.ended_ms <= begun_ms:
            late.update(other.without_disks)
    section = record.scenario.validators
    broken = {
        name
        for name, index in zip(section.names, range(section.count), strict=True)
        if section.node(index).byzantine or section.node(index).mutant
    }
    broken.update(validator.name for validator in record.validators if validator.mutant)
    return late | broken


def _overlap(one: FaultRecord, other: FaultRecord) -> bool:
    if one.begun_ms is None or other.begun_ms is None:
        return False
    one_ends, other_ends = (math.inf if fault.ended_ms is None else fault.ended_ms for fault in (one, other))
    return one.begun_ms <= other_ends and other.begun_ms <= one_ends
