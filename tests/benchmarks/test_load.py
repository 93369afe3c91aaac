"""The benchmark of the load takes for a knee of the validators only what is one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.commands.load.knee import Limit
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


@pytest.mark.parametrize("code", [0, 1])
def test_a_search_that_ends_has_its_page(benchmark: Any, tmp_path: Path, code: int) -> None:
    assert benchmark.knee_page(search_that_ends(tmp_path / "page", code), tmp_path / "page") == {"knee": 80}


@pytest.mark.parametrize("code", [2, 3, 4, 130])
def test_a_search_that_did_not_do_its_work_has_no_figure_though_it_wrote_a_page(
    benchmark: Any, tmp_path: Path, code: int
) -> None:
    with pytest.raises(benchmark.Unavailable, match=f"^the search for the knee ended with {code}: nothing was sent$"):
        benchmark.knee_page(search_that_ends(tmp_path / "page", code), tmp_path / "page")


def search_that_ends(file: Path, code: int) -> list[str]:
    script = """
import sys
from pathlib import Path
Path(sys.argv[1]).write_text('{"knee": 80}')
print("nothing was sent", file=sys.stderr)
sys.exit(int(sys.argv[2]))
"""
    return [sys.executable, "-c", script, str(file), str(code)]
