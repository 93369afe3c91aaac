"""An experiment of the lab: a question, the markets that answer it, and the rule that decides.

An experiment has *factors* with *levels*. A *cell* is one combination of levels; each cell runs once per seed, and all
cells meet the same jobs for a seed, so differences between cells are paired by seed.

An experiment may come from a file of the user (:mod:`kits.market.lab.files`), or from a package under the entry point
``stampede.experiments``. Its strategies and measures may be in the same file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar, Final, NamedTuple, Self

from cluster.common.errors import BadInput
from cluster.scenario.sections.kinds import KEPT, OwnKind
from kits.market.estimates import Cell, Level, Results
from kits.market.lab.market import Market
from kits.market.lab.measures import METRICS, WARM_UP, measures
from kits.market.lab.optimum import best_welfare
from kits.market.lab.population import Group
from kits.market.metric import POSITIVE, Metric
from validator.chain.genesis import Policy, PolicyFile
from validator.primitives.user_file import one_line

PLACE: Final = "experiment"
"""What a file has, for the gate and for errors."""
POLICY: Final = "policy"
"""The factor that a user's policy may be a further level of."""


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

    policy: Policy | PolicyFile
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
    """That of an experiment in a file is the file's."""
    title: str
    question: str
    hypothesis: str
    rule: str
    """The rule by which :meth:`decide` decides, in words."""
    factors: Mapping[str, Sequence[Level]]
    plots: Sequence[Plot]
    shown: Sequence[str]
    """The measures that the table of the page shows."""
    metrics: Mapping[str, Metric] = {}
    """Measures of this experiment alone. Each has a function that computes it from a :class:`Market` that ran."""
    full: Effort = FULL
    quick: Effort = QUICK
    policies: Mapping[str, PolicyFile] = {}
    """The policies of the user among the levels of the factor ``policy``."""
    given_blocks: int | None = None
    given_seeds: range | None = None
    """Blocks and seeds in place of those of an effort."""
    file: ClassVar[OwnKind | None] = None
    """The user's file that has the class."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_again, (type(self) if self.file is None else self.file, vars(self)))

    def changed(self, blocks: int | None, seeds: range | None, policies: Mapping[str, PolicyFile]) -> Self:
        """The experiment with other blocks and seeds, and with policies as further levels. Raises :class:`BadInput`."""
        found = copy(self)
        found.given_blocks, found.given_seeds = blocks, seeds
        if policies:
            levels = self.factors.get(POLICY, ())
            if not levels:
                raise BadInput(f"{self.name} has no factor {POLICY}; its factors: {', '.join(self.factors)}")
            if taken := [name for name in policies if name in levels]:
                raise BadInput(f"{self.name}: a policy is named {taken[0]}, too; expected another name of the file")
            found.policies = policies
            found.factors = {**self.factors, POLICY: (*levels, *policies)}
        return found

    @property
    def given(self) -> dict[str, Any]:
        """What a command gave it, as JSON: blocks, the ends of the range of seeds, and the files' names and texts."""
        seeds, files = self.given_seeds, self.policies.values()
        return {
            "blocks": self.given_blocks,
            "seeds": None if seeds is None else [seeds.start, seeds.stop],
            "file": self.file and {"name": self.file.name, "source": self.file.source},
            "policies": [{"name": each.name, "source": each.source} for each in files],
        }

    def metric(self, name: str) -> Metric:
        """The definition of a measure. Raises :class:`KeyError` for an unknown one."""
        group, _, last = name.rpartition(".")
        if name in self.metrics or not group:
            return {**METRICS, **self.metrics}[name]
        found = METRICS[last]
        return replace(found, words=f"of the group {group}: {found.words}")

    def problem(self) -> str:
        """What is wrong with how the experiment is described; empty if nothing is."""
        for text in ("name", "title", "question", "hypothesis", "rule", "factors", "shown"):
            if not getattr(self, text, None):
                return f"it has no {text}"
        if unknown := [plot.over for plot in self.plots if plot.over not in self.factors]:
            return f"plots: {unknown[0]} is no factor; expected {', '.join(self.factors)}"
        for name in (*self.shown, *(plot.measure for plot in self.plots)):
            try:
                self.metric(name)
            except KeyError:
                return f"the measure {name} has no definition; expected one in metrics"
        return ""

    def cells(self) -> list[Cell]:
        """All combinations of levels."""
        return list(product(*self.factors.values()))

    def effort(self, is_quick: bool) -> Effort:
        effort = self.quick if is_quick else self.full
        return Effort(self.given_blocks or effort.blocks, len(self.given_seeds or range(effort.seeds)))

    def seeds(self, is_quick: bool) -> range:
        """The seeds. Those of a full run are others than those of a quick one: what a quick look suggested is not
        confirmed by the same draws."""
        if self.given_seeds is not None:
            return self.given_seeds
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
        own = {name: metric.measure(market) for name, metric in self.metrics.items() if metric.measure}
        return {**measures(market), **own}


@lru_cache(maxsize=KEPT)
def class_of(own: OwnKind) -> type[Experiment]:
    """Execute the text of an experiment. Raises :class:`UserFileError`."""
    with one_line(own.file):
        found: type[Experiment] = own.executed(Experiment, PLACE)  # type: ignore[type-abstract]
        found.file, found.name = own, own.name
        described(found())
    return found


def described(experiment: Experiment) -> Experiment:
    """The experiment. Raises :class:`ValueError` if its description is not whole."""
    if problem := experiment.problem():
        raise ValueError(f"{type(experiment).__name__}: {problem}")
    return experiment


def _again(origin: Any, fields: dict[str, Any]) -> Experiment:
    """An experiment in another process."""
    kind: Any = origin if isinstance(origin, type) else class_of(origin)
    found: Experiment = object.__new__(kind)
    vars(found).update(fields)
    return found


def _welfare_of_best(market: Market) -> float:
    """The welfare of a market's jobs after the warm-up, as a share of what the referee reaches with them."""
    begin = market.blocks * WARM_UP
    best = best_welfare(tuple(trade.job for trade in market.trades), market.parameters.lane_timer_cycles, begin)
    return sum(trade.value for trade in market.trades if trade.job.due > begin) / best if best else 1.0


REFEREED: Final = {
    "welfare_of_best": Metric(
        "value of the fires, each at its height, to that of the fires that the referee chooses",
        "share of the referee's",
        "more",
        POSITIVE,
        _welfare_of_best,
    )
}
"""For :attr:`Experiment.metrics`. The referee takes about as long as the run, and may be beaten by a little."""
