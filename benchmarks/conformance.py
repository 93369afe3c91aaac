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
from functools import partial

from reporting import Lane, Metric, Size, run_benchmark

from kits.conform.families.table import TABLE
from kits.conform.source import GeneratedCases
from kits.conform.sweep import run_sweep
from kits.conform.tool import ToolCommand

OWN = f"{sys.executable} -m cluster.commands.cli.main t8n"
PROCESSORS = len(os.sched_getaffinity(0))
GOAL = 3_000.0
BUDGET_MS = 40.0
TIMEOUT_S = 30


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _sweep(
    command: str, stays_up: bool, families: tuple[str, ...], seeds: int, workers: int
) -> tuple[int, float, float]:
    """Cases, seconds and processor seconds of a sweep."""
    before = _cpu_s()
    source = GeneratedCases(families, range(seeds))
    result = run_sweep(source, ToolCommand(command, stays_up, TIMEOUT_S), workers, True, False, lambda: None)
    if result.was_interrupted:
        raise KeyboardInterrupt
    assert not result.failures, result.failures[0].detail
    return result.cases.total(), result.seconds, _cpu_s() - before


def lanes(size: Size) -> list[Lane]:
    sweeps = [
        Metric("cases_per_minute", "cases/min", GOAL),
        Metric("cpu_ms_per_case", "ms", BUDGET_MS, at_least=False),
    ]
    return [
        Lane(
            partial(
                _sweeps, *size.of((tuple(TABLE.families)[:5], 1, 0, 2), (tuple(TABLE.families), PROCESSORS, 5, 40))
            ),
            sweeps,
        ),
        Lane(_made_ms, [Metric("made_ms", "ms")]),
        Lane(
            partial(_with_files, *size.of((1, 1), (20, PROCESSORS))),
            [Metric("cases_per_minute_with_files", "cases/min")],
        ),
    ]


def _sweeps(families: tuple[str, ...], workers: int, few: int, many: int) -> list[float]:
    """Cases a minute, and the milliseconds of processor time of a case, with the start of the processes if there is no
    small sweep."""
    small, large = (
        _sweep(f"{OWN} --serve", True, families, seeds, workers) if seeds else (0, 0.0, 0.0) for seeds in (few, many)
    )
    return [60 * large[0] / large[1], 1e3 * (large[2] - small[2]) / (large[0] - small[0])]


def _made_ms() -> float:
    short = [name for name, family in TABLE.families.items() if family.every == 1]
    begin = time.process_time()
    for name in short:
        TABLE.families[name].case(1)[1].answer()
    return 1e3 * (time.process_time() - begin) / len(short)


def _with_files(families: int, workers: int) -> float:
    cases, seconds, _ = _sweep(OWN, False, tuple(TABLE.families)[:families], 1, workers)
    return 60 * cases / seconds


if __name__ == "__main__":
    run_benchmark(__doc__, lanes, minutes=3)
