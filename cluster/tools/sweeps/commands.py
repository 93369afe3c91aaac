"""``stampede sweep``: one scenario with many seeds. ``stampede fuzz``: a random scenario per seed."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.common.errors import BadInput
from cluster.common.limits import MAX_SEED
from cluster.tools.console.command import argument, flag, option
from cluster.tools.console.options import ChangeOptions, whole_number
from cluster.tools.console.output import console, print_line
from cluster.tools.console.outputs import OutputOptions

if TYPE_CHECKING:
    from cluster.tools.sweeps.tasks import AnyTask

MAX_SEEDS: Final = 1_000_000
"""Maximum number of seeds in a sweep."""
LEAST_MEMORY_MIB: Final = 128
worker_count: Final = whole_number("number of workers", 1, 1_024)


def seed_range(text: str) -> range:
    """Parse ``A:B`` as the seeds from A to B - 1."""
    first, colon, end = text.partition(":")
    problem = f"{text!r} is no range of seeds: expected A:B, two integers from 0 to 2**64 - 1, A below B"
    if not colon or not all(part.isascii() and part.isdecimal() for part in (first, end)):
        raise argparse.ArgumentTypeError(problem)
    seeds = range(int(first), int(end))
    if not seeds or seeds[-1] > MAX_SEED:
        raise argparse.ArgumentTypeError(problem)
    if len(seeds) > MAX_SEEDS:
        raise argparse.ArgumentTypeError(f"{text!r} are {len(seeds):,} seeds: expected at most {MAX_SEEDS:,}")
    return seeds


@dataclass(frozen=True, kw_only=True)
class SeedOptions(OutputOptions):
    """What ``sweep`` and ``fuzz`` have in common."""

    EPILOG = (
        "A failing seed leaves a run folder. A crash counts as a failure and leaves its traceback; others continue."
    )

    seeds: range = option("seeds A to B - 1", "A:B", seed_range, required=True)
    workers: int | None = option("worker processes (default: one per processor of each node)", "N", worker_count)
    memory: int | None = option(
        "memory of a worker (default: 2,048); a node runs as many as fit",
        "MIB",
        whole_number("number of MiB", LEAST_MEMORY_MIB, 2**20),
    )
    own_executions: bool = flag(
        "let every validator execute every block itself, as in each hundredth seed: to find nondeterminism"
    )
    stop_on_fail: bool = flag("stop at the first seed that fails")
    min_passed: int | None = option(
        "pass if no seed fails and N seeds pass; the others may be inconclusive (default: all seeds)",
        "N",
        whole_number("number of seeds", 1, MAX_SEEDS),
    )
    out: Path | None = option("the sweep's folder; an interrupted sweep continues in its folder", "DIR", Path)

    def run_task(self, task: AnyTask, name: str) -> int:
        """Run the sweep with these options; returns the exit code."""
        from cluster.record.folder import new_run_folder
        from cluster.report.run_index import refresh_index
        from cluster.tools.sweeps.runner import check_task, ending_of, print_quiet_summary, sweep
        from cluster.tools.sweeps.worker import WORKER_MEMORY_MIB

        wanted = len(self.seeds) if self.min_passed is None else self.min_passed
        if wanted > len(self.seeds):
            raise BadInput(f"--min-passed {wanted}: expected at most as many as there are --seeds, {len(self.seeds)}")
        check_task(task, self.seeds[0])
        self.outputs.check(self.out)
        folder, output = self.out or new_run_folder(name, datetime.now(UTC)), console(quiet=self.quiet)
        memory = self.memory or WORKER_MEMORY_MIB
        summary = sweep(task, self.seeds, folder, self.workers, self.stop_on_fail, output, wanted, memory)
        try:
            refresh_index(folder)
        except OSError as error:
            print_line(output, f"the index of runs is not up to date: {error.strerror}")
        if self.quiet:
            print_quiet_summary(console(), task, summary)
        self.outputs.write(ending_of(task, summary))
        return summary.exit_code


@dataclass(frozen=True, kw_only=True)
class Sweep(SeedOptions, ChangeOptions):
    HELP = "run one scenario with many seeds in the simulator"

    scenario: Path = argument("SCENARIO", "scenario file (YAML), or the name of one that ships", Path)

    def run(self) -> int:
        from cluster.tools.sweeps.tasks import ScenarioTask

        task = ScenarioTask.load(self.scenario, self.changes, shares=not self.own_executions)
        return self.run_task(task, f"sweep-{self.scenario.stem}")


@dataclass(frozen=True, kw_only=True)
class Fuzz(SeedOptions):
    HELP = "run a random scenario per seed in the simulator"

    protocol: str = option("consensus (default %(default)s)", choices=("simplex", "hotstuff"), default="simplex")

    def run(self) -> int:
        from cluster.tools.sweeps.drawing.random_scenario import check_installed
        from cluster.tools.sweeps.tasks import FuzzTask

        check_installed()
        return self.run_task(FuzzTask(self.protocol, shares=not self.own_executions), f"fuzz-{self.protocol}")


COMMANDS: Final = {"sweep": Sweep, "fuzz": Fuzz}
