"""``stampede runs``: the index of the runs that were kept. ``stampede compare``: two of them, or two groups."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput, ExitCode
from cluster.tools.console.options import parse_seed

SHOWN: Final = 30
"""Runs on the terminal, unless all are asked for."""
PLAIN_WIDTH: Final = 180
"""Columns of a table that goes to a file or another program."""
WHY_SHOWN: Final = 60
WIDE_FROM: Final = 110
"""Columns of a terminal; with fewer the page alone has the commit and the reason: folder and scenario need the room."""
COMMIT_DIGITS: Final = 7
DIRTY: Final = "-dirty"


def add_commands(commands: Any) -> None:
    """Add the commands to the console command's parser."""
    runs = commands.add_parser("runs", help="list the runs that were kept, and write their index page anew")
    runs.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="default: runs")
    runs.add_argument("--all", action="store_true", help=f"list more than the {SHOWN} newest")
    runs.add_argument("--json", type=Path, metavar="FILE", help="write the index there too")
    runs.set_defaults(command=_runs)
    _add_compare(commands)


def _add_compare(commands: Any) -> None:
    command = commands.add_parser(
        "compare",
        help="put two runs, or two groups of runs, side by side and say what changed significantly",
        description="stampede compare A B, or stampede compare --group A1 A2 … -- B1 B2 …; each a run's folder, a"
        " sweep's, or a folder that holds such folders.",
    )
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="A and B; with --group the runs of B")
    command.add_argument("--group", nargs="+", type=Path, metavar="RUN", help="the runs of A, up to --")
    command.add_argument("--all", action="store_true", help="also the figures that did not change")
    command.add_argument("--seed", type=parse_seed, default=1, metavar="N", help="of the resampling (default 1)")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the comparison there too")
    command.add_argument("--html", type=Path, metavar="FILE", help="write it there as a page")
    command.set_defaults(command=_compare)


def _compare(options: argparse.Namespace) -> int:
    from cluster.common.files import write_for_user
    from cluster.tools.compare.comparison import compare
    from cluster.tools.compare.comparison_table import print_comparison
    from cluster.tools.compare.groups import read_group
    from cluster.tools.compare.page import render_comparison

    if options.group is None and len(options.runs) != 2:
        raise BadInput(f"expected two runs, got {len(options.runs)}; for groups: stampede compare --group A… -- B…")
    first, second = (options.group, options.runs) if options.group else (options.runs[:1], options.runs[1:])
    found = compare(read_group(first), read_group(second), options.seed)
    print_comparison(terminal(), found, options.all)
    if options.json is not None:
        write_for_user(options.json, json.dumps(found.page(), indent=2) + "\n")
    if options.html is not None:
        write_for_user(options.html, render_comparison(found))
    return ExitCode.PASS


def _runs(options: argparse.Namespace) -> int:
    from cluster.common.files import write_for_user
    from cluster.record.folder import RUNS_FOLDER
    from cluster.report.run_index import INDEX_FILE, write_index

    folder = RUNS_FOLDER if options.folder is None else options.folder
    try:
        entries = write_index(folder)
    except OSError as error:
        raise BadInput(f"{error.filename or folder}: {error.strerror}") from None
    console = terminal()
    _print(console, entries if options.all else entries[:SHOWN])
    if len(entries) > SHOWN and not options.all:
        console.print(f"{len(entries) - SHOWN} older ones: --all")
    console.print(f"index  {folder / INDEX_FILE}", soft_wrap=True, markup=False)
    if options.json is not None:
        write_for_user(options.json, json.dumps([entry.page() for entry in entries], indent=2) + "\n")
    return ExitCode.PASS


def terminal() -> Any:
    """As wide as the terminal, or as a table where there is none."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def _print(console: Any, entries: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    from cluster.tools.console.terminal import SIGNS, STYLES

    table = Table(box=None, pad_edge=False, header_style="bold")
    headings = ["verdict", "run", "scenario", "backend", "seed", "duration"]
    headings += ["commit", "why"] if console.width >= WIDE_FROM else []
    for heading in headings:
        right, is_folded = heading in ("seed", "duration"), heading in ("run", "scenario", "why")
        table.add_column(heading, justify="right" if right else "left", overflow="fold", no_wrap=not is_folded)
    for entry in entries:
        known = entry.outcome
        state = Text(entry.state if known is None else f"{SIGNS[known]} {known.value}", STYLES.get(known, "dim"))
        duration = "" if entry.duration_s is None else f"{entry.duration_s:,.1f} s"
        why = entry.note if len(entry.note) <= WHY_SHOWN else f"{entry.note[:WHY_SHOWN]}…"
        commit = entry.commit[:COMMIT_DIGITS] + (DIRTY if entry.commit.endswith(DIRTY) else "")
        row = (state, Text(entry.name), Text(entry.scenario), entry.backend, entry.seed, duration, commit, Text(why))
        table.add_row(*row[: len(headings)])
    console.print(table)
