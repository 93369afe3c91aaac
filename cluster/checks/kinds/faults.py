"""Checks of faults and joins: an effect was observed, the network behaved as required, the targets caught up."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final

from cluster.audit.books import Books
from cluster.checks.kind import CheckKind, Subject, excuse_for, unless_too_slow
from cluster.checks.metrics.recovery import (
    active_committees_during,
    final_moments,
    longest_view_change_ms,
    recovery_limit_ms,
    recovery_of,
)
from cluster.checks.verdict import Result, of_parts
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.record.run import CATCH_UP_SLACK_HEIGHTS, FaultRecord, JoinRecord, ValidatorRecord
from consensus.types import fault_bound, quorum

HEIGHTS_AFTER_A_JOIN: Final = 10
"""Heights that a validator must execute after its join; with fewer the check is inconclusive."""


class Faults(CheckKind):
    """Each fault took effect, the network made progress as the fault's kind implies, and its targets caught up."""

    name = "faults"
    SUBJECT = Subject.FAULTS

    def idle(self) -> str:
        return "" if self.record.scenario.faults or self.record.faults else "the scenario has none"

    def judge(self) -> Result:
        progress = ProgressDuringFaults(self.books)
        faults = self.record.faults
        results = [_check_fault(self.books, number, fault, progress) for number, fault in enumerate(faults)]
        return of_parts(results, len(self.record.scenario.faults), "faults never began")


def _check_fault(books: Books, number: int, fault: FaultRecord, progress: ProgressDuringFaults) -> Result:
    record, name = books.record, fault.name
    if fault.begun_ms is None:
        return Outcome.INCONCLUSIVE, f"{name} never began"
    if fault.problem:
        return Outcome.FAIL, f"{name}: {fault.problem}"
    if fault.ended_ms is None and fault.facts.lasts:
        return Outcome.INCONCLUSIVE, f"{name} was still under way at the end"
    if not fault.took_effect:
        return Outcome.INCONCLUSIVE, f"{name} had no observable effect ({fault.evidence or 'no evidence'})"
    if fault.ended_ms is None:
        verdict = Outcome.INCONCLUSIVE if record.interrupted else Outcome.FAIL
        return verdict, f"{name}: the target never came back"
    outcome, words_of_progress = progress.during(number)
    if outcome is not Outcome.PASS:
        return outcome, f"{name}: {words_of_progress}"
    words = [words_of_progress]
    hit = fault.targets or fault.impaired
    for validator in books.judged:
        if validator.name in hit:
            outcome, text = _caught_up(books, fault, validator)
            if outcome is not Outcome.PASS:
                return outcome, f"{name}: {text}"
            words += [text] if fault.facts.restarts_from else []
    if len(words) == 1 and hit:
        words.append(f"{', '.join(hit)} caught up" if len(hit) < len(record.validators) else "all caught up")
    effect = f"{name} took effect" + (f": {fault.evidence}" if fault.evidence else "")
    return Outcome.PASS, "; ".join([effect, *words])


class Recovery(CheckKind):
    """Once all faults are over, a quorum finalises a new height within the scenario's bound."""

    name = "recovery"
    SUBJECT = Subject.FAULTS

    def idle(self) -> str:
        return "" if any(fault.begun_ms is not None for fault in self.record.faults) else "no fault began"

    def judge(self) -> Result:
        found = recovery_of(self.books)
        if found is None:
            return Outcome.INCONCLUSIVE, "not all faults were over at the end"
        limit_ms = recovery_limit_ms(self.books, found.healed_ms)
        since = f"{found.last.title} was over at height {found.healed_height}"
        if found.took_ms is None:
            within, waited_ms = Outcome.INCONCLUSIVE, self.record.duration_ms - found.healed_ms
            what = f"no quorum finalised a height in the {waited_ms:,.0f} ms since {since}"
        else:
            within, waited_ms = Outcome.PASS, found.took_ms
            what = f"a quorum finalised a new height {waited_ms:,.0f} ms after {since}, allowed {limit_ms:,} ms"
        if waited_ms <= limit_ms:
            return within, what
        excuse = excuse_for(self.books, found.healed_ms, found.healed_ms + waited_ms, limit_ms)
        return unless_too_slow(Outcome.FAIL, what, excuse)


class Joins(CheckKind):
    """Each late validator joined by a snapshot, caught up, and then executed blocks itself."""

    name = "joins"
    SUBJECT = Subject.VALIDATORS

    def idle(self) -> str:
        return "" if self.record.scenario.validators.late else "the scenario has none"

    def judge(self) -> Result:
        results = [_check_join(self.books, join) for join in self.record.joins]
        return of_parts(results, len(self.record.scenario.validators.late), "joins never began")


def _check_join(books: Books, join: JoinRecord) -> Result:
    name = f"join of {join.target} at height {join.at_height}"
    if join.begun_ms is None:
        return Outcome.INCONCLUSIVE, f"{name} never began"
    if join.ended_ms is None:
        verdict = Outcome.INCONCLUSIVE if books.record.interrupted else Outcome.FAIL
        return verdict, f"{name}: the validator never received a snapshot"
    validator = next((v for v in books.record.validators if v.name == join.target), None)
    if validator is None or validator.status is None:
        return Outcome.INCONCLUSIVE, f"{name}: the validator does not say how it began"
    height = validator.status.get("snapshot_height")
    if not isinstance(height, int) or height <= 0:
        return Outcome.FAIL, f"{name}: the validator executed the chain from the genesis on, without a snapshot"
    outcome, text = _level_with_others(books, validator)
    if outcome is not Outcome.PASS:
        return outcome, f"{name}: {text}"
    executed = len(books.chains[validator.name])
    if executed < HEIGHTS_AFTER_A_JOIN:
        return (
            Outcome.INCONCLUSIVE,
            f"{name}: the validator executed {counted(executed, 'height')} afterwards, {HEIGHTS_AFTER_A_JOIN} needed",
        )
    chunks = f"{counted(sum(join.chunks.values()), 'chunk')} from {counted(len(join.chunks), 'peer')}"
    return Outcome.PASS, (
        f"{name} used the snapshot of height {height} ({chunks}) and took {join.ended_ms - join.begun_ms:,.0f} ms;"
        f" the validator executed {counted(executed, 'height')} from there and {text}"
    )


def _level_with_others(books: Books, validator: ValidatorRecord) -> Result:
    """Whether a validator ended at about the same height as the others."""
    record = books.record
    others = max((books.chains[v.name].tip for v in books.judged if v is not validator), default=0)
    height = books.chains[validator.name].tip
    unfinished = Outcome.INCONCLUSIVE if record.interrupted else Outcome.FAIL
    # a message that was lost just before the end would be repeated after it
    told_ms = record.duration_ms - record.scenario.consensus.rebroadcast_ms
    told = final_moments(record).highest(told_ms)
    if height < min(told, others - CATCH_UP_SLACK_HEIGHTS):
        return unfinished, f"{validator.name} did not catch up: it has height {height}, the others have {others}"
    return Outcome.PASS, f"caught up to {height}"


def _caught_up(books: Books, fault: FaultRecord, validator: ValidatorRecord) -> Result:
    """Whether a fault's target caught up with the others, and recovered from its disk or a snapshot as required."""
    outcome, level = _level_with_others(books, validator)
    if outcome is not Outcome.PASS:
        return outcome, level
    if not fault.facts.restarts_from:
        return Outcome.PASS, level
    status: dict[str, Any] = validator.status or {}
    starts, recovered = status.get("starts"), status.get("recovered_height")
    if not isinstance(starts, int) or not isinstance(recovered, int):
        return Outcome.INCONCLUSIVE, f"{validator.name} does not say how it started"
    if starts <= 1:
        return Outcome.INCONCLUSIVE, f"{validator.name} was started {counted(starts, 'time')}, so it was never down"
    if fault.facts.restarts_from == "snapshot" or validator.name in fault.lost_disks:
        height = status.get("snapshot_height")
        if not isinstance(height, int) or height <= 0:
            return Outcome.FAIL, f"{validator.name} lost its disk, but did not come back by a snapshot"
        return Outcome.PASS, f"{validator.name} joined by the snapshot of height {height} and {level}"
    if recovered <= 0:
        begun_ms = math.inf if fault.begun_ms is None else fault.begun_ms
        first_ms = books.record.finalizations.first_above(0).get(validator.index, math.inf)
        if first_ms >= begun_ms:
            return Outcome.INCONCLUSIVE, f"{validator.name} had nothing final yet that it could have recovered"
        return Outcome.FAIL, f"{validator.name} found nothing on its own disk when it came back"
    return Outcome.PASS, f"{validator.name} recovered height {recovered} from its own disk and {level}"


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
