"""The benchmarks of consensus and of the simulator measure what they say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cluster.watches.watched_simulation import simulate
from consensus.leader import ANNOUNCERS

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = importlib.util.spec_from_file_location(f"benchmarks_{name}", BENCHMARKS / f"{name}.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, found.name, module)
    found.loader.exec_module(module)
    return module


@pytest.fixture
def consensus(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("consensus", monkeypatch)


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("simulation", monkeypatch)


@pytest.mark.parametrize(("protocol", "finality_hops"), [("simplex", 3.0), ("hotstuff", 5.0)])
@pytest.mark.parametrize("validators", [4, pytest.param(7, marks=pytest.mark.slow)])
def test_a_block_takes_two_delays_and_finality_what_the_protocol_promises(
    consensus: ModuleType, protocol: str, finality_hops: float, validators: int
) -> None:
    found = consensus.figures(protocol, validators)
    assert (found.block_hops, found.finality_hops) == (2.0, finality_hops)


def test_in_simplex_everybody_tells_everybody_and_in_hotstuff_a_collector(consensus: ModuleType) -> None:
    """A proposal, votes of two kinds, and certificates of two kinds by their announcers; the leader's first vote is in
    its proposal."""
    n = 7
    expected = (n - 1) * (1 + (n - 1) + n + 2 * ANNOUNCERS)
    assert consensus.figures("simplex", n).messages == pytest.approx(expected, rel=0.05)
    assert consensus.figures("hotstuff", n).messages < 5 * n


def test_blocks_take_a_second_where_speed_is_measured(simulation: ModuleType) -> None:
    record = simulate(simulation._scenario(30, "keyed-hash"), 1)
    books = simulation.judged(record).books
    assert record.duration_ms / books.common_height == pytest.approx(simulation.BLOCK_MS, rel=0.02)


def test_a_run_that_does_not_pass_ends_the_benchmark(simulation: ModuleType) -> None:
    record = simulate(simulation._scenario(10, "keyed-hash"), 1)
    record.problems.append("a validator died")
    with pytest.raises(simulation.Unavailable, match="a validator died"):
        simulation.judged(record)
