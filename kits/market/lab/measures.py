"""The measures of a market: what it gave whom, how late, and at what price.

The first tenth of the blocks, in which prices and weights find their level, counts for no measure. Shares are between 0
and 1; utilities and payments are shares of the value that the jobs had.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from statistics import fmean, pstdev, pvariance
from typing import Final

from cluster.common.quantiles import quantile
from kits.market.lab.market import BlockUse, Market, Trade

WARM_UP: Final = 0.1
"""Share of the blocks that count for no measure."""
SHARES: Final = frozenset({"lane_use", "welfare"})
"""Measures between 0 and 1, in addition to those whose names end with ``_share``."""
UTILITIES: Final = frozenset({"utility", "utility_before", "utility_shock"})
"""Measures that are at most 1, and negative where agents pay more than their jobs are worth."""
NEVER_NEGATIVE: Final = (
    *("burn", "jobs", "late_", "longest_", "price", "rate_", "revenue", "wait_", "weight_", "welfare_of_best"),
    *("utility_per_bid_variance", "utility_spread", "utility_variance"),
)
"""What the names of measures begin with that are 0 or more. The referee may be beaten by a little."""


def range_of(measure: str) -> tuple[float, float]:
    """The least and the greatest value that a measure can have. Its intervals stay within, and so do plots' axes.

    A measure of another name, such as a difference, can have any value.
    """
    name = measure.rpartition(".")[2]
    if name in SHARES or name.endswith("_share"):
        return 0.0, 1.0
    if name in UTILITIES:
        return -inf, 1.0
    return (0.0 if name.startswith(NEVER_NEGATIVE) else -inf), inf


def measures(market: Market) -> dict[str, float]:
    """All measures of a market that ran, by name; those of one group begin with its name."""
    begin = market.blocks * WARM_UP
    trades = [trade for trade in market.trades if trade.job.due > begin]
    uses = [use for use in market.uses if begin < use.height <= market.blocks]
    found = {**of_trades(trades), **of_blocks(uses, market.parameters.lane_timer_cycles)}
    for name in market.groups:
        mine = [trade for trade in trades if trade.job.group == name]
        found |= {f"{name}.{measure}": value for measure, value in of_trades(mine).items()}
        found[f"{name}.lane_share"] = ratio(_cycles(mine), _cycles(trades))
    return found


def of_trades(trades: Sequence[Trade]) -> dict[str, float]:
    """The measures of some trades."""
    fired = [trade for trade in trades if trade.fired_at is not None]
    late = sorted(lateness(trade) for trade in fired)
    asked = [trade for trade in trades if not trade.is_priced_out]
    worth = sum(trade.job.value for trade in trades)
    agents: dict[tuple[str, int], list[Trade]] = {}
    for trade in trades:
        agents.setdefault((trade.job.group, trade.job.agent), []).append(trade)
    gains = [ratio(sum(t.utility for t in each), sum(t.job.value for t in each)) for each in agents.values()]
    offers = [(sum(t.utility for t in each), sum(t.offer for t in each)) for each in agents.values()]
    per_offer = [utility / offer for utility, offer in offers if offer]
    return {
        "jobs": float(len(trades)),
        "fired_share": ratio(len(fired), len(trades)),
        "priced_out_share": ratio(len(trades) - len(asked), len(trades)),
        "starved_share": ratio(len(asked) - len(fired), len(trades)),
        "late_mean": fmean(late) if late else 0.0,
        "late_p50": float(quantile(late, 0.5)) if late else 0.0,
        "late_p99": float(quantile(late, 0.99)) if late else 0.0,
        "late_max": float(max(late, default=0)),
        "wait_mean": fmean(map(lateness, asked)) if asked else 0.0,
        "welfare": ratio(sum(trade.value for trade in trades), worth),
        "utility": ratio(sum(trade.utility for trade in trades), worth),
        "revenue": ratio(sum(trade.tip for trade in trades), worth),
        "burn": ratio(sum(trade.burned for trade in trades), worth),
        "utility_variance": pvariance(gains) if gains else 0.0,
        "utility_spread": pstdev(gains) if gains else 0.0,
        "utility_per_bid_variance": pvariance(per_offer) if per_offer else 0.0,
    }


def of_blocks(uses: Sequence[BlockUse], lane_cycles: int) -> dict[str, float]:
    """The measures of some blocks. Prices are those of blocks with fires.

    ``price_variation`` is the standard deviation of the price, ``price_step`` its mean change from one block to the
    next, both as shares of its mean.
    """
    prices = [use.price for use in uses if use.price]
    mean = fmean(prices) if prices else 0.0
    steps = [abs(after - before) for before, after in pairwise(prices)]
    return {
        "lane_use": fmean(use.cycles for use in uses) / lane_cycles if uses else 0.0,
        "full_share": fmean(use.is_full for use in uses) if uses else 0.0,
        "price_mean": mean,
        "price_variation": ratio(pstdev(prices), mean) if prices else 0.0,
        "price_step": ratio(fmean(steps), mean) if steps else 0.0,
    }


def lateness(trade: Trade) -> int:
    """The number of blocks from a job's wanted height to its fire; the job's life if there was none."""
    return trade.job.life if trade.fired_at is None else trade.fired_at - trade.job.due


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _cycles(trades: Sequence[Trade]) -> int:
    return sum(trade.job.cycles for trade in trades if trade.fired_at is not None)
