"""Experiments whose runs are computed at once, for tests of what is around them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import ClassVar

from kits.market.lab.experiment import Cell, Decision, Effort, Experiment, Level, Plot, Results, Setup
from kits.market.lab.population import Group
from kits.market.lab.strategies import Share
from validator.chain.genesis import Policy


class Slope(Experiment):
    """The measure grows with the level. Negative levels give negative values."""

    name: ClassVar[str] = "slope"
    title: ClassVar[str] = "Slope <of> a line"
    question: ClassVar[str] = "Does y grow with x?"
    hypothesis: ClassVar[str] = "It does."
    rule: ClassVar[str] = "Yes if the interval of the change excludes zero."
    factors: ClassVar[Mapping[str, Sequence[Level]]] = {"kind": ("plain", "steep"), "x": (-1, 0.5, 4)}
    plots: ClassVar[Sequence[Plot]] = (Plot("y", "Height", "x"), Plot("only", "Sometimes there", "kind"))
    shown: ClassVar[Sequence[str]] = ("y", "only")
    full: ClassVar[Effort] = Effort(20, 4)
    quick: ClassVar[Effort] = Effort(10, 2)

    @classmethod
    def setup(cls, cell: Cell, blocks: int) -> Setup:
        raise AssertionError("it has no market")

    @classmethod
    def run(cls, cell: Cell, seed: int, effort: Effort) -> dict[str, float]:
        kind, x = cell
        found = {"y": float(x) * (3 if kind == "steep" else 1) + seed / 7}
        return found | {"only": float(effort.blocks)} if kind == "steep" else found

    @classmethod
    def decide(cls, results: Results) -> Decision:
        change = results.change(("plain", 4), ("plain", -1), "y")
        return Decision(f"y changes by {change.mean:.2f}.", "Grow." if change.is_clear else "Stay.", "A line <only>.")


class Other(Slope):
    name: ClassVar[str] = "other"
    title: ClassVar[str] = "Another"


class Endless(Slope):
    """A measure is no number."""

    name: ClassVar[str] = "endless"

    @classmethod
    def run(cls, cell: Cell, seed: int, effort: Effort) -> dict[str, float]:
        return {"y": float("nan")}


class Placed(Slope):
    """The measure depends on the process: the fault that the digest must show."""

    name: ClassVar[str] = "placed"

    @classmethod
    def run(cls, cell: Cell, seed: int, effort: Effort) -> dict[str, float]:
        return {"y": float(os.getpid() + hash("text") % 1_000)}


class Tiny(Experiment):
    """A real market, small: it costs a second."""

    name: ClassVar[str] = "tiny"
    title: ClassVar[str] = "Tiny"
    question: ClassVar[str] = "Does it run?"
    hypothesis: ClassVar[str] = "It does."
    rule: ClassVar[str] = "It ran."
    factors: ClassVar[Mapping[str, Sequence[Level]]] = {"policy": ("fifo", "cip1", "bias_auction")}
    plots: ClassVar[Sequence[Plot]] = (Plot("welfare_of_best", "Welfare", "policy"),)
    shown: ClassVar[Sequence[str]] = ("welfare_of_best",)
    has_referee: ClassVar[bool] = True
    full: ClassVar[Effort] = Effort(30, 3)
    quick: ClassVar[Effort] = Effort(15, 2)

    @classmethod
    def setup(cls, cell: Cell, blocks: int) -> Setup:
        groups = (Group(name="all", agents=30, load=1.5, strategy=lambda _: Share(0.5)),)
        return Setup(Policy(str(cell[0])), groups)

    @classmethod
    def decide(cls, results: Results) -> Decision:
        return Decision("It ran.", "Nothing.", "It is tiny.")
