"""``stampede conform`` against this implementation's own tool: cases a minute, and where the time goes.

- ``cases_per_minute``: cases that are made, answered by both sides and compared, with a tool that stays up and a worker
  for each processor; ``cpu_ms_per_case``: the processor time of all of that together, the start of the processes left
  out as far as a second, larger sweep tells.
- ``made_ms``: making a case and executing it, without the families of long cases.
- ``cases_per_minute_with_files``: the same with a process for each case.
"""

from __future__ import annotations

import os
import resource
import sys
import time

from reporting import Metric, Size, run_benchmark

from cluster.tools.inspect.conform.families.table import TABLE
from cluster.tools.inspect.conform.source import GeneratedCases
from cluster.tools.inspect.conform.sweep import run_sweep
from cluster.tools.inspect.conform.tool import ToolCommand

OWN = f"{sys.executable} -m cluster.tools.cli.main t8n"
GOAL = 3_000.0
BUDGET_MS = 40.0
TIMEOUT_S = 30


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _sweep(command: str, stays_up: bool, families: tuple[str, ...], seeds: int) -> tuple[int, float, float]:
    """Cases, seconds and processor seconds of a sweep."""
    before = _cpu_s()
    workers = len(os.sched_getaffinity(0))
    source = GeneratedCases(families, range(seeds))
    result = run_sweep(source, ToolCommand(command, stays_up, TIMEOUT_S), workers, True, False, lambda: None)
    assert not result.failures, result.failures[0].detail
    return result.cases.total(), result.seconds, _cpu_s() - before


def measure(size: Size) -> list[Metric]:
    families = tuple(TABLE.families)
    short = [name for name, family in TABLE.families.items() if family.every == 1]
    few, many = (2, 10) if size.quick else (5, 40)
    small, large = (_sweep(f"{OWN} --serve", True, families, seeds) for seeds in (few, many))
    begin = time.process_time()
    for name in short:
        TABLE.families[name].case(1)[1].answer()
    made_ms = 1e3 * (time.process_time() - begin) / len(short)
    files = _sweep(OWN, False, families[: 4 if size.quick else 20], 1)
    return [
        Metric("cases_per_minute", 60 * large[0] / large[1], "cases/min", GOAL),
        Metric("cpu_ms_per_case", 1e3 * (large[2] - small[2]) / (large[0] - small[0]), "ms", BUDGET_MS, at_least=False),
        Metric("made_ms", made_ms, "ms"),
        Metric("cases_per_minute_with_files", 60 * files[0] / files[1], "cases/min"),
    ]


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
