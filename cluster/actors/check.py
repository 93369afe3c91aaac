"""``stampede actor check``: every problem of a program with its place and remedy, or what the program is."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cluster.actors.programs import problem_line, problems_of, read_source
from cluster.actors.values import printable
from validator.params import DEFAULTS
from validator.pvm.deployment import deploy_cycles
from validator.pvm.subset import MAX_PROBLEMS, parse


class Checked(NamedTuple):
    """What a check came to."""

    is_fine: bool
    lines: list[str]
    """The problems, or what the program is and costs."""


def check(path: Path) -> Checked:
    """Check a program's file. Raises :class:`~cluster.errors.BadInput` where it cannot be read."""
    source = read_source(path)
    problems = problems_of(source)
    if not problems:
        return Checked(True, [f"{path}: {describe(source)}"])
    lines = [printable(problem_line(path, problem)) for problem in problems]
    if len(problems) >= MAX_PROBLEMS:
        lines.append(f"{path}: these are the first {MAX_PROBLEMS} problems")
    return Checked(False, lines)


def describe(source: str) -> str:
    """A program that may be deployed, in one line."""
    program = parse(source)
    handlers = ", ".join(program.handlers) or "none"
    bids = "bids for its timers" if program.bids else "leaves bidding to the default agent"
    cycles = DEFAULTS.tx_base_cycles + deploy_cycles(source)
    return (
        f"{program.name} is fine: handlers {handlers}; {bids}; "
        f"{len(source):,} bytes; deploying it costs {cycles:,} cycles and {len(source):,} cells"
    )
