"""A signal ends every benchmark: a simulated run survives it, and its record says so."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest

from cluster.simulation.driver import Simulation
from tests.benchmarks.test_simulator import load

RUNS: Final[dict[str, Callable[[Any], object]]] = {
    "consensus": lambda benchmark: benchmark.figures("simplex", 4),
    "scale": lambda benchmark: benchmark._simulated(benchmark._scenario("simplex", 4, 32), benchmark.Size.QUICK),
    "simulation": lambda benchmark: benchmark._speedup("keyed-hash", 3),
    "simulation fuzz": lambda benchmark: benchmark._fuzz_rate(1),
    "transition": lambda benchmark: benchmark._lane_us(benchmark.Size.QUICK),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_signal_in_a_simulated_run_ends_the_benchmark(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulation, "advance", raised)
    benchmark: ModuleType = load(name.partition(" ")[0], monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        RUNS[name](benchmark)


def raised(simulation: Simulation) -> bool:
    raise KeyboardInterrupt


def test_an_interrupted_search_has_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark: Any = load("load", monkeypatch)
    searched = SimpleNamespace(interrupted=True, evaluated=1, seconds=1.0)
    monkeypatch.setattr(benchmark, "search", lambda *given: searched)
    with pytest.raises(KeyboardInterrupt):
        benchmark._searching(1, 1, 20)
