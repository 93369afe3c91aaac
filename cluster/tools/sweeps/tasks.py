"""The task of a sweep, which determines the scenario of each seed: one scenario for all, or a random one for each."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.scenario import Scenario, load_scenario
from cluster.scenario.files import scenario_hash
from cluster.scenario.overrides import Change, options_text
from cluster.tools.sweeps.drawing.random_scenario import random_scenario

SWEEP: Final = "sweep"
OWN_EXECUTIONS_EVERY: Final = 100
"""In each seed that is a multiple of this number, validators share no executions: each executes every block itself."""


@dataclass(frozen=True, slots=True)
class ScenarioTask:
    """Task of a sweep in which all seeds run the same scenario."""

    path: str
    """Path of the scenario file; :meth:`command` needs it."""
    scenario_json: str
    """The scenario as JSON, with the changes applied."""
    changes: tuple[str, ...] = ()
    """The changes as shell words, for :meth:`command`."""
    shares: bool = True
    """Whether the validators of a run share executions, in most seeds (:func:`shares_executions`)."""

    @staticmethod
    def load(path: Path, changes: Sequence[Change] = (), shares: bool = True) -> ScenarioTask:
        """The task of a scenario file with changed fields. Raises :class:`~cluster.common.errors.BadInput`."""
        scenario = load_scenario(path, changes)
        return ScenarioTask(str(path), scenario.model_dump_json(), tuple(options_text(changes)), shares)

    @property
    def title(self) -> str:
        """A short name of the task; tasks with the same title run the same scenarios."""
        return f"{SWEEP} {self.shared.name} {scenario_hash(self.shared)}"

    @property
    def shared(self) -> Scenario:
        """The scenario of all seeds."""
        return Scenario.model_validate_json(self.scenario_json)

    def scenario(self, seed: int) -> Scenario:
        """The scenario of a seed: it is the same for all."""
        return self.shared

    def command(self, seed: int) -> str:
        """The one command that runs a seed again."""
        return " ".join(["stampede run", shlex.quote(self.path), "--backend sim", f"--seed {seed}", *self.changes])


@dataclass(frozen=True, slots=True)
class FuzzTask:
    """Task of a fuzz: each seed runs a random scenario."""

    protocol: str
    shares: bool = True
    """Whether the validators of a run share executions, in most seeds (:func:`shares_executions`)."""

    @property
    def title(self) -> str:
        return f"fuzz {self.protocol}"

    @property
    def shared(self) -> None:
        """``None``, since there is no scenario that all seeds share."""

    def scenario(self, seed: int) -> Scenario:
        """The scenario drawn from the seed."""
        return random_scenario(seed, self.protocol)

    def command(self, seed: int) -> str:
        """The one command that runs a seed again."""
        own = "" if self.shares else " --own-executions"
        return f"stampede fuzz --protocol {self.protocol} --seeds {seed}:{seed + 1}{own}"


AnyTask = ScenarioTask | FuzzTask
"""The task of a sweep, of either kind. It is plain data, since it is sent to worker processes."""


def shares_executions(task: AnyTask, seed: int) -> bool:
    """Whether a seed's validators share executions (:mod:`cluster.simulation.shared_executions`)."""
    return task.shares and seed % OWN_EXECUTIONS_EVERY != 0


def scenario_name(title: str) -> str:
    """The scenario's name in the title of a :class:`ScenarioTask`."""
    return title.removeprefix(SWEEP).rpartition(" ")[0].strip()
