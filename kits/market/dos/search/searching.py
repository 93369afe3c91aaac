"""The loop of a search: generations until time or candidates run out. Each result is written as soon as it is known."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from blake3 import blake3

from cluster.commands.sweeps.fanout import run_each
from cluster.common.interrupts import Interrupts
from kits.market.dos.search.evaluation import Problem
from kits.market.dos.search.evolution import RANDOM, candidates, ranking
from kits.market.dos.search.log import Line, SearchLog
from kits.market.dos.search.objectives import NOTHING
from kits.market.dos.search.space import Attack

HASH_DIGITS: Final = 12
"""Hex digits of a scenario's hash in a log."""
Candidate = tuple[int, Attack]
"""A candidate's number and its attack."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a search, which ends at the first one reached. ``None`` is no limit."""

    seconds: float | None = None
    candidates: int | None = None
    """Number of candidates, including those of earlier runs of the same search."""


@dataclass(slots=True)
class Searched:
    """The state and results of a search, as far as it got."""

    log: SearchLog
    seconds: float = 0.0
    """Duration of this run of the search."""
    evaluated: int = 0
    """Number of candidates evaluated in this run."""
    interrupted: bool = False

    @property
    def best(self) -> list[Line]:
        """The evaluated candidates, the fittest first."""
        return ranking(self.log.entries)

    @property
    def best_of_random(self) -> Line | None:
        """The fittest of the first generation, which is drawn at random."""
        return next(iter(ranking(self.log.entries[:RANDOM])), None)


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


_problems: dict[Problem, Problem] = {}
"""Cache of this process. It maps each problem to the first equal object, which has the cached baseline."""


def evaluated(problem: Problem, candidate: Candidate) -> Line:
    """Evaluate a candidate, in a worker; returns its line.

    If the run ends in an error, the candidate counts as harmless; the line says why.
    """
    problem, (number, attack) = _problems.setdefault(problem, problem), candidate
    try:
        found = problem.evaluate(attack)
    except Exception as error:  # noqa: BLE001 (a crash is a finding)
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return Line(number, NOTHING, None, 0.0, attack, text)
    return Line(
        number, found.fitness, problem.objective.figure(found.effect), found.effect.metrics["spend"] or 0, attack
    )


def _died(candidate: Candidate, reason: str) -> Line:
    """The line of a candidate whose workers died."""
    return Line(candidate[0], NOTHING, None, 0.0, candidate[1], reason)


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
        searched, best = Searched(log), max((line.fitness for line in log.entries), default=None)

        def generation() -> list[Candidate]:
            """The candidates that follow those in the log, up to the end of a generation or of the search."""
            left = candidates(problem.space, problem.seed, log.entries).items()
            return [each for each in left if limits.candidates is None or each[0] < limits.candidates]

        def is_over() -> bool:
            is_late = limits.seconds is not None and time.monotonic() - began >= limits.seconds
            return is_late or (limits.candidates is not None and len(log.entries) >= limits.candidates)

        try:
            groups, work = iter(generation, []), partial(evaluated, problem)
            first = [] if is_over() else next(groups, [])
            with closing(run_each(work, first, processes, "candidate", further=groups, on_death=_died)) as ended:
                for _, line in ended if first else ():
                    is_best = best is None or line.fitness > best
                    best = line.fitness if is_best else best
                    log.add(line)
                    searched.evaluated += 1
                    show(line, is_best)
                    if is_over():
                        break
                    interrupts.checkpoint()
        except KeyboardInterrupt:
            searched.interrupted = True
        searched.seconds = time.monotonic() - began
        return searched
