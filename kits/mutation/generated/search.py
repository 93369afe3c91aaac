"""A search with machine-made bugs: runs the unchanged code, draws bugs, and runs each until a run detects it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from blake3 import blake3

from cluster.commands.console.crashes import command_folder
from cluster.commands.sweeps.fanout import run_each
from cluster.commands.sweeps.log import LineLog
from cluster.commands.sweeps.tasks import AnyTask, FuzzTask, ScenarioTask
from cluster.commands.sweeps.worker import WORKER_MEMORY_MIB
from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput
from kits.mutation.generated.choice import all_candidates, draw, executed, module_paths
from kits.mutation.generated.hunting import Bug, Run, Sound, hunt, run_sound
from kits.mutation.generated.operators import Candidate
from kits.mutation.generated.report import Search
from kits.mutation.generated.subject import CRASH, FAIL

PROTOCOLS: Final = ("simplex", "hotstuff")
GROUP: Final = 8
"""Number of runs of the unchanged code that one process executes."""
RECORDED_SEEDS: Final = 8
"""Number of seeds, for each protocol and scenario, in which the lines that run are recorded."""


LOG_FILE: Final = "machine.jsonl"
"""The log in the folder of a search: the search, then a line for each piece of work."""


class MachineLog(LineLog[Sound | Bug]):
    """The results of a search, on disk. Only a search with the same ``search`` and ``commit`` may continue it."""

    def __init__(self, folder: Path, search: str, commit: str) -> None:
        """Open or create the log. Raises :class:`BadInput` if it is of another search or commit, or unreadable."""
        self.sound: dict[int, Sound] = {}
        """Results of the runs of the unchanged code, keyed by the number of the group of runs."""
        self.bugs: dict[Candidate, Bug] = {}
        identity = {"search": search, "commit": commit}
        super().__init__(folder / LOG_FILE, Sound | Bug, "search for machine-made bugs", identity)

    def _take(self, ended: Sound | Bug) -> None:
        if isinstance(ended, Sound):
            self.sound[ended.number] = ended
        else:
            self.bugs[ended.candidate] = ended


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of a search: which code it changes, and with which seeds and scenarios."""

    count: int
    """Number of bugs to draw and try."""
    seeds: int
    """Number of seeds of each protocol and each scenario, from seed 0 on."""
    draw_seed: int = 0
    prefixes: tuple[str, ...] = ()
    """Paths below which modules are changed; empty for all modules."""
    scenarios: tuple[ScenarioTask, ...] = ()

    @property
    def runs(self) -> list[Run]:
        """The runs in the order in which each bug is tried: all fuzz seeds first, then all seeds of the scenarios.

        For each seed, the protocols or scenarios take turns.
        """
        fuzz: list[AnyTask] = [FuzzTask(protocol) for protocol in PROTOCOLS]
        groups: tuple[list[AnyTask], list[AnyTask]] = (fuzz, list(self.scenarios))
        return [Run(task, seed) for tasks in groups for seed in range(self.seeds) for task in tasks]

    @property
    def title(self) -> str:
        """A short description; plans with the same title cover the same search."""
        where = " ".join(self.prefixes) or "all modules"
        runs = blake3("\n".join(run.name for run in self.runs).encode()).hexdigest()[:12]
        return f"{self.count} bugs, draw {self.draw_seed}, {self.seeds} seeds, {where}, runs {runs}"


def search(plan: Plan, out: Path | None, workers: int | None, say: Callable[[str], None]) -> Search:
    """Draw machine-made bugs and try each one, continuing after the last result in the log in ``out``.

    An interrupted search returns its results so far.

    Raises :class:`~cluster.common.errors.HarnessError`.
    """
    every = all_candidates(module_paths(plan.prefixes))
    with (
        command_folder(out, "mutants-machine", goes_on=True) as folder,
        closing(MachineLog(folder, plan.title, checkout_commit())) as log,
    ):
        if out is None:
            say(f"log  {folder}")
        possible: list[Candidate] = []
        planted: list[Candidate] = []
        unsound: list[str] = []
        try:
            _run_sound(plan.runs, log, workers, say)
            possible = executed(every, _lines(log))
            if not possible:
                raise BadInput("no change is on a line that ran: choose more --seeds or another --only")
            planted = draw(possible, plan.count, plan.draw_seed)
            timed, unsound = _sound_runs(plan.runs, log)
            _hunt_all(planted, timed, log, workers, say)
        except KeyboardInterrupt:
            return Search(plan.title, len(every), len(possible), planted, log.bugs, unsound, interrupted=True)
        return Search(plan.title, len(every), len(possible), planted, log.bugs, unsound)


def _run_sound(runs: Sequence[Run], log: MachineLog, workers: int | None, say: Callable[[str], None]) -> None:
    groups = [runs[at : at + GROUP] for at in range(0, len(runs), GROUP)]
    left = [number for number in range(len(groups)) if number not in log.sound]
    if not left:
        return
    say(f"{len(runs):,} runs without a change")
    for _, sound in run_each(partial(_sound_group, groups), left, workers, "group of runs", say):
        log.add(sound)


def _sound_group(groups: Sequence[Sequence[Run]], number: int) -> Sound:
    runs = groups[number]
    return run_sound(runs, number, any(run.seed < RECORDED_SEEDS for run in runs), WORKER_MEMORY_MIB)


def _lines(log: MachineLog) -> dict[str, set[int]]:
    ran: dict[str, set[int]] = {}
    for sound in log.sound.values():
        for path, lines in sound.lines.items():
            ran.setdefault(path, set()).update(lines)
    return ran


def _sound_runs(runs: Sequence[Run], log: MachineLog) -> tuple[list[tuple[Run, float]], list[str]]:
    """Split the runs by their result without a change of the code.

    Returns the runs that do not fail, with their processor seconds, and the names of the runs that fail.
    """
    ended = [each for number in sorted(log.sound) for each in _results(log.sound[number])]
    paired = list(zip(runs, ended, strict=True))
    sound = [(run, cpu_s) for run, (verdict, cpu_s) in paired if verdict not in (FAIL, CRASH)]
    return sound, [run.name for run, (verdict, _) in paired if verdict in (FAIL, CRASH)]


def _results(sound: Sound) -> list[tuple[str, float]]:
    return list(zip(sound.verdicts, sound.cpu_s, strict=True))


def _hunt_all(
    planted: Sequence[Candidate],
    runs: Sequence[tuple[Run, float]],
    log: MachineLog,
    workers: int | None,
    say: Callable[[str], None],
) -> None:
    left = [one for one in planted if one not in log.bugs]
    if not left:
        return
    if not runs:
        raise BadInput("every run fails without a change: nothing can be told of bugs")
    ended = len(planted) - len(left)
    work = partial(hunt, runs=runs, memory_mib=WORKER_MEMORY_MIB)
    for _, bug in run_each(work, left, workers, "bug", say):
        log.add(bug)
        ended += 1
        by = f" {bug.run}" if bug.seen else f" {bug.runs} runs"
        say(f"{ended} of {len(planted)}  {bug.candidate.place}  {bug.candidate.operator}: {bug.outcome}{by}")
