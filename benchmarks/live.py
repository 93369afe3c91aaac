"""End to end: blocks/s, fires/s, finality latency and memory of four validators, live on Ray.

They run three times: idle, without a block interval; with a timer lane that is full in every block, of Python actors
that work and schedule their next timer themselves, so that nobody sends anything once they have begun;
and flooded with bursts of small timers by Locust. Of the full lane, ``core_share`` is the processor time that the
validators themselves took (node and executor: what is pure of them) from the first block on, as a share of what the
machine had to give meanwhile, all processors together, less what the judge took (the driver, and the re-execution
beside): the rest is transport, HTTP, Locust, Ray, and waiting. ``validator_us`` and ``judge_us`` are the microseconds
that a validator and the judge took for a fire; ``transition.py`` executes the same blocks without a testnet. Lane
prices are set to nothing there, since they would price a lane that stays full out of any purse within a hundred blocks.
The transport is measured beside bare TCP streams. The simulator runs the full lane in virtual time; what it reports a
second is a second of the wall clock. Every run is checked like any other, and figures of one that does not pass are not
shown.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from reporting import Metric, Size, run_benchmark
from streams import bare_messages_per_second, transport_messages_per_second

from cluster.checks.run import judge_run
from cluster.common.outcome import Outcome
from cluster.live.driver.driver import run_live
from cluster.record.run import RunObserver, RunRecord, RunRequest
from cluster.scenario import Scenario
from cluster.simulation.driver import simulate

SEED = 1
COMMIT = "benchmark"
FLOOD_USERS: list[dict[str, Any]] = [
    {"workload": "heartbeat", "count": 8, "interval_ms": 500},
    {"workload": "flood", "count": 10, "interval_ms": 250, "options": {"timers": 40, "spread_blocks": 8, "burn": 4000}},
]
"""As many small timers as Locust schedules on the side of four validators."""
VALIDATORS = 4
KEEPERS, JOBS = 24, 20
LANE_USERS: list[dict[str, Any]] = [
    {
        "workload": "program",
        "count": KEEPERS,
        "interval_ms": 1_000,
        "options": {
            "program": "keeper",
            "setup": [
                {
                    "handler": "start",
                    "gas_limit": 5_000_000,
                    "cells_limit": 100_000,
                    "payload": {"jobs": [[f"job {number}", 0, 10**15] for number in range(JOBS)]},
                }
            ],
        },
    }
]
"""Pieces of work that never end, each a timer in every block: about twice what a block's lane holds."""
UNPRICED_LANE = {"LANE_FEE_MULTIPLIER_MILLI": 0}
NO_LINKS = {"latency_ms": 0.0, "jitter_ms": 0.0}
"""The machine's own streams, as they are."""
SIMULATED_HEIGHTS = 250
"""Of the full lane: some three a second."""


def main() -> None:
    run_benchmark(__doc__, measure)


def measure(size: Size) -> list[Metric]:
    """All metrics of this benchmark."""
    return [*_four(size), *_streams(size)]


def _four(size: Size) -> list[Metric]:
    idle = live_figures(_scenario("idle", 300 if size.quick else 2_000, interval_ms=0, users=[]))
    loaded = live_figures(full_lane(SIMULATED_HEIGHTS if size.quick else 1_000))
    flooded = live_figures(_scenario("flood", 100 if size.quick else 300, interval_ms=100, users=FLOOD_USERS))
    began = time.perf_counter()
    simulated_record = simulate(full_lane(SIMULATED_HEIGHTS), SEED, COMMIT)
    wall_seconds = time.perf_counter() - began
    simulated = figures_of(simulated_record)
    validator_us = loaded["core_seconds"] / loaded["fires"] / VALIDATORS * 1e6
    had = (loaded["duration_s"] - loaded["startup_seconds"]) * _processors() - loaded["judge_core_seconds"]
    return [
        Metric("blocks_per_second", idle["blocks_per_second"], "blocks/s, live, idle", goal=20),
        Metric("finality_latency_ms", idle["finality_latency_p50_ms"], "ms p50, live, idle"),
        Metric("startup_seconds", idle["startup_seconds"], "s to the first block, live", goal=8, at_least=False),
        Metric("memory_mb", idle["memory_max_mb"], "MB a host of one validator"),
        Metric("core_share", loaded["core_seconds"] / had, "of the time left by the judge, live, full lane", goal=0.6),
        Metric("validator_us", validator_us, "µs of a validator for a fire, live, full lane"),
        Metric("judge_us", loaded["judge_core_seconds"] / loaded["fires"] * 1e6, "µs of the judge for a fire"),
        Metric("lane_use", loaded["lane_use_mean_share"], "of the lane, live, full lane"),
        Metric("loaded_blocks_per_second", loaded["blocks_per_second"], "blocks/s, live, full lane"),
        Metric("fires_per_second", loaded["fires_per_second"], "fires/s, live, full lane", goal=2_400),
        Metric("loaded_finality_latency_ms", loaded["finality_latency_p50_ms"], "ms p50, live, full lane"),
        Metric("flood_fires_per_second", flooded["fires_per_second"], "fires/s, live, flooded by Locust"),
        Metric("flood_finality_latency_ms", flooded["finality_latency_p50_ms"], "ms p50, live, flooded by Locust"),
        Metric("simulated_blocks_per_second", simulated["heights"] / wall_seconds, "blocks/wall s, sim, full lane"),
        Metric("simulated_fires_per_second", simulated["fires"] / wall_seconds, "fires/wall s, sim, full lane"),
        Metric("simulated_finality_latency_ms", simulated["finality_latency_p50_ms"], "virtual ms p50, sim, full lane"),
        Metric("simulated_speedup", simulated_record.duration_ms / 1_000 / wall_seconds, "virtual s/wall s"),
    ]


def _streams(size: Size) -> list[Metric]:
    count = 100_000 if size.quick else 500_000
    ours, bare = transport_messages_per_second(count), bare_messages_per_second(count)
    return [
        Metric("messages_per_second", ours, "messages of 300 bytes/s, transport"),
        Metric("messages_ratio", ours / bare, "of bare TCP streams"),
    ]


def full_lane(height: int) -> Scenario:
    """The lane is full from some hundred heights on."""
    return _scenario("lane", height, interval_ms=0, users=LANE_USERS, params=UNPRICED_LANE)


def _scenario(
    name: str,
    height: int,
    interval_ms: int,
    users: list[dict[str, Any]],
    params: dict[str, Any] | None = None,
) -> Scenario:
    return Scenario.model_validate(
        {
            "name": name,
            "validators": VALIDATORS,
            "consensus": {"block_interval_ms": interval_ms},
            "links": NO_LINKS,
            "chain": {"params": params or {}},
            "load": {"users": users},
            "stop": {"height": height, "drain_blocks": 2, "timeout_s": 600},
            "success": {"transactions": 20, "fires": 50} if users else {"transactions": 0, "fires": 0},
        }
    )


def live_figures(scenario: Scenario) -> dict[str, float]:
    """The figures of a live run, whose folder is removed."""
    folder = Path(tempfile.mkdtemp(prefix="stampede-benchmark-"))
    try:
        record: RunRecord = run_live(RunRequest(scenario, SEED, COMMIT, folder), RunObserver(on_notice=print))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return figures_of(record)


def figures_of(record: RunRecord) -> dict[str, float]:
    """A run's figures. Ends the benchmark where the run did not pass its checks."""
    judged = judge_run(record)
    verdict = judged.verdict
    if verdict.outcome is not Outcome.PASS:
        wrong = [check for check in verdict.checks if check.verdict is not Outcome.PASS]
        reasons = "; ".join(f"{check.name}: {check.verdict}: {check.detail}" for check in wrong)
        raise SystemExit(f"the {record.backend} run {record.scenario.name!r} did not pass: {reasons}")
    return judged.metrics


def _processors() -> int:
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    main()
