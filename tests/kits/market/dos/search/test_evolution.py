"""The candidates of a search: which ones come, whatever the order of the answers, and that fitness matters."""

from __future__ import annotations

from random import Random

from kits.market.dos.search.objectives import Fitness
from kits.market.dos.search.searching import GENERATION, RANDOM, Line, candidates, ranking, size_of
from kits.market.dos.search.space import Attack
from tests.kits.market.dos.search.test_space import SPACE


def fitness_of(attack: Attack) -> Fitness:
    """A landscape with one hill: many timers that burn much, and nothing else."""
    timers = max(int(part.get("timers", 20)) for part in attack)
    burn = max(int(part.get("burn", 5_000)) for part in attack)
    return Fitness(1.0, timers / 400 + burn / 200_000, 0.0)


def evolved(seed: int, candidates_wanted: int, at_a_time: int = GENERATION) -> list[Line]:
    """The results of a search that is continued whenever ``at_a_time`` more candidates have theirs."""
    lines: list[Line] = []
    while len(lines) < candidates_wanted:
        for number, attack in list(candidates(SPACE, seed, lines).items())[:at_a_time]:
            lines.append(line(number, attack, fitness_of(attack)))
    return lines


def line(number: int, attack: Attack, fitness: Fitness) -> Line:
    return Line(number, fitness, fitness.figure, 0.0, attack)


def test_candidates_depend_on_seed_and_results_alone() -> None:
    found = evolved(3, RANDOM + 3 * GENERATION)
    assert found == evolved(3, RANDOM + 3 * GENERATION, at_a_time=5)
    assert found != evolved(4, RANDOM + 3 * GENERATION)
    assert [each.number for each in found] == list(range(len(found)))
    assert len({str(each.attack) for each in found}) == len(found)


def test_it_climbs_and_chance_alone_does_not() -> None:
    """Planted: with parents that are drawn blindly the same number of candidates stays far below."""
    best = ranking(evolved(2, RANDOM + 19 * GENERATION))[0]
    assert best.fitness.figure > 1.8
    assert best.number >= RANDOM
    blind = [fitness_of(SPACE.draw(Random(number))).figure for number in range(RANDOM)]
    assert max(blind) < best.fitness.figure


def test_of_equals_the_simpler_is_the_fitter() -> None:
    attacks: list[Attack] = [[{"count": 3, "timers": 4}], [{"count": 3}], [{"count": 2}]]
    ranked = ranking(line(number, attack, Fitness(1.0, 2.0, 0.0)) for number, attack in enumerate(attacks))
    assert [each.number for each in ranked] == [1, 2, 0]
    assert [size_of(each.attack) for each in ranked] == [2, 2, 3]
