"""``stampede sweep``: one scenario with many seeds. ``stampede fuzz``: a random scenario per seed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.commands.console.command import FOLDER, Topic, argument, flag, option
from cluster.commands.console.options import (
    SHOWN_CHARACTERS,
    ChangeOptions,
    CodeOptions,
    ForceOption,
    parse_port,
    whole_number,
)
from cluster.commands.console.output import console, print_line
from cluster.commands.console.outputs import OutputOptions
from cluster.common.errors import BadInput
from cluster.common.files import Trying, all_tried
from cluster.common.limits import MAX_SEED
from cluster.record.folder import SWEEP
from validator.primitives.types import parse_decimal

if TYPE_CHECKING:
    from cluster.commands.sweeps.grid import Axis, Cell
    from cluster.commands.sweeps.runner import Summary
    from cluster.commands.sweeps.tasks import AnyTask, ScenarioTask
    from cluster.scenario.overrides import Change

MAX_SEEDS: Final = 1_000_000
"""Maximum number of seeds in a sweep."""
LEAST_MEMORY_MIB: Final = 128
worker_count: Final = whole_number("number of workers", 1, 1_024)


def seed_range(text: str) -> range:
    """Parse ``A:B`` as the seeds from A to B - 1."""
    first, _, end = text.partition(":")
    shown = repr(text[:SHOWN_CHARACTERS])
    problem = f"{shown} is no range of seeds: expected A:B, two integers from 0 to 2**64 - 1, A below B"
    least, above = parse_decimal(first, MAX_SEED), parse_decimal(end, MAX_SEED + 1)
    if least is None or above is None or least >= above:
        raise argparse.ArgumentTypeError(problem)
    seeds = range(least, above)
    if len(seeds) > MAX_SEEDS:
        raise argparse.ArgumentTypeError(f"{text!r} are {len(seeds):,} seeds: expected at most {MAX_SEEDS:,}")
    return seeds


def _parse_axis(text: str) -> Axis:
    """Parse an option ``--grid``; the module that does it is slow to load."""
    from cluster.commands.sweeps.grid import parse_axis

    return parse_axis(text)


@dataclass(frozen=True, kw_only=True)
class SeedOptions(ForceOption, OutputOptions):
    """What ``sweep`` and ``fuzz`` have in common."""

    KIND = SWEEP

    EPILOG = (
        "A failing seed leaves a run folder. A crash leaves its traceback, and is no verdict (exit code 4); the others"
        " continue."
    )

    seeds: range = option("seeds A to B - 1", "A:B", seed_range, required=True)
    workers: int | None = option("worker processes (default: one per processor of each node)", "N", worker_count)
    memory: int | None = option(
        "memory of a worker (default: 2,048); a node runs as many as fit",
        "MIB",
        whole_number("number of MiB", LEAST_MEMORY_MIB, 2**20),
    )
    no_shortcuts: bool = flag(
        "run every validator in full, without shortcuts, as in each hundredth seed: to find nondeterminism"
    )
    stop_on_fail: bool = flag("stop at the first seed that fails or crashes")
    min_passed: int | None = option(
        "pass if no seed fails and N seeds pass; the others may be inconclusive (default: all seeds)",
        "N",
        whole_number("number of seeds", 1, MAX_SEEDS),
    )
    dashboard: bool = flag("serve a page on this machine that shows the seeds while they run")
    port: int = option("port of the dashboard (default: a free one)", "N", parse_port, default=0)
    out: Path | None = option("the sweep's folder; an interrupted sweep continues in its folder", writes=FOLDER)

    def run_task(self, task: AnyTask, name: str) -> int:
        """Run the sweep with these options; returns the exit code."""
        from cluster.commands.console.crashes import command_folder
        from cluster.commands.sweeps.runner import check_task, ending_of, print_quiet_summary

        self.check_numbers()
        check_task(task, self.seeds[0])
        with command_folder(self.out, name, goes_on=True) as folder, all_tried() as trying:
            summary = self.run_in(folder, task, trying)
            _refresh_index(folder)
            if self.quiet:
                print_quiet_summary(console(), task, summary)
            with trying():
                self.outputs.write(ending_of(task, summary))
        return summary.exit_code

    def check_numbers(self) -> None:
        if self.port and not self.dashboard:
            raise BadInput("--port needs --dashboard: nothing else is served")
        if self.min_passed is not None and self.min_passed > len(self.seeds):
            most = len(self.seeds)
            raise BadInput(f"--min-passed {self.min_passed}: expected at most as many as there are --seeds, {most}")

    def run_in(self, folder: Path, task: AnyTask, trying: Trying) -> Summary:
        """Run the seeds of a task that its folder lacks, and try to write their summary."""
        from cluster.commands.sweeps.runner import sweep, write_summary
        from cluster.commands.sweeps.worker import WORKER_MEMORY_MIB
        from cluster.live.web.addresses import Served

        wanted = len(self.seeds) if self.min_passed is None else self.min_passed
        memory, output = self.memory or WORKER_MEMORY_MIB, console(quiet=self.quiet)
        served = Served(port=self.port) if self.dashboard else None
        summary = sweep(task, self.seeds, folder, self.workers, self.stop_on_fail, output, wanted, memory, served)
        with trying():
            write_summary(folder, summary.page())
        return summary


def _refresh_index(folder: Path) -> None:
    from cluster.report.run_index import refresh_index

    try:
        refresh_index(folder)
    except OSError as error:
        print_line(console(), f"the index of runs is not up to date: {error.strerror}")


@dataclass(frozen=True, kw_only=True)
class Sweep(SeedOptions, ChangeOptions, CodeOptions):
    TOPIC = Topic.SEARCH
    HELP = "run one scenario with many seeds in the simulator"

    scenario: Path = argument("SCENARIO", "scenario file (YAML), or the name of one that ships", Path)
    grid: Sequence[Axis] = option(
        "run the seeds with each of these values of a field, such as validators.count=4,7,16; repeatable: each"
        " combination is a cell with all seeds",
        "PATH=V1,V2,…",
        _parse_axis,
        repeats=True,
    )

    def run(self) -> int:
        if self.grid:
            return self._run_grid()
        return self.run_task(self._task(), f"sweep-{self.scenario.stem}")

    def _task(self, settings: Sequence[Change] = ()) -> ScenarioTask:
        """The scenario's task, with further settings after those of the command line."""
        from cluster.commands.sweeps.tasks import ScenarioTask

        changes = [*self.changes, *settings]
        return ScenarioTask.load(self.scenario, changes, shortcuts=not self.no_shortcuts)

    def _run_grid(self) -> int:
        from cluster.commands.console.crashes import command_folder
        from cluster.commands.sweeps import grid
        from cluster.commands.sweeps.runner import check_task, write_summary

        self.check_numbers()
        cells = grid.cells_of(self._task, self.grid, len(self.seeds), MAX_SEEDS)
        for cell in cells:
            check_task(cell.task, self.seeds[0])
        title = f"grid of {self._task().title}"
        name = f"grid-{self.scenario.stem}"
        with command_folder(self.out, name, goes_on=True) as folder, all_tried() as trying:

            def run_cell(cell: Cell) -> Summary:
                print_line(console(quiet=self.quiet), f"cell {cell.number} of {len(cells)}: {cell.title}")
                return self.run_in(folder / cell.folder, cell.task, trying)

            grid.begin_grid(folder, title, self.grid)
            done = grid.run_cells(cells, run_cell, self.stop_on_fail)
            ending = grid.ending_of(title, self.grid, cells, done)
            with trying():
                write_summary(folder, ending.page())
            _refresh_index(folder)
            grid.print_grid(console(), ending, self.quiet)
            with trying():
                self.outputs.write(ending)
        return grid.exit_code(done, ending.outcome)


@dataclass(frozen=True, kw_only=True)
class Fuzz(SeedOptions):
    TOPIC = Topic.SEARCH
    HELP = "run a random scenario per seed in the simulator"
    RUNS_CODE = False

    protocol: str = option("consensus (default %(default)s)", choices=("simplex", "hotstuff"), default="simplex")

    def run(self) -> int:
        from cluster.commands.sweeps.drawing.random_scenario import check_installed
        from cluster.commands.sweeps.tasks import FuzzTask

        check_installed()
        return self.run_task(FuzzTask(self.protocol, not self.no_shortcuts), f"fuzz-{self.protocol}")


COMMANDS: Final = {"sweep": Sweep, "fuzz": Fuzz}
