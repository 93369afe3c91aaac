"""``reorg``: validators give up branches of executed blocks, which leave no trace.

For a while messages take longer than views. Timeouts double after each further view without a final block, up to
:data:`~consensus.pacing.MAX_FACTOR` times the configured ones. Once they are that long, a proposal arrives before its
view times out, and the certificate arrives after: blocks are notarized and executed but not final, so a branch grows.
One validator builds on the last final block as if it knew none of the later ones. Its branch wins, and all validators
roll back to that block's state. There is no such drill for HotStuff, whose timeout certificates do not allow a
certified block to be skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from cluster.audit.books import Books
from cluster.commands.drills.base import TIMEOUT_S, Drill, Expectation, Judgement, names_of, option
from cluster.commands.drills.expectations import STRAIGHT_REPLAY, TIMERS_ONCE
from cluster.common.outcome import Outcome
from cluster.scenario import Scenario
from consensus.leader import longest_row_in_turn
from consensus.pacing import MAX_FACTOR
from consensus.types import fault_bound

FEWEST_VALIDATORS: Final = 4
FIRST_HEIGHT: Final = 10
"""Height of the first reorg, and heights between reorgs."""
BRIEF_VIEWS: Final = {
    "block_interval_ms": 50,
    "leader_timeout_ms": 100,
    "advance_timeout_ms": 110,
    "rebroadcast_ms": 1_500,
}
LATE_MS: Final = 1_050
"""Latency in milliseconds during a phase, the time of one fault that causes a reorg. It is between half and all of the
longest timeout, with half a second to spare on both sides for slow machines."""
LATE_VIEW_MS: Final = 2_200
"""Upper bound for a view with a block in a phase: the proposal and the votes take :data:`LATE_MS` each."""
BLOCKLESS_VIEW_MS: Final = 1_400
"""Upper bound for the mean length of the views in which the timeouts grow, in milliseconds: such a view takes a shorter
timeout, and the votes that give it up."""
TIMES_DOUBLED: Final = MAX_FACTOR.bit_length() - 1


def phase_ms(count: int, depth: int) -> int:
    """Length of a phase in which each of ``count`` validators leads often enough for a reorg of ``depth`` blocks.

    The timeouts grow to their maximum. The forgetful validator leads within ``count`` views, and again after ``count``
    views. At one of the two the branch has ``depth`` blocks, if ``depth`` is less than ``count``.
    """
    growing = longest_row_in_turn(fault_bound(count)) + TIMES_DOUBLED
    return growing * BLOCKLESS_VIEW_MS + (count + depth + 1) * LATE_VIEW_MS


@dataclass(frozen=True)
class Reorg(Drill):
    name: ClassVar[str] = "reorg"
    summary: ClassVar[str] = "branches of executed blocks lose against a shorter one; validators roll back and replay"

    depth: int = option(3, "minimum depth of a reorg, in executed blocks", most=12)
    times: int = option(2, "number of repetitions", most=20)

    def scenario(self) -> Scenario:
        count = max(FEWEST_VALIDATORS, self.depth + 1)
        nodes: list[dict[str, Any]] = [{} for _ in names_of(count)]
        nodes[-1] = {"byzantine": "forgetful-leader"}
        late_ms = phase_ms(count, self.depth)
        late = {"kind": "degrade", "for_ms": late_ms, "latency_ms": LATE_MS}
        last = FIRST_HEIGHT * self.times
        return self.build(
            validators={"count": count, "nodes": nodes},
            consensus=BRIEF_VIEWS,
            faults=[{**late, "at_height": height} for height in range(FIRST_HEIGHT, last + 1, FIRST_HEIGHT)],
            stop={"height": last + 20, "drain_blocks": 5, "timeout_s": TIMEOUT_S + 2 * self.times * late_ms // 1_000},
            success={
                "heights_compared": last + 15,
                "transactions": 20,
                "fires": 50,
                "stall_ms": late_ms + 20_000,
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
