"""The search itself: candidates at random first, then generations of the fittest (a (μ + λ) evolution).

Candidates are numbered. Number *n* is drawn from a random source of its own, seeded by the search's seed and *n*, and
depends on nothing but the results of the generations before its own. So the same seed and results give the same
candidates, in whatever order the processes answer; and a search goes on from the results that its folder holds.

The first :data:`RANDOM` candidates are one generation. Of each further one a share is drawn at random again, so that
the search leaves a local optimum; the others are changed or mixed from two parents, each the fitter of two that are
drawn from the :data:`PARENTS` fittest so far. Of equals the one with fewer stated genes is the fitter, then the older.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Final

from cluster.tools.load.dos.search.objectives import Fitness
from cluster.tools.load.dos.search.space import Attack, Space

RANDOM: Final = 32
"""Candidates of the first generation."""
GENERATION: Final = 16
"""Candidates of each further one."""
PARENTS: Final = 10
IMMIGRANTS: Final = 0.15
"""The share of candidates that are drawn at random."""
MIXED: Final = 0.3
"""The share of the others that have two parents."""
REDRAWS: Final = 20
"""Attempts at a candidate that was not there before."""


class Evolution:
    """The candidates of one search."""

    def __init__(self, space: Space, seed: int) -> None:
        self.attacks: dict[int, Attack] = {}
        """All candidates so far, by number."""
        self.results: dict[int, Fitness] = {}
        self._space = space
        self._seed = seed
        self._seen: set[str] = set()

    def generation(self) -> dict[int, Attack]:
        """The next candidates; all those before must have results."""
        first = len(self.attacks)
        assert len(self.results) == first, "a generation depends on all before it"
        parents = [self.attacks[number] for number in self.ranking()[:PARENTS]]
        numbers = range(first, first + (GENERATION if first else RANDOM))
        self.attacks |= {number: self._candidate(number, parents) for number in numbers}
        return {number: self.attacks[number] for number in numbers}

    def note(self, results: Mapping[int, Fitness]) -> None:
        """The results of candidates."""
        self.results |= results

    def ranking(self) -> list[int]:
        """The numbers of the candidates with results, the fittest first."""

        def order(number: int) -> tuple[Fitness, int, int]:
            return self.results[number], -size_of(self.attacks[number]), -number

        return sorted(self.results, key=order, reverse=True)

    def _candidate(self, number: int, parents: list[Attack]) -> Attack:
        random = Random(f"{self._seed}/candidate/{number}")
        for _ in range(REDRAWS):
            attack = self._draw(random, parents)
            key = json.dumps(attack, sort_keys=True)
            if key not in self._seen:
                break
        self._seen.add(key)
        return attack

    def _draw(self, random: Random, parents: list[Attack]) -> Attack:
        if not parents or random.random() < IMMIGRANTS:
            return self._space.draw(random)

        def parent() -> Attack:
            return parents[min(random.randrange(len(parents)), random.randrange(len(parents)))]

        if random.random() < MIXED:
            return self._space.mix(parent(), parent(), random)
        return self._space.change(parent(), random)


def size_of(attack: Attack) -> int:
    """The number of stated genes, and of parts."""
    return len(attack) + sum(len(part) for part in attack)
