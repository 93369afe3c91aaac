"""``stampede actor check``: every problem of a program with its place and remedy, or what the program is."""

from __future__ import annotations

from pathlib import Path

from cluster.actors.programs import problem_line, problems_of, read_source
from cluster.actors.values import printable
from validator.params import DEFAULTS
from validator.pvm.deployment import deploy_cycles
from validator.pvm.subset import MAX_PROBLEMS, parse


def check(path: Path) -> bool:
    """Print what is wrong with a program, or what it is and costs. Raises :class:`~cluster.errors.BadInput` where it
    cannot be read."""
    source = read_source(path)
    problems = problems_of(source)
    for problem in problems:
        print(printable(problem_line(path, problem)))
    if len(problems) >= MAX_PROBLEMS:
        print(f"{path}: these are the first {MAX_PROBLEMS} problems")
    if not problems:
        print(f"{path}: {describe(source)}")
    return not problems


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
