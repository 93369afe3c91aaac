"""Bounds of what an engine keeps are those that the documentation names, and what is above one of them is told."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.misbehaviour.planted import RunCounter, planted
from cluster.scenario import Scenario
from cluster.scenario.model import LimitsSection
from cluster.watches import kept_watch
from cluster.watches.kept_watch import bounds, excesses, pool_bounds
from cluster.watches.watched_simulation import simulate
from consensus.voting import Sizes
from tests.consensus.bench import FINALIZE, NOTARIZE, Bench, HotStuffBench
from validator.node.mempool import PoolSizes

VIEWS = 90
"""More than certificates are retained for."""


def final_views(bench: Bench) -> list[str]:
    """Views of which each brings a final block; returns what was too much in any of them."""
    told: list[str] = []
    for view in range(1, VIEWS):
        bench.cast(NOTARIZE, view, f"b{view}")
        bench.cast(FINALIZE, view, f"b{view}")
        told += excesses(bench.engine.sizes, bounds(bench.engine.view, bench.engine.final_view, 4, LimitsSection()))
    assert bench.engine.final_view == VIEWS - 1
    return told


def test_bounds_grow_with_the_views_that_are_not_final_as_far_as_they_may() -> None:
    assert bounds(10, 8, 4, LimitsSection()) == Sizes(rounds=26, votes=12, proposals=5, own=2, certificates=66)
    assert bounds(500, 8, 4, LimitsSection()) == Sizes(rounds=81, votes=12, proposals=5, own=492, certificates=556)


@pytest.mark.parametrize("name", Sizes._fields)
def test_each_table_has_its_bound(name: str) -> None:
    most = bounds(10, 8, 4, LimitsSection())
    assert list(excesses(most, most)) == []
    bound = getattr(most, name)
    assert list(excesses(most._replace(**{name: bound + 1}), most)) == [f"{name} {bound + 1} of {bound}"]


@pytest.mark.parametrize("bench_type", [Bench, HotStuffBench])
def test_an_engine_stays_within_its_bounds(bench_type: type[Bench]) -> None:
    assert final_views(bench_type()) == []


@pytest.mark.parametrize("bench_type", [Bench, HotStuffBench])
def test_views_without_a_block_stay_within_the_bounds(bench_type: type[Bench]) -> None:
    bench = bench_type()
    for view in range(2, VIEWS):
        bench.advance_to(view)
        assert (
            list(excesses(bench.engine.sizes, bounds(bench.engine.view, bench.engine.final_view, 4, LimitsSection())))
            == []
        )
    assert bench.engine.sizes.certificates == VIEWS - 2


@pytest.mark.kits
@pytest.mark.parametrize(
    ("name", "first"), [("keeps-certificates", "certificates 66 of 65"), ("keeps-rounds", "rounds 26 of 25")]
)
def test_an_engine_that_lets_nothing_go_is_told_of(name: str, first: str) -> None:
    counter = RunCounter()
    engine: Any = planted(name).patch.engine
    bench_type = type("Mutated", (Bench,), {"engine_type": engine(Bench.engine_type, counter)})
    assert final_views(bench_type())[0] == first
    assert counter.runs > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", PoolSizes._fields)
def test_a_mempool_that_keeps_more_is_told_of(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """In a run whose validators keep as much as usual, and whose watch allows less."""
    load = {"users": [{"workload": "transfer", "count": 4, "interval_ms": 100}]}
    scenario = Scenario.model_validate({"name": "kept", "load": load, "stop": {"height": 8}})
    assert not any("keeps too much" in each for each in violations_of(scenario))
    monkeypatch.setattr(kept_watch, "pool_bounds", lambda limits: pool_bounds(limits)._replace(**{name: 0}))
    assert any("keeps too much in view" in each and f"{name} " in each for each in violations_of(scenario))


def violations_of(scenario: Scenario) -> list[str]:
    monitor = simulate(scenario, 1).monitor
    assert monitor is not None
    return monitor.violations
