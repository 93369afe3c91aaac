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
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from kits.market.dos.search.log import Line
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


def candidates(space: Space, seed: int, lines: Sequence[Line]) -> dict[int, Attack]:
    """The candidates of the current generation that have no result yet, keyed by number.

    ``lines`` are the results so far, in the order of their numbers and without a gap. If they end a generation, the
    candidates are those of the next one.
    """
    begun = len(lines) - RANDOM
    first = 0 if begun < 0 else RANDOM + begun // GENERATION * GENERATION
    parents = [line.attack for line in ranking(lines[:first])[:PARENTS]]
    seen = {_key(line.attack) for line in lines[:first]}
    drawn = {}
    for number in range(first, first + (GENERATION if first else RANDOM)):
        drawn[number] = _candidate(space, Random(f"{seed}/candidate/{number}"), parents, seen)
        seen.add(_key(drawn[number]))
    return {number: attack for number, attack in drawn.items() if number >= len(lines)}


def ranking(lines: Iterable[Line]) -> list[Line]:
    """Candidates with results, the fittest first."""

    def order(line: Line) -> tuple[Fitness, int, int]:
        return line.fitness, -size_of(line.attack), -line.number

    return sorted(lines, key=order, reverse=True)


def _candidate(space: Space, random: Random, parents: Sequence[Attack], seen: set[str]) -> Attack:
    for _ in range(REDRAWS):
        attack = _draw(space, random, parents)
        if _key(attack) not in seen:
            break
    return attack


def _draw(space: Space, random: Random, parents: Sequence[Attack]) -> Attack:
    if not parents or random.random() < IMMIGRANTS:
        return space.draw(random)

    def parent() -> Attack:
        return parents[min(random.randrange(len(parents)), random.randrange(len(parents)))]

    if random.random() < MIXED:
        return space.mix(parent(), parent(), random)
    return space.change(parent(), random)


def _key(attack: Attack) -> str:
    return json.dumps(attack, sort_keys=True)


def size_of(attack: Attack) -> int:
    """The size of an attack: the number of its stated genes plus the number of its parts."""
    return len(attack) + sum(len(part) for part in attack)
