"""``stampede sweep``: one scenario with many seeds. ``stampede fuzz``: a random scenario per seed."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput
from cluster.common.limits import MAX_SEED
from cluster.tools.console.options import add_change_options, whole_number
from cluster.tools.console.output import console, print_line

MAX_SEEDS: Final = 1_000_000
"""Limit per sweep."""
LEAST_MEMORY_MIB: Final = 128
FAILURES: Final = (
    "A failing seed leaves a run folder. A crash counts as a failure and leaves its traceback; others continue."
)
worker_count: Final = whole_number("number of workers", 1, 1_024)


def add_commands(commands: Any) -> None:
    """Add the commands to the console command's parser."""
    sweep = commands.add_parser("sweep", help="run one scenario with many seeds in the simulator", epilog=FAILURES)
    sweep.add_argument(
        "scenario", type=Path, metavar="SCENARIO", help="scenario file (YAML), or the name of one that ships"
    )
    add_change_options(sweep)
    _add_options(sweep)
    sweep.set_defaults(command=_sweep)

    fuzz = commands.add_parser("fuzz", help="run a random scenario per seed in the simulator", epilog=FAILURES)
    fuzz.add_argument(
        "--protocol", choices=("simplex", "hotstuff"), default="simplex", help="consensus (default %(default)s)"
    )
    _add_options(fuzz)
    fuzz.set_defaults(command=_fuzz)


def _add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seeds", type=seed_range, required=True, metavar="A:B", help="seeds A to B - 1")
    command.add_argument(
        "--workers", type=worker_count, metavar="N", help="worker processes (default: one per processor of each node)"
    )
    command.add_argument(
        "--memory",
        type=whole_number("number of MiB", LEAST_MEMORY_MIB, 2**20),
        metavar="MIB",
        help="memory of a worker (default: 2,048); a node runs as many as fit",
    )
    command.add_argument(
        "--own-executions",
        action="store_true",
        help="let every validator execute every block itself, as in each hundredth seed: to find nondeterminism",
    )
    command.add_argument("--stop-on-fail", action="store_true", help="stop at the first seed that fails")
    command.add_argument(
        "--min-passed",
        type=whole_number("number of seeds", 1, MAX_SEEDS),
        metavar="N",
        help="pass if no seed fails and N seeds pass; the others may be inconclusive (default: all seeds)",
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="also write the summary to FILE")
    command.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML to FILE, a test case per seed")
    command.add_argument(
        "--out", type=Path, metavar="DIR", help="the sweep's folder; an interrupted sweep continues in its folder"
    )


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


def _sweep(options: Any) -> int:
    from cluster.tools.sweeps.tasks import ScenarioTask

    task = ScenarioTask.load(options.scenario, options.changes, shares=not options.own_executions)
    return run_task(task, f"sweep-{options.scenario.stem}", options)


def _fuzz(options: Any) -> int:
    from cluster.tools.sweeps.drawing.random_scenario import check_installed
    from cluster.tools.sweeps.tasks import FuzzTask

    check_installed()
    return run_task(FuzzTask(options.protocol, shares=not options.own_executions), f"fuzz-{options.protocol}", options)


def check_targets(options: Any) -> None:
    """Check that ``--json`` and ``--junit`` can be written, unless they are in the folder of ``--out``, which is made
    later. Raises :class:`BadInput`."""
    from cluster.common.files import check_target

    for file in (options.json, options.junit):
        if file is not None and (options.out is None or file.parent.resolve() != options.out.resolve()):
            check_target(file)


def run_task(task: Any, name: str, options: Any) -> int:
    """Run the sweep with these options; returns the exit code."""
    from cluster.common.files import write_for_user
    from cluster.record.folder import new_run_folder
    from cluster.report.run_index import refresh_index
    from cluster.tools.sweeps.runner import check_task, sweep, sweep_xml
    from cluster.tools.sweeps.worker import WORKER_MEMORY_MIB

    wanted = len(options.seeds) if options.min_passed is None else options.min_passed
    if wanted > len(options.seeds):
        raise BadInput(f"--min-passed {wanted}: expected at most as many as there are --seeds, {len(options.seeds)}")
    check_task(task, options.seeds[0])
    check_targets(options)
    folder = options.out or new_run_folder(name, datetime.now(UTC))
    output = console()
    workers, memory = options.workers, options.memory or WORKER_MEMORY_MIB
    summary = sweep(task, options.seeds, folder, workers, options.stop_on_fail, output, wanted, memory)
    try:
        refresh_index(folder)
    except OSError as error:
        print_line(output, f"the index of runs is not up to date: {error.strerror}")
    if options.json is not None:
        write_for_user(options.json, json.dumps(summary.page(), indent=2) + "\n")
    if options.junit is not None:
        write_for_user(options.junit, sweep_xml(task, summary))
    return summary.exit_code
