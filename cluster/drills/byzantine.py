"""``byzantine``: as many validators as are withstood break the protocol; the others agree, go on, and can prove it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from cluster.books import Books
from cluster.byzantine import BEHAVIOURS
from cluster.drills.base import TIMEOUT_S, Drill, Expectation, Judgement, names_of, option
from cluster.drills.expected import straight_replay
from cluster.evidence import proofs
from cluster.measures import longest_stall
from cluster.record import Backend
from cluster.scenario import Scenario
from cluster.verdict import Outcome
from consensus.types import fault_bound

MIXED: Final = "mixed"
IN_TURN: Final = (
    ("equivocating-leader", "conflicting-voter"),
    ("signature-forger", "selective-sender"),
    ("invalid-block-bad-root", "garbage"),
    ("stale-replayer", "vote-withholder"),
)
"""What mixed liars do, one after the other."""
LIVE_CHOICES: Final = tuple(sorted(BEHAVIOURS))


@dataclass(frozen=True)
class Byzantine(Drill):
    name: ClassVar[str] = "byzantine"
    summary: ClassVar[str] = "f validators break the protocol on purpose; the others are not harmed, and can prove it"

    protocol: str = option("simplex", "the consensus protocol", choices=("simplex", "hotstuff"))
    validators: int = option(7, "how many there are", least=4, most=64)
    liars: int = option(2, "how many break the protocol, at most f", most=21)
    behaviour: str = option(MIXED, "what they do", choices=(MIXED, *LIVE_CHOICES))
    stall_ms: int = option(30_000, "longest time without a final block", least=100, most=600_000)

    def problem(self, backend: Backend) -> str | None:
        bound = fault_bound(self.validators)
        if self.liars > bound:
            return f"--liars: {self.liars} of {self.validators} validators; at most {bound} are withstood"
        return super().problem(backend)

    def scenario(self) -> Scenario:
        nodes: list[dict[str, Any]] = [{} for _ in names_of(self.validators)]
        for number in range(self.liars):
            does = list(IN_TURN[number % len(IN_TURN)]) if self.behaviour == MIXED else [self.behaviour]
            nodes[-1 - number] = {"byzantine": does}
        return self.build(
            validators={"count": self.validators, "nodes": nodes, "allow_more_faults": True},
            consensus={"protocol": self.protocol},
            stop={"height": 40, "drain_blocks": 5, "timeout_s": TIMEOUT_S},
            success={"heights_compared": 30, "transactions": 20, "fires": 40, "stall_ms": self.stall_ms},
        )

    def expectations(self) -> list[Expectation]:
        return [
            Expectation(
                "withstood",
                f"honest validators never wait longer than {self.stall_ms:,} ms for a final block, and hold the same",
                self._judge_withstood,
            ),
            Expectation(
                "proven",
                "whoever gave others a proof of its guilt is proven guilty, and nobody else is",
                self._judge_proven,
            ),
            straight_replay(),
        ]

    def _judge_withstood(self, books: Books) -> Judgement:
        lied = [validator.name for validator in books.record.validators if any(_bites(validator.status).values())]
        if len(lied) < self.liars:
            return Outcome.INCONCLUSIVE, f"{len(lied)} of {self.liars} were seen to break the protocol"
        stall = longest_stall(books.record)
        if stall is None:
            return Outcome.INCONCLUSIVE, "too little became final to tell"
        for height in range(1, books.common_height + 1):
            held = {books.seals[each.name].at(height) for each in books.judged}
            if len(held) > 1:
                return Outcome.FAIL, f"honest validators hold {len(held)} blocks at height {height}"
        text = f"{books.common_height} common heights; longest wait {stall.length_ms:,.0f} ms; {', '.join(lied)} lied"
        return (Outcome.PASS if stall.length_ms <= self.stall_ms else Outcome.FAIL), text

    @staticmethod
    def _judge_proven(books: Books) -> Judgement:
        record = books.record
        names = record.scenario.validators.names
        liars = {validator.index for validator in record.validators if validator.byzantine}
        shown = [proof for proof in proofs(record) if proof.holds]
        innocent = [proof for proof in shown if proof.culprit not in liars]
        if innocent:
            culprit = innocent[0].culprit
            whom = names[culprit] if culprit is not None and culprit < len(names) else "nobody"
            return Outcome.FAIL, f"{innocent[0].finder} proves {innocent[0].kind} of {whom}, which is honest"
        guilty = {proof.culprit for proof in shown}
        owing = [v for v in record.validators if v.byzantine and _owed(v.status)]
        free = [validator.name for validator in owing if validator.index not in guilty]
        if free:
            return Outcome.FAIL, f"nobody proves anything of {', '.join(free)}"
        proven = ", ".join(sorted(names[index] for index in guilty if index is not None)) or "nobody"
        return Outcome.PASS, f"{len(owing)} owed a proof; proven guilty: {proven}, by {len(shown):,} proofs"


def _page(status: dict[str, Any] | None) -> dict[str, Any]:
    page = (status or {}).get("byzantine")
    return page if isinstance(page, dict) else {}


def _bites(status: dict[str, Any] | None) -> dict[str, int]:
    bites = _page(status).get("bites")
    return bites if isinstance(bites, dict) else {}


def _owed(status: dict[str, Any] | None) -> int:
    owed = _page(status).get("evidence_owed")
    return owed if isinstance(owed, int) else 0
