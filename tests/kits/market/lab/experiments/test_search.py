"""The search finds a planted deviation that pays, and none where the truth is the best bid."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random

import pytest

from kits.market.estimates import Cell, Results
from kits.market.lab.experiments.truthfulness import DEVIATIONS, TRUTH, Found, search
from kits.market.lab.market import Market
from kits.market.lab.measures import measures
from kits.market.lab.population import Group
from kits.market.lab.strategies import Share
from validator.chain.genesis import Policy

Payment = Callable[[float, float], float]
"""What a winner pays, by its bid and the best other bid."""
OTHERS: dict[str, Cell] = {name: (name,) for name in DEVIATIONS if name != TRUTH}


def searched(payment: Payment, loser_pays: float = 0.0) -> Found:
    """Search in an auction for one slot, against four truthful rivals with values from 0 to 1."""

    def utility(share: float, seed: int) -> float:
        random, gained, worth = Random(seed), 0.0, 0.0
        for _ in range(400):
            value, rival = random.random(), max(random.random() for _ in range(4))
            worth += value
            bid = value * share
            gained += value - payment(bid, rival) if bid > rival else -loser_pays * bid
        return gained / worth

    rows: dict[Cell, dict[int, dict[str, float]]] = {
        (name,): {seed: {"utility": utility(deviation.share, seed)} for seed in range(6)}
        for name, deviation in DEVIATIONS.items()
    }
    return search(Results(rows), (TRUTH,), OTHERS, "utility")


def test_no_deviation_pays_at_the_second_price() -> None:
    assert not searched(lambda bid, rival: rival).pays


def test_a_low_bid_pays_at_the_first_price() -> None:
    found = searched(lambda bid, rival: bid)
    assert found.pays
    assert found.deviation == "bid 0.75"


def test_a_high_bid_pays_if_winners_pay_nothing() -> None:
    found = searched(lambda bid, rival: 0.0)
    assert found.pays
    assert found.deviation == "bid 3"


def test_the_least_bid_pays_if_losers_pay_too() -> None:
    found = searched(lambda bid, rival: bid, loser_pays=1.0)
    assert found.pays
    assert found.deviation == "bid 0.25"


@cache
def of_one_slot(rule: str, share: float, seed: int) -> dict[str, float]:
    """A market on the real chain with room for one fire a block, and jobs that are worth nothing later."""
    one = (45_000, 45_000)
    groups = (
        Group(name="me", agents=1, load=0.06, cycles=one, life=1, strategy=lambda _: Share(share)),
        Group(name="others", agents=4, load=0.25, cycles=one, life=1),
    )
    market = Market(Policy.BIAS_AUCTION, groups, seed, 80, {"PAYMENT_RULE": rule, "MAX_FIRES_PER_BLOCK": 1})
    market.run()
    return measures(market)


@pytest.mark.parametrize(("rule", "pays"), [("vcg", False), ("critical", False), ("first_price", True)])
def test_the_search_on_the_real_chain_with_one_slot(rule: str, pays: bool) -> None:
    shares = (1.0, 0.5, 1.5, 3.0)
    rows: dict[Cell, dict[int, dict[str, float]]] = {
        (share,): {seed: of_one_slot(rule, share, seed) for seed in range(4)} for share in shares
    }
    found = search(Results(rows), (1.0,), {str(share): (share,) for share in shares[1:]}, "me.utility")
    assert found.pays is pays
    assert not pays or found.deviation == "0.5"
