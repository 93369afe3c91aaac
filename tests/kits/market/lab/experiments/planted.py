"""Results that are made so that a rule must say one thing or another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from kits.market.estimates import Cell, Results
from kits.market.lab.experiment import Experiment

SEEDS = 4
JITTER = 1e-6
"""Seeds differ by so little that each planted difference is clear."""


def planted(experiment: Experiment, figures: Callable[[Cell], Mapping[str, float]]) -> Results:
    """Results of all cells: the figures of each, and 1 for all other measures."""
    rows: dict[Cell, dict[int, Mapping[str, float]]] = {}
    for place, cell in enumerate(experiment.cells()):
        found, jitter = figures(cell), JITTER * (place % 3 + 1)
        rows[cell] = {
            seed: defaultdict(lambda: 1.0, {name: value + jitter * seed for name, value in found.items()})
            for seed in range(SEEDS)
        }
    return Results(rows)
