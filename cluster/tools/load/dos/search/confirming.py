"""The best attacks in the full simulator: consensus, links, four mempools, and users that see the chain late.

The trial chain has none of these, so its results may not hold here. Each of the best candidates is shrunk on the trial
chain, then simulated with several seeds; each run is compared with the run of the same seed without the attack. An
attack is *confirmed* if it does at least :data:`CONFIRMED_SHARE` of its harm with every seed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from cluster.common.interrupts import Interrupts
from cluster.scenario import Scenario
from cluster.tools.load.dos.measures import ExecutedBlock, RunMeasures, measure_run
from cluster.tools.load.dos.search.evaluation import Found, Problem
from cluster.tools.load.dos.search.log import Line
from cluster.tools.load.dos.search.shrinking import Shrinker
from cluster.tools.load.dos.search.space import Attack
from cluster.tools.sweeps.fanout import FanOut
from validator.chain.block import BlockReceipts
from validator.primitives.codec import decode

CONFIRM_SEEDS: Final = 3
"""Number of seeds of an attack in the simulator: the seed of the search and the next ones."""
CONFIRMED_SHARE: Final = 0.5
"""Share of the harm on the trial chain that a confirmed attack does in the simulator."""
SHRINK_RUNS: Final = 80
KEPT_SHARE: Final = 0.9
"""Share of an attack's figure that the shrunk attack must keep."""


class Confirmed(NamedTuple):
    """An attack on the trial chain, and in the simulator with each seed."""

    line: Line
    """The candidate as the search found it."""
    attack: Attack
    """The candidate, shrunk."""
    shrinking_runs: int
    tried: Found
    """Effect of the shrunk attack on the trial chain."""
    simulated: tuple[Found, ...]
    """Results in the simulator, in the order of :func:`confirm_seeds`."""
    is_confirmed: bool

    @property
    def worst(self) -> Found:
        """The simulated run in which the attack does the least harm."""
        return min(self.simulated, key=lambda found: found.fitness)


def confirm_seeds(problem: Problem) -> range:
    """The seeds of an attack's runs in the simulator."""
    return range(problem.seed, problem.seed + CONFIRM_SEEDS)


@dataclass(frozen=True, slots=True)
class Confirm:
    """A worker's task: confirm one of the best candidates, given its index."""

    problem: Problem
    lines: Sequence[Line]

    def __call__(self, number: int, leaves: Path) -> Confirmed:
        return confirmed(self.problem, self.lines[number])


def confirm(
    problem: Problem, lines: Sequence[Line], processes: int, interrupts: Interrupts, folder: Path
) -> Generator[Confirmed, None, None]:
    """Shrink and simulate candidates: in this process for one process or candidate, else over Ray. Yields as they end.

    Raises :class:`KeyboardInterrupt` for a signal, :class:`~cluster.common.errors.HarnessError` for a lost worker.
    """
    if processes == 1 or len(lines) < 2:
        yield from (confirmed(problem, line, interrupts.checkpoint) for line in lines)
        return
    fan_out = FanOut(Confirm(problem, lines), range(len(lines)), interrupts, folder, processes, what="candidate")
    with closing(fan_out.results()) as ended:
        yield from (each.result for each in ended)


def confirmed(problem: Problem, line: Line, checkpoint: Callable[[], None] = lambda: None) -> Confirmed:
    """Shrink a candidate and simulate the result."""
    shrinker = Shrinker(problem, line.attack, problem.evaluate(line.attack), SHRINK_RUNS, KEPT_SHARE, checkpoint)
    attack = shrinker.shrink()
    simulated = tuple(
        simulated_attack(replace(problem, seed=seed), attack, checkpoint) for seed in confirm_seeds(problem)
    )
    least = min(problem.objective.harm(*found) for found in simulated)
    harm = problem.objective.harm(*shrinker.found)
    is_confirmed = harm > 0 and least >= CONFIRMED_SHARE * harm
    return Confirmed(line, attack, shrinker.runs, shrinker.found, simulated, is_confirmed)


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
    from cluster.simulation.driver import simulate

    record = simulate(fast(scenario), problem.seed, checkpoint=checkpoint, shares_executions=True)
    if record.interrupted:
        raise KeyboardInterrupt
    chain = max((validator.blocks for validator in record.validators), key=len)
    blocks = [ExecutedBlock(decode(block.receipts, BlockReceipts)) for block in chain[: problem.blocks]]
    return measure_run(blocks, scenario.load, problem.seed, problem.window)


def fast(scenario: Scenario) -> Scenario:
    """The scenario with cheaper signatures of votes; nothing else depends on them."""
    section = scenario.consensus.model_copy(update={"signatures": "keyed-hash"})
    return scenario.model_copy(update={"consensus": section})
