"""Measures agree with cases that were computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from kits.market.lab.market import BlockUse, Trade
from kits.market.lab.measures import lateness, of_blocks, of_trades
from kits.market.lab.population import Job


def trade(agent: int, value: int, fired_at: int | None, **changes: Any) -> Trade:
    """A trade of a job that is wanted at 100 and lives for 10 blocks."""
    job = Job(0, "users", agent, 0, due=100, cycles=10, value=value, life=10)
    return Trade(job, fired_at=fired_at, **changes)


TRADES = [
    trade(0, 1_000, 100, burned=100, tip=50, offer=500),
    trade(0, 1_000, 105, burned=100, tip=0, offer=100),
    trade(1, 2_000, None, offer=200),
    trade(1, 4_000, None, is_priced_out=True),
]
"""Values 1,000, 500, 0 and 0 of 8,000; agent 0 gains 850 + 400, agent 1 nothing."""


@pytest.mark.parametrize(
    ("measure", "value"),
    [
        ("jobs", 4),
        ("fired_share", 0.5),
        ("priced_out_share", 0.25),
        ("starved_share", 0.25),
        ("late_mean", 2.5),
        ("late_max", 5),
        ("wait_mean", 5.0),
        ("welfare", 1_500 / 8_000),
        ("utility", 1_250 / 8_000),
        ("revenue", 50 / 8_000),
        ("burn", 200 / 8_000),
        ("utility_variance", (1_250 / 2_000 / 2) ** 2),
        ("utility_spread", 1_250 / 2_000 / 2),
        ("utility_per_bid_variance", (1_250 / 600 / 2) ** 2),
    ],
)
def test_measures_of_trades(measure: str, value: float) -> None:
    assert of_trades(TRADES)[measure] == pytest.approx(value)


def test_a_timer_that_never_fired_waited_its_life() -> None:
    assert [lateness(each) for each in TRADES[:3]] == [0, 5, 10]


def test_queries_of_a_timer_that_never_fired_cost_its_agent() -> None:
    assert of_trades([trade(0, 1_000, None, burned=30)])["utility"] == pytest.approx(-0.03)


def test_no_trades_have_measures() -> None:
    assert set(of_trades([]).values()) == {0.0}


def use(cycles: int, price: int, is_full: bool = False) -> BlockUse:
    return BlockUse(1, cycles, price, 0, is_full, {}, 0.0)


def test_measures_of_blocks() -> None:
    found = of_blocks([use(100, 10), use(0, 0), use(50, 30), use(50, 20, is_full=True)], 100)
    assert found["lane_use"] == pytest.approx(0.5)
    assert found["full_share"] == pytest.approx(0.25)
    assert found["price_mean"] == pytest.approx(20)
    assert found["price_variation"] == pytest.approx((200 / 3) ** 0.5 / 20)
    assert found["price_step"] == pytest.approx(15 / 20), "from 10 to 30 and to 20: without fires there is no price"
