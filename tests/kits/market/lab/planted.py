"""Experiments whose runs are computed at once, for tests of what is around them."""

from __future__ import annotations

import os

from kits.market.estimates import Cell, Results
from kits.market.lab.experiment import REFEREED, Decision, Effort, Experiment, Plot, Setup
from kits.market.lab.population import Group
from kits.market.lab.strategies import Share
from kits.market.metric import Metric
from validator.chain.genesis import Policy


class Slope(Experiment):
    """The measure grows with the level. Negative levels give negative values."""

    name = "slope"
    title = "Slope <of> a line"
    question = "Does y grow with x?"
    hypothesis = "It does."
    rule = "Yes if the interval of the change excludes zero."
    factors = {"kind": ("plain", "steep"), "x": (-1, 0.5, 4)}
    plots = (Plot("y", "Height", "x"), Plot("only", "Sometimes there", "kind"))
    shown = ("y", "only")
    metrics = {"y": Metric("height <of> y", "metres", "more"), "only": Metric("what is there <at> times")}
    full = Effort(20, 4)
    quick = Effort(10, 2)

    def setup(self, cell: Cell, blocks: int) -> Setup:
        raise AssertionError("it has no market")

    def run(self, cell: Cell, seed: int, effort: Effort) -> dict[str, float]:
        kind, x = cell
        found = {"y": float(x) * (3 if kind == "steep" else 1) + seed / 7}
        return found | {"only": float(effort.blocks)} if kind == "steep" else found

    def decide(self, results: Results) -> Decision:
        change = results.change(("plain", 4), ("plain", -1), "y")
        return Decision(f"y changes by {change.mean:.2f}.", "Grow." if change.is_clear else "Stay.", "A line <only>.")


class Other(Slope):
    name = "other"
    title = "Another"


class Endless(Slope):
    """A measure is no number."""

    name = "endless"

    def run(self, cell: Cell, seed: int, effort: Effort) -> dict[str, float]:
        return {"y": float("nan")}


class Placed(Slope):
    """The measure depends on the process: the fault that the digest must show."""

    name = "placed"

    def run(self, cell: Cell, seed: int, effort: Effort) -> dict[str, float]:
        return {"y": float(os.getpid() + hash("text") % 1_000)}


class Tiny(Experiment):
    """A real market, small: it costs a second."""

    name = "tiny"
    title = "Tiny"
    question = "Does it run?"
    hypothesis = "It does."
    rule = "It ran."
    factors = {"policy": ("fifo", "cip1", "bias_auction")}
    plots = (Plot("welfare_of_best", "Welfare", "policy"),)
    shown = ("welfare_of_best",)
    metrics = REFEREED
    full = Effort(30, 3)
    quick = Effort(15, 2)

    def setup(self, cell: Cell, blocks: int) -> Setup:
        groups = (Group(name="all", agents=30, load=1.5, strategy=lambda _: Share(0.5)),)
        return Setup(Policy(str(cell[0])), groups)

    def decide(self, results: Results) -> Decision:
        return Decision("It ran.", "Nothing.", "It is tiny.")


SLOPE, OTHER, ENDLESS, PLACED, TINY = Slope(), Other(), Endless(), Placed(), Tiny()
