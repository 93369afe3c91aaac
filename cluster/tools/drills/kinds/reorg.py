"""``reorg``: branches of executed blocks are given up, and nothing of them is left.

For a while messages take longer than views last, so blocks are notarized and none is final: a branch grows, executed by
everybody. One validator builds on the last final block as if it knew of none of them; its branch wins, and all go back
to that block's state and forward again. So it goes several times. In HotStuff a timeout certificate forbids to skip a
certified block, so that there is nothing to drill.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from cluster.audit.books import Books
from cluster.common.outcome import Outcome
from cluster.scenario import Scenario
from cluster.tools.drills.base import TIMEOUT_S, Drill, Expectation, Judgement, names_of, option
from cluster.tools.drills.expectations import straight_replay, timers_once

FEWEST_VALIDATORS: Final = 4
FIRST_HEIGHT: Final = 10
"""When it begins; again each time that so many more heights are final."""
BRIEF_VIEWS: Final = {
    "block_interval_ms": 50,
    "leader_timeout_ms": 600,
    "advance_timeout_ms": 700,
    "rebroadcast_ms": 1_500,
}
LATE_MS: Final = 450
"""How long messages take meanwhile: certificates come just too late for the views that they belong to."""


@dataclass(frozen=True)
class Reorg(Drill):
    name: ClassVar[str] = "reorg"
    summary: ClassVar[str] = "branches of executed blocks lose against a shorter one; everybody rolls back and replays"

    depth: int = option(3, "executed blocks that are given up at once, at least", most=12)
    times: int = option(2, "how often", most=20)
    for_s: int = option(12, "how long nothing becomes final by itself each time, in seconds", least=5, most=600)

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
                f"honest validators give up branches of executed blocks, one of them of at least {self.depth} blocks",
                self._judge_depth,
            ),
            straight_replay(),
            timers_once(),
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
