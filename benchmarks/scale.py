"""How far one machine goes: 4, 16, 64 and 128 validators with both protocols, live and simulated, all idle.

A live testnet runs without a block interval and without latency, its validators on four hosts, so that the processors
are the limit. Timeouts and repetition are those of the defaults, and adapt. Of each: blocks a second, the MB that
validators send each other for a block, milliseconds until a block is final, and a validator's share of its host's
memory. The simulator runs the same; its seconds are those of the wall clock, its latencies virtual. ``size_error_N``
is by what share the guess of ``stampede size`` misses the rate of Simplex that is measured after it, and
``size_in_range_N`` is 1 if the range printed with it holds that rate. The calibration is repeated after the run:
``size_speed_N`` is the second guess, of the first, so a machine that changed its speed meanwhile is seen.
``driver_memory_mb`` is the most that a driver holds while it judges a long run of 64 validators (:mod:`judging`).

Without options 4, 16 and 64 validators run live, 128 in the simulator alone, and the long run has 5,000 heights.
``--full`` adds 128 live validators, a quarter of an hour, and 100,000 heights.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

import judging
from live import SEED, figures_of, live_figures
from reporting import Metric, Size, run_benchmark, said

from cluster.scenario import Scenario
from cluster.simulation.driver import simulate
from cluster.tools.explain.size.calibration import calibrate
from cluster.tools.explain.size.estimate import Estimate, estimate

HOSTS: Final = 4
"""The fewest that n validators may have, and enough to use every processor of the machine."""
PROTOCOLS: Final = ("simplex", "hotstuff")
LIVE_HEIGHTS: Final = {4: 1_000, 16: 300, 64: 100, 128: 50}
SIMULATED_HEIGHTS: Final = {4: 300, 16: 100, 64: 32, 128: 32}
MIN_HEIGHTS: Final = 32
"""Fewer are too few for a verdict."""
GOALS: Final = {("simplex", 16): 25.0, ("simplex", 64): 2.7, ("hotstuff", 64): 4.9, ("simplex", 128): 0.6}
"""Blocks a second."""
BYTES_GOAL_MB: Final = 12.0
"""Of a Simplex block among 128 validators."""
SIZE_ERROR_GOAL: Final = 0.3


def main() -> None:
    run_benchmark(__doc__, measure, full="128 live validators and a long run of 100,000 heights too, about an hour")


def measure(size: Size) -> list[Metric]:
    """All metrics of this benchmark."""
    counts = (4, 16) if size.quick else (4, 16, 64, 128) if size.full else (4, 16, 64)
    found = said([_driver_memory(size)])  # first: a process begins with the highest memory of the one that starts it
    for protocol in PROTOCOLS:
        for count in counts:
            found += said(_live(protocol, count, size))
        for count in counts if size.quick else SIMULATED_HEIGHTS:
            found += said(_simulated(protocol, count, size))
    return found


def _scenario(protocol: str, count: int, heights: int) -> Scenario:
    return Scenario.model_validate(
        {
            "name": f"{protocol}-{count}",
            "validators": {"count": count, "hosts": HOSTS},
            "consensus": {"protocol": protocol, "block_interval_ms": 0},
            "links": {"latency_ms": 0.0, "jitter_ms": 0.0},
            "stop": {"height": heights, "drain_blocks": 2, "timeout_s": 900},
            "success": {"transactions": 0, "fires": 0},
        }
    )


def _heights(usual: int, size: Size) -> int:
    return max(MIN_HEIGHTS, usual // 5) if size.quick else usual


def _name(metric: str, protocol: str, count: int) -> str:
    """Simplex is the usual one, and not named."""
    return f"{metric}_{count}" if protocol == "simplex" else f"{protocol}_{metric}_{count}"


def _live(protocol: str, count: int, size: Size) -> list[Metric]:
    scenario = _scenario(protocol, count, _heights(LIVE_HEIGHTS[count], size))
    is_guessed = protocol == "simplex" and count < 128
    guessed = [_guess(scenario)] if is_guessed else []
    found, about = live_figures(scenario), f"{protocol}, {count} validators, live"
    rate, block_mb = found["blocks_per_second"], found["bytes_sent"] / found["heights"] / 1e6
    goal_mb = BYTES_GOAL_MB if count == 128 and protocol == "simplex" else None
    return [
        Metric(_name("blocks_per_second", protocol, count), rate, f"blocks/s, {about}", GOALS.get((protocol, count))),
        Metric(f"{protocol}_bytes_{count}", block_mb, f"MB a block, {about}", goal_mb, at_least=False),
        Metric(f"{protocol}_finality_ms_{count}", found["finality_latency_p50_ms"], f"ms p50, {about}"),
        Metric(f"{protocol}_startup_s_{count}", found["startup_seconds"], f"s to the first block, {about}"),
        Metric(f"{protocol}_memory_mb_{count}", found["memory_max_mb"] * HOSTS / count, f"MB a validator, {about}"),
        *(metric for guess in guessed for metric in _size_metrics(count, rate, guess, _guess(scenario))),
    ]


def _guess(scenario: Scenario) -> Estimate:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return estimate(scenario, calibrate(scenario, print), None, files)


def _size_metrics(count: int, rate: float, before: Estimate, after: Estimate) -> list[Metric]:
    """Of the guesses before and after a run that had this rate."""
    error, in_range = abs(before.rate / rate - 1), before.rate_low <= rate <= before.rate_high
    limits = f"the range, {before.rate_low:.3g} to {before.rate_high:.3g} blocks/s"
    return [
        Metric(f"size_error_{count}", error, f"of the rate, {before.rate:.3g} guessed", SIZE_ERROR_GOAL, False),
        Metric(f"size_in_range_{count}", float(in_range), f"1: the rate is in {limits}"),
        Metric(f"size_speed_{count}", after.rate / before.rate, "× the guess after the run, of the one before"),
    ]


def _simulated(protocol: str, count: int, size: Size) -> list[Metric]:
    scenario = _scenario(protocol, count, _heights(SIMULATED_HEIGHTS[count], size))
    began_s = time.perf_counter()
    record = simulate(scenario, SEED, "benchmark")
    wall_s = time.perf_counter() - began_s
    found, about = figures_of(record), f"{protocol}, {count} validators, simulated"
    return [
        Metric(f"{protocol}_simulated_{count}", found["heights"] / wall_s, f"blocks/wall s, {about}"),
        Metric(f"{protocol}_messages_{count}", found["messages_sent"] / found["heights"], f"messages a block, {about}"),
        Metric(f"{protocol}_virtual_ms_{count}", found["finality_latency_p50_ms"], f"virtual ms p50, {about}"),
    ]


def _driver_memory(size: Size) -> Metric:
    heights = judging.FULL_HEIGHTS if size.full else judging.QUICK_HEIGHTS if size.quick else judging.HEIGHTS
    with (
        tempfile.TemporaryDirectory(prefix="scale-") as folder,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone,
    ):
        metrics = alone.submit(judging.judged, Path(folder), heights).result()
    return next(metric for metric in metrics if metric.name == "driver_memory_mb")


if __name__ == "__main__":
    main()
