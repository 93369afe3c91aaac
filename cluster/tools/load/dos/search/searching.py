"""The loop of a search: generations until time or candidates run out. Each result is written as soon as it is known."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from blake3 import blake3

from cluster.common.interrupts import Interrupts
from cluster.tools.load.dos.search.evaluation import Problem
from cluster.tools.load.dos.search.evolution import RANDOM, Evolution
from cluster.tools.load.dos.search.log import Line, SearchLog
from cluster.tools.load.dos.search.space import Attack
from cluster.tools.load.dos.search.workers import Workers

HASH_DIGITS: Final = 12
"""Hex digits of a scenario's hash in a log."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a search, which ends at the first one reached. ``None`` is no limit."""

    seconds: float | None = None
    candidates: int | None = None
    """Number of candidates, including those of earlier runs of the same search."""


@dataclass(slots=True)
class Searched:
    """The state and results of a search, as far as it got."""

    evolution: Evolution
    log: SearchLog
    seconds: float
    """Duration of this run of the search."""
    evaluated: int
    """Number of candidates evaluated in this run."""
    interrupted: bool = False

    @property
    def best(self) -> list[Line]:
        """The evaluated candidates, the fittest first."""
        return [self.log.lines[number] for number in self.evolution.ranking() if number in self.log.lines]

    @property
    def best_of_random(self) -> Line | None:
        """The fittest of the first generation, which is drawn at random."""
        return next((line for line in self.best if line.number < RANDOM), None)


def identity(problem: Problem, commit: str) -> dict[str, Any]:
    """The fields by which a log identifies its search."""
    return {
        "scenario": blake3(problem.scenario_json.encode()).hexdigest()[:HASH_DIGITS],
        "objective": problem.objective_name,
        "budget": str(problem.budget),
        "seed": problem.seed,
        "blocks": problem.blocks,
        "commit": commit,
    }


def search(
    problem: Problem,
    folder: Path,
    limits: Limits,
    processes: int,
    interrupts: Interrupts,
    commit: str = "",
    show: Callable[[Line, bool], None] = lambda line, is_best: None,
) -> Searched:
    """Search until a limit or a signal. ``show`` gets each new candidate, and whether it is the fittest so far.

    Raises :class:`~cluster.common.errors.BadInput` if the folder belongs to another search or holds other files.
    """
    began = time.monotonic()
    with closing(SearchLog(folder, identity(problem, commit))) as log:
        evolution = Evolution(problem.space, problem.seed)
        searched = Searched(evolution, log, 0.0, 0)

        def generation() -> dict[int, Attack]:
            """The candidates of the next generation that are not in the log."""
            while True:
                attacks = evolution.generation()
                evolution.note({number: log.lines[number].fitness for number in attacks if number in log.lines})
                left = {number: attack for number, attack in attacks.items() if number not in log.lines}
                if limits.candidates is not None:
                    left = {number: attack for number, attack in left.items() if number < limits.candidates}
                if left or (limits.candidates is not None and len(evolution.attacks) >= limits.candidates):
                    return left

        def is_over() -> bool:
            is_late = limits.seconds is not None and time.monotonic() - began >= limits.seconds
            return is_late or (limits.candidates is not None and len(log.lines) >= limits.candidates)

        try:
            if not is_over():
                with closing(Workers(problem, processes, interrupts, folder).lines(generation)) as lines:
                    for line in lines:
                        is_best = all(line.fitness > known for known in evolution.results.values())
                        evolution.note({line.number: line.fitness})
                        log.add(line)
                        searched.evaluated += 1
                        show(line, is_best)
                        if is_over():
                            break
            else:
                while len(evolution.attacks) < len(log.lines):
                    generation()
        except KeyboardInterrupt:
            searched.interrupted = True
        searched.seconds = time.monotonic() - began
        return searched
