"""An experiment of the lab: a question, the markets that answer it, and the rule that decides.

An experiment has *factors* with *levels*. A *cell* is one combination of levels; each cell runs once per seed, and all
cells meet the same jobs for a seed, so differences between cells are paired by seed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple

from kits.market.estimates import Cell, Level, Results
from kits.market.lab.market import Market
from kits.market.lab.measures import WARM_UP, measures
from kits.market.lab.optimum import best_welfare
from kits.market.lab.population import Group
from validator.chain.genesis import Policy


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a run of an experiment does."""

    blocks: int
    seeds: int


LANE_PRICES: Final = (1_000, 0)
"""Levels of ``LANE_FEE_MULTIPLIER_MILLI``: with and without a price of the lane. Without it the lane is always full,
and weights count for most."""
FULL: Final = Effort(1_200, 8)
QUICK: Final = Effort(240, 3)


class Setup(NamedTuple):
    """The market of one cell."""

    policy: Policy
    groups: Sequence[Group]
    params: Mapping[str, Any] = {}


class Plot(NamedTuple):
    """A plot of a result page: a measure over the levels of one factor, a line for each combination of the others."""

    measure: str
    title: str
    over: str
    """Name of the factor on the x axis."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the results say."""

    answer: str
    """One sentence, with its figures."""
    recommendation: str
    limits: str


class Experiment(ABC):
    """One experiment. Subclasses are registered in :mod:`kits.market.lab.experiments.registry`."""

    name: str
    title: str
    question: str
    hypothesis: str
    rule: str
    """The rule by which :meth:`decide` decides, in words."""
    factors: Mapping[str, Sequence[Level]]
    plots: Sequence[Plot]
    shown: Sequence[str]
    """The measures that the table of the page shows."""
    has_referee: bool = False
    """Whether a run has the measure ``welfare_of_best``: its welfare as a share of the referee's. The referee takes
    about as long as the run."""
    full: Effort = FULL
    quick: Effort = QUICK

    def cells(self) -> list[Cell]:
        """All combinations of levels."""
        return list(product(*self.factors.values()))

    def effort(self, is_quick: bool) -> Effort:
        return self.quick if is_quick else self.full

    def seeds(self, is_quick: bool) -> range:
        """The seeds. Those of a full run are others than those of a quick one: what a quick look suggested is not
        confirmed by the same draws."""
        first = 0 if is_quick else self.quick.seeds
        return range(first, first + self.effort(is_quick).seeds)

    @abstractmethod
    def setup(self, cell: Cell, blocks: int) -> Setup:
        """The market of a cell. ``blocks``: its length."""

    @abstractmethod
    def decide(self, results: Results) -> Decision:
        """Apply the rule to the results."""

    def run(self, cell: Cell, seed: int, effort: Effort) -> dict[str, float]:
        """Run the market of a cell; returns its measures."""
        setup = self.setup(cell, effort.blocks)
        market = Market(setup.policy, setup.groups, seed, effort.blocks, setup.params)
        market.run()
        found = {**measures(market), **self.further(market)}
        if self.has_referee:
            found["welfare_of_best"] = _welfare_of_best(market)
        return found

    def further(self, market: Market) -> dict[str, float]:
        """Measures of this experiment alone."""
        return {}


def _welfare_of_best(market: Market) -> float:
    """The welfare of a market's jobs after the warm-up, as a share of what the referee reaches with them."""
    begin = market.blocks * WARM_UP
    best = best_welfare(tuple(trade.job for trade in market.trades), market.parameters.lane_timer_cycles, begin)
    return sum(trade.value for trade in market.trades if trade.job.due > begin) / best if best else 1.0
