"""The task of a sweep, which determines the scenario of each seed: one scenario for all, or a random one for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.commands.sweeps.drawing.random_scenario import random_scenario
from cluster.common.wording import quoted
from cluster.scenario import Scenario
from cluster.scenario.code.gate import option_for
from cluster.scenario.files import load_scenario, scenario_hash
from cluster.scenario.overrides import Change, options_text

SWEEP: Final = "sweep"
WITHOUT_SHORTCUTS_EVERY: Final = 100
"""In each seed that is a multiple of this number, the simulator takes no shortcuts."""


@dataclass(frozen=True, slots=True)
class ScenarioTask:
    """Task of a sweep in which all seeds run the same scenario."""

    path: str
    """Path of the scenario file; :meth:`command` needs it."""
    scenario_json: str
    """The scenario as JSON, with the changes applied."""
    changes: tuple[str, ...] = ()
    """The changes and other options as shell words, for :meth:`command`."""
    shortcuts: bool = True
    """Whether the simulator takes its shortcuts, in most seeds (:func:`takes_shortcuts`)."""

    @staticmethod
    def load(path: Path, changes: Sequence[Change] = (), shortcuts: bool = True) -> ScenarioTask:
        """The task of a scenario file with changed fields. Raises :class:`~cluster.common.errors.BadInput`."""
        scenario = load_scenario(path, changes)
        words = option_for(scenario, is_copy=False).split()
        return ScenarioTask(str(path), scenario.model_dump_json(), (*options_text(changes), *words), shortcuts)

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
        return " ".join(["stampede run", quoted(self.path), "--backend sim", f"--seed {seed}", *self.changes])


@dataclass(frozen=True, slots=True)
class FuzzTask:
    """Task of a fuzz: each seed runs a random scenario."""

    protocol: str
    shortcuts: bool = True
    """Whether the simulator takes its shortcuts, in most seeds (:func:`takes_shortcuts`)."""

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
        plain = "" if self.shortcuts else " --no-shortcuts"
        return f"stampede fuzz --protocol {self.protocol} --seeds {seed}:{seed + 1}{plain}"


AnyTask = ScenarioTask | FuzzTask
"""The task of a sweep, of any kind. It is plain data, since it is sent to worker processes."""


def takes_shortcuts(task: AnyTask, seed: int) -> bool:
    """Whether the simulator takes its shortcuts in a seed (:class:`cluster.simulation.driver.Simulation`)."""
    return task.shortcuts and seed % WITHOUT_SHORTCUTS_EVERY != 0


def scenario_name(title: str) -> str:
    """The scenario's name in the title of a :class:`ScenarioTask`."""
    return title.removeprefix(SWEEP).rpartition(" ")[0].strip()
