"""``node-loss``: a Ray node is lost for good; its validators come back elsewhere, and the others continue meanwhile.

On the live testnet, a local Ray gets a new node, as a cluster of ``RAY_ADDRESS`` may. Otherwise the validators move to
the nodes that are left.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final

from cluster.audit.books import Books
from cluster.commands.drills.base import STARTING_S, TIMEOUT_S, Drill, Expectation, Judgement, names_of, option
from cluster.commands.drills.expectations import STRAIGHT_REPLAY, together, unmet
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.record.run import Backend, FaultRecord
from cluster.scenario import Scenario
from consensus.types import fault_bound

AT_HEIGHT: Final = 20
KIND: Final = "lose_node"
LAST: Final = 100
BLOCK_MS: Final = 500
"""Block interval in milliseconds. With it the run lasts 40 s after the loss even on a fast machine. On a busy machine
it takes half a minute until the node's validators run elsewhere."""
NEEDED: Final = 5
"""Minimum number of heights that each validator of the lost node must finalise after it came back."""
NO_LOSS: Final = "no node was lost"


@dataclass(frozen=True)
class NodeLoss(Drill):
    name: ClassVar[str] = "node-loss"
    summary: ClassVar[str] = "a Ray node is lost for good; its validators come back on another one"

    protocol: str = option("simplex", "the consensus protocol", choices=("simplex", "hotstuff"))
    validators: int = option(8, "number of validators; the node of the last one is lost", least=4, most=64)
    nodes: int = option(4, "number of Ray nodes with validators", least=2, most=16)
    how: str = option("process", "how a live node is lost: killed, or ended by Ray", choices=("process", "ray"))
    disks: str = option("lost", "whether the node's disks are lost", choices=("lost", "kept"))
    down_s: int = option(5, "minimum time until its validators start elsewhere, in seconds", least=1, most=600)
    gap_ms: int = option(15_000, "limit between two final blocks meanwhile", least=100, most=600_000)

    def problem(self, backend: Backend) -> str | None:
        most, withstood = -(-self.validators // self.nodes), fault_bound(self.validators)
        if most > withstood:
            return (
                f"{self.validators} validators on {self.nodes} nodes are {most} on one, more than the {withstood} whose"
                f" loss they tolerate; expected more --nodes or --validators"
            )
        return super().problem(backend)

    def scenario(self) -> Scenario:
        lost = {
            "kind": KIND,
            "target": names_of(self.validators)[-1],
            "at_height": AT_HEIGHT,
            "down_ms": self.down_s * 1_000,
            "how": self.how,
            "disks": self.disks,
        }
        return self.build(
            validators={"count": self.validators, "ray_nodes": self.nodes},
            consensus={"protocol": self.protocol, "block_interval_ms": BLOCK_MS},
            faults=[lost],
            stop={"height": LAST, "drain_blocks": 5, "timeout_s": TIMEOUT_S + self.down_s + STARTING_S},
            success={
                "heights_compared": 40,
                "transactions": 30,
                "fires": 50,
                "stall_ms": max(self.gap_ms, 30_000),
            },
        )

    def expectations(self, scenario: Scenario) -> list[Expectation]:
        return [
            Expectation(
                "goes_on",
                f"while the node is gone, the others finalise a block at least every {self.gap_ms:,} ms",
                self._judge_gaps,
            ),
            Expectation(
                "elsewhere",
                f"each of its validators comes back, by a snapshot if its disk is lost, and finalises {NEEDED} more"
                " heights",
                _judge_return,
            ),
            STRAIGHT_REPLAY,
        ]

    def _judge_gaps(self, books: Books) -> Judgement:
        judged = []
        for fault in _losses(books):
            begun_ms = fault.begun_ms or 0.0
            ended_ms = books.record.duration_ms if fault.ended_ms is None else fault.ended_ms
            meanwhile = [at for at in books.record.first_finalizations.values() if begun_ms < at < ended_ms]
            gap_ms = max(after - before for before, after in pairwise([begun_ms, *sorted(meanwhile), ended_ms]))
            verdict = Outcome.PASS if gap_ms <= self.gap_ms else unmet(books)
            judged.append((verdict, f"{counted(len(meanwhile), 'height')}, at most {gap_ms:,.0f} ms apart"))
        return together(judged) if judged else (Outcome.INCONCLUSIVE, NO_LOSS)


def _losses(books: Books) -> list[FaultRecord]:
    return [
        fault for fault in books.record.faults if fault.kind == KIND and fault.begun_ms is not None and fault.targets
    ]


def _judge_return(books: Books) -> Judgement:
    judged = [_returned(books, fault, name) for fault in _losses(books) for name in fault.targets]
    return together(judged) if judged else (Outcome.INCONCLUSIVE, NO_LOSS)


def _returned(books: Books, fault: FaultRecord, name: str) -> Judgement:
    record = books.record
    if fault.ended_ms is None:
        return unmet(books), f"{name} did not come back"
    validator = next((each for each in record.validators if each.name == name), None)
    if validator is None or not validator.blocks:
        return Outcome.INCONCLUSIVE, f"{name} served no block"
    if name in fault.lost_disks and validator.first_height == 1:
        return Outcome.FAIL, f"{name} serves the chain from the genesis on, though its disk was lost"
    back_ms = fault.ended_ms
    heights = {
        seen.height for seen in record.finalizations if seen.validator == validator.index and seen.at_ms > back_ms
    }
    way = f"by the snapshot of height {validator.first_height - 1}" if name in fault.lost_disks else "from its disk"
    text = f"{name} came back {way}, and finalised {counted(len(heights), 'height')}"
    if len(heights) >= NEEDED:
        return Outcome.PASS, text
    return Outcome.INCONCLUSIVE, f"{text}, {NEEDED} needed"
