"""The search: candidates, generation by generation, until time or their number runs out (a (μ + λ) evolution).

Candidates are numbered. Number *n* has a separate random source, seeded by the search's seed and *n*, and depends only
on the results of earlier generations. So the same seed and results give the same candidates, in whatever order the
processes answer, and a search can continue from the results in its folder.

The first :data:`RANDOM` candidates are one generation. A share of each further generation is drawn at random again, so
that the search leaves a local optimum. The others are changed from one parent or mixed from two; a parent is the fitter
of two that are drawn from the :data:`PARENTS` fittest so far. Among equals the candidate with fewer stated genes is the
fitter, then the older one.

``candidates.jsonl`` in the folder has the search, then one line per candidate in their order. A line that a crash left
incomplete is cut off, and its candidate runs again. A candidate's line is held back until all with lower numbers are
written, so that equal searches give equal bytes. The file contains no measured times.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from blake3 import blake3

from cluster.commands.sweeps.fanout import run_each
from cluster.commands.sweeps.log import LineLog
from cluster.common.errors import BadInput
from cluster.common.interrupts import Interrupts
from kits.market.dos.search.evaluation import Problem
from kits.market.dos.search.objectives import NOTHING, Fitness
from kits.market.dos.search.space import Attack, Space

LOG_FILE: Final = "candidates.jsonl"
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
HASH_DIGITS: Final = 12
"""Hex digits of a scenario's hash in a log."""
Candidate = tuple[int, Attack]
"""A candidate's number and its attack."""


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the search log: a candidate and the result of its evaluation."""

    number: int
    fitness: Fitness
    figure: float | None
    """The attack's figure (:mod:`kits.market.dos.search.objectives`); ``None`` if it has none."""
    spend: float
    """Spend of the attackers, in the smallest CBY unit."""
    attack: list[dict[str, int | str]]
    problem: str = ""
    """Why the candidate could not be evaluated, in one line; empty if it was evaluated."""


class SearchLog(LineLog[Line]):
    """The evaluated candidates of a search, on disk."""

    def __init__(self, folder: Path, search: dict[str, Any]) -> None:
        """Open or create the log in a folder. ``search`` identifies the search; only that search may continue the log.

        Raises :class:`BadInput` if the log belongs to another search or cannot be read.
        """
        self._waiting: dict[int, Line] = {}
        super().__init__(folder / LOG_FILE, Line, "search", search)

    def add(self, line: Line) -> None:
        """Add a candidate's result. It is written once the results of all candidates with lower numbers are written."""
        self._waiting[line.number] = line
        while (ready := self._waiting.pop(len(self.entries), None)) is not None:
            super().add(ready)

    def _take(self, line: Line) -> None:
        place = len(self.entries)
        if line.number != place:
            raise BadInput(f"{self._path}: line {place + 2}: has candidate {line.number}, expected {place}")
        super()._take(line)


# --- candidates -------------------------------------------------------------------------------------------------------


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


# --- the loop ---------------------------------------------------------------------------------------------------------


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


def evaluated(problem: Problem, candidate: Candidate) -> Line:
    """Evaluate a candidate, in a worker; returns its line.

    If the run ends in an error, the candidate counts as harmless; the line says why.
    """
    number, attack = candidate
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
