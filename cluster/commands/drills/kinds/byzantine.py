"""``byzantine``: f validators break the protocol; the others agree, make progress, and can prove the misbehaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from cluster.audit.books import Books
from cluster.checks.metrics.metrics import longest_stall
from cluster.commands.drills.base import TIMEOUT_S, Drill, Expectation, Judgement, names_of, option
from cluster.commands.drills.expectations import STRAIGHT_REPLAY, heights_apart, unmet
from cluster.common.outcome import Outcome
from cluster.misbehaviour.byzantine.registry import BEHAVIOURS
from cluster.record.run import Backend
from cluster.scenario import Scenario
from consensus.types import fault_bound

MIXED: Final = "mixed"
NO_LIARS: Final = "the scenario has no byzantine validator"
IN_TURN: Final = (
    ("equivocating-leader", "conflicting-voter"),
    ("signature-forger", "selective-sender"),
    ("invalid-block-bad-root", "garbage"),
    ("stale-replayer", "vote-withholder"),
)
"""Behaviours of the option ``mixed``, assigned to one liar after the other."""
LIVE_CHOICES: Final = tuple(sorted(BEHAVIOURS))


@dataclass(frozen=True)
class Byzantine(Drill):
    name: ClassVar[str] = "byzantine"
    summary: ClassVar[str] = "f validators break the protocol on purpose; the others make progress and can prove it"

    protocol: str = option("simplex", "the consensus protocol", choices=("simplex", "hotstuff"))
    validators: int = option(7, "number of validators", least=4, most=64)
    liars: int = option(2, "number of byzantine validators, at most f", most=21)
    behaviour: str = option(MIXED, "their behaviour", choices=(MIXED, *LIVE_CHOICES))
    stall_ms: int = option(30_000, "longest time without a final block", least=100, most=600_000)

    def problem(self, backend: Backend) -> str | None:
        bound = fault_bound(self.validators)
        if self.liars > bound:
            return f"--liars: {self.liars} of {self.validators} validators; at most {bound} are tolerated"
        only = BEHAVIOURS[self.behaviour].protocol if self.behaviour != MIXED else ""
        if only and only != self.protocol:
            return f"--behaviour: {self.behaviour} lies in messages of {only} only; see --protocol {only}"
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

    def expectations(self, scenario: Scenario) -> list[Expectation]:
        return [
            Expectation(
                "withstood",
                f"honest validators agree, and never wait longer than {scenario.success.stall_ms:,} ms for a final"
                " block",
                self._judge_withstood,
            ),
            Expectation(
                "proven",
                "every validator that left a proof of its guilt is proven guilty, and no other is",
                self._judge_proven,
            ),
            STRAIGHT_REPLAY,
        ]

    @staticmethod
    def _judge_withstood(books: Books) -> Judgement:
        record, common = books.record, books.common_height
        if apart := heights_apart(books, books.judged, common):
            return Outcome.FAIL, f"honest validators differ at {len(apart)} heights, from {apart[0]} on"
        liars, stall = _liars(record.scenario), longest_stall(record)
        lied = [validator.name for validator in record.validators if any((validator.effects or {}).values())]
        if not liars:
            return Outcome.INCONCLUSIVE, NO_LIARS
        if len(lied) < len(liars):
            return Outcome.INCONCLUSIVE, f"{len(lied)} of {len(liars)} broke the protocol with an effect"
        for members in record.scenario.validators.committees.values():
            if len(liars.intersection(members)) > (bound := fault_bound(len(members))):
                many = len(liars.intersection(members))
                return Outcome.INCONCLUSIVE, f"{many} of {len(members)} lied, and at most {bound} must be tolerated"
        if stall is None:
            return Outcome.INCONCLUSIVE, "too few blocks became final"
        limit_ms = record.scenario.success.stall_ms
        text = f"{common} common heights; longest wait {stall.length_ms:,.0f} ms; {', '.join(lied)} lied"
        return (Outcome.PASS if stall.length_ms <= limit_ms else Outcome.FAIL), text

    @staticmethod
    def _judge_proven(books: Books) -> Judgement:
        record = books.record
        names, liars = record.scenario.validators.names, _liars(record.scenario)
        shown = [proof for proof in books.proofs if proof.holds]
        innocent = [proof for proof in shown if proof.culprit not in liars]
        if innocent:
            culprit = innocent[0].culprit
            accused = names[culprit] if culprit is not None and culprit < len(names) else "no validator"
            return Outcome.FAIL, f"{innocent[0].finder} proves {innocent[0].kind} of {accused}, which is honest"
        if not liars:
            return Outcome.INCONCLUSIVE, NO_LIARS
        guilty = {proof.culprit for proof in shown}
        suspects = [v for v in record.validators if v.byzantine and v.expected_evidence]
        free = [validator.name for validator in suspects if validator.index not in guilty]
        if free:
            return unmet(books), f"no proof against {', '.join(free)}"
        proven = ", ".join(sorted(names[index] for index in guilty if index is not None)) or "none"
        expected = f"evidence was expected against {len(suspects)}"
        return Outcome.PASS, f"{expected}; proven guilty: {proven}, by {len(shown):,} proofs"


def _liars(scenario: Scenario) -> set[int]:
    """The byzantine validators, by index."""
    section = scenario.validators
    return {index for index in range(section.count) if section.node(index).byzantine}
