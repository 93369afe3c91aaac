"""What checks come to: three values, one of each check, one of the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run came to, check by check."""

    outcome: Outcome
    checks: tuple[Check, ...]
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
