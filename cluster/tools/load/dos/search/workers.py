"""Evaluation of candidates: in parallel over Ray, like the seeds of a sweep, or one after the other in this process."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from cluster.common.interrupts import Interrupts
from cluster.tools.load.dos.search.evaluation import Problem
from cluster.tools.load.dos.search.log import Line
from cluster.tools.load.dos.search.objectives import NOTHING
from cluster.tools.load.dos.search.space import Attack
from cluster.tools.sweeps.fanout import FanOut


@dataclass(frozen=True, slots=True)
class Evaluate:
    """A worker's task: evaluate a candidate of a generation, given its number."""

    problem: Problem
    attacks: Mapping[int, Attack]

    def __call__(self, number: int, leaves: Path) -> Line:
        return evaluated(self.problem, number, self.attacks[number])


_problems: dict[Problem, Problem] = {}
"""Cache of this process. It maps each problem to the first equal object, which has the cached baseline."""


def evaluated(problem: Problem, number: int, attack: Attack) -> Line:
    """Evaluate a candidate; returns its line. If the run ends in an error, it counts as harmless; the line says why."""
    problem = _problems.setdefault(problem, problem)
    try:
        found = problem.evaluate(attack)
    except Exception as error:  # noqa: BLE001 (a crash is a finding)
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return Line(number, NOTHING, None, 0.0, attack, text)
    return Line(number, found.fitness, problem.objective.figure(found.measures), found.measures.spend, attack)


class Workers:
    """Evaluates generations of candidates, one after the other, in one or several processes."""

    def __init__(self, problem: Problem, processes: int, interrupts: Interrupts, folder: Path) -> None:
        """If ``processes`` is 1, the candidates run in this process, without Ray."""
        self._problem = problem
        self._processes = processes
        self._interrupts = interrupts
        self._folder = folder

    def lines(self, generation: Callable[[], Mapping[int, Attack]]) -> Generator[Line, None, None]:
        """Evaluate generations until ``generation`` returns an empty one; yields the line of each candidate.

        A signal raises :class:`KeyboardInterrupt`.
        """
        return self._here(generation) if self._processes == 1 else self._over_ray(generation)

    def _here(self, generation: Callable[[], Mapping[int, Attack]]) -> Generator[Line, None, None]:
        while attacks := generation():
            for number, attack in attacks.items():
                self._interrupts.checkpoint()
                yield evaluated(self._problem, number, attack)

    def _over_ray(self, generation: Callable[[], Mapping[int, Attack]]) -> Generator[Line, None, None]:
        known: dict[int, Attack] = {}

        def rounds() -> Generator[tuple[Evaluate, list[int]], None, None]:
            while attacks := dict(generation()):
                known.update(attacks)
                yield Evaluate(self._problem, attacks), list(attacks)

        def died(number: int, reason: str) -> Line:
            return Line(number, NOTHING, None, 0.0, known[number], reason)

        further = rounds()
        run, numbers = next(further)
        fan_out = FanOut(
            run,
            numbers,
            self._interrupts,
            self._folder,
            self._processes,
            what="candidate",
            on_death=died,
            rounds=further,
        )
        with closing(fan_out.results()) as ended:
            for each in ended:
                yield each.result
