"""The lab: blocks a second of a market with few and with many waiting timers, and what a second worker brings.

- ``blocks_per_second``: a market's blocks of which none has transactions, while so many timers are due and wait.
- ``block_ratio``: the slowest policy against the fastest, with most timers. ``transition.py`` measures the selection
  alone.
- ``speed_up``: the same quick experiment with one worker and with two, with the start of Ray.
- ``run_all_quick`` (``--full``): all experiments with two workers.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any

from reporting import Lane, Metric, Size, folder, run_benchmark
from rich.console import Console

from kits.market.lab.experiment import Experiment
from kits.market.lab.experiments.registry import EXPERIMENTS
from kits.market.lab.market import LANE_CYCLES, Market
from kits.market.lab.population import Group
from kits.market.lab.running import run_lab
from validator.chain.genesis import Policy

FEW, MANY, FULL_MANY = 1_000, 10_000, 100_000
MIN_WINDOW = 25
"""Least number of blocks in which the jobs become due."""
MAX_AGENTS = 1_000
"""Number of transactions of a block, at most. An agent sends one."""
LIFE = 1_000
"""Number of blocks after which a job has no value: more than the blocks of a market."""
TIMED_BLOCKS = 15
CYCLES = (10_000, 80_000)
WORTH = 1e6
"""Median value of a job: no price is above it, so no timer is refused."""
SEED = 1
EXPERIMENT = "tiers"
"""One of the shortest."""
MAX_MINUTES = 10.0


def main() -> None:
    full = f"{FULL_MANY:,} waiting timers, and all experiments, quick, too; about 12 min"
    run_benchmark(__doc__, lanes, minutes=3, full=full)


def lanes(size: Size) -> list[Lane]:
    few, many = size.of((1_000, 1_500), (FEW, MANY), (FEW, FULL_MANY))
    rates = [
        Metric(f"{policy}_blocks_per_second_{name}", f"blocks/s, {waiting:,} waiting")
        for policy in Policy
        for name, waiting in (("few", few), ("many", many))
    ]
    slowest = Metric("block_ratio", f"× (the fastest policy / the slowest, {many:,} waiting)")
    run_all = Metric("run_all_quick", "minutes", MAX_MINUTES, at_least=False)
    return [
        Lane(partial(_rates, few, many), [*rates, slowest]),
        Lane(_speed_up, [Metric("speed_up", "× (2 workers / 1)")], least=Size.USUAL),
        Lane(lambda: seconds(list(EXPERIMENTS.values()), 2) / 60, [run_all], least=Size.FULL),
    ]


def _rates(few: int, many: int) -> Iterator[float]:
    with_many = []
    for policy in Policy:
        yield blocks_per_second(policy, few)
        with_many.append(blocks_per_second(policy, many))
        yield with_many[-1]
    yield max(with_many) / min(with_many)


def _speed_up() -> float:
    experiment = [EXPERIMENTS[EXPERIMENT]]
    return seconds(experiment, 1) / seconds(experiment, 2)


class _Ended(Exception):
    """All blocks that are to be timed were made."""


class _Timed(Market):
    """A market that times its blocks once all jobs are due, and ends after some of them."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.seconds: list[float] = []

    def _block(self, height: int) -> None:
        started = time.perf_counter()
        super()._block(height)
        if height > self.blocks:
            self.seconds.append(time.perf_counter() - started)
        if len(self.seconds) == TIMED_BLOCKS:
            raise _Ended


def blocks_per_second(policy: Policy, waiting: int) -> float:
    """Blocks a second, while about ``waiting`` timers are due."""
    agents = min(MAX_AGENTS, -(-waiting // MIN_WINDOW))
    window = -(-waiting // agents)
    load = agents * sum(CYCLES) / 2 / LANE_CYCLES * 0.999  # nearly each agent has a job in each block
    group = Group(name="all", agents=agents, load=load, cycles=CYCLES, worth=WORTH, life=LIFE)
    market = _Timed(policy, [group], SEED, window + group.notice, {"LANE_BASEFEE_SLOPE": 1})
    try:
        market.run()
    except _Ended:
        left = len(market._open)
        assert left > 0.6 * waiting, f"{policy.value}: {left:,} timers wait, not {waiting:,}"
    return 1 / median(market.seconds)


def seconds(experiments: Sequence[Experiment], workers: int) -> float:
    """Wall-clock seconds of quick runs of experiments."""
    with folder() as path:
        started = time.perf_counter()
        run_lab(experiments, True, path / "lab", workers, Console(file=io.StringIO()))
        return time.perf_counter() - started


if __name__ == "__main__":
    main()
