"""Verdicts that depend on how much was compared or on the machine's lag, and shared wording."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cluster.audit.books import Books, Finding
from cluster.checks.metrics.recovery import active_committees_during
from cluster.checks.verdict import Check
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.record.lag import explains_delay
from cluster.record.run import RunRecord

NOTHING: Final[Mapping[str, int]] = {}
ROOT_DIGITS: Final = 16


def unless_vacuous(books: Books, name: str, detail: str, evaluated: Mapping[str, int] = NOTHING) -> Check:
    """The verdict of a check that found nothing wrong: a pass, or inconclusive if too little was compared."""
    record = books.record
    section, least = record.scenario.validators, record.scenario.success.heights_compared
    expected = section.count - byzantine_count(record)
    if len(books.seen) < expected:
        what = f"only {len(books.seen)} of {expected} validators served a block"
        return Check(name, Outcome.INCONCLUSIVE, f"{what}; {detail}" if books.seen else what, evaluated)
    if books.common_height < least:
        what = f"only {counted(books.common_height, 'height')} common to all validators, {least} needed; {detail}"
        return Check(name, Outcome.INCONCLUSIVE, what, evaluated)
    return Check(name, Outcome.PASS, detail, evaluated)


def unless_too_slow(name: str, outcome: Outcome, what: str, excuse: str) -> Check:
    """The verdict of a check with a finding: ``outcome``, or inconclusive if an excuse is given.

    The excuse says how the machine's lag explains the finding.
    """
    return Check(name, Outcome.INCONCLUSIVE, f"{what}; {excuse}") if excuse else Check(name, outcome, what)


def excuse_for(books: Books, begin_ms: float, end_ms: float, limit_ms: float) -> str:
    """Explains in words how the machine's lag caused a delay; empty if the lag does not explain it.

    The delay lasted from ``begin_ms`` to ``end_ms``, where ``limit_ms`` was allowed.
    """
    return explains_delay(books.record, active_committees_during(books, begin_ms, end_ms), begin_ms, end_ms, limit_ms)


def finding_texts(books: Books, check: str) -> list[str]:
    count = len(books.judged)
    return [
        f"{_whose(finding, count)} at height {finding.violation.height}: {finding.violation.what}"
        for finding in books.findings
        if finding.violation.check == check
    ]


def _whose(finding: Finding, count: int) -> str:
    names = "all validators" if 1 < count == len(finding.validators) else ", ".join(finding.validators)
    return f"{names} (its own execution)" if finding.evidence else names


def compared_text(books: Books) -> str:
    late = [f"{v.name} from height {v.first_height:,} on" for v in books.seen if v.first_height > 1]
    byzantine = [v.name for v in books.record.validators if v.byzantine]
    notes = [*late, f"not of {', '.join(byzantine)}, byzantine"] if byzantine else late
    who = counted(len(books.seen), "honest validator" if byzantine else "validator")
    heights = min((books.chains[validator.name].tip for validator in books.seen), default=0)
    return f"{counted(heights, 'height')} of {who}" + (f" ({', '.join(notes)})" if notes else "")


def byzantine_count(record: RunRecord) -> int:
    return sum(bool(node.byzantine) for node in record.scenario.validators.nodes)


def highest(books: Books) -> int:
    return max((books.chains[validator.name].tip for validator in books.judged), default=0)


def short_root(text: str) -> str:
    return f"{text[:ROOT_DIGITS]}…" if text else "none"


def two_roots(what: str, right: str, computed: str) -> str:
    """Two state roots in words, with enough digits to tell them apart; ``what`` the first one is.

    They may be equal: then something else of the block differs, such as its receipts.
    """
    if right == computed and right:
        return f"{what} {short_root(right)}, computed the same; the difference is elsewhere in the header"
    shorter = min(len(right), len(computed))
    same = next((i for i in range(shorter) if right[i] != computed[i]), shorter)
    digits = max(ROOT_DIGITS, same + 4)
    texts = [f"{text[:digits]}{'…' * (digits < len(text))}" if text else "none" for text in (right, computed)]
    return f"{what} {texts[0]}, computed {texts[1]}"
