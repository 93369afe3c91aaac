"""The search for the knee, and each bound that a load can break."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from cluster.checks.metrics.load_latency import WorkloadLatency
from cluster.tools.load.following import Look
from cluster.tools.load.knee import CLOSE, MAX_STEPS, Step, broken_bound, search
from cluster.tools.load.loading import Outcome
from loadgen.runplan import Statistics

P99_MS = 1_000
SENT = 200


def outcome(backlog: int = 0, looks: int = 2, exit_code: int = 0, **changes: Any) -> Outcome:
    """A load that keeps every bound, but for the changes."""
    figures: dict[str, Any] = {"late": 0, "rejected": 0, "skipped": 0, "measured": SENT, "final": SENT}
    figures |= {"latencies_ms": [400.0] * 195 + [900.0] * 5} | changes
    points = [Look(at, 10, 5, 0, 0) for at in range(looks - 1)] + [Look(looks, 20, 205, backlog, 0)]
    return Outcome(
        Statistics(), [WorkloadLatency("flood", SENT, **figures)], points if looks else [], exit_code
    )  # fmt: skip


def test_a_load_that_keeps_every_bound() -> None:
    assert broken_bound(outcome(backlog=20, late=20, final=SENT - 2), P99_MS) is None
    assert outcome().rate == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"latencies_ms": [400.0] * 195 + [1_001.0] * 5}, "p99 of finality 1,001 ms, above 1,000"),
        ({"backlog": 21}, "the backlog grew by 21"),
        ({"final": SENT - 3}, "3 of 200 transactions did not become final"),
        ({"late": 15, "skipped": 6}, "21 of 200 turns were late or left out: the load's own processes are at"),
        ({"final": 0, "latencies_ms": []}, "nothing became final"),
        ({"exit_code": 1}, "the load or the testnet failed"),
        ({"looks": 0}, "the load or the testnet failed"),
    ],
)
def test_every_bound_can_be_broken(changes: dict[str, Any], words: str) -> None:
    assert (broken_bound(outcome(**changes), P99_MS) or "").startswith(words)


@pytest.mark.parametrize("knee", [0.07, 0.9, 1.0, 3.0, 41.5])
def test_the_search_ends_close_to_the_knee(knee: float) -> None:
    tried = count()

    def try_factor(factor: float) -> Step:
        next(tried)
        return Step(factor, outcome(), None if factor <= knee else "too much")

    steps = search(try_factor)
    best = max(step.factor for step in steps if step.broken is None)
    worst = min(step.factor for step in steps if step.broken is not None)
    assert best <= knee < worst <= best * CLOSE
    assert next(tried) == len(steps) <= MAX_STEPS


@pytest.mark.parametrize("broken", [None, "too much"])
def test_the_search_ends_without_a_knee(broken: str | None) -> None:
    assert len(search(lambda factor: Step(factor, outcome(), broken))) == MAX_STEPS
