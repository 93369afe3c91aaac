"""``stampede compare``: two runs, or two groups of runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from cluster.common.errors import BadInput, ExitCode
from cluster.tools.console.options import parse_seed
from cluster.tools.console.output import console


def add_commands(commands: Any) -> None:
    """Add the command to the console command's parser."""
    command = commands.add_parser(
        "compare",
        help="compare two runs, or two groups of runs, and show which differences are significant",
        description="stampede compare A B, or stampede compare --group A1 A2 … -- B1 B2 …; each is the folder of a run,"
        " a sweep or a scorecard of stampede dos, or a folder of such folders.",
    )
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="A and B; with --group the runs of B")
    command.add_argument("--group", nargs="+", type=Path, metavar="RUN", help="the runs of A, up to --")
    command.add_argument("--all", action="store_true", help="also show the metrics that did not change")
    command.add_argument("--seed", type=parse_seed, default=1, metavar="N", help="seed of the resampling (default 1)")
    command.add_argument("--json", type=Path, metavar="FILE", help="also write the comparison to FILE")
    command.add_argument("--html", type=Path, metavar="FILE", help="also write it to FILE as a page")
    command.set_defaults(command=_compare)


def _compare(options: argparse.Namespace) -> int:
    from cluster.common.files import write_for_user
    from cluster.tools.compare.comparison import compare
    from cluster.tools.compare.comparison_output import print_comparison, render_comparison
    from cluster.tools.compare.groups import read_group

    if options.group is None and len(options.runs) != 2:
        raise BadInput(f"expected two runs, got {len(options.runs)}; for groups: stampede compare --group A… -- B…")
    first, second = (options.group, options.runs) if options.group else (options.runs[:1], options.runs[1:])
    found = compare(read_group(first), read_group(second), options.seed)
    print_comparison(console(), found, options.all)
    if options.json is not None:
        write_for_user(options.json, json.dumps(found.page(), indent=2) + "\n")
    if options.html is not None:
        write_for_user(options.html, render_comparison(found))
    return ExitCode.PASS
