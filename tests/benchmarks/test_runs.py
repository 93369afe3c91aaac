"""Benchmarks show no figures of a run that did not pass."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.checks.run import check_run
from cluster.watches.watched_simulation import simulate
from tests.benchmarks.test_simulator import load
from tests.cluster.records import make_record


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    return load("runs", monkeypatch)


def test_a_run_that_passes_gives_its_figures(benchmark: Any) -> None:
    assert benchmark.figures_of(make_record(), benchmark.Size.USUAL)["heights"] == 12


def test_a_run_that_does_not_pass_has_no_figures(benchmark: Any) -> None:
    record = make_record()
    record.problems.append("Locust died")
    reason = r"^the sim run 'synthetic' did not pass: no_problems: fail: Locust died$"
    with pytest.raises(benchmark.Unavailable, match=reason):
        benchmark.figures_of(record, benchmark.Size.QUICK)


def test_an_idle_run_can_pass_and_a_flood_without_load_cannot(benchmark: Any) -> None:
    idle = simulate(benchmark.scenario_of("idle", 32, interval_ms=0, users=[]), 1)
    assert benchmark.figures_of(idle, benchmark.Size.USUAL)["heights"] >= 32
    flood = benchmark.scenario_of("flood", 32, interval_ms=0, users=[{"workload": "flood", "count": 1}])
    idle.scenario = flood
    assert check_run(idle).check("load").verdict.value == "inconclusive"
    with pytest.raises(benchmark.Unavailable, match="load: inconclusive"):
        benchmark.figures_of(idle, benchmark.Size.USUAL)
    assert benchmark.figures_of(idle, benchmark.Size.QUICK)["heights"] >= 32, "they mean nothing"


def test_a_run_that_a_signal_ended_ends_the_benchmark(benchmark: Any) -> None:
    record = make_record()
    record.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        benchmark.figures_of(record, benchmark.Size.USUAL)
