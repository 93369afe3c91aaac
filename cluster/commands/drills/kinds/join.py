"""``join``: a validator joins a running chain by a snapshot of its peers' state and takes part in consensus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from cluster.audit.books import Books
from cluster.checks.kinds.faults import HEIGHTS_UNTIL_IT_VOTES
from cluster.commands.drills.base import TIMEOUT_S, Drill, Expectation, Judgement, names_of, option
from cluster.commands.drills.expectations import STRAIGHT_REPLAY, headers, together, unmet
from cluster.common.outcome import Outcome
from cluster.record.run import JoinRecord, ValidatorRecord
from cluster.scenario import Scenario
from cluster.scenario.genesis import validators_of
from consensus.leader import ELECTIONS
from consensus.types import View

AFTERWARDS: Final = 30
"""Minimum number of heights after the join."""
TURNS: Final = 3
"""Minimum number of views that a joined validator must have led for it to be a fail that it proposed no final block."""
HEIGHTS_PER_TURN: Final = 4
"""Number of heights after the join per validator of the network: enough for each one to lead several views."""
BUSY: Final[dict[str, Any]] = {
    "users": [
        {"workload": "heartbeat", "count": 8},
        {
            "workload": "flood",
            "count": 8,
            "interval_ms": 500,
            "options": {"timers": 100, "spread_blocks": 200, "burn": 2_000},
        },
    ]
}
"""Load that leaves thousands of timers pending, so that each peer of the joiner has a chunk of the state to send."""


@dataclass(frozen=True)
class Join(Drill):
    name: ClassVar[str] = "join"
    summary: ClassVar[str] = "a validator without state joins by a snapshot and takes part"

    protocol: str = option("simplex", "the consensus protocol", choices=("simplex", "hotstuff"))
    validators: int = option(5, "number of validators; the last one joins", least=5, most=64)
    at_height: int = option(30, "height at which it joins", least=1, most=5_000)

    def scenario(self) -> Scenario:
        nodes: list[dict[str, Any]] = [{} for _ in names_of(self.validators)]
        nodes[-1] = {"joins_at_height": self.at_height}
        height = self.at_height + max(AFTERWARDS, HEIGHTS_PER_TURN * self.validators)
        return self.build(
            validators={"count": self.validators, "nodes": nodes},
            consensus={"protocol": self.protocol},
            load=BUSY,
            stop={"height": height, "drain_blocks": 5, "timeout_s": TIMEOUT_S + height},
            success={"heights_compared": height - 10, "transactions": 30, "fires": 50, "stall_ms": 20_000},
        )

    def expectations(self, scenario: Scenario) -> list[Expectation]:
        return [
            Expectation(
                "snapshot",
                "it takes the state from at least two peers, and executes no block below the snapshot's height",
                partial(_of_all, _took_snapshot),
            ),
            Expectation("takes_part", "afterwards it proposes blocks that become final", partial(_of_all, _takes_part)),
            STRAIGHT_REPLAY,
        ]


def _of_all(judge: Callable[[Books, JoinRecord, ValidatorRecord], Judgement], books: Books) -> Judgement:
    """Judge every validator that was to join."""
    found = {validator.name: validator for validator in books.record.validators}
    judged = [judge(books, join, found[join.target]) for join in books.record.joins if join.target in found]
    if not judged:
        return Outcome.INCONCLUSIVE, "no validator joined"
    return together(judged)


def _took_snapshot(_: Books, join: JoinRecord, validator: ValidatorRecord) -> Judgement:
    if join.ended_ms is None or join.begun_ms is None:
        return Outcome.INCONCLUSIVE, f"{join.target} never had its snapshot"
    if not validator.blocks:
        return Outcome.INCONCLUSIVE, f"{join.target} served no block"
    begins = validator.first_height
    if begins == 1:
        return Outcome.FAIL, f"{join.target} executed the chain from the genesis on"
    text = (
        f"{join.target} took the state of height {begins - 1} from {len(join.chunks)} peers"
        f" ({sum(join.chunks.values())} chunks) in {join.ended_ms - join.begun_ms:,.0f} ms"
    )
    return (Outcome.PASS if len(join.chunks) > 1 else Outcome.INCONCLUSIVE), text


def _takes_part(books: Books, join: JoinRecord, validator: ValidatorRecord) -> Judgement:
    if not validator.blocks:
        return Outcome.INCONCLUSIVE, f"{join.target} served no block"
    own = [header.height for header in headers(books.chain) if header.proposer == validator.index]
    if own:
        return Outcome.PASS, f"{len(own)} final blocks are {join.target}'s own, the first at height {own[0]}"
    since, turns = len(books.chain) - validator.first_height + 1, _turns(books, validator)
    text = f"none of the {since} blocks since is {join.target}'s own, which led {turns} views"
    return (unmet(books) if turns >= TURNS else Outcome.INCONCLUSIVE), text


def _turns(books: Books, validator: ValidatorRecord) -> int:
    """Number of views that a validator led from its first vote up to the last final block."""
    record, views = books.record, books.views
    begins = views.get(validator.first_height + HEIGHTS_UNTIL_IT_VOTES)
    if begins is None:
        return 0
    section = record.scenario.consensus
    everybody = validators_of(record.genesis, record.scheme)
    election = ELECTIONS[section.leader_election](everybody, record.genesis.chain_id.encode())
    return sum(election.leader(View(view)) == validator.index for view in range(begins, max(views.values()) + 1))
