"""A log of evaluated rules: how often each rule was evaluated, and the violations with their times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

MAX_VIOLATIONS: Final = 100

Look = Callable[[str, bool, str], None]
"""A function that is called as ``look(rule, holds, what)`` for each evaluation of a rule, as :meth:`RuleLog.look`."""


class RuleLog:
    """Counts the evaluations of rules and keeps their violations. ``now_ms`` gives the time of a violation."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self.counts: Counter[str] = Counter()
        """How often each rule was evaluated."""
        self.violations: list[str] = []
        """The first :data:`MAX_VIOLATIONS` violations in words, each with its time."""
        self._now_ms = now_ms

    def look(self, rule: str, holds: bool, what: str) -> None:
        """Count an evaluation of a rule; if the rule does not hold, note the violation."""
        self.counts[rule] += 1
        if not holds:
            self.note(f"{rule}: {what}")

    def note(self, what: str) -> None:
        """Note a violation."""
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(self.at_this_time(what))

    def at_this_time(self, what: str) -> str:
        """A text with the time."""
        return f"{self._now_ms():,.0f} ms: {what}"
