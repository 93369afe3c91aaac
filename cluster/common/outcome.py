"""The outcome of a check or a run: one of three values."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final


class Outcome(StrEnum):
    """The outcome of a check or a run."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


SIGNS: Final = {Outcome.PASS: "✓", Outcome.FAIL: "✕", Outcome.INCONCLUSIVE: "?"}
"""The sign of each outcome, so that no reader depends on colours."""


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The worst of the outcomes: fail before inconclusive before pass."""
    found = set(outcomes)
    return next((one for one in (Outcome.FAIL, Outcome.INCONCLUSIVE) if one in found), Outcome.PASS)
