"""The task of a sweep, which determines the scenario of each seed: one scenario for all, or a random one for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cluster.commands.sweeps.drawing.genotype import Genotype
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


@dataclass(frozen=True, slots=True)
class GuidedTask:
    """Task of a guided fuzz, or of a genotype that is run again. A seed is the number of a run there."""

    protocol: str
    shortcuts: bool = True
    """Whether the simulator takes its shortcuts, in most runs (:func:`takes_shortcuts`)."""
    genotypes: dict[int, str] = field(default_factory=dict)
    """The texts of the genotypes that were chosen so far, keyed by the number of the run."""
    replays: bool = False
    """Whether the genotypes are given, instead of chosen by what runs reach."""

    @staticmethod
    def replay(protocol: str, genotype: Genotype, shortcuts: bool = True) -> GuidedTask:
        """The task that runs one genotype. Its number is the seed of the simulation."""
        return GuidedTask(protocol, shortcuts, {genotype.run_seed: str(genotype)}, replays=True)

    @property
    def title(self) -> str:
        return f"fuzz {self.protocol} {' '.join(self.genotypes.values()) if self.replays else 'guided'}"

    @property
    def shared(self) -> None:
        """``None``, since there is no scenario that all runs share."""

    def part(self, numbers: Iterable[int]) -> GuidedTask:
        """The task with the genotypes of these numbers only."""
        return replace(self, genotypes={number: self.genotypes[number] for number in numbers})

    def genotype(self, seed: int) -> Genotype:
        """The genotype of a run: the plain seed if none was chosen for it yet."""
        text = self.genotypes.get(seed)
        return Genotype(seed) if text is None else Genotype.parse(text)

    def scenario(self, seed: int) -> Scenario:
        """The scenario drawn from the run's genotype."""
        return random_scenario(self.genotype(seed), self.protocol)

    def command(self, seed: int) -> str:
        """The one command that runs the genotype again."""
        plain = "" if self.shortcuts else " --no-shortcuts"
        return f"stampede fuzz --protocol {self.protocol} --replay {self.genotype(seed)}{plain}"


AnyTask = ScenarioTask | FuzzTask | GuidedTask
"""The task of a sweep, of any kind. It is plain data, since it is sent to worker processes."""


def simulated_seed(task: AnyTask, seed: int) -> int:
    """The seed of the simulation: the sweep's seed, unless the genotype of a guided fuzz has another."""
    return task.genotype(seed).run_seed if isinstance(task, GuidedTask) else seed


def takes_shortcuts(task: AnyTask, seed: int) -> bool:
    """Whether the simulator takes its shortcuts in a seed (:class:`cluster.simulation.driver.Simulation`)."""
    return task.shortcuts and simulated_seed(task, seed) % WITHOUT_SHORTCUTS_EVERY != 0


def scenario_name(title: str) -> str:
    """The scenario's name in the title of a :class:`ScenarioTask`."""
    return title.removeprefix(SWEEP).rpartition(" ")[0].strip()
