"""Confirmation of the best attacks of a search in the full simulator.

The simulator has consensus, links, four mempools, and users that see the chain late. The trial chain has none of these,
so its results may not hold in the simulator. Each of the best candidates is shrunk on the trial chain, then simulated
with several seeds. Each run is compared with the run of the same seed without the attack. An attack is *confirmed* if
it does at least :data:`CONFIRMED_SHARE` of its harm with every seed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from cluster.commands.sweeps.fanout import run_each
from cluster.common.interrupts import Interrupts
from cluster.scenario import Scenario
from kits.market.dos.measures import ExecutedBlock, RunMeasures, measure_run
from kits.market.dos.search.evaluation import Found, Problem
from kits.market.dos.search.log import Line
from kits.market.dos.search.shrinking import AttackShrinker
from kits.market.dos.search.space import Attack
from validator.chain.block import BlockReceipts
from validator.primitives.codec import decode

CONFIRM_SEEDS: Final = 3
"""Number of seeds with which an attack is simulated: the seed of the search, and the seeds after it."""
CONFIRMED_SHARE: Final = 0.5
"""An attack is confirmed if it does at least this share of its harm on the trial chain in the simulator, too."""
SHRINK_RUNS: Final = 80
KEPT_SHARE: Final = 0.9
"""Share of an attack's figure that the shrunk attack must keep."""


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


def confirmed(problem: Problem, line: Line, checkpoint: Callable[[], None] = lambda: None) -> Confirmed:
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


def simulated_attack(problem: Problem, attack: Attack, checkpoint: Callable[[], None] = lambda: None) -> Found:
    """The effect of an attack in the simulator, with the problem's seed."""
    return problem.compare(_measure(problem, problem.attacked(attack), checkpoint), _baseline(problem, checkpoint))


_baselines: dict[Problem, RunMeasures] = {}
"""Measures of the simulated runs without attack, cached in this process."""


def _baseline(problem: Problem, checkpoint: Callable[[], None]) -> RunMeasures:
    if problem not in _baselines:
        _baselines[problem] = _measure(problem, problem.honest, checkpoint)
    return _baselines[problem]


def _measure(problem: Problem, scenario: Scenario, checkpoint: Callable[[], None]) -> RunMeasures:
    # Imported here since it loads the simulator.
    from cluster.watches.watched_simulation import simulate

    record = simulate(fast(scenario), problem.seed, checkpoint=checkpoint, shortcuts=True)
    if record.interrupted:
        raise KeyboardInterrupt
    chain = max((validator.blocks for validator in record.validators), key=len)
    blocks = [ExecutedBlock(decode(block.receipts, BlockReceipts)) for block in chain[: problem.blocks]]
    return measure_run(blocks, scenario.load, problem.seed, problem.window)


def fast(scenario: Scenario) -> Scenario:
    """The scenario with cheaper signatures of votes. Nothing that is measured depends on these signatures."""
    section = scenario.consensus.model_copy(update={"signatures": "keyed-hash"})
    return scenario.model_copy(update={"consensus": section})
