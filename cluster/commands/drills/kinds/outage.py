"""``outage``: f+1 validators are down for a while; then the backlog is worked off.

No block can become final during the outage. The others still accept transactions, which fill a few blocks once a quorum
is back. The timers of these transactions fall due together, more than the lane has room for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from cluster.audit.books import Books
from cluster.checks.metrics.recovery import active_committees_during
from cluster.commands.drills.base import (
    STARTING_S,
    TIMEOUT_S,
    Drill,
    Expectation,
    Judgement,
    kills,
    names_of,
    one_too_many,
    option,
)
from cluster.commands.drills.expectations import KILL, TIMERS_ONCE, down_at_once, overlapping, rate, unmet
from cluster.common.outcome import Outcome
from cluster.record.run import FaultRecord
from cluster.scenario import Scenario
from consensus.types import quorum

AT_HEIGHT: Final = 20
PRICED: Final[dict[str, Any]] = {"timers": 30, "spread_blocks": 2, "burn": 8_000, "explicit_percent": 0}
"""Options of the workload ``flood``: its timers have the default agent's bid, so that rising prices do not exclude
waiting timers.

The number of timers stays below the lane's target even at one block per second, as on a slow machine, so that prices
fall again. They are close together, so that those of an outage exceed the lane's room.
"""
WORKED_OFF_PERCENT: Final = 10
"""Percentage of the largest backlog that may be left at the end."""
SETTLED_MS: Final = 5_000
"""Time in milliseconds from the end of the outage until block rates are measured."""
MIN_STRETCH_MS: Final = 2_000
NO_OUTAGE: Final = "the validators down at the same time left a quorum: there was no outage"


@dataclass(frozen=True)
class Outage(Drill):
    name: ClassVar[str] = "outage"
    summary: ClassVar[str] = "f+1 validators are down for a while; a backlog builds and is worked off"

    validators: int = option(4, "number of validators; the last f+1 go down", least=4, most=64)
    down_s: int = option(15, "length of the outage, in seconds", least=2, most=600)
    how: str = option("actor", "means of the kills; pod needs Kubernetes", choices=("actor", "process", "pod"))
    recovery_ms: int = option(10_000, "limit for the first new final block", least=100, most=600_000)
    pace_percent: int = option(50, "required block rate afterwards, in percent of the earlier one", most=100)

    def scenario(self) -> Scenario:
        down = names_of(self.validators)[-one_too_many(self.validators) :]
        return self.build(
            validators={"count": self.validators},
            chain={"params": {"LANE_TIMER_CYCLES": 800_000}},
            load={
                "users": [
                    {"workload": "heartbeat", "count": 4},
                    {"workload": "flood", "count": 2, "interval_ms": 1_600, "options": PRICED},
                    {"workload": "transfer", "count": 2},
                ]
            },
            faults=kills(down, AT_HEIGHT, self.down_s * 1_000, self.how),
            stop={"height": 80, "drain_blocks": 10, "timeout_s": TIMEOUT_S + self.down_s + STARTING_S},
            success={
                "heights_compared": 60,
                "transactions": 30,
                "fires": 50,
                "stall_ms": 1_000 * (self.down_s + STARTING_S),
                "recovery_ms": self.recovery_ms,
            },
        )

    def expectations(self, scenario: Scenario) -> list[Expectation]:
        return [
            Expectation(
                "backlog",
                f"after the outage more due timers wait than before, and they are worked off: at the end no more than"
                f" before, or {WORKED_OFF_PERCENT} % of the largest backlog, wait",
                self._judge_backlog,
            ),
            Expectation(
                "recovery",
                f"a new block is final within {scenario.recovery_ms:,} ms after the last validator is back, and the"
                f" block rate reaches {self.pace_percent} % of the earlier one",
                self._judge_recovery,
            ),
            TIMERS_ONCE,
        ]

    @staticmethod
    def _judge_backlog(books: Books) -> Judgement:
        outage = _outage(books)
        if outage is None:
            return Outcome.INCONCLUSIVE, NO_OUTAGE
        height = max(fault.height_when_begun for fault in outage if fault.kind == KILL)
        backlog = books.ledger.blocks.backlog
        before, after = (max(part, default=0) for part in (backlog[:height], backlog[height:]))
        if not height or after <= before:
            return Outcome.INCONCLUSIVE, "no backlog was larger than before the outage"
        at, end = backlog.index(after, height) + 1, backlog[-1]
        text = f"{after:,} due timers waited at height {at:,}, at most {before:,} before; {end:,} at the end"
        left = max(before, after * WORKED_OFF_PERCENT // 100)
        return (Outcome.PASS if end <= left else unmet(books)), text

    def _judge_recovery(self, books: Books) -> Judgement:
        outage, record = _outage(books), books.record
        first = record.first_finalizations
        if outage is None or not first:
            return Outcome.INCONCLUSIVE, NO_OUTAGE
        ends = [fault.ended_ms for fault in outage if fault.ended_ms is not None]
        if len(ends) < len(outage):
            return Outcome.INCONCLUSIVE, "not all validators came back"
        begun_ms, over_ms = min(fault.begun_ms or 0.0 for fault in outage), max(ends)
        back_ms = min((at for at in first.values() if at > over_ms), default=None)
        if back_ms is None:
            waited_ms = record.duration_ms - over_ms
            verdict = Outcome.FAIL if waited_ms > record.recovery_ms else unmet(books)
            return verdict, f"no block became final in the {waited_ms:,.0f} ms afterwards"
        text = f"a new block was final {back_ms - over_ms:,.0f} ms after the last was back"
        if back_ms - over_ms > record.recovery_ms:
            return Outcome.FAIL, f"{text}, allowed {record.recovery_ms:,} ms"
        verdict, pace = self._judge_pace(books, begun_ms, back_ms)
        return verdict, f"{text}; {pace}"

    def _judge_pace(self, books: Books, begun_ms: float, back_ms: float) -> Judgement:
        """Compare the block rates before and after the outage, outside of other faults."""
        seen = books.record.first_finalizations.values()
        others = [fault for fault in books.record.faults if fault.begun_ms is not None]
        first_ms = max([min(seen), *(each.ended_ms for each in others if each.ended_ms and each.ended_ms < begun_ms)])
        last_ms = min([max(seen), *(each.begun_ms for each in others if each.begun_ms and each.begun_ms > back_ms)])
        settled_ms = min(back_ms + SETTLED_MS, (back_ms + last_ms) / 2)
        if min(begun_ms - first_ms, last_ms - settled_ms) < MIN_STRETCH_MS:
            return Outcome.INCONCLUSIVE, "the run is too short before or after the outage to compare block rates"
        before, after = rate(books, first_ms, begun_ms), rate(books, settled_ms, last_ms)
        is_met = after * 100 >= before * self.pace_percent
        return (Outcome.PASS if is_met else unmet(books)), f"{before:.1f} blocks/s before, {after:.1f} after"


def _outage(books: Books) -> list[FaultRecord] | None:
    """The first group of overlapping faults whose kills left no quorum; ``None`` if none did."""
    for group in overlapping(books.record.faults):
        begun_ms = min(fault.begun_ms or 0.0 for fault in group)
        ended_ms = max(books.record.duration_ms if fault.ended_ms is None else fault.ended_ms for fault in group)
        committees = active_committees_during(books, begun_ms, ended_ms)
        for down in down_at_once(group):
            if all(len(members - down) < quorum(len(members)) for members in committees):
                return group
    return None
