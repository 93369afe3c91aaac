"""``divergence``: one validator has a planted bug; it is found, and told apart to the step and the state key.

The checks of every run must fail where they see the bug, which is what they are for: here that counts as met. They
must see nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, NamedTuple

from cluster.books import Books
from cluster.drills.base import TIMEOUT_S, Drill, Expectation, Judgement, names_of, option
from cluster.evidence import proofs
from cluster.record import Backend, ValidatorRecord
from cluster.scenario import Scenario
from cluster.verdict import Check, Outcome
from consensus.types import fault_bound
from validator.records import ACCOUNT, GLOBALS
from validator.trace import StepKind


class KnownAnswer(NamedTuple):
    """Where a planted bug must be found."""

    step: StepKind
    prefix: bytes
    """Of a state key among those that differ in that step."""


BUGS: Final[dict[str, KnownAnswer]] = {
    "wrong-balance": KnownAnswer(StepKind.TRANSACTION, ACCOUNT),
    "double-fire": KnownAnswer(StepKind.FIRE, ACCOUNT),
    "tips-to-the-actor": KnownAnswer(StepKind.FIRE, ACCOUNT),
    "burn-not-counted": KnownAnswer(StepKind.PRICES, GLOBALS),
    "p50-not-wired": KnownAnswer(StepKind.PRICES, GLOBALS),
}
"""The bugs that can be planted, and the known answers."""

SEES_THE_BUG: Final = "state_roots"
"""The check that must fail."""
MAY_SEE_IT: Final = ("timers", "conservation", "evidence")
"""Checks that audit what the diverged validator executed and proposed; where they fail by that alone, it is met too."""


@dataclass(frozen=True)
class Divergence(Drill):
    name: ClassVar[str] = "divergence"
    summary: ClassVar[str] = "one validator runs a planted bug: it must be found, and bisected to step and state key"

    protocol: str = option("simplex", "the consensus protocol", choices=("simplex", "hotstuff"))
    validators: int = option(4, "how many there are", least=4, most=64)
    culprit: int = option(1, "which one has the bug, counted from 0", least=0, most=63)
    bug: str = option("double-fire", "what is planted", choices=tuple(BUGS))

    def problem(self, backend: Backend) -> str | None:
        if self.culprit >= self.validators:
            return f"--culprit: there is no validator {self.culprit}, the last is {self.validators - 1}"
        return super().problem(backend)

    @property
    def culprit_name(self) -> str:
        return names_of(self.validators)[self.culprit]

    def scenario(self) -> Scenario:
        assert fault_bound(self.validators), "one more or less, the others are a quorum"
        nodes: list[dict[str, Any]] = [{} for _ in names_of(self.validators)]
        nodes[self.culprit] = {"mutant": self.bug}
        return self.build(
            validators={"count": self.validators, "nodes": nodes},
            consensus={"protocol": self.protocol},
            stop={"height": 20, "drain_blocks": 3, "timeout_s": TIMEOUT_S},
            success={"heights_compared": 1, "transactions": 5, "fires": 5, "stall_ms": 20_000},
        )

    def expectations(self) -> list[Expectation]:
        answer = BUGS[self.bug]
        return [
            Expectation(
                "found", f"{self.culprit_name} diverges, it is seen to, and nobody else does", self._judge_found
            ),
            Expectation(
                "bisected",
                f"its execution is told apart from the right one in a step of kind {answer.step.value!r}, by height,"
                " subject and state keys with both values",
                self._judge_bisected,
            ),
            Expectation("others", "the other validators agree and go on to the end", self._judge_others),
        ]

    def judge(self, books: Books, checks: tuple[Check, ...]) -> tuple[Check, ...]:
        return super().judge(books, tuple(self._as_drilled(books, check) for check in checks))

    def _as_drilled(self, books: Books, check: Check) -> Check:
        """A check of every run, seen as this drill sees it."""
        if check.name == SEES_THE_BUG:
            if check.verdict is Outcome.FAIL and not self._others_diverged(books):
                return replace(check, verdict=Outcome.PASS, detail=f"fails, as it must here: {check.detail}")
            if check.verdict is Outcome.PASS:
                return replace(check, verdict=Outcome.FAIL, detail=f"saw nothing of the planted bug: {check.detail}")
        if check.name in MAY_SEE_IT and check.verdict is Outcome.FAIL and self._is_about_the_culprit(books, check.name):
            return replace(check, verdict=Outcome.PASS, detail=f"fails for the planted bug alone: {check.detail}")
        return check

    def _is_about_the_culprit(self, books: Books, check: str) -> bool:
        """Whether all that a check complains of is what the culprit executed or proposed."""
        if check == "evidence":
            shown = [proof for proof in proofs(books.record) if proof.finder != self.culprit_name]
            return all(proof.holds and proof.culprit == self.culprit for proof in shown)
        findings = [finding for finding in books.findings if finding.violation.check == check]
        return bool(findings) and all(
            finding.evidence and finding.validators == (self.culprit_name,) for finding in findings
        )

    def _others_diverged(self, books: Books) -> list[str]:
        return [told.validator for told in books.divergences if told.validator != self.culprit_name]

    # --- judges -----------------------------------------------------------------------------------------------------

    def _judge_found(self, books: Books) -> Judgement:
        if others := self._others_diverged(books):
            return Outcome.FAIL, f"{', '.join(others)} diverged, and nothing was planted there"
        planted = next((each for each in books.record.validators if each.index == self.culprit), None)
        if planted is None or not planted.mutant_runs:
            return Outcome.INCONCLUSIVE, f"the planted line never ran at {self.culprit_name}"
        told = next((told for told in books.divergences if told.validator == self.culprit_name), None)
        if told is None:
            ran = f"the planted line ran {planted.mutant_runs:,} times"
            return Outcome.FAIL, f"{ran}, and {self.culprit_name} was not seen to diverge"
        return Outcome.PASS, f"{self.culprit_name} diverged at height {told.height}: {told.reason}"

    def _judge_bisected(self, books: Books) -> Judgement:
        page = next((page for page in books.bisections if page["validator"] == self.culprit_name), None)
        if page is None:
            return Outcome.INCONCLUSIVE, f"{self.culprit_name} did not diverge"
        answer, step = BUGS[self.bug], page["step"]
        if step is None:
            return Outcome.FAIL, f"no step was found: {page['note']}"
        keys = [key for key in page["keys"] if key["key"].startswith(answer.prefix.hex())]
        where = f"height {page['height']}, {step['words']}"
        if step["kind"] != answer.step.value or not keys:
            words = ", ".join(key["words"] for key in page["keys"]) or "none"
            return Outcome.FAIL, f"{where}, keys {words}: the planted bug is not there"
        field = keys[0]["fields"][0]
        values = f"{field['name']} {field['theirs']}, right {field['right']}"
        return Outcome.PASS, f"{where}: {keys[0]['words']}: {values}"

    def _judge_others(self, books: Books) -> Judgement:
        others: list[ValidatorRecord] = [each for each in books.judged if each.index != self.culprit]
        target = books.record.scenario.stop.height
        behind = [each.name for each in others if each.tip < target]
        if behind:
            return Outcome.FAIL, f"{', '.join(behind)} did not reach height {target}"
        lowest = min(each.tip for each in others)
        for height in range(1, lowest + 1):
            if len({books.seals[each.name].at(height) for each in others}) > 1:
                return Outcome.FAIL, f"they differ at height {height}"
        return Outcome.PASS, f"{len(others)} validators agree on {lowest} heights"
