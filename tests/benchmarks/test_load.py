"""The benchmark of the load takes for a knee of the validators only what is one."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.tools.load.knee import Limit
from tests.benchmarks.test_simulator import load


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    return load("load", monkeypatch)


def found(limit: Limit | None, ended: str | None = None, has_knee: bool = True) -> dict[str, Any]:
    steps = [
        {"final_per_s": 80.0, "p99_ms": 900.0, "broken": None},
        {"final_per_s": 90.0, "p99_ms": 4_000.0, "broken": "the bound"},
    ]
    return {"knee": steps[0] if has_knee else None, "limit": limit, "ended": ended, "steps": steps}


def test_a_knee_is_one_if_the_testnet_was_at_its_limit(benchmark: Any) -> None:
    assert benchmark.knee_figures(found(Limit.TESTNET)) == [80.0, 900.0]


@pytest.mark.parametrize(
    ("limit", "ended", "words"),
    [
        (Limit.PROCESSES, None, "the bound"),
        (Limit.USERS, None, "the bound"),
        (None, None, "the bound"),
        (Limit.TESTNET, "interrupted", "interrupted"),
    ],
)
def test_a_load_at_its_own_limit_has_found_no_knee(
    benchmark: Any, limit: Limit | None, ended: str | None, words: str
) -> None:
    with pytest.raises(benchmark.Unavailable, match=f"80 transactions/s and more; .*: {words}"):
        benchmark.knee_figures(found(limit, ended))


def test_no_load_that_keeps_its_bounds_is_one_line(benchmark: Any) -> None:
    with pytest.raises(benchmark.Unavailable, match="no load kept its bounds: the bound"):
        benchmark.knee_figures(found(Limit.TESTNET, has_knee=False))
