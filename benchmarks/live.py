"""End to end: blocks/s, fires/s, finality latency and memory of four validators, live on Ray.

They run three times: idle, without a block interval; with a timer lane that is full in every block, of Python actors
that work and schedule their next timer themselves, so that nobody sends anything once they have begun;
and flooded with bursts of small timers by Locust. Of the full lane, ``core_share`` is the processor time that the
validators themselves took (node and executor: what is pure of them) from the first block on, as a share of what the
machine had to give meanwhile, all processors together, less what the judge took (the driver, and the re-execution
beside): the rest is transport, HTTP, Locust, Ray, and waiting. ``validator_us`` and ``judge_us`` are the microseconds
that a validator and the judge took for a fire; ``transition.py`` executes the same blocks without a testnet. Lane
prices are set to nothing there, since they would price a lane that stays full out of any purse within a hundred blocks.
The transport is measured beside bare TCP streams. Every run is checked like any other, and figures of one that does
not pass are not shown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

from reporting import Lane, Metric, Size, run_benchmark
from runs import VALIDATORS, Figures, full_lane, live_figures, scenario_of
from streams import messages_per_second

FLOOD_USERS: list[dict[str, Any]] = [
    {"workload": "heartbeat", "count": 8, "interval_ms": 500},
    {"workload": "flood", "count": 10, "interval_ms": 250, "options": {"timers": 40, "spread_blocks": 8, "burn": 4000}},
]
"""As many small timers as Locust schedules on the side of four validators."""
QUICK_USERS: list[dict[str, Any]] = [
    {"workload": "flood", "count": 2, "interval_ms": 250, "options": {"timers": 5, "spread_blocks": 4, "burn": 10}}
]


def main() -> None:
    run_benchmark(__doc__, lanes, minutes=5)


def lanes(size: Size) -> list[Lane]:
    scenarios = {
        "idle": scenario_of("idle", 500, interval_ms=0, users=[]),
        "lane": full_lane(150),
        "flood": scenario_of("flood", 110, interval_ms=100, users=FLOOD_USERS),
    }
    if size is Size.QUICK:  # one run for all three, of one process: each takes seconds to start
        quick = scenario_of("quick", 40, interval_ms=100, users=QUICK_USERS, validators=1)
        scenarios = dict.fromkeys(scenarios, quick)
    runs = {scenario.name: scenario for scenario in scenarios.values()}
    figures = cache(lambda name: live_figures(runs[name], size))
    idle = [
        Metric("blocks_per_second", "blocks/s, live, idle", 20),
        Metric("finality_latency_ms", "ms p50, live, idle"),
        Metric("startup_seconds", "s to the first block, live", 8, at_least=False),
        Metric("startup_core_seconds", "processor s of all processes to the first block, live"),
        Metric("memory_mb", "MB a host of one validator"),
    ]
    loaded = [
        Metric("core_share", "of the time left by the judge, live, full lane", 0.6),
        Metric("validator_us", "µs of a validator for a fire, live, full lane"),
        Metric("judge_us", "µs of the judge for a fire"),
        Metric("lane_use", "of the lane, live, full lane"),
        Metric("loaded_blocks_per_second", "blocks/s, live, full lane"),
        Metric("fires_per_second", "fires/s, live, full lane", 2_400),
        Metric("loaded_finality_latency_ms", "ms p50, live, full lane"),
    ]
    flooded = [
        Metric("flood_fires_per_second", "fires/s, live, flooded by Locust"),
        Metric("flood_finality_latency_ms", "ms p50, live, flooded by Locust"),
    ]
    streams = [
        Metric("messages_per_second", "messages of 300 bytes/s, transport"),
        Metric("messages_ratio", "of bare TCP streams"),
    ]
    return [
        Lane(lambda: _idle(figures(scenarios["idle"].name)), idle),
        Lane(lambda: _loaded(figures(scenarios["lane"].name)), loaded),
        Lane(lambda: _flooded(figures(scenarios["flood"].name)), flooded),
        Lane(partial(_streams, size.of(5_000, 500_000)), streams),
    ]


def _idle(found: Figures) -> list[float]:
    names = ("blocks_per_second", "finality_latency_p50_ms", "startup_seconds", "startup_core_seconds", "memory_max_mb")
    return [found[name] for name in names]


def _loaded(found: Figures) -> list[float]:
    core_seconds, judge_core_seconds, fires = found["core_seconds"], found["judge_core_seconds"], found["fires"]
    had = (found["duration_s"] - found["startup_seconds"]) * _processors() - judge_core_seconds
    return [
        core_seconds / had,
        core_seconds / fires / VALIDATORS * 1e6,
        judge_core_seconds / fires * 1e6,
        found["lane_use_mean_share"],
        found["blocks_per_second"],
        *_flooded(found),
    ]


def _flooded(found: Figures) -> list[float]:
    return [found["fires_per_second"], found["finality_latency_p50_ms"]]


def _streams(count: int) -> Iterator[float]:
    ours, bare = messages_per_second(count)
    yield ours
    yield ours / bare


def _processors() -> int:
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    main()
