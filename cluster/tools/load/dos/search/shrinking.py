"""Shrinking of an attack: the search for the fewest stated genes and users with nearly the same effect.

Delta debugging (:func:`cluster.tools.rerun.reduce.ddmin`) removes groups, then single genes, so that their defaults
apply; then the numbers of users are halved. All runs are on the trial chain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from cluster.tools.load.dos.search.evaluation import Found, Problem
from cluster.tools.load.dos.search.space import Attack, Part, Value
from cluster.tools.rerun.reduce import ddmin

Stated = tuple[int, str, Value]
"""A stated gene: the index of its part, its name, its value."""


class _UsedUp(Exception):
    """Raised to end the shrinking: no more runs are allowed."""


class Shrinker:
    """Shrinks one attack, with at most ``runs`` runs."""

    def __init__(
        self, problem: Problem, attack: Attack, found: Found, runs: int, share: float, checkpoint: Callable[[], None]
    ) -> None:
        """``share`` is the share of the attack's figure that a smaller attack must reach."""
        self.attack, self.found = attack, found
        self.runs = 0
        self.is_minimal = False
        """Whether the reduction finished within its runs."""
        self._problem = problem
        self._whole = found
        self._most = runs
        self._share = share
        self._checkpoint = checkpoint
        self._known: dict[str, bool] = {}

    def shrink(self) -> Attack:
        """Shrink the attack; returns the smallest attack found. A signal raises :class:`KeyboardInterrupt`."""
        try:
            while True:
                before = self.attack
                ddmin(self.attack, lambda parts: bool(parts) and self._holds(list(parts)))
                ddmin(self._stated(), self._holds_with)
                self._halve_counts()
                if self.attack == before:
                    break
            self.is_minimal = True
        except _UsedUp:
            pass
        return self.attack

    def _stated(self) -> list[Stated]:
        return [(place, name, value) for place, part in enumerate(self.attack) for name, value in part.items()]

    def _holds_with(self, stated: Sequence[Stated]) -> bool:
        parts: Attack = [{} for _ in self.attack]
        for place, name, value in stated:
            parts[place][name] = value
        return self._holds(parts)

    def _halve_counts(self) -> None:
        for place in range(len(self.attack)):
            while (count := int(self.attack[place].get("count", 1))) > 1:
                part: Part = {**self.attack[place], "count": count // 2}
                if count // 2 == 1:
                    del part["count"]
                if not self._holds([*self.attack[:place], part, *self.attack[place + 1 :]]):
                    break

    def _holds(self, attack: Attack) -> bool:
        """Whether an attack has nearly the same effect; if so, it becomes the smallest so far."""
        key = json.dumps(attack, sort_keys=True)
        if key not in self._known:
            if self.runs >= self._most:
                raise _UsedUp
            self._checkpoint()
            self.runs += 1
            found = self._problem.evaluate(attack)
            holds = self._problem.objective.keeps(found.fitness, self._whole.fitness, self._share)
            self._known[key] = holds
            if holds:
                self.attack, self.found = attack, found
        return self._known[key]
