"""What the driver of a deployment does, as the words of ``--command`` say, and the scenario that this needs."""

from __future__ import annotations

import shlex
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.commands.sweeps.commands import seed_range
from cluster.common.errors import BadInput
from cluster.common.plugins import DEPLOYMENTS, expect_function, load_named, points
from cluster.scenario import Scenario
from cluster.scenario.files import change_scenario, find_scenario, scenario_text
from cluster.scenario.overrides import Change, options_of
from kits.kubernetes.names import FORMS, SCENARIO_PATH
from kits.kubernetes.render.deployment import name_for
from kits.kubernetes.render.pods import memory_per_seed_mib, whole_processors
from kits.kubernetes.section import KubernetesSection

if TYPE_CHECKING:
    from cluster.commands.drills.base import Drill

RAY_MIB: Final = 512
"""Part of the memory of a pod for seeds that is left to Ray, in MiB."""
SECTION: Final = "kubernetes"
UNREACHABLE: Final = (
    "the testnet's pods are not reachable from outside of the cluster; expected a live run on machines that the"
    " external validator reaches"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a deployment does: a run, or other work."""

    scenario: Scenario
    """The scenario that runs, with the section ``kubernetes`` of the file."""
    command: tuple[str, ...]
    """Arguments of ``stampede`` in the driver's pod; empty for a soak, which has no driver."""
    work: str = ""
    """The kind of work; empty for a run."""
    subject: str = ""
    """Name of the drill; empty for work that reads the scenario file."""
    changes: Sequence[Change] = ()
    """Changes of the drill's scenario that are in the command."""

    @property
    def title(self) -> str:
        """The scenario's name or, of other work, its kind and what it is about."""
        return f"{self.work}-{self._about}" if self.work else self._about

    @property
    def name(self) -> str:
        """The default name of the deployment."""
        return name_for(self._about, self.work)

    def text(self, path: Path) -> str:
        """The text of the scenario file of the deployment. ``path`` names the source, unless a drill makes it.

        The driver of a drill does not read it. It tells the client which pod carries a validator, and the image.
        """
        return scenario_text(self.scenario, None if self.subject else find_scenario(path))

    @property
    def _about(self) -> str:
        return self.subject or self.scenario.name


def plan_of(words: Sequence[str], load: Callable[[Sequence[Change]], Scenario], changes: Sequence[Change]) -> Plan:
    """Parse the words of ``--command``. ``load`` reads the scenario file, with the changes that it is given.

    A drill makes its own scenario: it takes the section ``kubernetes`` of the file, and all changes. Raises
    :class:`BadInput`.
    """
    match words:
        case ["run"]:
            scenario = load(changes)
            _refuse(_problem_of(scenario), scenario.name)
            return Plan(scenario, ("run", SCENARIO_PATH))
        case ["drill", name, *settings]:
            return _drill_plan(name, settings, load(()), changes)
        case ["sweep", seeds]:
            scenario = _simulated(load(changes))
            memory = str(_seed_memory_mib(scenario))
            return Plan(
                scenario, ("sweep", SCENARIO_PATH, "--seeds", _checked_seeds(seeds), "--memory", memory), "sweep"
            )
        case ["soak"]:
            return Plan(_simulated(load(changes)), (), "soak")
        case [work, *further] if points(DEPLOYMENTS, work):
            scenario, deployed = _simulated(load(changes)), load_named(DEPLOYMENTS, work, expect_function)
            return Plan(scenario, (work, SCENARIO_PATH, *deployed(scenario, further)), work)
    raise BadInput(f"--command {' '.join(words)}: expected {FORMS}")


def _drill_plan(name: str, settings: Sequence[str], given: Scenario, changes: Sequence[Change]) -> Plan:
    drill = _drill(name, settings)
    changed = [*section_of(given), *changes]
    scenario = change_scenario(drill.scenario(), changed, f"drill {name} with {options_of(changes)}")
    _refuse(drill.problem("live") or _problem_of(scenario), f"drill {name}")
    passed = [each for each in changes if each.path.split(".")[0] != SECTION]
    return Plan(scenario, tuple(shlex.split(drill.command(passed))[1:]), "drill", name, passed)


def _drill(name: str, settings: Sequence[str]) -> Drill:
    from cluster.commands.drills.command_line import drill_with

    try:
        return drill_with(name, settings)
    except BadInput as error:
        raise BadInput(f"--command drill: {error}") from None


def section_of(scenario: Scenario) -> list[Change]:
    """The changes of a scenario that give it the section of this one."""
    fields = KubernetesSection.of(scenario).model_dump(mode="json", exclude_unset=True)
    return [Change(SECTION, fields)] if fields else []


def _simulated(scenario: Scenario) -> Scenario:
    """The scenario. Raises :class:`BadInput` if the simulator cannot run it."""
    _refuse(scenario.simulator_problem, scenario.name)
    return scenario


def _problem_of(scenario: Scenario) -> str | None:
    """The first setting that a live run in Kubernetes cannot have, as ``path: reason``; ``None`` without one."""
    return scenario.external_problem(UNREACHABLE) or scenario.live_problem


def _refuse(problem: str | None, name: str) -> None:
    if problem is not None:
        raise BadInput(f"{name}: {problem}")


def _seed_memory_mib(scenario: Scenario) -> int:
    """Memory of a seed in MiB, such that a pod runs one seed per processor."""
    seeds = KubernetesSection.of(scenario).seeds
    return memory_per_seed_mib(seeds.memory, whole_processors(seeds.cpu), RAY_MIB)


def _checked_seeds(text: str) -> str:
    try:
        seed_range(text)
    except ArgumentTypeError as error:
        raise BadInput(f"--command sweep: {error}") from None
    return text
