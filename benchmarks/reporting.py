"""What every benchmark shares: options, lanes, what is printed, the JSON file, the exit code.

``python benchmarks/NAME.py [--quick] [--full] [--json FILE]``. A benchmark is a list of *lanes*, which are measured one
after the other. A lane is a measurement and the metrics that it gives. Each figure is printed as soon as it is had.

- The JSON file has every metric of every lane: ``{"metric": {"value": x, "unit": "…", "goal": y}}``. ``goal`` is
  ``null`` if there is none. ``value`` is ``null`` if the figure could not be had; then ``reason`` says why. The file is
  written however the benchmark ends, also after Ctrl-C and SIGTERM.
- A lane that fails does not keep the others from running.
- Exit codes are those of the command line: a missed goal fails, a figure that could not be had is inconclusive, an
  exception that was not expected is a crash.
- ``--quick`` shows that the benchmark works. Its figures mean nothing, and its goals are not judged.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, TypeVar

# A benchmark may be named as a package is, and Python looks for modules beside the benchmark first. Every benchmark
# imports this module, or one that does, before any package; what is measured is the tree that the benchmark is in.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console
from rich.table import Table

from cluster.common.errors import ExitCode, HarnessError

MAX_MINUTES: Final = 5
"""A run with neither ``--quick`` nor ``--full`` takes at most as long, on two idle cores."""

T = TypeVar("T")


class Unavailable(HarnessError):
    """A figure could not be had."""


class Size(IntEnum):
    """How large a run the user asked for."""

    QUICK = 0
    USUAL = 1
    FULL = 2

    def of(self, quick: T, usual: T, full: T | None = None) -> T:
        """The value for this size. Without ``full``, a full run has the usual one."""
        if self is Size.QUICK:
            return quick
        return usual if full is None or self is Size.USUAL else full


class Metric(NamedTuple):
    """What a figure is. ``at_least`` says on which side of the goal is good."""

    name: str
    unit: str = ""
    goal: float | None = None
    at_least: bool = True


class Lane(NamedTuple):
    """A measurement, and the metrics that it gives.

    ``measure`` returns a figure, or makes several in the order of the metrics, each as soon as it has it. It raises
    :class:`~cluster.common.errors.HarnessError` if it cannot have one. A run smaller than ``least`` leaves the lane
    out.
    """

    measure: Callable[[], float | Iterable[float]]
    metrics: Sequence[Metric]
    least: Size = Size.QUICK


class Result(NamedTuple):
    """What became of a metric."""

    metric: Metric
    size: Size
    value: float | None = None
    reason: str = ""
    """Why there is no figure."""
    is_left_out: bool = False
    is_crash: bool = False
    """Whether an exception that was not expected is the reason."""

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is reached; ``None`` if there is none, or no figure that could reach it."""
        goal = self.metric.goal
        if goal is None or self.value is None or self.size is Size.QUICK:
            return None
        return self.value >= goal if self.metric.at_least else self.value <= goal

    def line(self, width: int) -> str:
        """The metric's name, ``width`` characters wide, and what became of it."""
        value, text = ("–", self.reason) if self.value is None else (f"{self.value:,.2f}", self.metric.unit)
        line = f"{self.metric.name:{width}}  {value:>14}  {text}"
        if self.metric.goal is not None:
            line += f"  {'≥' if self.metric.at_least else '≤'} {self.metric.goal:,g}"
        return line + {None: "", True: " ✓", False: " ✕"}[self.is_met]

    def page(self) -> dict[str, float | str | None]:
        """The metric as the JSON file has it."""
        page = {"value": self.value, "unit": self.metric.unit, "goal": self.metric.goal}
        return page | {"reason": self.reason} if self.value is None else page


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for files, removed at the end. What is removed meanwhile by what a benchmark runs is no error."""
    with tempfile.TemporaryDirectory(prefix="stampede-benchmark-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def resident_bytes() -> int:
    """The process's resident set, without garbage."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_memory_mb() -> float:
    """The most that this process had resident since it was executed."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1_024 / 1e6


def run_benchmark(
    description: str | None,
    lanes: Callable[[Size], list[Lane]],
    minutes: float,
    full: str | None = None,
    table: Callable[[dict[str, float]], Table] | None = None,
) -> NoReturn:
    """Parse the options, measure, print each figure, write the JSON file, end with the exit code.

    ``minutes``: how long a run without options takes on two idle cores, at most :data:`MAX_MINUTES`. ``full`` says what
    ``--full`` adds and how long it takes; without it there is no such option. ``table`` makes a table of the figures,
    which is printed at the end.
    """
    assert minutes <= MAX_MINUTES, f"at most {MAX_MINUTES} minutes"
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--json", type=argparse.FileType("w", encoding="utf-8"), metavar="FILE", help="for the figures")
    sizes = parser.add_mutually_exclusive_group()
    quick = "at most 20 s; shows that the benchmark works, and its figures mean nothing"
    sizes.add_argument("--quick", dest="size", action="store_const", const=Size.QUICK, default=Size.USUAL, help=quick)
    if full is not None:
        sizes.add_argument("--full", dest="size", action="store_const", const=Size.FULL, help=full)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    takes = {Size.QUICK: quick, Size.USUAL: f"about {minutes:g} min on two idle cores", Size.FULL: full}
    print(takes[options.size], flush=True)
    planned, began = lanes(options.size), time.monotonic()
    results = {m.name: Result(m, options.size, reason="the run ended before") for lane in planned for m in lane.metrics}
    assert len(results) == sum(len(lane.metrics) for lane in planned), "each metric is of one lane"
    try:
        for lane in planned:
            for result in measured(lane, options.size):
                results[result.metric.name] = result
                print(result.line(max(map(len, results))), flush=True)
    finally:
        if options.json is not None:
            json.dump({name: result.page() for name, result in results.items()}, options.json, indent=2)
            options.json.close()
    if table is not None:
        Console().print(table({name: each.value for name, each in results.items() if each.value is not None}))
    print(f"took {time.monotonic() - began:.0f} s")
    sys.exit(exit_code(list(results.values())))


def measured(lane: Lane, size: Size) -> Iterator[Result]:
    """Measure a lane: a result for each of its metrics, as soon as there is a figure or a reason for none."""
    left = list(reversed(lane.metrics))
    is_crash = False
    if size < lane.least:
        reason = "only with --full" if lane.least is Size.FULL else "not with --quick"
    else:
        reason = "the lane gave too few figures"
        try:
            found = lane.measure()
            for figure in [found] if isinstance(found, int | float) else found:
                is_one = math.isfinite(figure)
                yield Result(left.pop(), size, figure if is_one else None, "" if is_one else f"it is {figure}")
        except HarnessError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - the other lanes are measured all the same
            traceback.print_exc()
            reason, is_crash = f"{type(error).__name__}: {error}", True
    for metric in reversed(left):
        yield Result(metric, size, reason=reason, is_left_out=size < lane.least, is_crash=is_crash)


def exit_code(results: Sequence[Result]) -> ExitCode:
    """A missed goal fails; otherwise a figure that could not be had is inconclusive. Prints the names of both."""
    missed = [result.metric.name for result in results if result.is_met is False]
    unavailable = [result.metric.name for result in results if result.value is None and not result.is_left_out]
    if missed:
        print(f"goals missed: {', '.join(missed)}")
    if unavailable:
        print(f"without a figure: {', '.join(unavailable)}")
    if any(result.is_crash for result in results):
        return ExitCode.CRASH
    return ExitCode.FAIL if missed else ExitCode.INCONCLUSIVE if unavailable else ExitCode.PASS
