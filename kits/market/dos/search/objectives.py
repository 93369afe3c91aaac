"""The objectives of a search, computed from the scorecard's measures (:mod:`kits.market.dos.measures`).

An attack has a *figure*, which is shown, and a *fitness*, by which attacks are ordered: the greater, the worse for the
chain. If figures are equal or not yet comparable, further terms of the fitness decide: honest timers' delay and fees,
or the attackers' spend. The *harm* of an attack is the effect that it adds to the run without the attack; 0 is none.
Harm can be compared between two chains. Everything is computed from blocks, without measured times, so that a search
can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

import msgspec

from kits.market.dos.measures import Effect, RunMeasures

MIN_DELAY: Final = 0.5
"""Minimum average delay of honest timers, in blocks. Below it, attacks are compared by delay, not by price of delay."""


class Fitness(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The fitness of an attack. Fields are compared in order; a greater fitness is worse for the chain."""

    reached: float
    figure: float
    rest: float


NOTHING: Final = Fitness(0.0, 0.0, 0.0)
"""Fitness of an attack that did nothing."""


@dataclass(frozen=True, slots=True)
class Objective:
    """An objective of a search: the harm that attacks are to maximize, with its figure and fitness."""

    name: str
    figure_name: str
    unit: str
    figure: Callable[[Effect], float | None]
    _harm: Callable[[Effect], float]
    _fitness: Callable[[Effect, RunMeasures, RunMeasures], Fitness]

    def fitness(self, effect: Effect, attacked: RunMeasures, baseline: RunMeasures) -> Fitness:
        """The fitness of an attack from its two runs and their comparison; :data:`NOTHING` if it did nothing."""
        return self._fitness(effect, attacked, baseline) if effect.acted else NOTHING

    def harm(self, fitness: Fitness, effect: Effect) -> float:
        """The harm of an attack, in units of the objective; 0 if it did nothing.

        If the objective is a price, the harm is the delay per unit spent.
        """
        return self._harm(effect) if fitness.reached > 0 else 0.0

    def keeps(self, fitness: Fitness, best: Fitness, share: float) -> bool:
        """Whether an attack with this fitness reaches at least ``share`` of the figure of the ``best`` attack."""
        if fitness.reached < best.reached:
            return False
        # A figure below 0 is a price: it may grow by the same share.
        least = best.figure * (share if best.figure >= 0 else 1 / share)
        return fitness.figure >= least


def _metric(name: str) -> Callable[[Effect], float | None]:
    return lambda effect: effect.metrics[name]


def _value(effect: Effect, name: str) -> float:
    return effect.metrics[name] or 0.0


def _delay_per_spend(effect: Effect) -> float:
    spend = _value(effect, "spend")
    return _value(effect, "delay_blocks") / spend if spend else inf


def _spend_ratio(effect: Effect, attacked: RunMeasures, baseline: RunMeasures) -> Fitness:
    """Fitness by the price of delay if the delay is at least :data:`MIN_DELAY` per honest timer, else by the delay."""
    delay, price = _value(effect, "delay_blocks"), effect.metrics["spend_per_block_of_delay"]
    if price is None or delay < MIN_DELAY * max(1, baseline.timers):
        return Fitness(0.0, delay, 0.0)
    return Fitness(1.0, -price, delay)


def _starvation(effect: Effect, attacked: RunMeasures, baseline: RunMeasures) -> Fitness:
    """Fitness by the share of missing fires. If it is equal, delay and the rise of fees per fire decide.

    Fees count because users who pay more for fires have less left for later ones.
    """
    usual = baseline.fee_per_fire
    dearer = attacked.fee_per_fire / usual - 1.0 if usual else 0.0
    return Fitness(1.0, _starved(effect), _value(effect, "delay_blocks") / max(1, baseline.timers) + dearer)


def _starved(effect: Effect) -> float:
    """The share of the baseline's honest fires that are missing."""
    ratio = effect.metrics["honest_fires_ratio"]
    return 0.0 if ratio is None else max(0.0, 1.0 - ratio)


OBJECTIVES: Final = {
    objective.name: objective
    for objective in (
        Objective(
            "lateness",
            "lateness p99",
            "blocks",
            _metric("lateness_p99"),
            lambda effect: _value(effect, "lateness_p99_added"),
            lambda effect, *_: Fitness(1.0, _value(effect, "lateness_p99"), _value(effect, "delay_blocks")),
        ),
        Objective(
            "spend_ratio",
            "spend per honest block of delay",
            "",
            _metric("spend_per_block_of_delay"),
            _delay_per_spend,
            _spend_ratio,
        ),
        Objective(
            "block_time",
            "cycles of a block p99",
            "× baseline",
            _metric("block_cycles_ratio"),
            lambda effect: (effect.metrics["block_cycles_ratio"] or 1.0) - 1.0,
            lambda effect, *_: Fitness(1.0, _value(effect, "block_cycles_ratio"), -(effect.metrics["spend"] or 0)),
        ),
        Objective("starvation", "share of honest fires missing", "", _starved, _starved, _starvation),
    )
}
