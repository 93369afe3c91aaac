"""The simulator: how much faster than the wall clock whole networks run in one thread.

Every run is checked like any other, and figures of one that does not pass are not shown. What is timed is the run
itself, the safety monitor included; the checks after it are part of ``fuzz_seeds_per_minute`` alone. Runs take the
shortcuts of sweeps.

- ``speedup_idle``, ``speedup_idle_fast``: simulated seconds a wall second of four validators that make a block a second
  and nothing else, with Ed25519 and with the keyed hash that stands in for it.
- ``speedup_200_fires``: the same with load: each block schedules 200 timers and fires 200.
- ``seconds_for_500_validators``: 500 validators in one process finalise 20 heights of Simplex, in which everybody tells
  everybody. Votes carry the keyed hash: each validator checks every quorum itself, and seven million Ed25519 checks
  alone would take as long as the goal allows. Only with ``--full``; ``seconds_for_crowd`` is of fewer validators.
- ``fuzz_seeds_per_minute``: random scenarios with their faults, run and judged one after the other, as each process of
  ``stampede fuzz`` does.
"""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import Any

from reporting import Lane, Metric, Size, Unavailable, run_benchmark
from runs import judged, simulated

from cluster.audit.books import Books
from cluster.commands.sweeps.drawing.random_scenario import random_scenario
from cluster.commands.sweeps.outcome import judge
from cluster.scenario import Scenario

BLOCK_MS = 1_000
INTERVAL_MS = 955
"""Between a leader's views and its proposals: with two delays of 20 ms and the machines' work, a block takes 1 s."""
REBROADCAST_MS = 5_000
"""Well above a block's time, so that nobody repeats what was not lost."""
REPETITIONS = 3
FIRES_PER_BLOCK = 200
FIRES_USERS: list[dict[str, Any]] = [
    {
        "workload": "flood",
        "count": 5,
        "interval_ms": BLOCK_MS,
        "options": {"timers": 40, "spread_blocks": 8, "burn": 4_000},
    }
]
RAMP_BLOCKS = 12
"""Until as many timers fire as are scheduled."""
CROWD = 500
CROWD_HEIGHTS = 20
PROTOCOLS = ("simplex", "hotstuff")


def main() -> None:
    run_benchmark(__doc__, lanes, minutes=3, full=f"{CROWD} validators, too; about 10 min and 4 GB")


def lanes(size: Size) -> list[Lane]:
    idle, fires, validators = size.of(30, 600), size.of(16, 120), size.of(16, 100)
    crowd = Metric("seconds_for_500_validators", "s, keyed hash", 300, at_least=False)
    return [
        Lane(partial(_speedup, "ed25519", idle), [Metric("speedup_idle", "virtual s/wall s, ed25519", 300)]),
        Lane(partial(_speedup, "keyed-hash", idle), [Metric("speedup_idle_fast", "virtual s/wall s, keyed hash", 700)]),
        Lane(partial(_speedup_with_fires, fires), [Metric("speedup_200_fires", "virtual s/wall s, ed25519", 10)]),
        Lane(
            partial(_seconds_for, validators), [Metric("seconds_for_crowd", f"s, {validators} validators, keyed hash")]
        ),
        Lane(partial(_fuzz_rate, size.of(1, 10)), [Metric("fuzz_seeds_per_minute", "seeds/min, one core")]),
        Lane(partial(_seconds_for, CROWD), [crowd], least=Size.FULL),
    ]


def _speedup(signatures: str, blocks: int) -> float:
    return median(_timed(_scenario(blocks, signatures))[0] for _ in range(REPETITIONS))


def _speedup_with_fires(blocks: int) -> float:
    scenario = _scenario(blocks, "ed25519", users=FIRES_USERS)
    speed, books = _timed(scenario)
    fires = books.ledger.timers.fires / (books.common_height - RAMP_BLOCKS)
    if fires < FIRES_PER_BLOCK:
        raise Unavailable(f"{fires:.0f} fires a block, expected at least {FIRES_PER_BLOCK}")
    return speed


def _seconds_for(validators: int) -> float:
    scenario = _scenario(CROWD_HEIGHTS, "keyed-hash", validators=validators)
    began = time.perf_counter()
    record = simulated(scenario, shortcuts=True)
    seconds = time.perf_counter() - began
    judged(record)
    return seconds


def _fuzz_rate(seeds: int) -> float:
    """As many seeds of either protocol, one after the other."""
    began = time.perf_counter()
    for seed in range(seeds):
        for protocol in PROTOCOLS:
            outcome, _ = judge(simulated(random_scenario(seed, protocol), seed, shortcuts=True), 0.0)
            if outcome.failed:
                raise Unavailable(f"seed {seed} of {protocol} fails: {outcome.reason}")
    return 60 * seeds * len(PROTOCOLS) / (time.perf_counter() - began)


def _timed(scenario: Scenario) -> tuple[float, Books]:
    """Simulated seconds a wall second, and what was seen."""
    began = time.perf_counter()
    record = simulated(scenario, shortcuts=True)
    seconds = time.perf_counter() - began
    return record.duration_ms / 1_000 / seconds, judged(record).books


def _scenario(height: int, signatures: str, validators: int = 4, users: list[dict[str, Any]] | None = None) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "benchmark",
            "validators": validators,
            "consensus": {
                "signatures": signatures,
                "block_interval_ms": INTERVAL_MS,
                "rebroadcast_ms": REBROADCAST_MS,
            },
            "load": {"users": users or []},
            "stop": {"height": height, "drain_blocks": 2, "timeout_s": 86_400},
            "success": {
                "heights_compared": min(height, 30),
                "transactions": 50 if users else 0,
                "fires": 50 if users else 0,
            },
        }
    )


if __name__ == "__main__":
    main()
