"""Bugs in the harness itself: checks that are blind, and a fault that counts as having had an effect.

Nothing outside checks the harness, so a *known answer* catches such a bug: a run whose verdict is certain, because it
has a planted bug, a fault that cannot take effect, or neither. A sound harness gives that answer, and a mutated one
gives another; otherwise the kill table shows a survivor. Only ``stampede mutants`` plants these, never a scenario.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

from cluster.audit.figures import TimerFigures
from cluster.audit.ledger import Ledger
from cluster.audit.safety.certified_chain import CertifiedChain
from cluster.audit.specified.judge import SpecifiedChain
from cluster.checks.kinds.agreement import StateRoots
from cluster.checks.kinds.safety import Evidence
from cluster.checks.verdict import Result
from cluster.common.outcome import Outcome
from cluster.faults.link_effects import LinkEffect
from cluster.misbehaviour.planted import Planted, RunCounter
from kits.mutation import planting
from kits.mutation.bugs.registry import OF_VALIDATORS
from kits.mutation.bugs.table import Area, Detection

Plant = Callable[[RunCounter], AbstractContextManager[None]]
"""A patch of the harness: a context manager. The bug is planted while the context is open. The counter counts how often
the mutated line runs."""
BLIND: Final[Result] = (Outcome.PASS, "nothing was compared")
"""What a check says that does not look."""


def _failing_on(mutant: str) -> Detection:
    """The known answer that a planted bug in the validators is caught, in the run that must catch it."""
    return replace(OF_VALIDATORS[mutant].must_fail, mutant=mutant, right=Outcome.FAIL)


def _sound(scenario: str, check: str, right: Outcome) -> Detection:
    """The known answer of a check in a run without a planted bug."""
    return Detection(scenario, (), check=check, right=right)


def _always_answers(owner: Any, name: str, answer: Any) -> Plant:
    """A plant that replaces the attribute ``name`` of ``owner`` by a function that always returns ``answer``."""

    def plant(counter: RunCounter) -> AbstractContextManager[None]:
        def blind(*_: object) -> Any:
            counter.ran()
            return answer

        return planting.replaced(owner, name, blind)

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

        return planting.replaced(owner, name, property(wrong) if is_property else wrong)

    return plant


OF_THE_HARNESS: dict[str, Planted] = {
    name: Planted(name, patch, must_fail, words, Area.HARNESS)
    for name, words, must_fail, patch in (
        (
            "compares-no-roots",
            "the check of state roots compares nothing, and passes",
            _failing_on("wrong-balance"),
            _always_answers(StateRoots, "judge", BLIND),
        ),
        (
            "reads-no-evidence",
            "the check of evidence reads no proof, and passes",
            _failing_on("finalizes-after-nullify"),
            _always_answers(Evidence, "judge", BLIND),
        ),
        (
            "monitor-without-certificates",
            "the monitor takes every certificate for signed",
            _failing_on("quorum-of-2f"),
            _always_answers(CertifiedChain, "_is_signed", True),
        ),
        (
            "monitor-without-ancestry",
            "the monitor looks at no final block's ancestry",
            _failing_on("skips-without-nullification"),
            _always_answers(CertifiedChain, "_ancestry_problems", ()),
        ),
        (
            "judge-without-receipts",
            "the judge compares no receipts with those of the specification",
            _failing_on("passes-over-the-second"),
            _always_answers(SpecifiedChain, "_of_receipts", iter(())),
        ),
        (
            "books-without-fires",
            "the books count no fire as executed",
            _sound("calm", "coverage", Outcome.PASS),
            _computes(TimerFigures, "fires", lambda fires: 0),
        ),
        (
            "books-burn-twice",
            "the books count what is burned twice",
            _sound("calm", "conservation", Outcome.PASS),
            _computes(Ledger, "burned", lambda burned: 2 * burned),
        ),
        (
            "effect-without-observation",
            "a fault that takes no validator down counts as having taken effect, whatever was observed",
            _sound("idle-fault", "faults", Outcome.INCONCLUSIVE),
            _computes(LinkEffect, "seen", lambda seen: seen._replace(took_effect=True)),
        ),
    )
}
"""The bugs of the harness, keyed by name."""
