"""Each rule can confirm its hypothesis and contradict it: on results that are planted so, it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from kits.market.estimates import Cell
from kits.market.lab.experiments.registry import EXPERIMENTS
from tests.kits.market.lab.experiments.planted import planted

Figures = Callable[[Cell], Mapping[str, float]]


def windows(noise: Callable[[int], float], lag: Callable[[int], float], welfare: float = 0.5) -> Figures:
    """``welfare``: that of windows below 1,000."""
    return lambda cell: {
        "weight_noise": noise(int(cell[1])),
        "weight_lag": lag(int(cell[1])),
        "welfare": welfare if int(cell[1]) < 1_000 else 0.5,
    }


def shares(paying: Callable[[Cell], bool]) -> Figures:
    """Splitting gains a fifth where it pays."""
    return lambda cell: {"party.lane_share": 0.3 + (0.06 if paying(cell) and int(cell[2]) > 1 else 0.0)}


def shocks(wait: Callable[[int, str, int], float]) -> Figures:
    return lambda cell: {"incumbents.wait_shock": wait(int(cell[0]), str(cell[1]), int(cell[2]))}


def tiers(saving: Callable[[str, str], bool]) -> Figures:
    return lambda cell: {
        "standard.wait_mean": 2.0,
        "fast.wait_mean": 1.0 if saving(str(cell[0]), str(cell[1])) else 1.9,
    }


def subsidies(filling: tuple[str, ...], welfare: float = 0.1) -> Figures:
    """The use and welfare of 0.8 × are higher at the loads ``filling``."""
    return lambda cell: {
        "lane_use": 0.3 if cell[1] == 800 and cell[0] in filling else 0.2,
        "welfare": 0.5 + (welfare if cell[1] == 800 and cell[0] in filling else 0.0),
    }


def rates(beyond: float, gain: Mapping[str, float], welfare: Mapping[str, float], wait: float = 50.0) -> Figures:
    """``gain``, ``welfare``: by λ, where they differ from -0.1 and 0.5. ``wait``: with the dynamic λ, of 60 else."""
    return lambda cell: {
        "beyond_share": beyond,
        "waiting_gain": gain.get(str(cell[1]), -0.1),
        "welfare": welfare.get(str(cell[1]), 0.5),
        "patient.wait_longest": wait if cell[1] == "dynamic" else 60.0,
        "rate_last": 1.0,
    }


def reserves(paying: tuple[str, ...], access: float = 0.9, utility: float = 0.5) -> Figures:
    """A reserve of 0.2 or more adds revenue with agents of the conducts ``paying``, at this access of the poor."""
    return lambda cell: {
        "revenue": 0.2 if cell[0] in paying and float(cell[2]) >= 0.2 else 0.1,
        "poor.fired_share": access if float(cell[2]) >= 0.2 else 0.9,
        "poor.utility": utility if float(cell[2]) >= 0.2 else 0.5,
    }


def payments(paying: Mapping[str, str], once: Mapping[str, str] | None = None, vcg_revenue: float = 0.3) -> Figures:
    """``paying``: a deviation that gains small timers, by rule. First price earns 0.3 among learners.

    ``once``: the same for jobs of one block, if that differs.
    """
    by_market = {"once": paying if once is None else once, "truthful": paying, "learning": {}}
    return lambda cell: {
        "small.utility": 0.6 if by_market[str(cell[0])].get(str(cell[1])) == cell[2] else 0.5,
        "large.utility": 0.5,
        "revenue": vcg_revenue if cell[1] == "vcg" and cell[0] == "learning" else 0.3,
    }


def sources(gaining: Mapping[str, tuple[str, ...]], default: float = 0.5) -> Figures:
    """``gaining``: the policies under which a source gains. ``default``: the utility with the default agent."""
    return lambda cell: {
        "utility": default if cell[2] == "default" else 0.6 if cell[0] in gaining.get(str(cell[2]), ()) else 0.5
    }


def policies(best: Mapping[str, str], steady: bool = True) -> Figures:
    """``best``: the policy that is best at each measure. ``steady``: whether the price of cip1 is steadiest."""
    low = {"starved_share", "price_step", "utility_spread"}

    def figures(cell: Cell) -> Mapping[str, float]:
        found = {m: (0.5 if m in low else 0.9) if best[m] == cell[2] else (0.9 if m in low else 0.5) for m in best}
        return found | {"price_step": (0.1 if steady else 0.95) if cell[2] == "cip1" else found["price_step"]}

    return figures


CIP1_IN_ALL = dict.fromkeys(("welfare_of_best", "starved_share", "price_step", "utility_spread"), "cip1")

CASES: list[tuple[str, Figures, str, str]] = [
    ("fairness_window", windows(lambda w: 100 / min(w, 1_000), float), "There is a trade-off", "Keep 1,000"),
    ("fairness_window", windows(lambda _: 0.1, lambda _: 50), "The trade-off does not show", "Use 100 "),
    ("fairness_window", windows(lambda w: 0.2 if w < 300 else 0.1, float), "There is a trade-off", "Use 300 "),
    ("fairness_window", windows(lambda _: 0.1, float, welfare=0.4), "The trade-off does not show", "Keep 1,000"),
    ("fragmentation", shares(lambda cell: cell[1] == "actor"), "0.06 ", "Weigh deployers"),
    ("fragmentation", shares(lambda _: False), "gain in the share", "Keep the weight per actor"),
    ("fragmentation", shares(lambda cell: cell[:2] == (0, "actor")), "0.06 ", "It depends on the lane's price"),
    ("fragmentation", shares(lambda _: True), "0.06 ", "A weight per deployer does not help"),
    ("median_smoothing", shocks(lambda p, s, a: 2 - (s == "entry" and a < 1_000)), "-1 ", "Smooth, with α = 200"),
    ("median_smoothing", shocks(lambda p, s, a: 2), "Smoothing changes it", "Do not smooth the median"),
    ("median_smoothing", shocks(lambda p, s, a: 2 - (a == 50) * (s == "entry") * (not p)), "-1 ", "It depends"),
    ("median_smoothing", shocks(lambda p, s, a: 2 + (a < 1_000) * (1 - 2 * (s == "entry"))), "-1 ", "Do not smooth"),
    (
        "median_smoothing",
        shocks(lambda p, s, a: 2 - (a == 50) * (s == "entry") * (p > 0)),
        "-1 ",
        "Smooth, with α = 50",
    ),
    ("tiers", tiers(lambda pattern, multipliers: True), "-1 ", "Keep the seed's"),
    ("tiers", tiers(lambda pattern, multipliers: multipliers == "steep"), "-1 ", "Use steeper"),
    ("tiers", tiers(lambda pattern, multipliers: pattern == "bursts" and multipliers == "seed"), "-1 ", "It depends"),
    ("tiers", tiers(lambda pattern, multipliers: pattern == "slack"), "-1 ", "Do not sell the tier fast"),
    ("lane_multiplier", subsidies(("under-use",)), "0.1 ", "A subsidy of 0.8 × helps"),
    ("lane_multiplier", subsidies(("overload",)), "under overload it raises the use by 0.1 ", "It depends"),
    ("lane_multiplier", subsidies(("under-use",), welfare=-0.1), "-0.1 ", "It depends"),
    ("lane_multiplier", subsidies(()), "At under-use", "Keep 1.0 ×"),
    ("bias_lambda", rates(0.0, {}, {}), "N_max holds with fresh rivals", "Use the dynamic λ"),
    ("bias_lambda", rates(0.5, dict.fromkeys(("0.1", "0.5", "1", "3", "dynamic"), 0.1), {}), "N_max fails", "None"),
    ("bias_lambda", rates(0.5, {}, {"1": 0.3, "3": 0.2, "dynamic": 0.2}), "N_max fails", "Use a fixed λ of 0.5"),
    ("bias_lambda", rates(0.0, {}, {}, wait=90.0), "no λ that was tried", "Use a fixed λ of 3"),
    ("bias_lambda", rates(0.0, {"3": 0.1, "dynamic": 0.1}, {}), "at λ = 3, dynamic", "Use a fixed λ of 1"),
    ("reserve_price", reserves(("learning", "truthful")), "adds 0.1 ", "Set a reserve of 0.5"),
    ("reserve_price", reserves(("truthful",)), "adds 0.1 ", "It depends on conduct"),
    ("reserve_price", reserves(("learning", "truthful"), access=0.7), "adds 0.1 ", "Set no reserve"),
    ("reserve_price", reserves(("learning", "truthful"), utility=0.3), "-0.2 ", "Set no reserve"),
    ("truthfulness", payments({}, vcg_revenue=0.2), ", a gap", "Keep greedy VCG"),
    ("truthfulness", payments({}), ", no gap", "Keep greedy VCG"),
    ("truthfulness", payments({"vcg": "bid 0.5", "first_price": "bid 0.5"}), "small bid 0.5 0.1 ", "Charge critical"),
    (
        "truthfulness",
        payments({"vcg": "1 early", "critical": "1 early"}, {"vcg": "bid 3"}),
        "bid 3 0.1 ",
        "It depends: w",
    ),
    ("truthfulness", payments({"vcg": "bid 3", "critical": "bid 0.25"}), "small bid 0.25 0.1 ", "It depends: no rule"),
    ("bid_source", sources({"program": ("cip1", "gba_auction")}), "0.1 ", "Offer programs"),
    ("bid_source", sources({"program": ("cip1",)}), "0.1 ", "It depends: programs that bid pay under cip1 alone"),
    ("bid_source", sources({}, default=0.4), "-0.1 ", "Fixed fees do"),
    ("rivals", policies(CIP1_IN_ALL), "it is steadier than", "Choose cip1"),
    ("rivals", policies(dict.fromkeys(CIP1_IN_ALL, "bias vcg"), steady=False), "not steadier", "Choose bias vcg"),
    ("rivals", policies(CIP1_IN_ALL | {"welfare_of_best": "fifo"}), "it is steadier than", "It depends on the goal"),
    ("rivals", policies(CIP1_IN_ALL | {"starved_share": "fifo"}), "it is steadier than", "It depends on the goal"),
]


@pytest.mark.parametrize(("name", "figures", "answer", "recommendation"), CASES)
def test_a_rule_follows_the_results(name: str, figures: Figures, answer: str, recommendation: str) -> None:
    experiment = EXPERIMENTS[name]
    decision = experiment.decide(planted(experiment, figures))
    assert answer in decision.answer
    assert decision.recommendation.startswith(recommendation)
    assert decision.limits


def test_each_experiment_has_cases_that_differ() -> None:
    told: dict[str, set[str]] = {}
    for name, _, _, recommendation in CASES:
        told.setdefault(name, set()).add(recommendation)
    assert list(told) == list(EXPERIMENTS)
    assert min(map(len, told.values())) > 1


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_is_described(name: str) -> None:
    experiment = EXPERIMENTS[name]
    cells = experiment.cells()
    assert len(cells) == len(set(cells))
    assert all(plot.over in experiment.factors for plot in experiment.plots)
    assert 1 <= len(experiment.shown) <= 5
    assert experiment.question.endswith("?")
    assert "seed" in experiment.hypothesis
    assert experiment.quick.blocks < experiment.full.blocks
    for cell in cells:
        assert experiment.setup(cell, 100).groups
