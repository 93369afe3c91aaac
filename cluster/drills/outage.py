"""``outage``: one validator more than may be missed is down for a while; then everything that waited is worked off.

Meanwhile nothing can become final. The others go on taking transactions, which land in few blocks once a quorum is
back; their timers fall due together, more than the lane has room for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from cluster.books import Books
from cluster.drills.base import (
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
from cluster.drills.expected import first_fault_ms, last_fault_over_ms, rate, timers_once
from cluster.ledger import BlockFigures
from cluster.measures import first_finalizations
from cluster.scenario import Scenario
from cluster.verdict import Outcome

AT_HEIGHT: Final = 20
PRICED: Final[dict[str, Any]] = {"timers": 30, "burn": 8_000, "explicit_percent": 0}
"""By the default agent, so that a timer that waits is not priced out when the lane gets dear."""
WORKED_OFF_PERCENT: Final = 10
"""Of the largest backlog may be left at the end."""
SETTLED_MS: Final = 5_000
"""After the outage, before rates are taken."""
LEAST_STRETCH_MS: Final = 2_000


@dataclass(frozen=True)
class Outage(Drill):
    name: ClassVar[str] = "outage"
    summary: ClassVar[str] = "f+1 validators are down for a while; a backlog builds, and is worked off"

    validators: int = option(4, "how many there are; the last f+1 of them go down", least=4, most=64)
    down_s: int = option(15, "for how long, in seconds", least=2, most=600)
    recovery_ms: int = option(10_000, "by when after it a new block is final", least=100, most=600_000)
    pace_percent: int = option(50, "of the block rate from before that must be reached again", most=100)

    def scenario(self) -> Scenario:
        down = names_of(self.validators)[-one_too_many(self.validators) :]
        return self.build(
            validators={"count": self.validators},
            chain={"params": {"LANE_TIMER_CYCLES": 800_000}},
            load={
                "users": [
                    {"workload": "heartbeat", "count": 4},
                    {"workload": "flood", "count": 4, "interval_ms": 800, "options": PRICED},
                    {"workload": "transfer", "count": 2},
                ]
            },
            faults=kills(down, AT_HEIGHT, self.down_s * 1_000),
            stop={"height": 80, "drain_blocks": 10, "timeout_s": TIMEOUT_S + self.down_s + STARTING_S},
            success={
                "heights_compared": 60,
                "transactions": 30,
                "fires": 50,
                "stall_ms": 1_000 * (self.down_s + STARTING_S),
                "recovery_ms": self.recovery_ms,
            },
        )

    def expectations(self) -> list[Expectation]:
        return [
            Expectation(
                "backlog",
                f"due timers pile up behind the outage, more than before it, and are worked off: at the end no more"
                f" than before, or {WORKED_OFF_PERCENT} % of the most, wait",
                self._judge_backlog,
            ),
            Expectation(
                "recovery",
                f"a new block is final {self.recovery_ms:,} ms after the last validator is back, and then blocks come"
                f" at least {self.pace_percent} % as fast as before",
                self._judge_recovery,
            ),
            timers_once(),
        ]

    @staticmethod
    def _judge_backlog(books: Books) -> Judgement:
        height = max((fault.height_when_begun for fault in books.record.faults), default=0)
        figures = books.ledger.figures
        before, after = (_most(figures[:height]), _most(figures[height:]))
        if not height or after is None or before is None or after.backlog <= before.backlog:
            return Outcome.INCONCLUSIVE, "no backlog was seen that was larger than before the outage"
        text = (
            f"{after.backlog:,} due timers waited at height {after.height}, {before.backlog:,} at most before;"
            f" {figures[-1].backlog:,} at the end"
        )
        left = max(before.backlog, after.backlog * WORKED_OFF_PERCENT // 100)
        return (Outcome.PASS if figures[-1].backlog <= left else Outcome.FAIL), text

    def _judge_recovery(self, books: Books) -> Judgement:
        begun_ms, over_ms = first_fault_ms(books), last_fault_over_ms(books)
        first = first_finalizations(books.record.judged_finalizations)
        if begun_ms is None or over_ms is None or not first:
            return Outcome.INCONCLUSIVE, "not all validators went down and came back"
        back_ms = min((at for at in first.values() if at > over_ms), default=None)
        if back_ms is None:
            return Outcome.FAIL, f"nothing became final in the {books.record.duration_ms - over_ms:,.0f} ms afterwards"
        first_ms, last_ms = min(first.values()), max(first.values())
        settled_ms = min(back_ms + SETTLED_MS, (back_ms + last_ms) / 2)
        if min(begun_ms - first_ms, last_ms - settled_ms) < LEAST_STRETCH_MS:
            return Outcome.INCONCLUSIVE, "the run is too short before or behind the outage to compare block rates"
        before, after = rate(books, first_ms, begun_ms), rate(books, settled_ms, last_ms)
        is_met = back_ms - over_ms <= self.recovery_ms and after * 100 >= before * self.pace_percent
        text = (
            f"a new block was final {back_ms - over_ms:,.0f} ms after the last was back; {before:.1f} blocks/s before,"
            f" {after:.1f} after"
        )
        return (Outcome.PASS if is_met else Outcome.FAIL), text


def _most(figures: list[BlockFigures]) -> BlockFigures | None:
    return max(figures, key=lambda block: block.backlog, default=None)
