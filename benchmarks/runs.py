"""Runs for benchmarks: scenarios of four validators without links, and the figures of runs that passed their checks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psutil
from reporting import Size, Unavailable, folder

from cluster.checks.kind import Judged
from cluster.checks.run import judge_run
from cluster.common.outcome import Outcome
from cluster.record.run import RunObserver, RunRecord, RunRequest, Sample
from cluster.scenario import Scenario

Figures = Mapping[str, float]

SEED = 1
COMMIT = "benchmark"
VALIDATORS = 4
KEEPERS, JOBS = 24, 20
"""Pieces of work that never end, each a timer in every block: about twice what a block's lane holds."""
UNPRICED_LANE = {"LANE_FEE_MULTIPLIER_MILLI": 0}
NO_LINKS = {"latency_ms": 0.0, "jitter_ms": 0.0}
"""The machine's own streams, as they are."""


def full_lane(height: int, interval_ms: float = 0, keepers: int = KEEPERS) -> Scenario:
    """The lane is full from some two hundred heights on, with as many keepers as by default."""
    start = {
        "handler": "start",
        "gas_limit": 5_000_000,
        "cells_limit": 100_000,
        "payload": {"jobs": [[f"job {number}", 0, 10**15] for number in range(JOBS)]},
    }
    options = {"program": "keeper", "setup": [start]}
    users = [{"workload": "program", "count": keepers, "interval_ms": 1_000, "options": options}]
    return scenario_of("lane", height, interval_ms, users, params=UNPRICED_LANE)


def scenario_of(
    name: str,
    height: int,
    interval_ms: float,
    users: list[dict[str, Any]],
    params: dict[str, Any] | None = None,
    validators: int = VALIDATORS,
) -> Scenario:
    return Scenario.model_validate(
        {
            "name": name,
            "validators": validators,
            "consensus": {"block_interval_ms": interval_ms},
            "links": NO_LINKS,
            "chain": {"params": params or {}},
            "load": {"users": users},
            "stop": {"height": height, "drain_blocks": 2, "timeout_s": 600},
            "success": {"transactions": 20, "fires": 50} if users else {"transactions": 0, "fires": 0},
        }
    )


def live_figures(scenario: Scenario, size: Size) -> Figures:
    """The figures of a live run, with ``startup_core_seconds``. Its folder is removed. Raises :class:`Unavailable`."""
    from cluster.watches.live.audited_testnet import run_live  # simulated runs need nothing of it

    startup = _Startup()
    with folder() as path:
        record = run_live(RunRequest(scenario, SEED, COMMIT, path), RunObserver(startup.look, print))
        return {**figures_of(record, size), "startup_core_seconds": startup.core_seconds}


class _Startup:
    """Measures the processor time from the start of a live run to its first final block."""

    def __init__(self) -> None:
        self._before_s = family_core_seconds()
        self.core_seconds = 0.0
        """The time of this process and of all that it started, up to the first sample that has a final block."""

    def look(self, sample: Sample) -> None:
        if not self.core_seconds and any(sample.heights):
            self.core_seconds = family_core_seconds() - self._before_s


def family_core_seconds() -> float:
    """The processor time of this process and of its descendants, those included that have ended."""
    myself, found = psutil.Process(), 0.0
    for process in (myself, *myself.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found += times.user + times.system + times.children_user + times.children_system
    return found


def simulated(scenario: Scenario, seed: int = SEED, shortcuts: bool = False) -> RunRecord:
    """The record of a simulated run. Raises as :func:`uninterrupted` does."""
    from cluster.watches.watched_simulation import (
        simulate,  # live runs need nothing of it, and it takes a second to import
    )

    return uninterrupted(simulate(scenario, seed, COMMIT, shortcuts=shortcuts))


def uninterrupted(record: RunRecord) -> RunRecord:
    """The record. Raises :class:`KeyboardInterrupt` if a signal ended the run, which its driver survives."""
    if record.interrupted:
        raise KeyboardInterrupt
    return record


def figures_of(record: RunRecord, size: Size) -> Figures:
    """A run's figures. Raises as :func:`judged` does."""
    return judged(record, size).metrics


def judged(record: RunRecord, size: Size = Size.USUAL) -> Judged:
    """A run that passed its checks. Figures of a quick run mean nothing, so it may be inconclusive.

    Raises :class:`Unavailable` if it did not pass, and as :func:`uninterrupted` does.
    """
    found = judge_run(uninterrupted(record))
    verdict = found.verdict
    if verdict.outcome is Outcome.FAIL or (verdict.outcome is not Outcome.PASS and size is not Size.QUICK):
        wrong = [check for check in verdict.checks if check.verdict is not Outcome.PASS]
        reasons = "; ".join(f"{check.name}: {check.verdict}: {check.detail}" for check in wrong)
        raise Unavailable(f"the {record.backend} run {record.scenario.name!r} did not pass: {reasons}")
    return found
