"""``stampede mutants``: the kill table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.common.errors import BadInput, ExitCode
from cluster.common.suggestions import unknown
from cluster.tools.console.options import whole_number
from cluster.tools.console.output import console
from cluster.tools.sweeps.commands import worker_count

if TYPE_CHECKING:
    from cluster.tools.sweeps.mutation.detection import Kill

DEFAULT_SEEDS: Final = 4
MAX_SEEDS: Final = 1_000
PLAIN_WIDTH: Final = 200
"""Columns of a table that goes to a file or another program."""


def add_commands(commands: Any) -> None:
    """Add the command to the console command's parser."""
    command = commands.add_parser(
        "mutants",
        help="plant known bugs and print which check catches each",
        description="Runs the harness against planted bugs. 0: all are caught, 1: one survives.",
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="write the table there too")
    command.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML there, a test case a mutant")
    command.add_argument(
        "--seeds",
        type=whole_number("number of seeds", 1, MAX_SEEDS),
        default=DEFAULT_SEEDS,
        metavar="N",
        help="seeds of its scenario, from 1 on, over which each is counted (default: %(default)s); more are tried"
        " until it is caught",
    )
    command.add_argument("--only", nargs="+", metavar="NAME", help="plant these only")
    command.add_argument(
        "--workers", type=worker_count, metavar="N", help="worker processes (default: one a processor)"
    )
    command.set_defaults(command=_mutants)


def _mutants(options: argparse.Namespace) -> int:
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
    for number, kill in _detected(names, options.workers, options.seeds):
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
    """The result of each, by its place among the names."""
    from cluster.tools.sweeps.fanout import run_numbers

    return run_numbers(partial(_detect_numbered, names, seeds), len(names), workers, "mutant")


def _detect_numbered(names: Sequence[str], seeds: int, number: int, leaves: Path) -> Kill:
    from cluster.tools.sweeps.mutation.detection import detect

    return detect(names[number], seeds)
