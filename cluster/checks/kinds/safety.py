"""Checks of byzantine validators, of the evidence against them, and of the rules watched during the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from cluster.checks.kind import CheckKind, Judged, Subject, byzantine_count
from cluster.checks.verdict import Result, examples, of_parts
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.record.rules import Due, PromiseRule, SafetyRule
from cluster.record.run import RunRecord, ValidatorRecord

VIEWS_UNTIL_EVIDENCE: Final = 3
"""The number of views with expected evidence from which on a missing proof is a failure.

Fewer views may have been the last ones of the run, too late for a proof.
"""


class Byzantine(CheckKind):
    """Every byzantine behaviour of the scenario took effect."""

    name = "byzantine"
    SUBJECT = Subject.VALIDATORS

    def idle(self) -> str:
        return "" if byzantine_count(self.record.scenario) else "the scenario has none"

    def judge(self) -> Result:
        results = [_check_behaviours(validator) for validator in self.record.validators if validator.byzantine]
        return of_parts(results, byzantine_count(self.record.scenario), "were never asked")


def _check_behaviours(validator: ValidatorRecord) -> Result:
    counts = validator.effects
    if counts is None:
        return Outcome.INCONCLUSIVE, f"{validator.name} does not say what it did"
    idle = [name for name in validator.byzantine if not counts.get(name)]
    if idle:
        return Outcome.INCONCLUSIVE, f"{', '.join(idle)} of {validator.name} had no observable effect"
    words = [f"{name} took effect {counted(counts[name], 'time')}" for name in validator.byzantine]
    return Outcome.PASS, f"{validator.name}: {', '.join(words)}"


class Evidence(CheckKind):
    """Evidence of honest validators proves byzantine ones guilty and no others, and expected evidence was found."""

    name = "evidence"
    SUBJECT = Subject.VALIDATORS

    def judge(self) -> Result:
        record, books = self.record, self.books
        shown = books.proofs
        byzantine = {validator.index for validator in record.validators if validator.byzantine}
        false = [f"{proof.finder} shows {proof.kind}, which does not hold" for proof in shown if proof.holds is False]
        false += [
            f"{proof.finder} proves {proof.kind} of {_name(record, proof.culprit)} in view {proof.view},"
            f" which {_is_what(record, proof.culprit)}"
            for proof in shown
            if proof.holds and proof.culprit not in byzantine
        ]
        if false:
            return Outcome.FAIL, examples(false)
        unjudged = [
            f"{proof.finder} shows {proof.kind} on a block that no validator served"
            for proof in shown
            if proof.holds is None
        ]
        if unjudged:
            return Outcome.INCONCLUSIVE, examples(unjudged)
        proven = Counter(proof.culprit for proof in shown)
        missing = [
            (
                expected if _is_heard(record, validator) else 0,
                f"evidence against {validator.name} is expected for {counted(expected, 'view')}, and none was found",
            )
            for validator in record.validators
            if validator.byzantine and (expected := validator.expected_evidence) and not proven[validator.index]
        ]
        if missing:
            failed = not record.interrupted and any(expected >= VIEWS_UNTIL_EVIDENCE for expected, _ in missing)
            texts = [text for _, text in missing]
            return Outcome.FAIL if failed else Outcome.INCONCLUSIVE, examples(texts)
        if byzantine_count(record.scenario) and not any(validator.status for validator in books.judged):
            return Outcome.INCONCLUSIVE, "no honest validator was asked for what it found"
        if not shown:
            return Outcome.PASS, "no evidence was found, and none was expected"
        blamed = [f"{_name(record, culprit)} ({count})" for culprit, count in sorted(proven.items(), key=str)]
        verbs = "holds and blames" if len(shown) == 1 else "hold and blame"
        detail = (
            f"{counted(len(shown), 'proof')} of honest validators {verbs} byzantine ones alone: {', '.join(blamed)}"
        )
        return Outcome.PASS, detail


class Watched(CheckKind):
    """A check of rules that are watched while the run goes on; the record has how often, and what was seen."""

    SUBJECT = Subject.INSIDE

    def __init__(self, run: Judged) -> None:
        super().__init__(run)
        seen = self.record.promises if self.name == "promises" else self.record.monitor
        self.counts, self.violations = ({}, []) if seen is None else (seen.counts, seen.violations)
        self.times = {f"{self.name}: {rule}": count for rule, count in self.counts.items()}
        self.rules = tuple(self.times)

    @property
    def count_words(self) -> str:
        return ", ".join(f"{rule} {count:,}" for rule, count in self.counts.items())


class Safety(Watched):
    """Certificates, votes, final blocks and proofs are right: at every moment of a simulated run
    (:mod:`cluster.watches.safety_monitor`), as far as hosts report them during a live run
    (:mod:`cluster.watches.live.safety_watch`), and in what validators serve at the end of any run
    (:mod:`cluster.audit.proofs`).
    """

    name = "safety"
    RULES = tuple(f"safety: {rule}" for rule in SafetyRule)

    def idle(self) -> str:
        return "no validator was asked for proofs" if self.record.monitor is None else ""

    def needed(self) -> Mapping[str, int]:
        times = {Due.SELDOM: 0, Due.ONCE: 1, Due.EACH_HEIGHT: self.record.scenario.success.heights_compared}
        needed = {f"safety: {rule}": times[rule.due] for rule in SafetyRule}
        needed[f"safety: {SafetyRule.ABSTENTION}"] = sum(join.ended_ms is not None for join in self.record.joins)
        if len(self.books.judged) == 1:  # it has no peer to agree with
            needed[f"safety: {SafetyRule.AGREEMENT}"] = 0
        return needed

    def judge(self) -> Result:
        if self.violations:
            return Outcome.FAIL, examples(self.violations)
        needed = self.needed()
        never = [rule for rule, count in self.counts.items() if not count and needed.get(f"safety: {rule}", 1)]
        if never:
            return Outcome.INCONCLUSIVE, f"never evaluated: {', '.join(never)}"
        return Outcome.PASS, self.count_words


class Promises(Watched):
    """Validators passed on the transactions that they took from clients, and kept each until it was final or could no
    longer run (:mod:`cluster.watches.promise_watch`)."""

    name = "promises"
    RULES = tuple(f"promises: {rule}" for rule in PromiseRule)

    def idle(self) -> str:
        if self.record.promises is None:
            return "answers to clients are watched in the simulator, and not live"
        return "" if self.violations or self.record.load.transactions_sent else "no client sent anything"

    def needed(self) -> Mapping[str, int]:
        asked = min(1, self.record.scenario.success.transactions) if self.record.load.transactions_sent else 0
        return {f"promises: {rule}": asked if rule.is_of_each else 0 for rule in PromiseRule}

    def judge(self) -> Result:
        promises = self.record.promises
        assert promises is not None, "there is something to judge"
        if self.violations:
            return Outcome.FAIL, examples(self.violations)
        taken = counted(promises.taken, "transaction")
        detail = f"{taken} taken, of which {promises.final:,} became final; {self.count_words}"
        return Outcome.PASS if promises.final else Outcome.INCONCLUSIVE, detail


def _is_heard(record: RunRecord, validator: ValidatorRecord) -> bool:
    """Whether a byzantine validator's messages surely reached the others early enough to become evidence.

    That is so if no fault of the links cut it off, and no limited uplink delayed its votes behind large blocks.
    """
    has_uplink = any(scenario.links.uplink_kbps is not None for scenario in (*record.former, record.scenario))
    cuts = (fault for fault in record.faults if fault.begun_ms is not None and fault.facts.drops_messages)
    return not has_uplink and not any(validator.name in fault.impaired for fault in cuts)


def _is_what(record: RunRecord, index: int | None) -> str:
    section = record.scenario.validators
    node = section.node(index) if index is not None and 0 <= index < section.count else None
    if node is not None and node.executor is not None:
        return f"has the executor {node.executor!r}"
    if node is not None and node.external is not None:
        return f"is external, at {node.external.address}"
    return "is honest" if node is None or node.mutant is None else f"runs the planted bug {node.mutant}"


def _name(record: RunRecord, index: int | None) -> str:
    names = record.scenario.validators.names
    return names[index] if index is not None and index < len(names) else f"validator {index}"
