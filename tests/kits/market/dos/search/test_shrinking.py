"""Shrinking an attack: what it does not need goes, what it needs stays. What attacks do is made up here."""

from __future__ import annotations

from typing import Any

from kits.market.dos.search.confirming import AttackShrinker
from kits.market.dos.search.evaluation import Found, Problem
from kits.market.dos.search.objectives import Fitness
from kits.market.dos.search.space import Attack
from tests.kits.market.dos.search.planted import WEAKNESSES
from tests.kits.market.dos.search.test_objectives import PLAIN

NEEDED = {"timers": 40, "tip_milli": 7}
LARGE: Attack = [{"burn": 9, "jobs": 2}, {"count": 32, "grind": 4, **NEEDED, "transfers": 3}, {"respawn": 1}]


class Landscape(Problem):
    """An attack harms if a part has what is needed, and at least five users."""

    def evaluate(self, attack: Attack, *_: Any, **__: Any) -> Found:
        harms = any(part.items() >= NEEDED.items() and int(part.get("count", 1)) >= 5 for part in attack)
        return Found(Fitness(1.0, 10.0 if harms else 1.0, 0.0), PLAIN)


def test_only_what_is_needed_stays() -> None:
    sound = WEAKNESSES["ground-ties"].problem(is_planted=True)
    problem = Landscape(sound.scenario_json, sound.objective_name, sound.budget, sound.seed, sound.blocks)
    shrinking = AttackShrinker(problem, LARGE, problem.evaluate(LARGE), 200, 0.9, lambda: None)
    assert shrinking.search() == [{"count": 8, **NEEDED}]
    assert not shrinking.is_used_up and shrinking.runs < 60
    assert shrinking.failure.fitness.figure == 10.0
