"""``divergence``: one validator has a planted bug, which must be found and bisected to step and state key.

A check of every run that fails only because of the bug counts as passed here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from blake3 import blake3

from cluster.audit.books import Books
from cluster.checks.verdict import Check
from cluster.commands.drills.base import TIMEOUT_S, Drill, Expectation, Judgement, names_of, option
from cluster.commands.drills.expectations import heights_apart, unmet
from cluster.common.outcome import Outcome
from cluster.record.run import Backend, ValidatorRecord
from cluster.scenario import Scenario
from consensus.keys import Ed25519Scheme
from consensus.types import fault_bound
from validator.chain.records import ACCOUNT, GLOBALS
from validator.transition.trace import StepKind


class KnownAnswer(NamedTuple):
    """The place at which a planted bug must be found."""

    step: StepKind
    prefix: bytes
    """Prefix of a state key that differs in that step."""


@dataclass(frozen=True, slots=True)
class Culprit:
    """A validator with a planted bug."""

    index: int
    name: str
    bug: str
    is_executor: bool = False
    """Whether the validator's foreign executor has the bug."""


BUGS: Final[dict[str, KnownAnswer]] = {
    "wrong-balance": KnownAnswer(StepKind.TRANSACTION, ACCOUNT),
    "double-fire": KnownAnswer(StepKind.FIRE, ACCOUNT),
    "tips-to-the-actor": KnownAnswer(StepKind.FIRE, ACCOUNT),
    "burn-not-counted": KnownAnswer(StepKind.PRICES, GLOBALS),
    "p50-not-wired": KnownAnswer(StepKind.PRICES, GLOBALS),
}
"""The bugs of this drill, and their known answers."""

SECRET: Final = blake3(b"", derive_key_context="stampede drill external validator v1").digest()
"""The Ed25519 secret of the external validator."""
PUBLIC_KEY: Final = bytes(Ed25519Scheme().signer(SECRET).public_key).hex()
ADDRESS: Final = "127.0.0.1:26700"
"""Its address for peers; it serves HTTP at the next port."""
EXECUTOR_WITH: Final = "stampede executor --mutant"
"""The command of a foreign executor with a planted bug, without the bug's name."""

SEES_THE_BUG: Final = "state_roots"
"""Name of the check of every run that must fail because of the bug."""
MAY_SEE_IT: Final = ("chain", "timers", "conservation", "evidence")
"""Names of further checks that may fail because of the bug. Such a check counts as passed if all that it finds is about
the diverged validator."""


@dataclass(frozen=True)
class Divergence(Drill):
    name: ClassVar[str] = "divergence"
    summary: ClassVar[str] = "one validator runs a planted bug, which must be found and bisected to step and state key"

    protocol: str = option("simplex", "the consensus protocol", choices=("simplex", "hotstuff"))
    validators: int = option(4, "number of validators", least=4, most=64)
    culprit: int = option(1, "index of the validator with the bug", least=0, most=63)
    bug: str = option("double-fire", "the planted bug", choices=tuple(BUGS))

    where: str = option(
        "validator",
        "whether the validator has the bug, its foreign executor, or an external node in its place",
        choices=("validator", "executor", "external"),
    )

    def problem(self, backend: Backend) -> str | None:
        if self.culprit >= self.validators:
            return f"--culprit: there is no validator {self.culprit}, the last is {self.validators - 1}"
        if backend == "sim" and self.where == "external":
            return "--where external: only the live testnet has a network that such a node can reach (--backend live)"
        return super().problem(backend)

    def alongside(self, scenario: Scenario, folder: Path) -> AbstractContextManager[None]:
        from cluster.commands.drills.peer_process import peer_alongside

        own = {index for index, node in scenario.validators.external.items() if node.public_key == PUBLIC_KEY}
        return peer_alongside(scenario, folder, SECRET, self.bug) if own else super().alongside(scenario, folder)

    def scenario(self) -> Scenario:
        assert fault_bound(self.validators), "one more or less, the others are a quorum"
        nodes: list[dict[str, Any]] = [{} for _ in names_of(self.validators)]
        with_the_bug: dict[str, dict[str, Any]] = {
            "validator": {"mutant": self.bug},
            "executor": {"executor": f"{EXECUTOR_WITH} {self.bug}"},
            "external": {"external": {"public_key": PUBLIC_KEY, "address": ADDRESS}},
        }
        nodes[self.culprit] = with_the_bug[self.where]
        return self.build(
            validators={"count": self.validators, "nodes": nodes},
            consensus={"protocol": self.protocol},
            # live, on a busy machine, a dozen seconds pass before Locust has scheduled what fires
            stop={"height": 48, "drain_blocks": 3, "timeout_s": TIMEOUT_S},
            success={"heights_compared": 1, "transactions": 5, "fires": 5, "stall_ms": 20_000},
        )

    def expectations(self, scenario: Scenario) -> list[Expectation]:
        culprits = self._culprits(scenario)
        name = culprits[0].name if culprits else "the validator with a planted bug"
        answer = BUGS.get(culprits[0].bug) if culprits else None
        where = "in the step of the bug" if answer is None else f"in a step of kind {answer.step.value!r}"
        return [
            Expectation(
                "found",
                f"{name} diverges, is reported, and no other validator diverges",
                self._of_the_culprit(self._judge_found),
            ),
            Expectation(
                "bisected",
                f"bisection finds the difference {where}, with height, subject, and state keys with both values",
                self._of_the_culprit(self._judge_bisected),
            ),
            Expectation(
                "others", "the other validators agree and reach the end", self._of_the_culprit(self._judge_others)
            ),
        ]

    def judge(self, books: Books, checks: tuple[Check, ...]) -> tuple[Check, ...]:
        culprits = self._culprits(books.record.scenario)
        if len(culprits) == 1:
            checks = tuple(_as_drilled(books, check, culprits[0]) for check in checks)
        return super().judge(books, checks)

    def _culprits(self, scenario: Scenario) -> list[Culprit]:
        """The validators with a bug. That of an external node is the drill's, since no scenario has it."""
        section = scenario.validators
        found = []
        for index, name in enumerate(section.names):
            node = section.node(index)
            command = node.executor or ""
            if node.mutant is not None:
                found.append(Culprit(index, name, node.mutant))
            elif command.startswith(EXECUTOR_WITH):
                found.append(Culprit(index, name, command.removeprefix(EXECUTOR_WITH).strip(), is_executor=True))
            elif node.external is not None and node.external.public_key == PUBLIC_KEY:
                found.append(Culprit(index, name, self.bug))
        return found

    def _of_the_culprit(self, judge: Callable[[Books, Culprit], Judgement]) -> Callable[[Books], Judgement]:
        """Make a judge of a run from a judge of the validator with the bug. The outcome is inconclusive unless exactly
        one validator has a bug."""

        def judged(books: Books) -> Judgement:
            culprits = self._culprits(books.record.scenario)
            if len(culprits) != 1:
                return Outcome.INCONCLUSIVE, f"{len(culprits)} validators have a planted bug, expected one"
            return judge(books, culprits[0])

        return judged

    # --- judges -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _judge_found(books: Books, culprit: Culprit) -> Judgement:
        if others := _others_diverged(books, culprit):
            return Outcome.FAIL, f"{', '.join(others)} diverged without a planted bug"
        runs = _runs(books, culprit)
        if not runs and not culprit.is_executor:
            return Outcome.INCONCLUSIVE, f"the planted line never ran at {culprit.name}"
        found = next((each for each in books.divergences if each.validator == culprit.name), None)
        if found is None:
            if culprit.is_executor:
                return (
                    Outcome.INCONCLUSIVE,
                    f"{culprit.name} did not diverge; how often its executor erred is not known",
                )
            return unmet(books), f"the planted line ran {runs:,} times, and {culprit.name} did not diverge"
        return Outcome.PASS, f"{culprit.name} diverged at height {found.height}: {found.reason}"

    @staticmethod
    def _judge_bisected(books: Books, culprit: Culprit) -> Judgement:
        answer = BUGS.get(culprit.bug)
        if answer is None:
            return Outcome.INCONCLUSIVE, f"the place of {culprit.bug} is not known; those of {', '.join(BUGS)} are"
        page = next((page for page in books.bisections if page["validator"] == culprit.name), None)
        if page is None:
            return Outcome.INCONCLUSIVE, f"{culprit.name} did not diverge"
        step = page["step"]
        if step is None:
            return unmet(books), f"no step was found: {page['note']}"
        keys = [key for key in page["keys"] if key["key"].startswith(answer.prefix.hex())]
        where = f"height {page['height']}, {step['words']}"
        if step["kind"] != answer.step.value or not keys:
            names = ", ".join(key["words"] for key in page["keys"]) or "none"
            return Outcome.FAIL, f"{where}, keys {names}: the planted bug is not there"
        field = keys[0]["fields"][0]
        values = f"{field['name']} {field['theirs']}, correct {field['right']}"
        return Outcome.PASS, f"{where}: {keys[0]['words']}: {values}"

    @staticmethod
    def _judge_others(books: Books, culprit: Culprit) -> Judgement:
        others: list[ValidatorRecord] = [each for each in books.judged if each.index != culprit.index]
        lowest = min((each.tip for each in others), default=0)
        if apart := heights_apart(books, others, lowest):
            return Outcome.FAIL, f"they differ at height {apart[0]}"
        if not others:
            return Outcome.INCONCLUSIVE, "no other validator served blocks"
        target = books.record.target_height
        if behind := [each.name for each in others if each.tip < target]:
            return unmet(books), f"{', '.join(behind)} did not reach height {target}"
        return Outcome.PASS, f"{len(others)} validators agree on {lowest} heights"


# --- the culprit ------------------------------------------------------------------------------------------------


def _runs(books: Books, culprit: Culprit) -> int:
    """How often the culprit executed the line with the planted bug."""
    return sum(each.mutant_runs for each in books.record.validators if each.index == culprit.index)


def _others_diverged(books: Books, culprit: Culprit) -> list[str]:
    return [each.validator for each in books.divergences if each.validator != culprit.name]


# --- the checks of every run ----------------------------------------------------------------------------------------


def _as_drilled(books: Books, check: Check, culprit: Culprit) -> Check:
    """A check of every run with its verdict in this drill: a fail that only the bug causes becomes a pass."""
    if check.name == SEES_THE_BUG:
        if check.verdict is Outcome.FAIL and not _others_diverged(books, culprit):
            return replace(check, verdict=Outcome.PASS, detail=f"fails, as expected here: {check.detail}")
        if check.verdict is Outcome.PASS:
            verdict = unmet(books) if _runs(books, culprit) else Outcome.INCONCLUSIVE
            return replace(check, verdict=verdict, detail=f"did not find the planted bug: {check.detail}")
    if check.name in MAY_SEE_IT and check.verdict is Outcome.FAIL and _is_about(books, check.name, culprit):
        return replace(check, verdict=Outcome.PASS, detail=f"fails for the planted bug alone: {check.detail}")
    return check


def _is_about(books: Books, check: str, culprit: Culprit) -> bool:
    """Whether all findings of a check are about the culprit."""
    if check == "evidence":
        shown = [proof for proof in books.proofs if proof.finder != culprit.name]
        return all(proof.holds and proof.culprit == culprit.index for proof in shown)
    if check == "chain" and not _is_whole(books):
        return False
    findings = [finding for finding in books.findings if finding.violation.check == check]
    return bool(findings) and all(finding.evidence and finding.validators == (culprit.name,) for finding in findings)


def _is_whole(books: Books) -> bool:
    """Whether every block that was served can be read, and none is missing below them."""
    are_read = all(len(books.chains[each.name]) >= len(each.blocks) for each in books.judged)
    return are_read and all(len(books.chain) >= each.first_height - 1 for each in books.seen)
