"""The search itself: random candidates first, then generations from the fittest (a (μ + λ) evolution).

Candidates are numbered. Number *n* has a separate random source, seeded by the search's seed and *n*, and depends only
on the results of earlier generations. So the same seed and results give the same candidates, in whatever order the
processes answer, and a search can continue from the results in its folder.

The first :data:`RANDOM` candidates are one generation. A share of each further generation is drawn at random again, so
that the search leaves a local optimum. The others are changed from one parent or mixed from two; a parent is the fitter
of two that are drawn from the :data:`PARENTS` fittest so far. Among equals the candidate with fewer stated genes is the
fitter, then the older one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Final

from kits.market.dos.search.objectives import Fitness
from kits.market.dos.search.space import Attack, Space

RANDOM: Final = 32
"""Number of candidates in the first generation."""
GENERATION: Final = 16
"""Number of candidates in each further generation."""
PARENTS: Final = 10
IMMIGRANTS: Final = 0.15
"""The share of each generation after the first that is drawn at random."""
MIXED: Final = 0.3
"""The share of candidates with two parents, among those that are not drawn at random."""
REDRAWS: Final = 20
"""Maximum number of attempts to draw a candidate that differs from all earlier ones."""


class Evolution:
    """The evolution of one search: it draws the generations of candidates and ranks the candidates."""

    def __init__(self, space: Space, seed: int) -> None:
        self.attacks: dict[int, Attack] = {}
        """All candidates so far, keyed by number."""
        self.results: dict[int, Fitness] = {}
        self._space = space
        self._seed = seed
        self._seen: set[str] = set()

    def generation(self) -> dict[int, Attack]:
        """Draw the next generation of candidates, keyed by number. All earlier candidates must have results."""
        first = len(self.attacks)
        assert len(self.results) == first, "a generation depends on all before it"
        parents = [self.attacks[number] for number in self.ranking()[:PARENTS]]
        numbers = range(first, first + (GENERATION if first else RANDOM))
        self.attacks |= {number: self._candidate(number, parents) for number in numbers}
        return {number: self.attacks[number] for number in numbers}

    def note(self, results: Mapping[int, Fitness]) -> None:
        """Record the fitness of candidates, keyed by number."""
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
    """The size of an attack: the number of its stated genes plus the number of its parts."""
    return len(attack) + sum(len(part) for part in attack)
