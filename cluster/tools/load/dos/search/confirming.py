"""The best attacks in the full simulator: consensus, links, four mempools, and users that see the chain late.

The trial chain leaves those out, so what holds there need not hold here. Each of the best candidates is shrunk on the
trial chain, then simulated with several seeds, each run held against the run without the attack and with the same seed.
It is *confirmed* if it does at least :data:`CONFIRMED_SHARE` of its harm with every seed.
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
"""Seeds of an attack's runs in the simulator: the search's own and the next ones."""
CONFIRMED_SHARE: Final = 0.5
"""Of the harm on the trial chain, what is left of it in the simulator."""
SHRINK_RUNS: Final = 80
KEPT_SHARE: Final = 0.9
"""Of the figure of an attack, what is left of it once it is shrunk."""


class Confirmed(NamedTuple):
    """An attack on the trial chain, and in the simulator with each seed."""

    line: Line
    """The candidate as the search found it."""
    attack: Attack
    """The candidate, shrunk."""
    shrinking_runs: int
    tried: Found
    """What the shrunk attack does on the trial chain."""
    simulated: tuple[Found, ...]
    """By seed, as :func:`confirm_seeds` has them."""
    is_confirmed: bool

    @property
    def worst(self) -> Found:
        """The run of the simulator in which the attack does least."""
        return min(self.simulated, key=lambda found: found.fitness)


def confirm_seeds(problem: Problem) -> range:
    """The seeds of an attack's runs in the simulator."""
    return range(problem.seed, problem.seed + CONFIRM_SEEDS)


@dataclass(frozen=True, slots=True)
class Confirm:
    """What a worker runs: one of the best candidates, by its place."""

    problem: Problem
    lines: Sequence[Line]

    def __call__(self, number: int, leaves: Path) -> Confirmed:
        return confirmed(self.problem, self.lines[number])


def confirm(
    problem: Problem, lines: Sequence[Line], processes: int, interrupts: Interrupts, folder: Path
) -> Generator[Confirmed, None, None]:
    """Shrink and simulate candidates: in this process if there is one, else over Ray. In the order in which they end.

    A signal raises :class:`KeyboardInterrupt`, a lost worker :class:`~cluster.common.errors.HarnessError`.
    """
    if processes == 1 or len(lines) < 2:
        yield from (confirmed(problem, line, interrupts.checkpoint) for line in lines)
        return
    fan_out = FanOut(Confirm(problem, lines), range(len(lines)), interrupts, folder, processes, what="candidate")
    with closing(fan_out.results()) as ended:
        yield from (each.result for each in ended)


def confirmed(problem: Problem, line: Line, checkpoint: Callable[[], None] = lambda: None) -> Confirmed:
    """Shrink a candidate, and simulate what is left of it."""
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
    """What an attack does in the simulator, with the problem's seed."""
    return problem.compare(_measure(problem, problem.attacked(attack), checkpoint), _baseline(problem, checkpoint))


_baselines: dict[Problem, RunMeasures] = {}
"""Of the problems that this process has met: what the honest users' runs in the simulator were."""


def _baseline(problem: Problem, checkpoint: Callable[[], None]) -> RunMeasures:
    if problem not in _baselines:
        _baselines[problem] = _measure(problem, problem.honest, checkpoint)
    return _baselines[problem]


def _measure(problem: Problem, scenario: Scenario, checkpoint: Callable[[], None]) -> RunMeasures:
    # Imported here, for it loads the simulator.
    from cluster.simulation.driver import simulate

    record = simulate(fast(scenario), problem.seed, checkpoint=checkpoint, shares_executions=True)
    if record.interrupted:
        raise KeyboardInterrupt
    chain = max((validator.blocks for validator in record.validators), key=len)
    blocks = [ExecutedBlock(decode(block.receipts, BlockReceipts)) for block in chain[: problem.blocks]]
    return measure_run(blocks, scenario.load, problem.seed, problem.window)


def fast(scenario: Scenario) -> Scenario:
    """The scenario with signatures of votes that cost less; nothing else depends on them."""
    section = scenario.consensus.model_copy(update={"signatures": "keyed-hash"})
    return scenario.model_copy(update={"consensus": section})
