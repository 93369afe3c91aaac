"""Progress during a fault: heights become final with a quorum of the active committees, and must not without one."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import accumulate
from operator import itemgetter
from typing import Final

from cluster.audit.books import Books
from cluster.checks.kind import excuse_for, unless_too_slow
from cluster.checks.metrics.recovery import (
    active_committees_during,
    final_moments,
    longest_view_change_ms,
    recovery_limit_ms,
)
from cluster.checks.verdict import Result
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.record.run import FaultRecord
from consensus.types import fault_bound, quorum

LOST_ONCE_MORE: Final = 2
"""The factor by which the time in which views may fail is longer if links lose messages."""

HEIGHTS_UNTIL_IT_VOTES: Final = 4
"""The most heights for which a validator that joined by a snapshot abstains, as it may have voted there before."""


class ProgressDuringFaults:
    """Whether heights became final during each fault of a run; data that all faults share is computed once."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._record = books.record
        self._moments = final_moments(books.record)
        self._at_once = faults_at_once(books.record.faults)
        lost = ((fault.ended_ms, fault.without_disks) for fault in self._record.faults if fault.ended_ms is not None)
        self._disk_losses = sorted((ended_ms, names) for ended_ms, names in lost if names)

    def during(self, number: int) -> Result:
        """Whether heights became final during a fault, as required with a quorum and forbidden without one.

        Quorums are those of the committees active during the fault. The fault must have begun and be over.
        """
        books, record, fault = self._books, self._record, self._record.faults[number]
        assert fault.begun_ms is not None
        assert fault.ended_ms is not None
        length = fault.ended_ms - fault.begun_ms
        during = self._moments.count(fault.begun_ms, fault.ended_ms)
        text = f"{counted(during, 'height')} finalised in the {length:,.0f} ms that it lasted"
        committees = active_committees_during(books, fault.begun_ms, fault.ended_ms)
        if fault.is_hard and all(_quorums_lost(committees, [self._without_twins(fault)], set())):
            # votes may have been cast for blocks that were proposed before it, or within a view change of its begin
            until_ms = fault.ended_ms if fault.first_back_ms is None else fault.first_back_ms
            late = self._proposed_and_final(fault.begun_ms + self._view_change_ms, until_ms)
            if late:
                were = "was" if len(late) == 1 else "were"
                what = f"{counted(len(late), 'height')} from {min(late)} on {were} finalised without a quorum"
                return Outcome.FAIL, what
            return Outcome.PASS, f"{text}, without a quorum"
        # other faults, byzantine or joining validators, or slow links may cost the quorum: both outcomes are right
        at_once = [record.faults[other] for other in self._at_once[number]]
        if (
            during
            or any(_quorums_lost(committees, at_once, self._never_there(fault.begun_ms)))
            or any(other.facts.slows_progress for other in at_once)
        ):
            return Outcome.PASS, text
        needed_ms = self._recovery_limit_ms * (LOST_ONCE_MORE if record.scenario.links.loss else 1)
        if length < needed_ms:
            return (
                Outcome.INCONCLUSIVE,
                f"no height finalised, but it lasted {length:,.0f} ms only, and consecutive views may fail for"
                f" {needed_ms:,} ms",
            )
        excuse = excuse_for(books, fault.begun_ms, fault.ended_ms, needed_ms)
        stood_still = f"no height was finalised in the {length:,.0f} ms that it lasted"
        return unless_too_slow(Outcome.FAIL, stood_still, excuse)

    @cached_property
    def _view_change_ms(self) -> int:
        return longest_view_change_ms(self._books)

    @cached_property
    def _recovery_limit_ms(self) -> int:
        return recovery_limit_ms(self._books)

    @cached_property
    def _newest_proposals(self) -> list[float]:
        """For each final height, in the order of time, the latest proposal time among the heights final until then."""
        first, proposed = self._record.first_finalizations, self._record.proposals
        return list(accumulate((proposed.get(height, first[height]) for height in self._moments.heights), max))

    def _proposed_and_final(self, after_ms: float, until_ms: float) -> list[int]:
        """The heights that were proposed after one moment, and final by another."""
        first, proposed = self._record.first_finalizations, self._record.proposals
        places = range(bisect_right(self._newest_proposals, after_ms), self._moments.until(until_ms))
        heights = (self._moments.heights[place] for place in places)
        return [height for height in heights if proposed.get(height, first[height]) > after_ms]

    @cached_property
    def _broken(self) -> set[str]:
        """Byzantine and mutated validators."""
        section = self._record.scenario.validators
        nodes = ((name, section.node(index)) for index, name in enumerate(section.names))
        found = {name for name, node in nodes if node.byzantine or node.mutant}
        return found | {validator.name for validator in self._record.validators if validator.mutant}

    @cached_property
    def _doubled(self) -> set[str]:
        """The names of validators that have a twin (``twins``), a second instance with the same key."""
        section = self._record.scenario.validators
        return {name for index, name in enumerate(section.names) if section.node(index).has_twin}

    def _without_twins(self, fault: FaultRecord) -> FaultRecord:
        """The fault, without impaired validators that have a twin: the twin still votes.

        The sides of a partition are unchanged, because a partition isolates both.
        """
        return replace(fault, impaired=tuple(name for name in fault.impaired if name not in self._doubled))

    def _never_there(self, begun_ms: float) -> set[str]:
        """The names of validators whose votes cannot be counted on in a fault that begins at this moment.

        They are byzantine and mutated ones, those that join later, and those that joined or lost their disks so
        recently that they may still abstain.
        """
        settled_ms = self._moments.newest(begun_ms, HEIGHTS_UNTIL_IT_VOTES) or 0.0
        joins = self._record.joins
        late = {join.target for join in joins if join.ended_ms is None or join.ended_ms > settled_ms}
        first, last = (bisect_right(self._disk_losses, ms, key=itemgetter(0)) for ms in (settled_ms, begun_ms))
        return self._broken.union(late, *(names for _, names in self._disk_losses[first:last]))


def faults_at_once(faults: Sequence[FaultRecord]) -> list[list[int]]:
    """For each fault, the numbers of the faults that overlap it in time, including itself, ascending.

    The list of a fault that never began is empty.
    """
    found: list[list[int]] = [[] for _ in faults]
    under_way: list[tuple[float, int]] = []
    begun = ((fault.begun_ms, number) for number, fault in enumerate(faults) if fault.begun_ms is not None)
    for begun_ms, number in sorted(begun):
        while under_way and under_way[0][0] < begun_ms:
            heappop(under_way)
        for _, other in under_way:
            found[other].append(number)
            found[number].append(other)
        found[number].append(number)
        ended_ms = faults[number].ended_ms
        heappush(under_way, (math.inf if ended_ms is None else ended_ms, number))
    return [sorted(others) for others in found]


def _quorums_lost(committees: Iterable[set[str]], faults: Sequence[FaultRecord], others: set[str]) -> list[bool]:
    """For each committee, whether the faults, with ``others`` missing too, can leave it without a quorum."""
    return [len(_missing(members, faults, others)) > fault_bound(len(members)) for members in committees]


def _missing(members: set[str], faults: Sequence[FaultRecord], others: set[str]) -> set[str]:
    """The members of a committee whose votes are missing at the worst moment of the faults, with ``others`` missing."""
    missing = (others & members).union(*(_impaired_in(members, fault) for fault in faults))
    for fault in faults:
        missing |= max(((members & set(group)) - missing for group in fault.one_at_a_time), key=len, default=set())
    return missing


def _impaired_in(members: set[str], fault: FaultRecord) -> set[str]:
    """The members of a committee whose votes are missing because of a fault, without its groups one at a time."""
    if not fault.sides:
        return members.intersection(fault.impaired)
    whole = next((set(side) for side in fault.sides if len(members.intersection(side)) >= quorum(len(members))), set())
    return members - whole
