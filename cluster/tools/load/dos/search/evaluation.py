"""One candidate: an attack on a trial chain, held against the same chain without it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from cluster.scenario import Scenario
from cluster.tools.load.dos.measures import (
    AttackMeasures,
    ExecutedBlock,
    RunMeasures,
    Window,
    measure_attack,
    measure_run,
)
from cluster.tools.load.dos.search.objectives import OBJECTIVES, Fitness, Objective
from cluster.tools.load.dos.search.space import Attack, Space, with_load
from cluster.tools.load.dos.search.trial_chain import TrialChain


class Found(NamedTuple):
    """What an attack does."""

    fitness: Fitness
    measures: AttackMeasures


@dataclass(frozen=True)
class Problem:
    """What is searched for: plain data, since it goes to worker processes."""

    scenario_json: str
    """Without attackers."""
    objective_name: str
    budget: int
    """Of the attackers, in the smallest CBY unit."""
    seed: int
    blocks: int
    """Of a candidate's run."""

    @cached_property
    def scenario(self) -> Scenario:
        return Scenario.model_validate_json(self.scenario_json)

    @cached_property
    def honest(self) -> Scenario:
        """The scenario that is the baseline."""
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
        """The heights that count: all but the first tenth, in which the users begin."""
        return Window(self.blocks // 10, self.blocks)

    @cached_property
    def baseline(self) -> RunMeasures:
        """The same chain without attackers."""
        return self.measure(self.honest)

    def measure(self, scenario: Scenario) -> RunMeasures:
        """Run a scenario on a trial chain."""
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
        """Run an attack, and say how bad it is."""
        return self.compare(self.measure(self.attacked(attack)), self.baseline)

    def compare(self, attacked: RunMeasures, baseline: RunMeasures) -> Found:
        """How bad an attacked run is."""
        measures = measure_attack(attacked, baseline)
        return Found(self.objective.fitness(measures, attacked, baseline), measures)

    def __getstate__(self) -> dict[str, Any]:
        """Without what was computed."""
        fields = ("scenario_json", "objective_name", "budget", "seed", "blocks")
        return {name: self.__dict__[name] for name in fields}
