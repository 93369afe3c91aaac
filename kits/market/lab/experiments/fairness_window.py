"""Fairness window: how long should fires count? Smoothing against lag. (Seed 001 §8 and §16.)"""

from __future__ import annotations

from statistics import fmean, pstdev

from kits.market.estimates import Cell, Results
from kits.market.lab.experiment import LANE_PRICES, Decision, Effort, Experiment, Plot, Setup
from kits.market.lab.market import BlockUse, Market
from kits.market.lab.measures import WARM_UP, lateness
from kits.market.lab.population import Group
from kits.market.lab.strategies import Share
from kits.market.metric import POSITIVE, Metric
from validator.chain.genesis import Policy

WINDOWS = (100, 300, 1_000, 3_000, 10_000)
LAUNCH = 1_000
"""The window that the seed proposes."""
HALF_WAY = 1.3
"""A mean weight about half way between that of the changers before they turn quiet, 1, and their last one."""
NOISE_ALLOWED = 1.25
WELFARE_ALLOWED = -0.01


def _after_warm_up(market: Market) -> list[BlockUse]:
    return [use for use in market.uses if market.blocks * WARM_UP < use.height <= market.blocks]


def weight_noise(market: Market) -> float:
    return fmean(pstdev(use.weights["steady"]) for use in _after_warm_up(market))


def weight_lag(market: Market) -> float:
    half = market.blocks // 2
    after = [use for use in _after_warm_up(market) if use.height > half]
    passed = (use.height - half for use in after if fmean(use.weights["changers"]) >= HALF_WAY)
    return float(next(passed, len(after)))


def wait_late(market: Market) -> float:
    half = market.blocks // 2
    late = [t for t in market.of_group("changers") if t.job.due > half and not t.is_priced_out]
    return fmean(map(lateness, late)) if late else 0.0


class FairnessWindow(Experiment):
    name = "fairness_window"
    title = "Fairness window"
    question = "Over how many blocks should fires count for fairness: what smooths, and what lags?"
    hypothesis = (
        "Longer windows smooth more, but lag more when actors change; 1,000 blocks are right for the launch"
        " (seed 001 §8, §16)."
    )
    rule = (
        "There is a trade-off if the weights of equal actors differ clearly less with 10,000 blocks than with 100, and"
        " follow a change clearly later. The shortest window is recommended whose noise is at most a quarter above that"
        " of 1,000 blocks, and whose welfare is not clearly more than a hundredth below it."
    )
    factors = {"LANE_FEE_MULTIPLIER_MILLI": LANE_PRICES, "FAIRNESS_WINDOW_BLOCKS": WINDOWS}
    plots = (
        Plot("weight_noise", "Deviation of weights among equal actors", "FAIRNESS_WINDOW_BLOCKS"),
        Plot("weight_lag", "Blocks until weights follow a change", "FAIRNESS_WINDOW_BLOCKS"),
        Plot("changers.wait_late", "Wait of the changers after the change, in blocks", "FAIRNESS_WINDOW_BLOCKS"),
    )
    shown = ("weight_noise", "weight_lag", "steady.wait_mean", "changers.wait_late", "welfare")
    metrics = {
        "weight_noise": Metric(
            "standard deviation of weights among actors with the same load, mean of blocks",
            "",
            "less",
            POSITIVE,
            weight_noise,
        ),
        "weight_lag": Metric(
            f"time from the change of load until the changers' mean weight reaches {HALF_WAY}, or to the end",
            "blocks",
            "less",
            POSITIVE,
            weight_lag,
        ),
        "changers.wait_late": Metric(
            "wait of the changers' timers that were scheduled for the second half, mean",
            "blocks",
            "less",
            POSITIVE,
            wait_late,
        ),
    }
    full = Effort(4_000, 4)
    quick = Effort(480, 3)

    def setup(self, cell: Cell, blocks: int) -> Setup:
        groups = (
            Group(name="steady", agents=30, load=0.7, strategy=lambda _: Share(0.3)),
            Group(name="changers", agents=10, load=0.5, later=0.2, strategy=lambda _: Share(0.3)),
        )
        multiplier, window = cell
        return Setup(Policy.CIP1, groups, {"LANE_FEE_MULTIPLIER_MILLI": multiplier, "FAIRNESS_WINDOW_BLOCKS": window})

    def decide(self, results: Results) -> Decision:
        usual = LANE_PRICES[0]
        ends = (WINDOWS[0], LAUNCH, WINDOWS[-1])
        noise, lag = (
            results.change((usual, WINDOWS[-1]), (usual, WINDOWS[0]), measure)
            for measure in ("weight_noise", "weight_lag")
        )
        is_trade = noise.falls_below(0) and lag.exceeds(0)
        chosen = next(window for window in WINDOWS if self._is_as_good(results, window))
        noises = ", ".join(f"{results.mean((usual, window), 'weight_noise').mean:.3f}" for window in ends)
        lags = ", ".join(f"{results.mean((usual, window), 'weight_lag').mean:.0f}" for window in ends)
        welfare, late = (
            {price: results.change((price, WINDOWS[-1]), (price, WINDOWS[0]), measure).text for price in LANE_PRICES}
            for measure in ("welfare", "changers.wait_late")
        )
        return Decision(
            f"{'There is a trade-off' if is_trade else 'The trade-off does not show'}: with 100, 1,000 and 10,000"
            f" blocks the noise of weights is {noises}, and they follow a change after {lags} blocks. From 100 to"
            f" 10,000 welfare changes by {welfare[usual]}, and without a lane price by {welfare[0]}; the changers'"
            f" wait by {late[usual]} and {late[0]} blocks.",
            f"Keep {LAUNCH:,} blocks." if chosen == LAUNCH else f"Use {chosen:,} blocks instead of {LAUNCH:,}.",
            "A lag as long as half of the run was not seen to end. Noise depends on the fires of an actor in the"
            " window: with a tenth of them a window must be ten times as long for the same.",
        )

    def _is_as_good(self, results: Results, window: int) -> bool:
        """Whether a window is no worse than the seed's, with and without a lane price."""
        return window == LAUNCH or all(
            results.mean((price, window), "weight_noise").mean
            <= NOISE_ALLOWED * results.mean((price, LAUNCH), "weight_noise").mean
            and not results.change((price, window), (price, LAUNCH), "welfare").falls_below(WELFARE_ALLOWED)
            for price in LANE_PRICES
        )
