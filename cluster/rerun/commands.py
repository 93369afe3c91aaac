"""``stampede shrink``, ``replay`` and ``fork``: runs of the simulator that run again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from cluster.options import parse_seed

MAX_RUNS: Final = 1_000_000


def add_commands(commands: Any) -> None:
    """Add the commands to the console command's parser."""
    shrink = commands.add_parser("shrink", help="find the smallest scenario that still fails as a run did")
    shrink.add_argument("given", type=Path, metavar="RUN|SCENARIO", help="a simulated run's folder, or a scenario file")
    shrink.add_argument("--seed", type=parse_seed, metavar="N", help="another seed than the run's or the scenario's")
    shrink.add_argument("--out", type=Path, metavar="FILE", help="for the result (default: beside what is given)")
    shrink.add_argument("--runs", type=_runs, metavar="N", default=300, help="try at most so many (default 300)")
    shrink.add_argument("--check", metavar="NAME", help="the check that must go on failing (default: the first)")
    shrink.set_defaults(command=_shrink)


def _runs(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_RUNS):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of runs: expected 1 to {MAX_RUNS}")
    return int(text)


def _shrink(options: Any) -> int:
    from rich.console import Console

    from cluster.rerun.shrink import shrink

    console = Console(file=sys.stdout, highlight=False)
    return shrink(options.given, options.seed, options.out, options.runs, options.check, console)
