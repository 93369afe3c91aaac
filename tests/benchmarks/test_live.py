"""The live benchmark shows no figures of a run that did not pass."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from cluster.checks.run import check_run
from cluster.simulation.driver import simulate
from tests.cluster.records import make_record

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = importlib.util.spec_from_file_location("benchmarks_live", BENCHMARKS / "live.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_a_run_that_passes_gives_its_figures(benchmark: ModuleType) -> None:
    assert benchmark.figures_of(make_record())["heights"] == 12


def test_a_run_that_does_not_pass_ends_the_benchmark(benchmark: ModuleType) -> None:
    record = make_record()
    record.problems.append("Locust died")
    with pytest.raises(SystemExit, match=r"^the sim run 'synthetic' did not pass: no_problems: fail: Locust died$"):
        benchmark.figures_of(record)


def test_an_idle_run_can_pass_and_a_flood_without_load_cannot(benchmark: ModuleType) -> None:
    idle = simulate(benchmark._scenario("idle", 32, interval_ms=0, users=[]), 1)
    assert benchmark.figures_of(idle)["heights"] >= 32
    flood = benchmark._scenario("flood", 32, interval_ms=0, users=benchmark.FLOOD_USERS)
    idle.scenario = flood
    assert check_run(idle).check("load").verdict.value == "inconclusive"
