"""Evaluation of a candidate: an attack on a trial chain or in the simulator, compared with the same run without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from cluster.scenario import Scenario
from kits.market.dos.measures import Effect, ExecutedBlock, RunMeasures, Window, measure_attack, measure_run
from kits.market.dos.search.objectives import OBJECTIVES, Fitness, Objective
from kits.market.dos.search.space import Attack, Space, with_load
from kits.market.dos.search.trial_chain import TrialChain
from validator.chain.block import BlockReceipts
from validator.primitives.codec import decode

KEPT: Final = 16
"""Number of scenarios, and of baselines, that a process keeps."""
Checkpoint = Callable[[], None]
"""Raises :class:`KeyboardInterrupt` after a signal."""
Runner = Callable[[Scenario, int, int, Checkpoint], list[BlockReceipts]]
"""Runs a scenario with a seed for a number of blocks, and returns what they did."""


def nothing() -> None:
    """The checkpoint of a process that signals end."""


def on_trial_chain(scenario: Scenario, seed: int, blocks: int, _checkpoint: Checkpoint) -> list[BlockReceipts]:
    """Run a scenario on a trial chain."""
    chain = TrialChain(scenario, seed)
    return [chain.block().receipts for _ in range(blocks)]


def in_simulator(scenario: Scenario, seed: int, blocks: int, checkpoint: Checkpoint) -> list[BlockReceipts]:
    """Run a scenario in the simulator, with cheaper signatures of votes: nothing that is measured depends on them."""
    # Imported here since it loads the simulator.
    from cluster.watches.watched_simulation import simulate

    section = scenario.consensus.model_copy(update={"signatures": "keyed-hash"})
    fast = scenario.model_copy(update={"consensus": section})
    record = simulate(fast, seed, checkpoint=checkpoint, shortcuts=True)
    if record.interrupted:
        raise KeyboardInterrupt
    chain = max((validator.blocks for validator in record.validators), key=len)
    return [decode(block.receipts, BlockReceipts) for block in chain[:blocks]]


class Found(NamedTuple):
    """The effect of an attack: its fitness, and the effect that it is computed from."""

    fitness: Fitness
    effect: Effect


@dataclass(frozen=True)
class Problem:
    """What a search is about: scenario, objective, budget, seed and length of the runs.

    It is plain data, since it is sent to worker processes.
    """

    scenario_json: str
    """The scenario without attackers, as JSON."""
    objective_name: str
    budget: int
    """Budget of the attackers, in the smallest CBY unit."""
    seed: int
    blocks: int
    """Number of blocks of a candidate's run."""

    @property
    def scenario(self) -> Scenario:
        return _scenario_of(self.scenario_json)

    @property
    def space(self) -> Space:
        return Space.of(self.scenario, self.budget, self.blocks)

    @property
    def objective(self) -> Objective:
        return OBJECTIVES[self.objective_name]

    @property
    def window(self) -> Window:
        """The heights that are measured: all but the first tenth, in which the users start."""
        return Window(self.blocks // 10, self.blocks)

    def attacked(self, attack: Attack) -> Scenario:
        return self.space.attacked(self.scenario, attack, self.blocks)

    def evaluate(self, attack: Attack, run: Runner = on_trial_chain, checkpoint: Checkpoint = nothing) -> Found:
        """Run an attack, and compare it with the run without it, of which the process keeps the measures."""
        attacked, usual = _measured(self, self.attacked(attack), run, checkpoint), _usual(self, run, checkpoint)
        effect = measure_attack(attacked, usual)
        return Found(self.objective.fitness(effect, attacked, usual), effect)


@lru_cache(KEPT)
def _scenario_of(text: str) -> Scenario:
    return Scenario.model_validate_json(text)


@lru_cache(KEPT)
def _usual(problem: Problem, run: Runner, checkpoint: Checkpoint) -> RunMeasures:
    """The measures of the run without attackers."""
    users = problem.scenario.load.model_dump(mode="json", exclude_unset=True).get("users", [])
    return _measured(problem, with_load(problem.scenario, users, problem.blocks), run, checkpoint)


def _measured(problem: Problem, scenario: Scenario, run: Runner, checkpoint: Checkpoint) -> RunMeasures:
    blocks = [ExecutedBlock(receipts) for receipts in run(scenario, problem.seed, problem.blocks, checkpoint)]
    return measure_run(blocks, scenario.load, problem.seed, problem.window)
