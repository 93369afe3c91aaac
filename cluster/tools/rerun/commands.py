"""``stampede shrink``, ``replay`` and ``fork``: simulated runs, run again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from cluster.common.limits import MAX_HEIGHTS
from cluster.tools.console.options import add_change_options, parse_seed, whole_number
from cluster.tools.console.output import console

DEFAULT_RUNS: Final = 300
MAX_RUNS: Final = 1_000_000


def add_commands(commands: Any) -> None:
    """Add the commands to the console command's parser."""
    shrink = commands.add_parser("shrink", help="find the smallest scenario that fails in the same way as a run")
    shrink.add_argument("given", type=Path, metavar="RUN|SCENARIO", help="a simulated run's folder, or a scenario file")
    shrink.add_argument("--seed", type=parse_seed, metavar="N", help="seed (default: that of the run or the scenario)")
    shrink.add_argument("--out", type=Path, metavar="FILE", help="write the result here (default: next to the input)")
    shrink.add_argument(
        "--runs",
        type=whole_number("number of runs", 1, MAX_RUNS),
        metavar="N",
        default=DEFAULT_RUNS,
        help="give up after this many runs (default %(default)s)",
    )
    shrink.add_argument("--check", metavar="NAME", help="the check that must still fail (default: the first to fail)")
    shrink.add_argument("--saying", metavar="TEXT", default="", help="text that the check's detail must still contain")
    shrink.set_defaults(command=_shrink)

    replay = commands.add_parser("replay", help="run a simulated run again and print every event")
    replay.add_argument("run", type=Path, metavar="RUN", help="a simulated run's folder")
    replay.add_argument(
        "--from", dest="from_us", type=_time, default=0, metavar="TIME", help="print events from this time on"
    )
    replay.add_argument("--until", dest="until_us", type=_time, metavar="TIME", help="stop there (1500ms or 1.5s)")
    replay.add_argument(
        "--validator",
        action="append",
        default=[],
        metavar="NAME",
        help="print events of this validator only; repeatable",
    )
    replay.add_argument(
        "--kind", type=_kinds, action="extend", default=[], metavar="KIND,…", help="print events of these kinds only"
    )
    replay.add_argument("--step", action="store_true", help="wait for a key after each event (on a terminal)")
    replay.add_argument("--force", action="store_true", help="print events even if they differ from the record")
    replay.set_defaults(command=_replay)

    fork = commands.add_parser("fork", help="run a simulated run again with other settings from a height on")
    fork.add_argument("run", type=Path, metavar="RUN", help="a simulated run's folder")
    fork.add_argument(
        "--at",
        type=whole_number("height", 1, MAX_HEIGHTS),
        required=True,
        metavar="HEIGHT",
        help="the settings apply when this height is first final",
    )
    fork.add_argument("--seed", type=parse_seed, metavar="N", help="seed from that height on")
    fork.add_argument("--out", type=Path, metavar="DIR", help="the new run's folder (default runs/<time>-<scenario>)")
    add_change_options(fork)
    fork.set_defaults(command=_fork)


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


def _shrink(options: Any) -> int:
    from cluster.tools.rerun.shrink import shrink

    return shrink(options.given, options.seed, options.out, options.runs, options.check, options.saying, console())


def _replay(options: Any) -> int:
    from cluster.tools.rerun.player import Filter
    from cluster.tools.rerun.replay import replay

    shown = Filter(options.from_us, options.until_us, kinds=frozenset(options.kind))
    is_stepped = options.step and sys.stdin.isatty()
    return replay(options.run, shown, options.validator, options.force, is_stepped)


def _fork(options: Any) -> int:
    from cluster.tools.rerun.fork import fork

    return fork(options.run, options.at, options.changes, options.seed, options.out)
