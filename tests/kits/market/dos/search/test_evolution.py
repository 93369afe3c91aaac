"""The candidates of a search: which ones come, whatever the order of the answers, and that fitness matters."""

from __future__ import annotations

from random import Random

import pytest

from kits.market.dos.search.evolution import GENERATION, RANDOM, Evolution, size_of
from kits.market.dos.search.objectives import Fitness
from kits.market.dos.search.space import Attack
from tests.kits.market.dos.search.test_space import SPACE


def fitness_of(attack: Attack) -> Fitness:
    """A landscape with one hill: many timers that burn much, and nothing else."""
    timers = max(int(part.get("timers", 20)) for part in attack)
    burn = max(int(part.get("burn", 5_000)) for part in attack)
    return Fitness(1.0, timers / 400 + burn / 200_000, 0.0)


def evolved(seed: int, generations: int, backwards: bool = False) -> Evolution:
    evolution = Evolution(SPACE, seed)
    for _ in range(generations):
        attacks = list(evolution.generation().items())
        for number, attack in reversed(attacks) if backwards else attacks:
            evolution.note({number: fitness_of(attack)})
    return evolution


def test_candidates_depend_on_seed_and_results_alone() -> None:
    one, other = evolved(3, 4), evolved(3, 4, backwards=True)
    assert one.attacks == other.attacks
    assert one.attacks != evolved(4, 4).attacks
    assert len(one.attacks) == RANDOM + 3 * GENERATION


def test_a_generation_depends_on_all_before_it() -> None:
    evolution = Evolution(SPACE, 1)
    evolution.generation()
    with pytest.raises(AssertionError):
        evolution.generation()


def test_it_climbs_and_chance_alone_does_not() -> None:
    """Planted: with parents that are drawn blindly the same number of candidates stays far below."""
    evolution = evolved(2, 20)
    best = evolution.ranking()[0]
    assert evolution.results[best].figure > 1.8
    assert best >= RANDOM
    blind = [fitness_of(SPACE.draw(Random(number))).figure for number in range(RANDOM)]
    assert max(blind) < evolution.results[best].figure


def test_of_equals_the_simpler_is_the_fitter() -> None:
    evolution = Evolution(SPACE, 1)
    evolution.attacks = {0: [{"count": 3, "timers": 4}], 1: [{"count": 3}], 2: [{"count": 2}]}
    evolution.note(dict.fromkeys(range(3), Fitness(1.0, 2.0, 0.0)))
    assert evolution.ranking() == [1, 2, 0]
    assert [size_of(evolution.attacks[number]) for number in evolution.ranking()] == [2, 2, 3]
