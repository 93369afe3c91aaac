"""``reorg``: validators give up branches of executed blocks, which leave no trace.

For a while messages take longer than views, so blocks are notarized and executed but not final: a branch grows. One
validator builds on the last final block as if it knew none of the later ones. Its branch wins, and all validators roll
back to that block's state. There is no such drill for HotStuff, whose timeout certificates do not allow a certified
block to be skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from cluster.audit.books import Books
from cluster.common.outcome import Outcome
from cluster.scenario import Scenario
from cluster.tools.drills.base import TIMEOUT_S, Drill, Expectation, Judgement, names_of, option
from cluster.tools.drills.expectations import STRAIGHT_REPLAY, TIMERS_ONCE

FEWEST_VALIDATORS: Final = 4
FIRST_HEIGHT: Final = 10
"""Height of the first reorg, and heights between reorgs."""
BRIEF_VIEWS: Final = {
    "block_interval_ms": 50,
    "leader_timeout_ms": 600,
    "advance_timeout_ms": 700,
    "rebroadcast_ms": 1_500,
}
LATE_MS: Final = 450
"""Latency during that phase: certificates arrive just after the end of their view."""


@dataclass(frozen=True)
class Reorg(Drill):
    name: ClassVar[str] = "reorg"
    summary: ClassVar[str] = "branches of executed blocks lose against a shorter one; validators roll back and replay"

    depth: int = option(3, "minimum depth of a reorg, in executed blocks", most=12)
    times: int = option(2, "number of repetitions", most=20)
    for_s: int = option(12, "length of each phase without final blocks, in seconds", least=5, most=600)

    def scenario(self) -> Scenario:
        count = max(FEWEST_VALIDATORS, self.depth + 1)
        nodes: list[dict[str, Any]] = [{} for _ in names_of(count)]
        nodes[-1] = {"byzantine": "forgetful-leader"}
        late = {"kind": "degrade", "for_ms": self.for_s * 1_000, "latency_ms": LATE_MS}
        last = FIRST_HEIGHT * self.times
        return self.build(
            validators={"count": count, "nodes": nodes},
            consensus=BRIEF_VIEWS,
            faults=[{**late, "at_height": height} for height in range(FIRST_HEIGHT, last + 1, FIRST_HEIGHT)],
            stop={"height": last + 20, "drain_blocks": 5, "timeout_s": TIMEOUT_S + 2 * self.times * self.for_s},
            success={
                "heights_compared": last + 15,
                "transactions": 20,
                "fires": 50,
                "stall_ms": 1_000 * (self.for_s + 20),
            },
        )

    def expectations(self, scenario: Scenario) -> list[Expectation]:
        return [
            Expectation(
                "depth",
                f"honest validators give up branches of executed blocks, one of at least {self.depth} blocks",
                self._judge_depth,
            ),
            STRAIGHT_REPLAY,
            TIMERS_ONCE,
        ]

    def _judge_depth(self, books: Books) -> Judgement:
        node = books.record.scenario.validators.node
        reorgs = [seen for seen in books.record.reorgs if not node(seen.validator).byzantine]
        if not reorgs:
            return Outcome.INCONCLUSIVE, "no validator gave up an executed block"
        deepest = max(reorgs, key=lambda seen: seen.depth)
        names, whose = books.record.scenario.validators.names, {seen.validator for seen in reorgs}
        text = (
            f"{len(whose)} validators gave up {sum(seen.depth for seen in reorgs):,} executed blocks in {len(reorgs):,}"
            f" reorgs, {names[deepest.validator]} {deepest.depth} at once for that of height {deepest.height}"
        )
        return (Outcome.PASS if deepest.depth >= self.depth else Outcome.INCONCLUSIVE), text
