"""What the seeds of a sweep run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from blake3 import blake3

from cluster.scenario import Scenario, load_scenario

NAMED_DIGITS: Final = 12
"""Hex digits of a scenario's hash in a task's title."""


@dataclass(frozen=True, slots=True)
class ScenarioTask:
    """One scenario, with each seed."""

    path: str
    """Where it came from, for the command that runs a seed again."""
    scenario_json: str

    @staticmethod
    def load(path: Path) -> ScenarioTask:
        """The task of a scenario file. Raises :class:`~cluster.errors.BadInput`."""
        return ScenarioTask(str(path), load_scenario(path).model_dump_json())

    @property
    def title(self) -> str:
        name = self.scenario(0).name
        return f"sweep {name} {blake3(self.scenario_json.encode()).hexdigest()[:NAMED_DIGITS]}"

    def scenario(self, seed: int) -> Scenario:
        """The same for every seed."""
        return Scenario.model_validate_json(self.scenario_json)

    def command(self, seed: int) -> str:
        """A run of the scenario with that seed."""
        return f"stampede run {shlex.quote(self.path)} --backend sim --seed {seed}"
