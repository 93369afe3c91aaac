"""The best attacks in the full simulator: consensus, links, four mempools, and users that see the chain late.

The trial chain leaves those out, so what holds there need not hold here. An attacked run is held against the run
without the attack, with the same seed; each attack counts by what it does here, and the worst of them is what the
search found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cluster.scenario import Scenario
from cluster.tools.load.dos.measures import ExecutedBlock, RunMeasures, measure_run
from cluster.tools.load.dos.search.evaluation import Found, Problem
from cluster.tools.load.dos.search.space import Attack
from validator.chain.block import BlockReceipts
from validator.primitives.codec import decode


class Confirmed(NamedTuple):
    """An attack, on the trial chain and in the simulator."""

    attack: Attack
    tried: Found
    simulated: Found


class Confirmer:
    """Runs attacks in the simulator, one after the other."""

    def __init__(self, problem: Problem, checkpoint: Callable[[], None]) -> None:
        self._problem = problem
        self._checkpoint = checkpoint
        self._baseline: RunMeasures | None = None

    def confirm(self, attack: Attack, tried: Found) -> Confirmed:
        """Run an attack. A signal raises :class:`KeyboardInterrupt`."""
        if self._baseline is None:
            self._baseline = self._measure(self._problem.honest)
        attacked = self._measure(self._problem.attacked(attack))
        return Confirmed(attack, tried, self._problem.compare(attacked, self._baseline))

    def _measure(self, scenario: Scenario) -> RunMeasures:
        # Imported here, for it loads the simulator.
        from cluster.simulation.driver import simulate

        problem = self._problem
        record = simulate(fast(scenario), problem.seed, checkpoint=self._checkpoint)
        if record.interrupted:
            raise KeyboardInterrupt
        chain = max((validator.blocks for validator in record.validators), key=len)
        blocks = [ExecutedBlock(decode(block.receipts, BlockReceipts)) for block in chain[: problem.blocks]]
        return measure_run(blocks, scenario.load, problem.seed, problem.window)


def fast(scenario: Scenario) -> Scenario:
    """The scenario with signatures of votes that cost less; nothing else depends on them."""
    section = scenario.consensus.model_copy(update={"signatures": "keyed-hash"})
    return scenario.model_copy(update={"consensus": section})
