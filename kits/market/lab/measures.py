"""The measures of a market: what it gave whom, how late, and at what price.

The first tenth of the blocks, in which prices and weights find their level, counts for no measure. :data:`METRICS` has
the definitions. The lateness of a timer that never fired is the life of its job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf
from statistics import fmean, pstdev, pvariance
from typing import Final

from cluster.common.quantiles import quantile
from kits.market.lab.market import BlockUse, Market, Trade
from kits.market.metric import POSITIVE, SHARE, Metric

WARM_UP: Final = 0.1
"""Share of the blocks that count for no measure."""
AT_MOST_ONE: Final = (-inf, 1.0)
VALUE: Final = "share of the value of all jobs"
METRICS: Final[Mapping[str, Metric]] = {
    "jobs": Metric("fires that agents wanted", "", "", POSITIVE),
    "fired_share": Metric("jobs whose timer fired", "share of jobs", "more", SHARE),
    "priced_out_share": Metric("jobs that cost more than they were worth to schedule", "share of jobs", "less", SHARE),
    "starved_share": Metric("jobs whose timer was scheduled and never fired", "share of jobs", "less", SHARE),
    "late_mean": Metric(
        "time from the wanted height to the fire, of the timers that fired, mean", "blocks", "less", POSITIVE
    ),
    "late_p50": Metric(
        "time from the wanted height to the fire, of the timers that fired, median", "blocks", "less", POSITIVE
    ),
    "late_p99": Metric(
        "time from the wanted height to the fire, of the timers that fired, 99th percentile", "blocks", "less", POSITIVE
    ),
    "late_max": Metric(
        "time from the wanted height to the fire, of the timers that fired, the longest", "blocks", "less", POSITIVE
    ),
    "wait_mean": Metric(
        "time from the wanted height to the fire, or the life of the job if its timer never fired, of the timers that"
        " were scheduled, mean",
        "blocks",
        "less",
        POSITIVE,
    ),
    "welfare": Metric("value of the fires, each at its height", VALUE, "more", SHARE),
    "utility": Metric("value of the fires less what agents paid for fires and queries", VALUE, "more", AT_MOST_ONE),
    "revenue": Metric("what fires paid to proposers", VALUE, "", POSITIVE),
    "burn": Metric("what fires and queries burned", VALUE, "", POSITIVE),
    "utility_variance": Metric(
        "variance among agents of utility, each as a share of the value of its jobs", "", "less", POSITIVE
    ),
    "utility_spread": Metric(
        "standard deviation among agents of utility, each as a share of the value of its jobs",
        "share",
        "less",
        POSITIVE,
    ),
    "utility_per_bid_variance": Metric(
        "variance among agents of utility for each wei that they offered", "", "less", POSITIVE
    ),
    "lane_share": Metric("cycles of the group's fires", "share of the cycles of all fires", "", SHARE),
    "lane_use": Metric("cycles of fires", "share of the lane", "", SHARE),
    "full_share": Metric("blocks with a full lane: a timer waits that did not fit", "share of blocks", "", SHARE),
    "price_mean": Metric("what a block's fires paid for a cycle, mean of the blocks with fires", "wei", "", POSITIVE),
    "price_variation": Metric(
        "standard deviation of what fires pay for a cycle, among blocks with fires",
        "share of its mean",
        "less",
        POSITIVE,
    ),
    "price_step": Metric(
        "change of what fires pay for a cycle from one block with fires to the next, mean",
        "share of its mean",
        "less",
        POSITIVE,
    ),
}
"""The measures of each market, and of each of its groups (``GROUP.NAME``)."""


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
    """The measures of some blocks. Prices are those of blocks with fires."""
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
