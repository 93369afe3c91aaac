"""What checks come to: an outcome of each, and one of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster.audit.reexecution.describe import Page
from cluster.common.errors import ExitCode
from cluster.common.outcome import Outcome
from cluster.common.suggestions import instead


@dataclass(frozen=True, slots=True)
class Check:
    """One check's verdict and the numbers behind it, in one line."""

    name: str
    verdict: Outcome
    detail: str
    evaluated: Mapping[str, int] = field(default_factory=dict)
    """How often the check evaluated its own rules, by their names, where it counts that."""
    applies: bool = True
    """Whether there was anything to judge; a check that does not apply passes, and is shown as what it is."""

    @classmethod
    def without_cause(cls, name: str, why: str) -> Check:
        """One that does not apply to a run."""
        return cls(name, Outcome.PASS, why, applies=False)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How often an invariant was evaluated in a run, and how often it must be for a pass to say anything."""

    rule: str
    times: int
    needed: int

    @property
    def is_enough(self) -> bool:
        return self.times >= self.needed


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run came to, check by check."""

    outcome: Outcome
    checks: tuple[Check, ...]
    evaluations: tuple[Evaluation, ...] = ()
    divergences: tuple[Page, ...] = ()
    """Where the executions of validators that diverged part from the right one
    (:mod:`cluster.audit.reexecution.bisect`)."""

    @property
    def exit_code(self) -> ExitCode:
        return {
            Outcome.PASS: ExitCode.PASS,
            Outcome.FAIL: ExitCode.FAIL,
            Outcome.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
        }[self.outcome]

    def check(self, name: str) -> Check:
        """The check of that name. Raises :class:`KeyError`, which says what was probably meant or which there are."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(f"no check is named {name!r}; {instead(name, [check.name for check in self.checks])}")

    @property
    def decisive(self) -> Check | None:
        """The first check that made the verdict what it is, where that is no pass."""
        if self.outcome is Outcome.PASS:
            return None
        return next((check for check in self.checks if check.verdict is self.outcome), None)

    @property
    def reason(self) -> str:
        """The first check that did not pass and why, in one line; empty where all did."""
        return "" if self.decisive is None else f"{self.decisive.name}: {self.decisive.detail}"

    def __str__(self) -> str:
        return f"{self.outcome}: {self.reason}" if self.reason else str(self.outcome)

    def __repr__(self) -> str:
        """As short as :meth:`__str__`: the checks have many figures, and what diverged fills pages."""
        return f"<{type(self).__name__} {self}>"
