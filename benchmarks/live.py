"""End to end: blocks/s, fires/s and finality latency of four validators, live on Ray and in the simulator.

The live testnet runs twice: idle at full speed (no load, no block interval), and under a timer flood; its links add
nothing to the machine's own loopback, so that it is the software that is measured. The simulator
runs the flood scenario in virtual time; what it reports a second is a second of the wall clock. Every run is checked
like any other, and figures of one that does not pass are not shown.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from reporting import Metric, Size, run_benchmark

from cluster.books import keep_books
from cluster.checks import Outcome, check_run
from cluster.live.driver import run_live
from cluster.measures import metrics as run_metrics
from cluster.record import RunRecord
from cluster.scenario import LinksSection, Scenario
from cluster.simulation.driver import simulate

SEED = 1
COMMIT = "benchmark"
CLEAR_LINKS = LinksSection(latency_ms=0.0, jitter_ms=0.0)
FLOOD_USERS: list[dict[str, Any]] = [
    {"workload": "heartbeat", "count": 8, "interval_ms": 500},
    {"workload": "flood", "count": 6, "interval_ms": 250, "options": {"timers": 40, "spread_blocks": 8, "burn": 4000}},
]


def main() -> None:
    run_benchmark(__doc__, measure)


def measure(size: Size) -> list[Metric]:
    """All metrics of this benchmark."""
    idle = _live(_scenario("idle", 300 if size.quick else 2_000, interval_ms=0, users=[]))
    flood = _scenario("flood", 60 if size.quick else 240, interval_ms=100, users=FLOOD_USERS)
    loaded = _live(flood)
    began = time.perf_counter()
    simulated_record = simulate(flood, SEED, COMMIT)
    wall_seconds = time.perf_counter() - began
    simulated = _figures(simulated_record)
    return [
        Metric("blocks_per_second", idle["blocks_per_second"], "blocks/s, live, idle", goal=20),
        Metric("finality_latency_ms", idle["finality_latency_p50_ms"], "ms p50, live, idle"),
        Metric("startup_seconds", idle["startup_seconds"], "s to the first block, live", goal=8, at_least=False),
        Metric("loaded_blocks_per_second", loaded["blocks_per_second"], "blocks/s, live, flood"),
        Metric("fires_per_second", loaded["fires_per_second"], "fires/s, live, flood"),
        Metric("loaded_finality_latency_ms", loaded["finality_latency_p50_ms"], "ms p50, live, flood"),
        Metric("simulated_blocks_per_second", simulated["heights"] / wall_seconds, "blocks/wall s, sim, flood"),
        Metric("simulated_fires_per_second", simulated["fires"] / wall_seconds, "fires/wall s, sim, flood"),
        Metric("simulated_finality_latency_ms", simulated["finality_latency_p50_ms"], "virtual ms p50, sim, flood"),
        Metric("simulated_speedup", simulated_record.duration_ms / 1_000 / wall_seconds, "virtual s/wall s"),
    ]


def _scenario(name: str, height: int, interval_ms: int, users: list[dict[str, Any]]) -> Scenario:
    return Scenario.model_validate(
        {
            "name": name,
            "validators": 4,
            "consensus": {"block_interval_ms": interval_ms},
            "load": {"users": users},
            "stop": {"height": height, "drain_blocks": 2, "timeout_s": 300},
            "success": {"transactions": 50, "fires": 50} if users else {"transactions": 0, "fires": 0},
        }
    )


def _live(scenario: Scenario) -> dict[str, float]:
    scenario = scenario.model_copy(update={"links": CLEAR_LINKS})
    folder = Path(tempfile.mkdtemp(prefix="stampede-benchmark-"))
    try:
        record: RunRecord = run_live(scenario, SEED, COMMIT, folder, lambda _sample: None, print)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _figures(record)


def _figures(record: RunRecord) -> dict[str, float]:
    """A run's figures. Ends the benchmark where the run did not pass its checks."""
    books = keep_books(record)
    verdict = check_run(record, books)
    if verdict.outcome is not Outcome.PASS:
        wrong = [check for check in verdict.checks if check.verdict is not Outcome.PASS]
        reasons = "; ".join(f"{check.name}: {check.verdict}: {check.detail}" for check in wrong)
        raise SystemExit(f"the {record.backend} run {record.scenario.name!r} did not pass: {reasons}")
    return run_metrics(books)


if __name__ == "__main__":
    main()
