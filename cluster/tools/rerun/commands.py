"""``stampede shrink``, ``replay`` and ``fork``: runs of the simulator that run again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from cluster.common.limits import MAX_HEIGHTS
from cluster.tools.console.options import add_change_options, parse_seed

DEFAULT_RUNS: Final = 300
MAX_RUNS: Final = 1_000_000


def add_commands(commands: Any) -> None:
    """Add the commands to the console command's parser."""
    shrink = commands.add_parser("shrink", help="find the smallest scenario that still fails as a run did")
    shrink.add_argument("given", type=Path, metavar="RUN|SCENARIO", help="a simulated run's folder, or a scenario file")
    shrink.add_argument("--seed", type=parse_seed, metavar="N", help="another seed than the run's or the scenario's")
    shrink.add_argument("--out", type=Path, metavar="FILE", help="for the result (default: beside what is given)")
    shrink.add_argument(
        "--runs", type=_runs, metavar="N", default=DEFAULT_RUNS, help="try at most so many (default %(default)s)"
    )
    shrink.add_argument("--check", metavar="NAME", help="the check that must go on failing (default: the first)")
    shrink.add_argument("--saying", metavar="TEXT", default="", help="what the check's detail must go on saying")
    shrink.set_defaults(command=_shrink)

    replay = commands.add_parser("replay", help="show everything that happened in a simulated run")
    replay.add_argument("run", type=Path, metavar="RUN", help="a simulated run's folder")
    replay.add_argument("--from", dest="from_us", type=_time, default=0, metavar="TIME", help="show nothing before")
    replay.add_argument("--until", dest="until_us", type=_time, metavar="TIME", help="stop there (ms; or s, as 1.5s)")
    replay.add_argument("--validator", action="append", default=[], metavar="NAME", help="only what concerns it")
    replay.add_argument("--kind", type=_kinds, action="extend", default=[], metavar="KIND,…", help="only such lines")
    replay.add_argument("--step", action="store_true", help="go step by step, where the input is a terminal")
    replay.add_argument("--force", action="store_true", help="show it even where it is not the run that was recorded")
    replay.set_defaults(command=_replay)

    fork = commands.add_parser("fork", help="go on from a height of a simulated run with other settings")
    fork.add_argument("run", type=Path, metavar="RUN", help="a simulated run's folder")
    fork.add_argument("--at", type=_height, required=True, metavar="HEIGHT", help="when it is first final, they apply")
    fork.add_argument("--seed", type=parse_seed, metavar="N", help="another seed for what follows")
    fork.add_argument("--out", type=Path, metavar="DIR", help="the new run's folder (default runs/<time>-<scenario>)")
    add_change_options(fork)
    fork.set_defaults(command=_fork)


def _height(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_HEIGHTS):
        raise argparse.ArgumentTypeError(f"{text!r} is no height: expected 1 to {MAX_HEIGHTS}")
    return int(text)


def _time(text: str) -> int:
    from cluster.tools.rerun.player import parse_time_us

    try:
        return parse_time_us(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _kinds(text: str) -> list[str]:
    from cluster.tools.rerun.replay import parse_kinds

    try:
        return parse_kinds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _runs(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_RUNS):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of runs: expected 1 to {MAX_RUNS}")
    return int(text)


def _shrink(options: Any) -> int:
    from rich.console import Console

    from cluster.tools.rerun.shrink import shrink

    console = Console(file=sys.stdout, highlight=False)
    return shrink(options.given, options.seed, options.out, options.runs, options.check, options.saying, console)


def _replay(options: Any) -> int:
    from cluster.tools.rerun.player import Filter
    from cluster.tools.rerun.replay import replay

    shown = Filter(options.from_us, options.until_us, kinds=frozenset(options.kind))
    is_stepped = options.step and sys.stdin.isatty()
    return replay(options.run, shown, options.validator, options.force, is_stepped)


def _fork(options: Any) -> int:
    from cluster.tools.rerun.fork import fork

    return fork(options.run, options.at, options.changes, options.seed, options.out)
