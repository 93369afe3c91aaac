"""``partition``: two sides cannot reach each other; only a quorum finalises blocks, and both sides agree afterwards."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Final

from cluster.audit.books import Books
from cluster.checks.metrics.recovery import (
    active_committees_during,
    longest_view_change_ms,
    recovery_limit_ms,
)
from cluster.commands.drills.base import TIMEOUT_S, Drill, Expectation, Judgement, names_of, option
from cluster.commands.drills.expectations import TIMERS_ONCE, faults_of, heights_apart, overlapping, together, unmet
from cluster.common.outcome import Outcome
from cluster.faults.kinds.partition import PartitionFault
from cluster.record.run import Backend, FaultRecord
from cluster.scenario import Scenario
from cluster.scenario.sections.base import kind_of
from consensus.types import quorum

AT_HEIGHT: Final = 15
PARTITION: Final = kind_of(PartitionFault)


@dataclass(frozen=True)
class Partition(Drill):
    name: ClassVar[str] = "partition"
    summary: ClassVar[str] = "two sides cannot reach each other for a while; only a quorum may make progress"

    protocol: str = option("simplex", "the consensus protocol", choices=("simplex", "hotstuff"))
    validators: int = option(4, "number of validators", least=4, most=64)
    cut_off: int = option(2, "validators on one side; the others are on the other side", most=63)
    for_s: int = option(12, "length of the partition, in seconds", least=1, most=600)

    def problem(self, backend: Backend) -> str | None:
        if self.cut_off >= self.validators:
            return f"--cut-off: {self.cut_off} of {self.validators} validators leave none on the other side"
        return super().problem(backend)

    def scenario(self) -> Scenario:
        cut = names_of(self.validators)[-self.cut_off :]
        return self.build(
            validators={"count": self.validators},
            consensus={"protocol": self.protocol},
            faults=[{"kind": "partition", "groups": [cut], "at_height": AT_HEIGHT, "for_ms": self.for_s * 1_000}],
            stop={"height": 60, "drain_blocks": 5, "timeout_s": TIMEOUT_S + 2 * self.for_s},
            success={
                "heights_compared": 50,
                "transactions": 30,
                "fires": 50,
                "stall_ms": 1_000 * self.for_s + 20_000,
            },
        )

    def expectations(self, scenario: Scenario) -> list[Expectation]:
        return [
            Expectation(
                "sides",
                "during the partition, no side without a quorum finalises a block that was proposed then;"
                f" {_expected_progress(scenario)}",
                self._judge_sides,
            ),
            Expectation(
                "one_again",
                "afterwards all validators have the same blocks, and new ones become final",
                self._judge_one_again,
            ),
            TIMERS_ONCE,
        ]

    @staticmethod
    def _judge_sides(books: Books) -> Judgement:
        partitions = faults_of(books, PARTITION)
        if not partitions:
            return Outcome.INCONCLUSIVE, "the scenario has no partition"
        return together([_judge_partition(books, fault) for fault in partitions])

    @staticmethod
    def _judge_one_again(books: Books) -> Judgement:
        partitions = faults_of(books, PARTITION)
        common = books.common_height
        if apart := heights_apart(books, books.judged, common):
            return Outcome.FAIL, f"the validators differ at {len(apart)} heights, from {apart[0]} on"
        ends = [fault.ended_ms for fault in partitions if fault.ended_ms is not None]
        if not partitions or len(ends) < len(partitions):
            return Outcome.INCONCLUSIVE, "no partition began and ended" if not ends else "a partition did not end"
        new = [height for height, at in books.record.first_finalizations.items() if at > max(ends)]
        if not new or common < min(new):
            return unmet(books), f"all have height {common}; {len(new)} heights became final somewhere afterwards"
        return Outcome.PASS, f"all have the same blocks up to height {common}, {len(new)} of them new"


def _expected_progress(scenario: Scenario) -> str:
    """The expected progress of the sides, as text."""
    names = scenario.validators.names
    committees = [{names[index] for index in members} for members in scenario.validators.committees.values()]
    sides = [
        side for fault in scenario.planned_faults if isinstance(fault, PartitionFault) for side in fault.sides(names)
    ]
    if not sides:
        return "the scenario has no partition"
    has_quorum = any(_is_quorum(side, members) for side in sides for members in committees)
    return "the side with a quorum makes progress" if has_quorum else "neither side is a quorum"


def _is_quorum(side: Collection[str], members: set[str]) -> bool:
    return len(members.intersection(side)) >= quorum(len(members))


def _judge_partition(books: Books, fault: FaultRecord) -> Judgement:
    """Judge the final blocks of each side of one partition."""
    record, begun_ms, view_change_ms = books.record, fault.begun_ms, longest_view_change_ms(books)
    if begun_ms is None:
        return Outcome.INCONCLUSIVE, f"the partition of {fault.target} never began"
    ended_ms = record.duration_ms if fault.ended_ms is None else fault.ended_ms
    committees = active_committees_during(books, begun_ms, ended_ms)
    whole = [side for side in fault.sides if any(_is_quorum(side, members) for members in committees)]
    for side in fault.sides:
        heights = _finalised(books, side, begun_ms + view_change_ms, ended_ms)
        if heights and side not in whole:
            return Outcome.FAIL, (
                f"{', '.join(side)} finalised {len(heights)} heights without a quorum, from {min(heights)} on"
            )
    if fault.ended_ms is None:
        return Outcome.INCONCLUSIVE, f"the partition of {fault.target} did not end"
    length_ms = ended_ms - begun_ms
    if length_ms <= view_change_ms:
        return Outcome.INCONCLUSIVE, (
            f"it lasted {length_ms:,.0f} ms, and earlier proposals may become final for {view_change_ms:,} ms"
        )
    counts = []
    for side in fault.sides:
        heights = _finalised(books, side, begun_ms, ended_ms)
        must = side in whole and all(_is_quorum(side, members) for members in committees)
        if must and not heights:
            return _standstill(books, fault, side, length_ms)
        counts.append(f"{', '.join(side)}: {len(heights)} heights")
    return Outcome.PASS, f"finalised in {length_ms:,.0f} ms: {'; '.join(counts)}"


def _standstill(books: Books, fault: FaultRecord, side: Collection[str], length_ms: float) -> Judgement:
    """Judge a side that is a quorum, but finalised nothing: a fail, unless another cause is possible."""
    record, section = books.record, books.record.scenario.validators
    stood = f"{', '.join(side)} are a quorum, and finalised nothing in {length_ms:,.0f} ms"
    (at_once,) = (group for group in overlapping(record.faults) if fault in group)
    if len(at_once) > 1:
        return Outcome.INCONCLUSIVE, f"{stood}, during {len(at_once) - 1} other faults"
    hindered = [
        name
        for index, name in enumerate(section.names)
        if name in side and (section.node(index).is_faulty or index in section.late)
    ]
    if hindered:
        return Outcome.INCONCLUSIVE, f"{stood}, with {', '.join(hindered)} byzantine, a mutant or late"
    if length_ms < (limit_ms := recovery_limit_ms(books)):
        return Outcome.INCONCLUSIVE, f"{stood}; views that fail in a row may take {limit_ms:,} ms"
    return Outcome.FAIL, stood


def _finalised(books: Books, side: Collection[str], proposed_after_ms: float, until_ms: float) -> set[int]:
    """Heights that a validator of this side finalised by ``until_ms``, proposed after ``proposed_after_ms``."""
    record = books.record
    names = record.scenario.validators.names
    return {
        seen.height
        for seen in record.finalizations.without(record.scenario.validators.byzantine)
        if names[seen.validator] in side
        and seen.at_ms <= until_ms
        and record.proposals.get(seen.height, seen.at_ms) > proposed_after_ms
    }
