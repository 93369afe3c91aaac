"""The verdict of a run: one outcome per check, and one for the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cluster.audit.reexecution.describe import Page
from cluster.common.errors import ExitCode
from cluster.common.outcome import Outcome, worst
from cluster.common.suggestions import instead

EXAMPLES_SHOWN: Final = 3
"""The most findings that a check's detail quotes. Further ones are only counted."""

Result = tuple[Outcome, str]
"""The outcome of a part of a check, and its figures."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check's outcome and its figures, in one line."""

    name: str
    verdict: Outcome
    detail: str
    applies: bool = True
    """Whether there was anything to judge. A check that does not apply passes, and is shown as such."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How often an invariant was evaluated in a run, and how often it must be for a pass to be meaningful."""

    rule: str
    times: int
    needed: int

    @property
    def is_enough(self) -> bool:
        return self.times >= self.needed


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a run, check by check."""

    outcome: Outcome
    checks: tuple[Check, ...]
    evaluations: tuple[Evaluation, ...] = ()
    divergences: tuple[Page, ...] = ()
    """For each validator that diverged, the step in which its execution differs from the right one
    (:mod:`cluster.audit.reexecution.bisect`)."""
    warnings: tuple[str, ...] = ()
    """What a reader of a pass has to know (:mod:`cluster.checks.run`)."""

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode[self.outcome.name]

    def check(self, name: str) -> Check:
        """The check of that name. Raises :class:`KeyError`, whose text suggests a name or lists all."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(f"no check is named {name!r}; {instead(name, [check.name for check in self.checks])}")

    @property
    def decisive(self) -> Check | None:
        """The first check with the run's outcome; ``None`` if the run passed."""
        if self.outcome is Outcome.PASS:
            return None
        return next((check for check in self.checks if check.verdict is self.outcome), None)

    @property
    def reason(self) -> str:
        """The decisive check and its detail, in one line; empty if the run passed."""
        return "" if self.decisive is None else f"{self.decisive.name}: {self.decisive.detail}"

    def __str__(self) -> str:
        return f"{self.outcome}: {self.reason}" if self.reason else str(self.outcome)

    def __repr__(self) -> str:
        """The text of :meth:`__str__` in angle brackets, because the full fields fill pages."""
        return f"<{type(self).__name__} {self}>"


def examples(texts: Sequence[str]) -> str:
    """The first :data:`EXAMPLES_SHOWN` texts, and how many more there are."""
    shown = "; ".join(texts[:EXAMPLES_SHOWN])
    return shown if len(texts) <= EXAMPLES_SHOWN else f"{shown}; and {len(texts) - EXAMPLES_SHOWN:,} more"


def of_parts(results: Sequence[Result], expected: int = 0, missing: str = "") -> Result:
    """Combine a check's parts: the worst outcome, with the details of the parts that have it.

    Fewer than ``expected`` parts count as an inconclusive part, in which ``missing`` describes the others.
    """
    if len(results) < expected:
        absent = f"{expected - len(results)} of {expected} {missing}"
        results = [*results, (Outcome.INCONCLUSIVE, absent)]
    outcome = worst(result for result, _ in results)
    return outcome, examples([text for result, text in results if result is outcome])
