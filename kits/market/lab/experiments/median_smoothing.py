"""Median smoothing: does it help incumbents when many actors enter or leave? (Seed 001 §8, limitation 2.)"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from statistics import fmean

from kits.market.estimates import Cell, Results
from kits.market.lab.experiment import LANE_PRICES, Decision, Effort, Experiment, Plot, Setup
from kits.market.lab.market import Market
from kits.market.lab.measures import METRICS, of_trades
from kits.market.lab.population import Group
from kits.market.lab.strategies import Share
from kits.market.metric import POSITIVE, Metric
from validator.chain.genesis import Policy

ALPHAS = (1_000, 200, 50, 10)
SHOCKS = ("entry", "exit")
GROUPS = ("incumbents", "swarm")
PHASES = ("before", "shock")
MATERIAL = 0.05
"""Share of the incumbents' wait by which smoothing must shorten it."""


def window(blocks: int) -> int:
    """The fairness window of a run, so that a shock and its end fit into it."""
    return blocks // 8


def _span(phase: str, blocks: int) -> range:
    """The heights of the window before the shock, or of the one after it."""
    half = blocks // 2
    return (
        range(half - window(blocks) + 1, half + 1) if phase == "before" else range(half + 1, half + window(blocks) + 1)
    )


def _of_trades(group: str, phase: str, measure: str, market: Market) -> float:
    span = _span(phase, market.blocks)
    return of_trades([trade for trade in market.of_group(group) if trade.job.due in span])[measure]


def _weight(group: str, phase: str, market: Market) -> float:
    span = _span(phase, market.blocks)
    return fmean(fmean(use.weights[group]) for use in market.uses if use.height in span)


def _metrics() -> dict[str, Metric]:
    found = {}
    for group, phase in product(GROUPS, PHASES):
        when = f"in the window {'before' if phase == 'before' else 'after'} the shock"
        for name, measure in (("wait", "wait_mean"), ("utility", "utility")):
            usual, compute = METRICS[measure], partial(_of_trades, group, phase, measure)
            words = f"of the group {group}, {when}: {usual.words}"
            found[f"{group}.{name}_{phase}"] = replace(usual, words=words, measure=compute)
        weight = f"of the group {group}, {when}: fairness weight, mean of actors and blocks"
        found[f"{group}.weight_{phase}"] = Metric(weight, "", "", POSITIVE, partial(_weight, group, phase))
    return found


class MedianSmoothing(Experiment):
    name = "median_smoothing"
    title = "Smoothed median"
    question = "Does a smoothed median spare incumbents when a swarm of actors enters or leaves?"
    hypothesis = (
        "A shock moves the median and puts incumbents at a disadvantage for about one window; smoothing lessens it"
        " (seed 001 §8, limitation 2)."
    )
    rule = (
        "Smooth if some α shortens the incumbents' wait in the window after an entry clearly, by more than a twentieth,"
        " and the same α does not lengthen it after an exit by as much."
    )
    factors = {"LANE_FEE_MULTIPLIER_MILLI": LANE_PRICES, "shock": SHOCKS, "MEDIAN_SMOOTHING_MILLI": ALPHAS}
    plots = (
        Plot("incumbents.wait_shock", "Incumbents' wait in the window after the shock", "MEDIAN_SMOOTHING_MILLI"),
        Plot("incumbents.weight_shock", "Incumbents' weight in that window", "MEDIAN_SMOOTHING_MILLI"),
    )
    shown = ("incumbents.wait_before", "incumbents.wait_shock", "incumbents.weight_shock", "full_share")
    metrics = _metrics()
    full = Effort(1_000, 8)

    def setup(self, cell: Cell, blocks: int) -> Setup:
        multiplier, shock, alpha = cell
        active = (0.5, 1.0) if shock == "entry" else (0.0, 0.5)
        groups = (
            Group(name="incumbents", agents=20, load=0.9, strategy=lambda _: Share(0.3)),
            Group(name="swarm", agents=60, load=0.4, active=active, strategy=lambda _: Share(0.3)),
        )
        params = {
            "LANE_FEE_MULTIPLIER_MILLI": multiplier,
            "FAIRNESS_WINDOW_BLOCKS": window(blocks),
            "MEDIAN_SMOOTHING_MILLI": alpha,
        }
        return Setup(Policy.CIP1, groups, params)

    def decide(self, results: Results) -> Decision:
        measure, (usual, free) = "incumbents.wait_shock", LANE_PRICES
        helps = {price: self._helpful(results, price) for price in LANE_PRICES}
        both = [alpha for alpha in helps[usual] if alpha in helps[free]]
        changes = {
            price: ", ".join(
                f"{results.change((price, 'entry', alpha), (price, 'entry', 1_000), measure).text} (α = {alpha})"
                for alpha in ALPHAS[1:]
            )
            for price in LANE_PRICES
        }
        shocked = results.gap((usual, "entry", 1_000), measure, "incumbents.wait_before")
        if both:
            recommendation = f"Smooth, with α = {both[0]} thousandths."
        elif helps[usual]:
            recommendation = f"Smooth, with α = {helps[usual][0]} thousandths, as long as the lane has its price."
        elif helps[free]:
            recommendation = (
                "It depends: smoothing helps where the lane is always full. Do not smooth with a lane price."
            )
        else:
            recommendation = "Do not smooth the median."
        return Decision(
            f"Without smoothing an entry lengthens the incumbents' wait by {shocked.text} blocks. Smoothing changes it"
            f" by {changes[usual]}; without a lane price by {changes[free]}.",
            recommendation,
            "The entry adds load, too, and most of its effect may be that. The window is an eighth of the run.",
        )

    def _helpful(self, results: Results, price: int) -> list[int]:
        """The α that help incumbents after an entry, and do not harm them after an exit."""
        measure, found = "incumbents.wait_shock", []
        entry, leave = ((price, shock, 1_000) for shock in SHOCKS)
        bounds = [MATERIAL * results.mean(cell, measure).mean for cell in (entry, leave)]
        for alpha in ALPHAS[1:]:
            after_entry = results.change((price, "entry", alpha), entry, measure)
            after_exit = results.change((price, "exit", alpha), leave, measure)
            if after_entry.falls_below(-bounds[0]) and not after_exit.exceeds(bounds[1]):
                found.append(alpha)
        return found
