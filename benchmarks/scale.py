"""How far one machine goes: 4, 16, 64 and 128 validators with both protocols, live and simulated, all idle.

A live testnet runs without a block interval and without latency, its validators on four hosts, so that the processors
are the limit. Timeouts and repetition are those of the defaults, and adapt. Of each: blocks a second, the MB that
validators send each other for a block, milliseconds until a block is final, and a validator's share of its host's
memory. The simulator runs the same; its seconds are those of the wall clock. ``size_error_N``
is by what share a guess of ``stampede size`` misses the rate of Simplex, and ``size_in_range_N`` is 1 if the range
printed with it holds that rate. One calibration, after the first run, serves all guesses. A quick run leaves them out:
a calibration starts four more processes.

Without ``--full`` no more than 64 validators run, of HotStuff 64 alone live, and for half as many heights.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Set
from functools import cache, partial
from typing import Final

from reporting import Lane, Metric, Size, Unavailable, run_benchmark
from runs import figures_of, live_figures, simulated

from cluster.scenario import Scenario
from kits.measure.size.estimate import estimate
from kits.measure.size.measuring import Calibration, calibrate

HOSTS: Final = 4
"""The fewest that n validators may have, and enough to use every processor of the machine."""
PROTOCOLS: Final = ("simplex", "hotstuff")
LIVE_HEIGHTS: Final = {4: 1_000, 16: 300, 64: 100, 128: 50}
SIMULATED_HEIGHTS: Final = {4: 300, 16: 100, 64: 32, 128: 32}
MIN_HEIGHTS: Final = 32
"""Fewer are too few for a verdict."""
USUAL_LIVE: Final = {("simplex", 16), ("simplex", 64), ("hotstuff", 64)}
USUAL_SIMULATED: Final = {("simplex", 16), ("hotstuff", 4), ("hotstuff", 16), ("hotstuff", 64)}
"""Lanes that need no ``--full``, in addition to those of a quick run."""
GOALS: Final = {("simplex", 16): 25.0, ("simplex", 64): 2.7, ("hotstuff", 64): 4.9, ("simplex", 128): 0.6}
"""Blocks a second."""
BYTES_GOAL_MB: Final = 12.0
"""Of a Simplex block among 128 validators."""
SIZE_ERROR_GOAL: Final = 0.3


def main() -> None:
    full = "all numbers of validators, with more heights; about half an hour"
    run_benchmark(__doc__, lanes, minutes=5, full=full)


def lanes(size: Size) -> list[Lane]:
    return [
        *(lane for protocol in PROTOCOLS for count in LIVE_HEIGHTS for lane in _live_lanes(protocol, count, size)),
        *(_simulated_lane(protocol, count, size) for protocol in PROTOCOLS for count in SIMULATED_HEIGHTS),
    ]


def _least(protocol: str, count: int, usual: Set[tuple[str, int]]) -> Size:
    """The least size of a run that has this lane."""
    if (protocol, count) == (PROTOCOLS[0], 4):
        return Size.QUICK
    return Size.USUAL if (protocol, count) in usual else Size.FULL


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
    return size.of(MIN_HEIGHTS, max(MIN_HEIGHTS, usual // 2), usual)


def _name(metric: str, protocol: str, count: int) -> str:
    """Simplex is the usual one, and not named."""
    return f"{metric}_{count}" if protocol == "simplex" else f"{protocol}_{metric}_{count}"


def _live_lanes(protocol: str, count: int, size: Size) -> list[Lane]:
    about = f"{protocol}, {count} validators, live"
    goal_mb = BYTES_GOAL_MB if count == 128 and protocol == "simplex" else None
    metrics = [
        Metric(_name("blocks_per_second", protocol, count), f"blocks/s, {about}", GOALS.get((protocol, count))),
        Metric(f"{protocol}_bytes_{count}", f"MB a block, {about}", goal_mb, at_least=False),
        Metric(f"{protocol}_finality_ms_{count}", f"ms p50, {about}"),
        Metric(f"{protocol}_memory_mb_{count}", f"MB a validator, {about}"),
    ]
    guess = [
        Metric(f"size_error_{count}", "of the rate", SIZE_ERROR_GOAL, at_least=False),
        Metric(f"size_in_range_{count}", "1: the rate is in the range"),
    ]
    least = _least(protocol, count, USUAL_LIVE)
    scenario = _scenario(protocol, count, _heights(LIVE_HEIGHTS[count], size))
    rates: list[float] = []
    live = Lane(partial(_live, scenario, size, rates), metrics, least)
    is_guessed = protocol == "simplex" and count < 128
    return [live, Lane(partial(_guess, scenario, rates), guess, Size.USUAL)] if is_guessed else [live]


def _live(scenario: Scenario, size: Size, rates: list[float]) -> Iterator[float]:
    """The figures of a run, whose rate is appended to ``rates``."""
    found = live_figures(scenario, size)
    rates.append(found["blocks_per_second"])
    yield rates[-1]
    yield found["bytes_sent"] / found["heights"] / 1e6
    yield found["finality_latency_p50_ms"]
    yield found["memory_max_mb"] * HOSTS / scenario.validators.count


@cache
def _calibration() -> Calibration:
    """What was measured of idle testnets of Simplex: the same whatever number of validators is asked for."""
    return calibrate(_scenario("simplex", 4, MIN_HEIGHTS), print)


def _guess(scenario: Scenario, rates: list[float]) -> list[float]:
    if not rates:
        raise Unavailable("the run has no rate")
    (rate,) = rates
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = estimate(scenario, _calibration(), None, files)
    print(f"{scenario.name}: {found.rate:.3g} blocks/s guessed, {found.rate_low:.3g} to {found.rate_high:.3g}")
    return [abs(found.rate / rate - 1), float(found.rate_low <= rate <= found.rate_high)]


def _simulated_lane(protocol: str, count: int, size: Size) -> Lane:
    about = f"{protocol}, {count} validators, simulated"
    metrics = [
        Metric(f"{protocol}_simulated_{count}", f"blocks/wall s, {about}"),
        Metric(f"{protocol}_messages_{count}", f"messages a block, {about}"),
    ]
    scenario = _scenario(protocol, count, _heights(SIMULATED_HEIGHTS[count], size))
    return Lane(partial(_simulated, scenario, size), metrics, _least(protocol, count, USUAL_SIMULATED))


def _simulated(scenario: Scenario, size: Size) -> list[float]:
    began_s = time.perf_counter()
    record = simulated(scenario)
    wall_s = time.perf_counter() - began_s
    found = figures_of(record, size)
    return [found["heights"] / wall_s, found["messages_sent"] / found["heights"]]


if __name__ == "__main__":
    main()
