"""λ of ``bias_auction``: bounded waits against bids that count for nothing. (Seed 003 §9.2, §9.3 and §9.9.)"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from kits.market.estimates import Cell, Results
from kits.market.lab.experiment import Decision, Effort, Experiment, Plot, Setup
from kits.market.lab.market import Market
from kits.market.lab.measures import WARM_UP, lateness, of_trades
from kits.market.lab.population import Group
from kits.market.lab.strategies import Spammer
from kits.market.metric import POSITIVE, SHARE, Metric
from validator.chain.genesis import Policy

RATES: Final = ("0.1", "0.5", "1", "3", "dynamic")
LIFE = 30
EQUAL = (45_000, 45_000)


class Rivalry(NamedTuple):
    """Those with whom a timer without a bid competes."""

    cycles: tuple[int, int]
    life: int


RIVALRIES: Final = {"fresh": Rivalry(EQUAL, 3), "aging": Rivalry(EQUAL, LIFE), "mixed": Rivalry((10_000, 80_000), LIFE)}
"""Rivals that leave before they gain a bias of note, as N_max takes them; rivals that wait, too; other gas limits."""
PATIENCE = 400
"""Life of the jobs that only measure the longest wait."""
BEYOND_ALLOWED = 0.001
BLIND = 0.05
"""Share of the welfare at the least λ whose loss counts as bids that no longer matter."""


def _waits(market: Market) -> tuple[list[int], list[float]]:
    """The waits of the patient timers, and each as a share of N_max; both begin with 0."""
    rates = {use.height: use.rate for use in market.uses}
    greatest = max(trade.offer for trade in market.trades)
    waits, shares = [0], [0.0]
    for trade in market.of_group("patient"):
        if not market.blocks * WARM_UP < trade.job.due <= market.blocks:
            continue
        waited = min(lateness(trade), market.blocks - trade.job.due)
        rate = min(rates[height] for height in range(trade.job.due, trade.job.due + waited + 1))
        waits.append(waited)
        shares.append(waited / n_max(greatest, rate))
    return waits, shares


def beyond_share(market: Market) -> float:
    shares = _waits(market)[1]
    return sum(share > 1 for share in shares) / len(shares)


def waiting_gain(market: Market) -> float:
    waiting, bidding = (of_trades(market.of_group(name))["utility"] for name in ("waiters", "bidders"))
    return waiting - bidding


class BiasLambda(Experiment):
    name = "bias_lambda"
    title = "λ of the bias"
    question = "Which λ bounds waits without making bids worthless, and when does waiting beat bidding?"
    hypothesis = (
        "No timer waits longer than N_max = ln(T/3)/λ, whoever competes; a dynamic λ keeps the bias from growing faster"
        " than values fall, so that waiting never beats bidding (seed 003 §9.2, §9.3)."
    )
    rule = (
        "N_max holds for a λ if at most a thousandth of the timers without a bid wait longer. Waiting beats bidding if"
        " those who bid nothing have clearly more utility than those who bid their values. A fixed λ is usable if its"
        " welfare is not clearly more than a twentieth below that of 0.1 and waiting does not beat bidding; the"
        " greatest usable one is recommended, unless the dynamic λ is usable and has the lesser wait."
    )
    factors = {"rivals": tuple(RIVALRIES), "lambda": RATES}
    plots = (
        Plot("welfare", "Welfare", "lambda"),
        Plot("patient.wait_longest", "Longest wait of a timer without a bid, in blocks", "lambda"),
        Plot("beyond_share", "Share of the patient timers that waited beyond N_max", "lambda"),
        Plot("waiting_gain", "Utility of waiting less that of bidding", "lambda"),
    )
    shown = ("welfare", "waiting_gain", "patient.wait_longest", "longest_by_bound", "rate_last")
    metrics = {
        "patient.wait_longest": Metric(
            "wait of a timer without a bid, the longest",
            "blocks",
            "less",
            POSITIVE,
            lambda market: float(max(_waits(market)[0])),
        ),
        "beyond_share": Metric(
            "patient timers that waited for longer than N_max", "share of timers", "less", SHARE, beyond_share
        ),
        "longest_by_bound": Metric(
            "longest wait of a timer without a bid",
            "× N_max",
            "less",
            POSITIVE,
            lambda market: max(_waits(market)[1]),
        ),
        "rate_last": Metric(
            "λ at the end",
            "1 / block",
            "",
            POSITIVE,
            lambda market: next(use.rate for use in market.uses if use.height == market.blocks),
        ),
        "waiting_gain": Metric(
            "utility of those who bid nothing less that of those who bid their values, each",
            "share of the value of its jobs",
            "less",
            measure=waiting_gain,
        ),
    }
    full = Effort(800, 8)

    def setup(self, cell: Cell, blocks: int) -> Setup:
        rivalry, rate = cell
        cycles, life = RIVALRIES[str(rivalry)]
        groups = (
            Group(name="bidders", agents=40, load=1.2, life=life, cycles=cycles),
            Group(name="waiters", agents=10, load=0.1, life=life, cycles=cycles, strategy=lambda _: Spammer()),
            Group(name="patient", agents=4, load=0.04, life=PATIENCE, cycles=cycles, strategy=lambda _: Spammer()),
        )
        params: dict[str, Any] = {"VALUE_LIFE_BLOCKS": life, "BIAS_LAMBDA_MAX_MICRO": 10_000_000}
        if rate != "dynamic":
            params |= {"BIAS_LAMBDA_MICRO": round(float(rate) * 10**6), "BIAS_LAMBDA_STEP_MILLI": 0}
        return Setup(Policy.BIAS_AUCTION, groups, params)

    def decide(self, results: Results) -> Decision:
        mixed = {rate: ("mixed", rate) for rate in RATES}
        beyond = {cell: results.mean(cell, "beyond_share").mean for cell in self.cells()}
        holds = {kind: all(beyond[kind, rate] <= BEYOND_ALLOWED for rate in RATES) for kind in RIVALRIES}
        waits = {rate: results.mean(cell, "patient.wait_longest") for rate, cell in mixed.items()}
        gain = {rate: results.mean(cell, "waiting_gain") for rate, cell in mixed.items()}
        best = results.mean(mixed[RATES[0]], "welfare").mean
        loss = {rate: results.change(cell, mixed[RATES[0]], "welfare") for rate, cell in mixed.items()}
        usable = [rate for rate in RATES if not loss[rate].falls_below(-BLIND * best) and not gain[rate].exceeds(0)]
        fixed = [rate for rate in usable if rate != "dynamic"]
        if not usable:
            recommendation = "None of the λ is usable: each makes waiting the better bid, or bids worthless."
        elif "dynamic" in usable and (not fixed or waits["dynamic"].mean < waits[fixed[-1]].mean):
            recommendation = "Use the dynamic λ."
        else:
            recommendation = f"Use a fixed λ of {fixed[-1]}."
        beaten = ", ".join(rate for rate in RATES if gain[rate].exceeds(0))
        return Decision(
            "N_max "
            + "; ".join(
                f"{'holds' if holds[kind] else 'fails'} with {kind} rivals"
                f" (beyond it: {max(beyond[kind, rate] for rate in RATES):.3f} of the timers)"
                for kind in RIVALRIES
            )
            + f". Waiting beats bidding at {f'λ = {beaten}' if beaten else 'no λ that was tried'}."
            " Against 0.1, welfare changes by"
            f" {loss['1'].text} at 1, {loss['3'].text} at 3, and {loss['dynamic'].text} with the dynamic λ"
            f" ({results.mean(mixed['dynamic'], 'rate_last').mean:.2f} at the end).",
            recommendation,
            "λ is tied to the unit of bids: ln of a bid in wei is some 24 here, so λ = 1 means 24 blocks. A chain with"
            " other prices needs another λ. N_max takes T/3 as the greatest bid that was made.",
        )


def n_max(greatest_bid: int, rate: float) -> int:
    """The number of blocks after which the bias exceeds the greatest bid: ``ln(T/3)/λ``, with that bid for ``T/3``."""
    return math.ceil(math.log(max(2, greatest_bid)) / rate)
