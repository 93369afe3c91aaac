"""The search finds what was planted, and does not find it where it was not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.common.interrupts import Interrupts
from kits.market.dos.search.searching import Limits, Searched, search
from tests.kits.market.dos.search.planted import WEAKNESSES, Weakness

SEEDS = (1, 2)
CANDIDATES = 400
"""Of a search; each takes a quarter of a second."""
QUICK = (
    (replace(WEAKNESSES["free-actors"], blocks=24, least=0.3), 48),
    (replace(WEAKNESSES["free-queries"], blocks=20, least=50.0), 56),
)
"""Those that are found soon: short runs, a part of the harm, and so many candidates."""


def searched(weakness: Weakness, is_planted: bool, folder: Path, candidates: int, seed: int) -> Searched:
    problem = weakness.problem(is_planted, seed)
    return search(problem, folder, Limits(None, candidates), 1, Interrupts())


def best_figure(found: Searched) -> float:
    figure = found.best[0].figure
    assert figure is not None
    assert not any(line.problem for line in found.best), "no candidate crashed"
    return figure


@pytest.mark.slow
@pytest.mark.parametrize(("weakness", "candidates"), QUICK, ids=[weakness.name for weakness, _ in QUICK])
@pytest.mark.parametrize("is_planted", [True, False], ids=["planted", "sound"])
def test_a_planted_weakness_is_found_and_only_there(
    weakness: Weakness, candidates: int, is_planted: bool, tmp_path: Path
) -> None:
    found = searched(weakness, is_planted, tmp_path / "search", candidates, 1)
    assert (best_figure(found) >= weakness.least) is is_planted


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", WEAKNESSES)
def test_planted_weaknesses_are_found_and_only_there(name: str, seed: int, tmp_path: Path) -> None:
    weakness = WEAKNESSES[name]
    assert best_figure(searched(weakness, True, tmp_path / "planted", CANDIDATES, seed)) >= weakness.least
    assert best_figure(searched(weakness, False, tmp_path / "sound", CANDIDATES, seed)) < weakness.least
