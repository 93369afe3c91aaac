"""Checks of byzantine validators, of the evidence against them, and of the rules watched during the run."""

from __future__ import annotations

from collections import Counter
from typing import Final

from cluster.audit.books import Books
from cluster.checks.coverage import needed_of_monitor
from cluster.checks.excuses import byzantine_count
from cluster.checks.verdict import Check, Result, examples
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.record.run import RunRecord, ValidatorRecord

VIEWS_UNTIL_EVIDENCE: Final = 3
"""The number of views with expected evidence from which on a missing proof is a failure.

Fewer views may have been the last ones of the run, too late for a proof.
"""


def check_byzantine(books: Books) -> Check:
    """Every byzantine behaviour of the scenario took effect."""
    record = books.record
    expected = byzantine_count(record)
    results = [_check_behaviours(validator) for validator in record.validators if validator.byzantine]
    if not expected:
        return Check.without_cause("byzantine", "the scenario has none")
    return Check.of_parts("byzantine", results, expected, "were never asked")


def _check_behaviours(validator: ValidatorRecord) -> Result:
    counts = validator.effects
    if counts is None:
        return Outcome.INCONCLUSIVE, f"{validator.name} does not say what it did"
    idle = [name for name in validator.byzantine if not counts.get(name)]
    if idle:
        return Outcome.INCONCLUSIVE, f"{', '.join(idle)} of {validator.name} had no observable effect"
    words = [f"{name} took effect {counted(counts[name], 'time')}" for name in validator.byzantine]
    return Outcome.PASS, f"{validator.name}: {', '.join(words)}"


def check_evidence(books: Books) -> Check:
    """Evidence of honest validators proves byzantine ones guilty and no others, and expected evidence was found."""
    record = books.record
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
        return Check("evidence", Outcome.FAIL, examples(false))
    unjudged = [
        f"{proof.finder} shows {proof.kind} on a block that no validator served"
        for proof in shown
        if proof.holds is None
    ]
    if unjudged:
        return Check("evidence", Outcome.INCONCLUSIVE, examples(unjudged))
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
        return Check("evidence", Outcome.FAIL if failed else Outcome.INCONCLUSIVE, examples(texts))
    if byzantine_count(record) and not any(validator.status for validator in books.judged):
        return Check("evidence", Outcome.INCONCLUSIVE, "no honest validator was asked for what it found")
    if not shown:
        return Check("evidence", Outcome.PASS, "no evidence was found, and none was expected")
    blamed = [f"{_name(record, culprit)} ({count})" for culprit, count in sorted(proven.items(), key=str)]
    verbs = "holds and blames" if len(shown) == 1 else "hold and blame"
    detail = f"{counted(len(shown), 'proof')} of honest validators {verbs} byzantine ones alone: {', '.join(blamed)}"
    return Check("evidence", Outcome.PASS, detail)


def check_safety(books: Books) -> Check:
    """Certificates, votes, final blocks and proofs are right: at every moment of a simulated run
    (:mod:`cluster.watches.safety_monitor`), as far as hosts report them during a live run
    (:mod:`cluster.live.audit.safety_watch`), and in what validators serve at the end of any run
    (:mod:`cluster.audit.served.proofs`).
    """
    monitor = books.record.monitor
    if monitor is None:
        return Check.without_cause("safety", "no validator was asked for proofs")
    if monitor.violations:
        return Check("safety", Outcome.FAIL, examples(monitor.violations))
    never = [rule for rule, count in monitor.counts.items() if not count and needed_of_monitor(books, rule)]
    if never:
        return Check("safety", Outcome.INCONCLUSIVE, f"never evaluated: {', '.join(never)}")
    counts = ", ".join(f"{rule} {count:,}" for rule, count in monitor.counts.items())
    return Check("safety", Outcome.PASS, counts)


def check_promises(books: Books) -> Check:
    """Validators passed on the transactions that they took from clients, and kept each until it was final or could no
    longer run (:mod:`cluster.watches.promise_watch`)."""
    promises, load = books.record.promises, books.record.load
    if promises is None:
        return Check.without_cause("promises", "answers to clients are watched in the simulator, and not live")
    if promises.violations:
        return Check("promises", Outcome.FAIL, examples(promises.violations))
    if not load.transactions_sent:
        return Check.without_cause("promises", "no client sent anything")
    looks = ", ".join(f"{rule} {count:,}" for rule, count in promises.counts.items())
    detail = f"{counted(promises.taken, 'transaction')} taken, of which {promises.final:,} became final; {looks}"
    return Check("promises", Outcome.PASS if promises.final else Outcome.INCONCLUSIVE, detail)


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
