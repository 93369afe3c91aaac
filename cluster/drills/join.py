"""``join``: a validator joins a chain that goes on, by a snapshot of its peers' state, and takes part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from cluster.books import Books
from cluster.drills.base import TIMEOUT_S, Drill, Expectation, Judgement, names_of, option
from cluster.drills.expected import headers, straight_replay
from cluster.scenario import Scenario
from cluster.verdict import Outcome

AFTERWARDS: Final = 30
"""Heights that the run goes on for."""
BUSY: Final[dict[str, Any]] = {
    "users": [
        {"workload": "heartbeat", "count": 8},
        {"workload": "flood", "count": 4, "interval_ms": 500, "options": {"timers": 30, "burn": 30_000}},
    ]
}
"""Enough of it for a state of several chunks."""


@dataclass(frozen=True)
class Join(Drill):
    name: ClassVar[str] = "join"
    summary: ClassVar[str] = "a validator without state joins by a snapshot, and takes part"

    protocol: str = option("simplex", "the consensus protocol", choices=("simplex", "hotstuff"))
    validators: int = option(5, "how many there are; the last one joins", least=5, most=64)
    at_height: int = option(30, "when it joins", least=1, most=5_000)

    def scenario(self) -> Scenario:
        nodes: list[dict[str, Any]] = [{} for _ in names_of(self.validators)]
        nodes[-1] = {"joins_at_height": self.at_height}
        height = self.at_height + AFTERWARDS
        return self.build(
            validators={"count": self.validators, "nodes": nodes},
            consensus={"protocol": self.protocol},
            load=BUSY,
            stop={"height": height, "drain_blocks": 5, "timeout_s": TIMEOUT_S + height},
            success={"heights_compared": height - 10, "transactions": 30, "fires": 50, "stall_ms": 20_000},
        )

    def expectations(self) -> list[Expectation]:
        return [
            Expectation(
                "snapshot",
                "it takes the state from at least two peers, and executes no block below the snapshot's height",
                self._judge_snapshot,
            ),
            Expectation("takes_part", "afterwards it proposes blocks that become final", self._judge_takes_part),
            straight_replay(),
        ]

    @staticmethod
    def _judge_snapshot(books: Books) -> Judgement:
        join = next(iter(books.record.joins), None)
        if join is None or join.ended_ms is None or join.begun_ms is None:
            return Outcome.INCONCLUSIVE, "it never had its snapshot"
        validator = next(each for each in books.record.validators if each.name == join.target)
        begins = validator.first_height
        if begins == 1 and validator.blocks:
            return Outcome.FAIL, f"{join.target} executed the chain from the genesis on"
        text = (
            f"{join.target} took the state of height {begins - 1} from {len(join.chunks)} peers"
            f" ({sum(join.chunks.values())} chunks) in {join.ended_ms - join.begun_ms:,.0f} ms"
        )
        return (Outcome.PASS if len(join.chunks) > 1 else Outcome.INCONCLUSIVE), text

    def _judge_takes_part(self, books: Books) -> Judgement:
        index = self.validators - 1
        validator = next((each for each in books.record.validators if each.index == index), None)
        if validator is None or not validator.blocks:
            return Outcome.INCONCLUSIVE, "it served no block"
        own = [header.height for header in headers(books.chain) if header.proposer == index]
        if not own:
            return Outcome.FAIL, f"none of the {len(books.chain) - validator.first_height + 1} blocks since is its own"
        return Outcome.PASS, f"{len(own)} final blocks are its own, the first at height {own[0]}"
