"""Bugs in the harness itself: checks that are blind, and a fault that counts as having had an effect.

Nothing outside checks the harness, so a *known answer* catches such a bug: a run whose verdict is certain, because it
has a planted bug, a fault that cannot take effect, or neither. A sound harness gives that answer, and a mutated one
gives another; otherwise the kill table shows a survivor. Only ``stampede mutants`` plants these, never a scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from inspect import getattr_static
from typing import Any

from cluster.audit.books import Books
from cluster.audit.figures import TimerFigures
from cluster.audit.ledger import Ledger
from cluster.audit.safety.certified_chain import CertifiedChain
from cluster.audit.specified.judge import SpecifiedChain
from cluster.checks import run as checks
from cluster.checks.agreement import check_state_roots
from cluster.checks.safety import check_evidence
from cluster.checks.verdict import Check, Verdict
from cluster.common.outcome import Outcome
from cluster.faults.link_faults import LinkEffect
from cluster.misbehaviour.mutants.base import Area, Detection, RunCounter
from cluster.misbehaviour.mutants.registry import MUTANTS
from cluster.record.run import RunRecord
from cluster.watches.safety_monitor import broken

Plant = Callable[[RunCounter], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """A run, and the verdict that a sound harness gives for one of its checks."""

    detection: Detection
    check: str
    verdict: Outcome
    mutant: str | None = None
    """Name of the bug planted in the validators of the run; ``None`` for no bug."""
    rule: str = ""
    """The rule of the check ``safety`` that :attr:`verdict` is about; empty if it is about the whole check."""

    @property
    def words(self) -> str:
        of = "a sound chain" if self.mutant is None else self.mutant
        what = f"{self.check}: {self.rule}" if self.rule else self.check
        return f"known answer: {what} {self.verdict} on {of}"

    def given(self, record: RunRecord, verdict: Verdict) -> Outcome:
        """The verdict that the harness gave in a run for :attr:`check` or :attr:`rule`."""
        if not self.rule:
            return verdict.check(self.check).verdict
        assert record.monitor is not None, "mutants run in the simulator"
        return Outcome.FAIL if broken(record.monitor, self.rule) else Outcome.PASS


def _failing_on(mutant: str) -> KnownAnswer:
    """The known answer that a planted bug in the validators is caught, in the run that must catch it."""
    bug = MUTANTS[mutant]
    return KnownAnswer(bug.detection, bug.caught_by, Outcome.FAIL, mutant, bug.rule)


@dataclass(frozen=True, slots=True)
class HarnessMutant:
    """A planted bug in the harness."""

    name: str
    description: str
    answer: KnownAnswer
    plant: Plant
    """Returns a context manager: the bug is planted while the context is open. The counter counts how often the mutated
    line runs."""

    @property
    def area(self) -> Area:
        return Area.HARNESS

    @property
    def detection(self) -> Detection:
        return self.answer.detection


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    original = getattr_static(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _blind_check(original: Callable[[Books], Check]) -> Plant:
    """A plant that replaces a check of the harness by one that always passes."""
    name = original.__name__.removeprefix("check_")

    def plant(counter: RunCounter) -> AbstractContextManager[None]:
        def blind(_books: Books) -> Check:
            counter.ran()
            return Check(name, Outcome.PASS, "nothing was compared")

        sighted = checks.CHECKS
        return _replaced(checks, "CHECKS", tuple(blind if check is original else check for check in sighted))

    return plant


def _always_answers(owner: Any, name: str, answer: Any) -> Plant:
    """A plant that replaces the attribute ``name`` of ``owner`` by a function that always returns ``answer``."""

    def plant(counter: RunCounter) -> AbstractContextManager[None]:
        def blind(*_: object) -> Any:
            counter.ran()
            return answer

        return _replaced(owner, name, blind)

    return plant


def _computes(owner: type, name: str, value: Callable[[Any], Any]) -> Plant:
    """A plant that replaces what a method or a property of ``owner`` gives by another value."""

    def plant(counter: RunCounter) -> AbstractContextManager[None]:
        right = getattr(owner, name)
        is_property = isinstance(right, property)
        compute = right.fget if is_property else right

        def wrong(*arguments: Any) -> Any:
            counter.ran()
            return value(compute(*arguments))

        return _replaced(owner, name, property(wrong) if is_property else wrong)

    return plant


HARNESS_MUTANTS: dict[str, HarnessMutant] = {
    mutant.name: mutant
    for mutant in (
        HarnessMutant(
            "compares-no-roots",
            "the check of state roots compares nothing, and passes",
            _failing_on("wrong-balance"),
            _blind_check(check_state_roots),
        ),
        HarnessMutant(
            "reads-no-evidence",
            "the check of evidence reads no proof, and passes",
            _failing_on("finalizes-after-nullify"),
            _blind_check(check_evidence),
        ),
        HarnessMutant(
            "monitor-without-certificates",
            "the monitor takes every certificate for signed",
            _failing_on("quorum-of-2f"),
            _always_answers(CertifiedChain, "_is_signed", True),
        ),
        HarnessMutant(
            "monitor-without-ancestry",
            "the monitor looks at no final block's ancestry",
            _failing_on("skips-without-nullification"),
            _always_answers(CertifiedChain, "_ancestry_problems", ()),
        ),
        HarnessMutant(
            "judge-without-receipts",
            "the judge compares no receipts with those of the specification",
            _failing_on("passes-over-the-second"),
            _always_answers(SpecifiedChain, "_of_receipts", iter(())),
        ),
        HarnessMutant(
            "books-without-fires",
            "the books count no fire as executed",
            KnownAnswer(Detection("calm", ()), "coverage", Outcome.PASS),
            _computes(TimerFigures, "fires", lambda fires: 0),
        ),
        HarnessMutant(
            "books-burn-twice",
            "the books count what is burned twice",
            KnownAnswer(Detection("calm", ()), "conservation", Outcome.PASS),
            _computes(Ledger, "burned", lambda burned: 2 * burned),
        ),
        HarnessMutant(
            "effect-without-observation",
            "a fault that takes no validator down counts as having taken effect, whatever was observed",
            KnownAnswer(Detection("idle-fault", ()), "faults", Outcome.INCONCLUSIVE),
            _computes(LinkEffect, "seen", lambda seen: seen._replace(took_effect=True)),
        ),
    )
}
"""The mutants of the harness, keyed by name."""
