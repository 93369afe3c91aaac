"""Payment rules of ``bias_auction``: their revenue, and a search for deviations that pay. (Seed 003 §9.5 and §9.9.)

The *deviation search* lets two small groups, of small and of large timers, leave the truth in one way at a time, while
all others stay with it. It looks at jobs that are worth nothing after their block, for which the rules of a single
auction hold, and at jobs that may wait, as their value falls over many blocks. A deviation that pays shows that the
rule is not truthful. The gain is paired by seed, and its interval allows for all comparisons of the rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Final, NamedTuple

from kits.market.estimates import Cell, Estimate, Results
from kits.market.lab.experiment import Decision, Effort, Experiment, Plot, Setup
from kits.market.lab.population import Group
from kits.market.lab.strategies import Learner, Share, Truthful
from validator.chain.genesis import Policy


class Deviation(NamedTuple):
    """A way to leave the truth."""

    share: float = 1.0
    """The bid, as a share of the value."""
    early: int = 0
    """Number of blocks before the wanted height for which the timer is scheduled."""


TRUTH: Final = "truth"
DEVIATIONS: Final[Mapping[str, Deviation]] = {
    TRUTH: Deviation(),
    "bid 0.25": Deviation(0.25),
    "bid 0.5": Deviation(0.5),
    "bid 0.75": Deviation(0.75),
    "bid 1.5": Deviation(1.5),
    "bid 3": Deviation(3.0),
    "1 early": Deviation(early=1),
}
MARKETS: Final = ("once", "truthful", "learning")
"""Truthful agents whose jobs have one block; such whose jobs may wait; and learners whose jobs may wait."""
LIFE: Final = 30
RULES: Final = ("vcg", "critical", "first_price")
SIZES: Final = {"small": (10_000, 20_000), "large": (60_000, 80_000)}
GAIN = 0.01
"""The least gain that counts, as a share of the value of the deviator's jobs."""
GAP = 0.1
"""The share of first price's revenue whose loss counts as a gap."""


class Found(NamedTuple):
    """The best deviation of a search."""

    deviation: str
    gain: Estimate

    @property
    def pays(self) -> bool:
        return self.gain.exceeds(GAIN)


def search(results: Results, base: Cell, cells: Mapping[str, Cell], measure: str) -> Found:
    """Search the deviation that gains most against the truth. ``cells``: those of the deviations; ``base``: truth's."""
    gains = [Found(name, results.change(cell, base, measure)) for name, cell in cells.items()]
    return max(gains, key=lambda found: (found.pays, found.gain.mean))


def deviating(share: float, _random: Random) -> Share:
    return Share(share)


class Truthfulness(Experiment):
    name = "truthfulness"
    title = "Payment rules"
    question = "How much less does greedy VCG earn than first price, and does any deviation from the truth pay?"
    hypothesis = (
        "With greedy VCG the best bid is the value; its revenue is below that of first price (seed 003 §9.5, §9.9)."
    )
    rule = (
        "A rule is truthful in a market if no deviation gains small or large timers clearly more than a hundredth of"
        " their value. There is a revenue gap if, with learners, VCG earns clearly less than first price, by more than"
        " a tenth. VCG is recommended if truthful, else critical payments if they are, else first price."
    )
    factors = {"market": MARKETS, "PAYMENT_RULE": RULES, "deviation": tuple(DEVIATIONS)}
    plots = (
        Plot("small.utility", "Utility of small timers", "deviation"),
        Plot("large.utility", "Utility of large timers", "deviation"),
        Plot("revenue", "Revenue", "deviation"),
    )
    shown = ("small.utility", "large.utility", "small.revenue", "large.revenue", "revenue")
    full = Effort(600, 8)

    def cells(self) -> list[Cell]:
        """The deviations among truthful agents, and the truth among learners."""
        once: list[Cell] = [
            ("once", rule, name) for rule in RULES[:2] for name, each in DEVIATIONS.items() if not each.early
        ]
        lasting: list[Cell] = [("truthful", rule, name) for rule in RULES for name in DEVIATIONS]
        return [*once, *lasting, *(("learning", rule, TRUTH) for rule in RULES)]

    def setup(self, cell: Cell, blocks: int) -> Setup:
        market, rule, name = cell
        deviation = DEVIATIONS[str(name)]
        strategy, life = partial(deviating, deviation.share), 1 if market == "once" else LIFE
        deviators = (
            Group(
                name=size, agents=2, load=load, cycles=SIZES[size], life=life, early=deviation.early, strategy=strategy
            )
            for size, load in (("small", 0.02), ("large", 0.08))
        )
        crowd = Learner if market == "learning" else Truthful.of
        others = Group(name="others", agents=40, load=1.2, life=life, strategy=crowd)
        return Setup(Policy.BIAS_AUCTION, (*deviators, others), {"PAYMENT_RULE": rule})

    def best(self, results: Results, market: str, rule: str, size: str) -> Found:
        cells: dict[str, Cell] = {
            str(cell[2]): cell for cell in self.cells() if cell[:2] == (market, rule) and cell[2] != TRUTH
        }
        return search(results, (market, rule, TRUTH), cells, f"{size}.utility")

    def decide(self, results: Results) -> Decision:
        searches = [(market, rule) for market in MARKETS[:2] for rule in RULES[:2]]
        found = {key: {size: self.best(results, *key, size) for size in SIZES} for key in searches}
        is_truthful = {key: not any(best.pays for best in each.values()) for key, each in found.items()}
        vcg, first = (("learning", rule, TRUTH) for rule in ("vcg", "first_price"))
        gap, earned = results.change(vcg, first, "revenue"), results.mean(first, "revenue").mean
        over = {
            size: results.change(("once", "vcg", TRUTH), ("once", "critical", TRUTH), f"{size}.revenue")
            for size in SIZES
        }
        if is_truthful["once", "vcg"] and is_truthful["truthful", "vcg"]:
            recommendation = "Keep greedy VCG: no deviation that was tried pays."
        elif is_truthful["once", "critical"] and is_truthful["truthful", "critical"]:
            recommendation = "Charge critical values: greedy VCG is not truthful, and they are."
        elif is_truthful["once", "critical"] and not is_truthful["once", "vcg"]:
            recommendation = (
                "It depends: within a block no deviation pays with critical values, and one does with greedy VCG, so"
                " charge critical values. Where jobs may wait, a bid that is not the value pays with them, too."
            )
        else:
            recommendation = "It depends: no rule is truthful. First price is simpler, and its bidders shade anyway."
        listed = "; ".join(
            f"{rule}, {'once' if market == 'once' else 'may wait'}: "
            + ", ".join(f"{size} {best.deviation} {best.gain.text}" for size, best in each.items())
            for (market, rule), each in found.items()
        )
        return Decision(
            f"Best deviations and their gains: {listed}. In one block greedy VCG takes {over['small'].text} more than"
            f" critical values from small timers and {over['large'].text} more from large ones. Among learners VCG"
            f" earns {gap.text} of all value more than first price's {earned:.3f}"
            f"{', a gap' if gap.falls_below(-GAP * earned) else ', no gap'}.",
            recommendation,
            "Even within a block critical payments can exceed the least bid that wins for small timers: they fit into"
            " what the first one left out leaves free. A search finds deviations, and never proves that there are none:"
            " bids are constant shares, and two small groups deviate at a time.",
        )
