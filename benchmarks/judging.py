"""The judge of a long run: memory of the process that keeps the books, and time from the run's end to its verdict.

A synthetic run (:mod:`long_run`) of 64 validators, with a fault every 100 heights, is entered block by block. Then it
is judged, and its folder written.

- ``driver_memory_mb``: the most that the process had resident, imports included.
- ``verdict_cpu_seconds``: processor time from the end of the run to its verdict and report on the disk.
- ``report_mb``: the report's size.
- ``judged_blocks_per_second``: blocks that are entered a CPU second. A run whose blocks are final faster than that gets
  its verdict later.

The goals are those of 100,000 heights, 1,000 faults and 8 million timers (``--full``, half an hour).
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from long_run import LongRun
from reporting import Lane, Metric, Size, folder, peak_memory_mb, run_benchmark

from cluster.checks.run import judge_run
from cluster.report.results import finish_run

VALIDATORS = 64
TIMERS_PER_BLOCK = 80
HEIGHTS, QUICK_HEIGHTS, FULL_HEIGHTS = 5_000, 200, 100_000
HEIGHTS_PER_FAULT = 100
VERDICT_GOAL_S = 30
REPORT_GOAL_MB = 8


def main() -> None:
    run_benchmark(__doc__, lanes, minutes=1.5, full=f"{FULL_HEIGHTS:,} heights; half an hour")


def lanes(size: Size) -> list[Lane]:
    heights = size.of(QUICK_HEIGHTS, HEIGHTS, FULL_HEIGHTS)
    metrics = [
        Metric("driver_memory_mb", "MB", 600, at_least=False),
        Metric("verdict_cpu_seconds", "s", VERDICT_GOAL_S, at_least=False),
        Metric("report_mb", "MB", REPORT_GOAL_MB, at_least=False),
        Metric("judged_blocks_per_second", "blocks/s"),
    ]
    return [Lane(partial(judged, heights), metrics)]


def judged(heights: int) -> list[float]:
    """The figures of a run of so many heights."""
    with folder() as path:
        return _judged(path, heights)


def _judged(path: Path, heights: int) -> list[float]:
    run = LongRun(path, heights, VALIDATORS, TIMERS_PER_BLOCK, heights // HEIGHTS_PER_FAULT)
    for height in run.enter():
        if height % (heights // 10) == 0:
            print(f"height {height:,}: {peak_memory_mb():,.0f} MB, {run.judging_s:,.0f} s in the books", flush=True)
    begun_cpu_s = time.process_time()
    run.end()
    judged_run = judge_run(run.record)
    assert judged_run.books.ledger is run.kept.ledger, "the books are kept once"
    assert not judged_run.books.findings, judged_run.books.findings[:3]
    failed = [check for check in judged_run.verdict.checks if check.verdict == "fail"]
    assert not failed, failed
    finish_run(run.record, path, judged=judged_run)
    verdict_cpu_s = time.process_time() - begun_cpu_s
    report_mb = (path / "report.html").stat().st_size / 1e6
    return [peak_memory_mb(), verdict_cpu_s, report_mb, heights / run.judging_s]


if __name__ == "__main__":
    main()
