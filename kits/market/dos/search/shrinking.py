"""Shrinking of an attack: the search for the fewest stated genes and users with nearly the same effect.

Groups are removed, then single genes, so that their defaults apply; then the numbers of users are halved. All runs are
on the trial chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.common.shrinking import Shrinker, ddmin
from kits.market.dos.search.evaluation import Found, Problem
from kits.market.dos.search.space import Attack, Part, Value

Stated = tuple[int, str, Value]
"""A stated gene: the index of its part, its name, its value."""


class AttackShrinker(Shrinker[Attack, Found]):
    """Shrinks one attack, with at most ``runs`` runs. A signal raises :class:`KeyboardInterrupt`."""

    def __init__(
        self, problem: Problem, attack: Attack, whole: Found, runs: int, share: float, checkpoint: Callable[[], None]
    ) -> None:
        """``whole`` is the attack's effect. ``share`` is the share of its figure that a smaller attack must reach."""

        def similar(smaller: Attack) -> Found | None:
            checkpoint()
            found = problem.evaluate(smaller)
            return found if problem.objective.keeps(found.fitness, whole.fitness, share) else None

        super().__init__(attack, whole, similar, runs)

    def search(self) -> Attack:
        """Shrink the attack; returns the smallest attack found."""
        return self.shrink(self._parts, self._genes, self._halve_counts)

    def _parts(self) -> None:
        ddmin(self.best, lambda parts: bool(parts) and self.holds(parts))

    def _genes(self) -> None:
        ddmin([(at, name, value) for at, part in enumerate(self.best) for name, value in part.items()], self._has_only)

    def _has_only(self, stated: Sequence[Stated]) -> bool:
        parts: Attack = [{} for _ in self.best]
        for place, name, value in stated:
            parts[place][name] = value
        return self.holds(parts)

    def _halve_counts(self) -> None:
        for place in range(len(self.best)):
            while (count := int(self.best[place].get("count", 1))) > 1:
                part: Part = {**self.best[place], "count": count // 2}
                if count // 2 == 1:
                    del part["count"]
                if not self.holds([*self.best[:place], part, *self.best[place + 1 :]]):
                    break
