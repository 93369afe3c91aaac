"""``stampede mutants``: the kill table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput, ExitCode
from cluster.common.suggestions import unknown
from cluster.tools.sweeps.commands import worker_count

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
        type=_seed_count,
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
    from cluster.common.files import check_target
    from cluster.tools.mutation.detection import all_mutants

    known = all_mutants()
    names = list(dict.fromkeys(options.only)) if options.only else list(known)
    for name in names:
        if name not in known:
            raise BadInput(f"--only: {unknown('mutant', name, known)}")
    check_target(options.json)
    check_target(options.junit)
    return detect_all(names, options.workers, options.json, _console(), options.junit, options.seeds)


def _seed_count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_SEEDS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seeds: expected 1 to {MAX_SEEDS}")
    return int(text)


def _console() -> Any:
    """As wide as the terminal, or as the table if there is none."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def detect_all(
    names: Sequence[str],
    workers: int | None,
    json_file: Path | None,
    console: Any,
    junit_file: Path | None = None,
    seeds: int = 1,
) -> int:
    """Plant mutants, print the table, write it to the files given, and return the exit code."""
    from cluster.common.files import write_for_user
    from cluster.tools.mutation.detection import page, table_xml
    from cluster.tools.mutation.table import print_table

    found = {}
    for number, kill in _detected(names, workers, seeds):
        found[number] = kill
        if console.is_terminal:
            word = "caught" if kill.caught else "survived"
            console.print(f"{len(found)} of {len(names)}  {kill.name} {word}", markup=False)
    kills = [found[number] for number in sorted(found)]
    print_table(console, kills)
    if json_file is not None:
        write_for_user(json_file, json.dumps(page(kills), indent=2) + "\n")
    if junit_file is not None:
        write_for_user(junit_file, table_xml(kills))
    return ExitCode.PASS if all(kill.caught for kill in kills) else ExitCode.FAIL


def _detected(names: Sequence[str], workers: int | None, seeds: int) -> Iterator[tuple[int, Any]]:
    """The result of each, by its place among the names; in this process if there is one worker, else over Ray."""
    from cluster.tools.sweeps.fanout import default_workers

    numbered = _Numbered(tuple(names), seeds)
    workers = min(workers or default_workers(), len(names))
    if workers == 1:
        for number in range(len(names)):
            yield number, numbered(number)
        return
    from cluster.common.interrupts import Interrupts
    from cluster.tools.sweeps.fanout import fan_out

    with Interrupts() as interrupts:
        yield from fan_out(numbered, range(len(names)), workers, interrupts, "mutant")


class _Numbered:
    """Plants a mutant by its number, in a worker process."""

    def __init__(self, names: tuple[str, ...], seeds: int) -> None:
        self.names = names
        self.seeds = seeds

    def __call__(self, number: int) -> Any:
        from cluster.tools.mutation.detection import detect

        return detect(self.names[number], self.seeds)
