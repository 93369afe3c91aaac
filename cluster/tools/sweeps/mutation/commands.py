"""``stampede mutants``: the kill table, and the search for machine-made bugs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.common.errors import BadInput, ExitCode
from cluster.common.suggestions import unknown
from cluster.tools.console.options import parse_seed, whole_number
from cluster.tools.console.output import console
from cluster.tools.sweeps.commands import check_targets, worker_count

if TYPE_CHECKING:
    from cluster.tools.sweeps.mutation.detection import Kill

DEFAULT_SEEDS: Final = 4
DEFAULT_MACHINE_SEEDS: Final = 20
MAX_BUGS: Final = 10_000
OF_MACHINE: Final = ("machine_seed", "scenarios", "least", "out")
"""Options that mean nothing without ``--machine``."""
MAX_SEEDS: Final = 1_000
PLAIN_WIDTH: Final = 200
"""Columns of a table that is written to a file or a pipe."""


def add_commands(commands: Any) -> None:
    """Add the command to the console command's parser."""
    command = commands.add_parser(
        "mutants",
        help="plant known bugs and print which check catches each",
        description="Runs the harness against planted bugs. 0: all are caught, 1: one survives. With --machine: 0: all"
        " were tried, 1: a smaller share than --least was seen, 3: it was interrupted.",
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="write the table there too")
    command.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML there, a test case a mutant")
    command.add_argument(
        "--seeds",
        type=whole_number("number of seeds", 1, MAX_SEEDS),
        metavar="N",
        help=f"seeds of its scenario, from 1 on, over which each is counted (default: {DEFAULT_SEEDS}); more are tried"
        " until it is caught; with --machine: seeds of each protocol and scenario, from 0 on"
        f" (default: {DEFAULT_MACHINE_SEEDS})",
    )
    command.add_argument(
        "--only", nargs="+", metavar="NAME", help="plant these only; with --machine: change code below these paths only"
    )
    command.add_argument(
        "--workers", type=worker_count, metavar="N", help="worker processes (default: one a processor)"
    )
    command.add_argument(
        "--machine",
        type=whole_number("number of bugs", 1, MAX_BUGS),
        metavar="N",
        help="derive N bugs from the code, and say what share of them random scenarios detect",
    )
    command.add_argument(
        "--machine-seed", type=parse_seed, metavar="N", help="with --machine: the seed of the draw (default: 0)"
    )
    command.add_argument(
        "--scenarios",
        nargs="+",
        type=Path,
        metavar="SCENARIO",
        help="with --machine: run these too; files, or names of scenarios that ship",
    )
    command.add_argument(
        "--least",
        type=whole_number("percentage", 0, 100),
        metavar="N",
        help="with --machine: fail if less than N percent are seen",
    )
    command.add_argument(
        "--out", type=Path, metavar="DIR", help="with --machine: its folder; an interrupted search continues there"
    )
    command.set_defaults(command=_mutants)


def _mutants(options: argparse.Namespace) -> int:
    if options.machine is not None:
        return _machine(options)
    for name in OF_MACHINE:
        if getattr(options, name) is not None:
            raise BadInput(f"--{name.replace('_', '-')}: expected together with --machine N")
    return _kill_table(options)


def _machine(options: argparse.Namespace) -> int:
    from cluster.common.files import write_for_user
    from cluster.tools.console.output import print_line
    from cluster.tools.sweeps.drawing.random_scenario import check_installed
    from cluster.tools.sweeps.mutation.machine.report import page, print_search, search_xml
    from cluster.tools.sweeps.mutation.machine.search import Plan, search
    from cluster.tools.sweeps.runner import check_task
    from cluster.tools.sweeps.tasks import ScenarioTask

    check_installed()
    scenarios = tuple(ScenarioTask.load(path) for path in options.scenarios or ())
    for task in scenarios:
        check_task(task, 0)
    check_targets(options)
    seeds = options.seeds or DEFAULT_MACHINE_SEEDS
    plan = Plan(options.machine, seeds, options.machine_seed or 0, tuple(options.only or ()), scenarios)
    output = console(PLAIN_WIDTH)
    found = search(plan, options.out, options.workers, lambda line: print_line(output, line))
    print_search(output, found)
    if options.json is not None:
        write_for_user(options.json, json.dumps(page(found), indent=2) + "\n")
    if options.junit is not None:
        write_for_user(options.junit, search_xml(found))
    if not found.is_complete:
        return ExitCode.INCONCLUSIVE
    return ExitCode.FAIL if found.percent_seen < (options.least or 0) else ExitCode.PASS


def _kill_table(options: argparse.Namespace) -> int:
    from cluster.common.files import check_target, write_for_user
    from cluster.tools.sweeps.mutation.detection import all_mutants, page, table_xml
    from cluster.tools.sweeps.mutation.table import print_table

    known = all_mutants()
    names = list(dict.fromkeys(options.only)) if options.only else list(known)
    for name in names:
        if name not in known:
            raise BadInput(f"--only: {unknown('mutant', name, known)}")
    check_target(options.json)
    check_target(options.junit)
    output = console(PLAIN_WIDTH)
    found: dict[int, Kill] = {}
    for number, kill in _detected(names, options.workers, options.seeds or DEFAULT_SEEDS):
        found[number] = kill
        if output.is_terminal:
            word = "caught" if kill.caught else "survived"
            output.print(f"{len(found)} of {len(names)}  {kill.name} {word}", markup=False)
    kills = [found[number] for number in sorted(found)]
    print_table(output, kills)
    if options.json is not None:
        write_for_user(options.json, json.dumps(page(kills), indent=2) + "\n")
    if options.junit is not None:
        write_for_user(options.junit, table_xml(kills))
    return ExitCode.PASS if all(kill.caught for kill in kills) else ExitCode.FAIL


def _detected(names: Sequence[str], workers: int | None, seeds: int) -> Iterator[tuple[int, Kill]]:
    """The kill of each mutant, with its index in ``names``."""
    from cluster.tools.sweeps.fanout import run_numbers

    return run_numbers(partial(_detect_numbered, names, seeds), len(names), workers, "mutant")


def _detect_numbered(names: Sequence[str], seeds: int, number: int, leaves: Path) -> Kill:
    from cluster.tools.sweeps.mutation.detection import detect

    return detect(names[number], seeds)
