"""``stampede shrink``, ``replay`` and ``fork``: commands that take a run apart."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.commands.console.command import FILE, FOLDER, Topic, argument, flag, option
from cluster.commands.console.options import ChangeOptions, CodeOptions, ForceOption, parse_seed, whole_number
from cluster.commands.console.output import console
from cluster.common.errors import BadInput
from cluster.common.limits import MAX_HEIGHTS

DEFAULT_RUNS: Final = 300
MAX_RUNS: Final = 1_000_000


def _time(text: str) -> int:
    from cluster.commands.rerun.replay import parse_time_us

    try:
        return parse_time_us(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _kinds(text: str) -> list[str]:
    from cluster.commands.rerun.replay import parse_kinds

    try:
        return parse_kinds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class Shrink(CodeOptions):
    TOPIC = Topic.SEARCH
    HELP = "find the smallest scenario that fails in the same way as a run"

    given: Path = argument("RUN|SCENARIO", "a simulated run's folder, or a scenario file", Path)
    seed: int | None = option("seed (default: that of the run or the scenario)", "N", parse_seed)
    out: Path | None = option("write the result here (default: next to the input)", writes=FILE)
    runs: int = option(
        "give up after this many runs (default %(default)s)",
        "N",
        whole_number("number of runs", 1, MAX_RUNS),
        default=DEFAULT_RUNS,
    )
    check: str | None = option("the check that must still fail (default: the first to fail)", "NAME")
    saying: str = option("text that the check's detail must still contain", "TEXT", default="")

    def run(self) -> int:
        from cluster.commands.rerun.shrink import shrink

        return shrink(self.given, self.seed, self.out, self.runs, self.check, self.saying, console())


@dataclass(frozen=True, kw_only=True)
class Replay(CodeOptions):
    TOPIC = Topic.LOOK
    HELP = "print every event of a run: a simulated one is run again, a live one is read"

    folder: Path = argument("RUN", "a run's folder", Path)
    from_us: int = option("print events from this time on", "TIME", _time, name="--from", default=0)
    until_us: int | None = option("stop there (1500ms or 1.5s)", "TIME", _time, name="--until")
    validator: Sequence[str] = option("print events of this validator only; repeatable", "NAME", repeats=True)
    kind: Sequence[str] = option("print events of these kinds only", "KIND,…", _kinds, repeats=True, action="extend")
    step: bool = flag("wait for a key after each event (simulated runs, on a terminal)")
    force: bool = flag("print events even if they differ from the record")
    follow: bool = flag("print the events of a live run as they come, from its journal alone")

    def run(self) -> int:
        from cluster.commands.rerun.follow import follow
        from cluster.commands.rerun.replay import Filter, check_times, replay

        shown = Filter(self.from_us, self.until_us, kinds=frozenset(self.kind))
        check_times(shown)
        if self.follow:
            if self.step or self.force:
                raise BadInput("--follow: not with --step or --force")
            return follow(self.folder, shown, self.validator)
        return replay(self.folder, shown, self.validator, self.force, self.step and sys.stdin.isatty())


@dataclass(frozen=True, kw_only=True)
class Fork(ForceOption, ChangeOptions, CodeOptions):
    TOPIC = Topic.LOOK
    HELP = "run a simulated run again with other settings from a height on"

    folder: Path = argument("RUN", "a simulated run's folder", Path)
    at: int = option(
        "the settings apply when this height is first final",
        "HEIGHT",
        whole_number("height", 1, MAX_HEIGHTS),
        required=True,
    )
    seed: int | None = option("seed from that height on", "N", parse_seed)
    out: Path | None = option("the new run's folder (default runs/<time>-<scenario>)", writes=FOLDER)

    def run(self) -> int:
        from cluster.commands.rerun.fork import fork

        return fork(self.folder, self.at, self.changes, self.seed, self.out)


COMMANDS: Final = {"shrink": Shrink, "replay": Replay, "fork": Fork}
