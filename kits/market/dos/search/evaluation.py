"""Evaluation of a candidate: an attack on a trial chain, compared with the same chain without it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from cluster.scenario import Scenario
from kits.market.dos.measures import (
    Effect,
    ExecutedBlock,
    RunMeasures,
    Window,
    measure_attack,
    measure_run,
)
from kits.market.dos.search.objectives import OBJECTIVES, Fitness, Objective
from kits.market.dos.search.space import Attack, Space, with_load
from kits.market.dos.search.trial_chain import TrialChain


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

    @cached_property
    def scenario(self) -> Scenario:
        return Scenario.model_validate_json(self.scenario_json)

    @cached_property
    def honest(self) -> Scenario:
        """The scenario of the baseline: only honest users, stopped after :attr:`blocks` blocks."""
        users = self.scenario.load.model_dump(mode="json", exclude_unset=True).get("users", [])
        return with_load(self.scenario, users, self.blocks)

    @cached_property
    def space(self) -> Space:
        return Space.of(self.scenario, self.budget, self.blocks)

    @property
    def objective(self) -> Objective:
        return OBJECTIVES[self.objective_name]

    @property
    def window(self) -> Window:
        """The heights that are measured: all but the first tenth, in which the users start."""
        return Window(self.blocks // 10, self.blocks)

    @cached_property
    def baseline(self) -> RunMeasures:
        """Measures of a run on a trial chain without attackers."""
        return self.measure(self.honest)

    def measure(self, scenario: Scenario) -> RunMeasures:
        """Run a scenario on a trial chain; returns the measures of the run."""
        chain = TrialChain(scenario, self.seed)
        blocks = []
        for _ in range(self.blocks):
            began = time.process_time()
            receipts = chain.block().receipts
            blocks.append(ExecutedBlock(receipts, time.process_time() - began))
        return measure_run(blocks, scenario.load, self.seed, self.window)

    def attacked(self, attack: Attack) -> Scenario:
        return self.space.attacked(self.scenario, attack, self.blocks)

    def evaluate(self, attack: Attack) -> Found:
        """Run an attack on a trial chain, and compare it with the baseline."""
        return self.compare(self.measure(self.attacked(attack)), self.baseline)

    def compare(self, attacked: RunMeasures, baseline: RunMeasures) -> Found:
        """The effect of the attack, from an attacked run and its baseline."""
        effect = measure_attack(attacked, baseline)
        return Found(self.objective.fitness(effect, attacked, baseline), effect)

    def __getstate__(self) -> dict[str, Any]:
        """The state for pickling, without cached values."""
        fields = ("scenario_json", "objective_name", "budget", "seed", "blocks")
        return {name: self.__dict__[name] for name in fields}
