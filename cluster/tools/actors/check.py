"""``stampede actor check``: every problem of a program with its place and remedy, or what the program is."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cluster.common.wording import printable
from cluster.tools.actors.advice import advice
from cluster.tools.actors.programs import problem_line, problems_of, read_source
from validator.primitives.params import DEFAULTS
from validator.pvm.deployment import deploy_cycles
from validator.pvm.language.source import Problem
from validator.pvm.language.subset import MAX_PROBLEMS, Program, parse


class Checked(NamedTuple):
    """The result of a check."""

    is_fine: bool
    """Whether it may be deployed, be there advice or not."""
    lines: list[str]
    """The problems, or what the program is and costs, behind what its author should look at."""


def check(path: Path) -> Checked:
    """Check a program's file. Raises :class:`~cluster.common.errors.BadInput` if it cannot be read."""
    source = read_source(path)
    problems = problems_of(source)
    if problems:
        lines = [printable(problem_line(path, problem)) for problem in problems]
        if len(problems) >= MAX_PROBLEMS:
            lines.append(f"{path}: these are the first {MAX_PROBLEMS} problems")
        return Checked(False, lines)
    program = parse(source)
    warnings = advice(program, source)
    lines = [printable(problem_line(path, _as_warning(warning))) for warning in warnings]
    return Checked(True, [*lines, f"{path}: {describe(program, source, len(warnings))}"])


def _as_warning(problem: Problem) -> Problem:
    return problem._replace(what=f"warning: {problem.what}")


def describe(program: Program, source: str, warnings: int = 0) -> str:
    """A program that may be deployed, in one line."""
    handlers = ", ".join(program.handlers) or "none"
    bids = "bids for its timers" if program.bids else "leaves bidding to the default agent"
    cycles = DEFAULTS.tx_base_cycles + deploy_cycles(source)
    counted = "" if not warnings else f" but for {warnings} warning{'s' if warnings > 1 else ''}"
    return (
        f"{program.name} is fine{counted}: handlers {handlers}; {bids}; "
        f"{len(source):,} bytes; deploying it costs {cycles:,} cycles and {len(source):,} cells"
    )
