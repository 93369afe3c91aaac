"""Confirmation of the best attacks of a search in the full simulator.

The simulator has consensus, links, four mempools, and users that see the chain late. The trial chain has none of these,
so its results may not hold in the simulator. Each of the best candidates is shrunk on the trial chain, then simulated
with several seeds. Each run is compared with the run of the same seed without the attack. An attack is *confirmed* if
it does at least :data:`CONFIRMED_SHARE` of its harm with every seed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from cluster.commands.sweeps.fanout import run_each
from cluster.common.interrupts import Interrupts
from cluster.common.shrinking import Shrinker, ddmin
from kits.market.dos.search.evaluation import Checkpoint, Found, Problem, in_simulator, nothing
from kits.market.dos.search.searching import Line
from kits.market.dos.search.space import Attack, Part, Value

CONFIRM_SEEDS: Final = 3
"""Number of seeds with which an attack is simulated: the seed of the search, and the seeds after it."""
CONFIRMED_SHARE: Final = 0.5
"""An attack is confirmed if it does at least this share of its harm on the trial chain in the simulator, too."""
SHRINK_RUNS: Final = 80
KEPT_SHARE: Final = 0.9
"""Share of an attack's figure that the shrunk attack must keep."""
Stated = tuple[int, str, Value]
"""A stated gene: the index of its part, its name, its value."""


class Confirmed(NamedTuple):
    """The effect of a shrunk attack on the trial chain and, with each seed, in the simulator."""

    line: Line
    """The candidate as the search found it."""
    attack: Attack
    """The shrunk attack."""
    shrinking_runs: int
    tried: Found
    """Effect of the shrunk attack on the trial chain."""
    simulated: tuple[Found, ...]
    """Effects of the shrunk attack in the simulator, in the order of :func:`confirm_seeds`."""
    is_confirmed: bool

    @property
    def worst(self) -> Found:
        """The effect with the seed for which the attack does the least harm in the simulator."""
        return min(self.simulated, key=lambda found: found.fitness)


def confirm_seeds(problem: Problem) -> range:
    """The seeds with which an attack is simulated."""
    return range(problem.seed, problem.seed + CONFIRM_SEEDS)


def confirm(
    problem: Problem, lines: Sequence[Line], processes: int, interrupts: Interrupts
) -> Generator[Confirmed, None, None]:
    """Shrink and simulate candidates; yields each result as soon as it is known.

    The candidates run in this process if there is one process or one candidate, else over Ray.

    Raises :class:`KeyboardInterrupt` for a signal, :class:`~cluster.common.errors.HarnessError` for a lost worker.
    """
    if processes == 1 or len(lines) < 2:
        yield from (confirmed(problem, line, interrupts.checkpoint) for line in lines)
        return
    with closing(run_each(partial(confirmed, problem), lines, processes, "candidate")) as ended:
        yield from (found for _, found in ended)


def confirmed(problem: Problem, line: Line, checkpoint: Checkpoint = nothing) -> Confirmed:
    """Shrink a candidate, simulate the shrunk attack, and decide whether it is confirmed."""
    whole = problem.evaluate(line.attack)
    shrinker = AttackShrinker(problem, line.attack, whole, SHRINK_RUNS, KEPT_SHARE, checkpoint)
    attack = shrinker.search()
    simulated = tuple(
        simulated_attack(replace(problem, seed=seed), attack, checkpoint) for seed in confirm_seeds(problem)
    )
    least = min(problem.objective.harm(*found) for found in simulated)
    harm = problem.objective.harm(*shrinker.failure)
    is_confirmed = harm > 0 and least >= CONFIRMED_SHARE * harm
    return Confirmed(line, attack, shrinker.runs, shrinker.failure, simulated, is_confirmed)


def simulated_attack(problem: Problem, attack: Attack, checkpoint: Checkpoint = nothing) -> Found:
    """The effect of an attack in the simulator, with the problem's seed."""
    return problem.evaluate(attack, in_simulator, checkpoint)


class AttackShrinker(Shrinker[Attack, Found]):
    """Shrinks one attack, with at most ``runs`` runs on the trial chain. A signal raises :class:`KeyboardInterrupt`.

    Groups are removed, then single genes, so that their defaults apply; then the numbers of users are halved.
    """

    def __init__(
        self, problem: Problem, attack: Attack, whole: Found, runs: int, share: float, checkpoint: Checkpoint
    ) -> None:
        """``whole`` is the attack's effect. ``share`` is the share of its figure that a smaller attack must reach."""

        def similar(smaller: Attack) -> Found | None:
            checkpoint()
            found = problem.evaluate(smaller)
            return found if problem.objective.keeps(found.fitness, whole.fitness, share) else None

        super().__init__(attack, whole, similar, runs)

    def search(self) -> Attack:
        """Shrink the attack; returns the smallest attack found."""
        return self.shrink(self._parts, self._genes, self._halve_counts)

    def _parts(self) -> None:
        ddmin(self.best, lambda parts: bool(parts) and self.holds(parts))

    def _genes(self) -> None:
        ddmin([(at, name, value) for at, part in enumerate(self.best) for name, value in part.items()], self._has_only)

    def _has_only(self, stated: Sequence[Stated]) -> bool:
        parts: Attack = [{} for _ in self.best]
        for place, name, value in stated:
            parts[place][name] = value
        return self.holds(parts)

    def _halve_counts(self) -> None:
        for place in range(len(self.best)):
            while (count := int(self.best[place].get("count", 1))) > 1:
                part: Part = {**self.best[place], "count": count // 2}
                if count // 2 == 1:
                    del part["count"]
                if not self.holds([*self.best[:place], part, *self.best[place + 1 :]]):
                    break
