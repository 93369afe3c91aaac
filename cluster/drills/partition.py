"""``partition``: two sides do not hear each other; only a quorum makes anything final, and both are one again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from cluster.books import Books
from cluster.drills.base import TIMEOUT_S, Drill, Expectation, Judgement, names_of, option
from cluster.drills.expected import timers_once
from cluster.measures import first_finalizations
from cluster.record import Backend, FaultRecord
from cluster.scenario import Scenario
from cluster.verdict import Outcome
from consensus.types import quorum

AT_HEIGHT: Final = 15


@dataclass(frozen=True)
class Partition(Drill):
    name: ClassVar[str] = "partition"
    summary: ClassVar[str] = "two sides do not hear each other for a while; only a quorum may go on"

    protocol: str = option("simplex", "the consensus protocol", choices=("simplex", "hotstuff"))
    validators: int = option(4, "how many there are", least=4, most=64)
    cut_off: int = option(2, "validators on the one side; the others are on the other", most=63)
    for_s: int = option(12, "how long, in seconds", least=1, most=600)

    def problem(self, backend: Backend) -> str | None:
        if self.cut_off >= self.validators:
            return f"--cut-off: {self.cut_off} of {self.validators} validators leave nobody on the other side"
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

    def expectations(self) -> list[Expectation]:
        goes_on = self.validators - self.cut_off >= quorum(self.validators) or self.cut_off >= quorum(self.validators)
        others = "the side with a quorum goes on" if goes_on else "neither side is a quorum"
        return [
            Expectation(
                "sides",
                f"while it lasts, nobody without a quorum makes anything final that was proposed then; {others}",
                self._judge_sides,
            ),
            Expectation(
                "one_again",
                "afterwards everybody has the same blocks, and new ones become final",
                self._judge_one_again,
            ),
            timers_once(),
        ]

    def _judge_sides(self, books: Books) -> Judgement:
        fault = _lasted(books)
        if fault is None:
            return Outcome.INCONCLUSIVE, "the partition did not begin and end"
        begun_ms, ended_ms = fault
        names = names_of(self.validators)
        sides = (names[-self.cut_off :], names[: -self.cut_off])
        words = []
        for side in sides:
            heights = _finalised(books, side, begun_ms + books.record.view_change_ms, ended_ms)
            may = len(side) >= quorum(self.validators)
            if heights and not may:
                return Outcome.FAIL, (
                    f"{', '.join(side)} made {len(heights)} heights final without a quorum, from {min(heights)} on"
                )
            if may and not heights:
                return (
                    Outcome.FAIL,
                    f"{', '.join(side)} are a quorum, and made nothing final in {ended_ms - begun_ms:,.0f} ms",
                )
            words.append(f"{', '.join(side)}: {len(heights)} heights")
        return Outcome.PASS, f"made final in the {ended_ms - begun_ms:,.0f} ms: {'; '.join(words)}"

    def _judge_one_again(self, books: Books) -> Judgement:
        fault = _lasted(books)
        if fault is None:
            return Outcome.INCONCLUSIVE, "the partition did not begin and end"
        first = first_finalizations(books.record.judged_finalizations)
        new = [height for height, at in first.items() if at > fault[1]]
        common = books.common_height
        held = [{books.seals[each.name].at(height) for each in books.judged} for height in range(1, common + 1)]
        if apart := [height for height, seals in enumerate(held, start=1) if len(seals) > 1]:
            return Outcome.FAIL, f"the validators differ at {len(apart)} heights, from {apart[0]} on"
        if not new or common < min(new):
            return Outcome.FAIL, f"all have height {common}; {len(new)} heights became final anywhere afterwards"
        return Outcome.PASS, f"all have the same blocks up to height {common}, {len(new)} of them from afterwards"


def _lasted(books: Books) -> tuple[float, float] | None:
    """When the partition was."""
    fault: FaultRecord | None = next(iter(books.record.faults), None)
    if fault is None or fault.begun_ms is None or fault.ended_ms is None:
        return None
    return fault.begun_ms, fault.ended_ms


def _finalised(books: Books, side: Sequence[str], proposed_after_ms: float, until_ms: float) -> set[int]:
    """Heights that one of these validators made final, and that were proposed after a moment and final before one."""
    record = books.record
    names = record.scenario.validators.names
    return {
        seen.height
        for seen in record.finalizations
        if names[seen.validator] in side
        and seen.at_ms <= until_ms
        and record.proposals.get(seen.height, seen.at_ms) > proposed_after_ms
    }
