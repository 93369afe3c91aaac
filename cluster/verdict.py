"""What checks come to: three values, one of each check, one of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cluster.divergence.words import Page
from cluster.errors import ExitCode


class Outcome(StrEnum):
    """What a check, or a run, came to."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Check:
    """One check's verdict and the numbers behind it, in one line."""

    name: str
    verdict: Outcome
    detail: str
    evaluated: Mapping[str, int] = field(default_factory=dict)
    """How often the check evaluated its own rules, by their names, where it counts that."""


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
    """Where the executions of validators that diverged part from the right one (:mod:`cluster.divergence.bisect`)."""

    @property
    def exit_code(self) -> ExitCode:
        return {
            Outcome.PASS: ExitCode.PASS,
            Outcome.FAIL: ExitCode.FAIL,
            Outcome.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
        }[self.outcome]

    def check(self, name: str) -> Check:
        """The check of that name. Raises :class:`KeyError`."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Fail before inconclusive before pass."""
    found = set(outcomes)
    return next((one for one in (Outcome.FAIL, Outcome.INCONCLUSIVE) if one in found), Outcome.PASS)
