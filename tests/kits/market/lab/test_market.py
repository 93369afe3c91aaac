"""Markets on the real transition: who fires, at what price, and what becomes of the others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from cluster.local_chain.bare_chain import PROPOSER
from kits.market.lab.market import LANE_CYCLES, Market
from kits.market.lab.population import Group
from kits.market.lab.strategies import DefaultAgent, Share, Spammer, Tier
from validator.chain.genesis import Policy
from validator.state.working_set import World

SLACK = Group(name="users", agents=10, load=0.2)
BUSY = Group(name="users", agents=40, load=1.4)


def ran(policy: Policy, *groups: Group, blocks: int = 30, **params: Any) -> Market:
    market = Market(policy, groups, 0, blocks, params)
    market.run()
    return market


@pytest.mark.parametrize("policy", Policy)
def test_all_jobs_fire_in_time_if_the_lane_has_room(policy: Policy) -> None:
    market = ran(policy, SLACK)
    assert len(market.trades) > 20
    assert all(trade.fired_at == trade.job.due for trade in market.trades)
    assert all(trade.value == trade.job.value for trade in market.trades)


@pytest.mark.parametrize("policy", Policy)
def test_a_busy_lane_is_never_overfull_and_each_trade_ends_once(policy: Policy) -> None:
    market = ran(policy, replace(BUSY, life=8))
    assert max(use.cycles for use in market.uses) <= LANE_CYCLES
    assert any(trade.fired_at is None for trade in market.trades)
    for trade in market.trades:
        if trade.fired_at is not None:
            assert trade.job.due <= trade.fired_at <= trade.job.last_height
            assert not trade.is_priced_out
        else:
            assert trade.tip == trade.burned == trade.value == 0


@pytest.mark.parametrize("policy", Policy)
def test_the_proposer_has_what_the_trades_paid(policy: Policy) -> None:
    market = ran(policy, BUSY)
    assert World(market._chain.view).balance(PROPOSER) == sum(trade.tip for trade in market.trades)


@pytest.mark.parametrize(
    ("policy", "params", "share"),
    [
        (Policy.FIFO, {}, 0),
        (Policy.CIP1, {}, 1),
        (Policy.GBA_AUCTION, {}, 1),
        (Policy.BIAS_AUCTION, {"PAYMENT_RULE": "first_price"}, 1),
        (Policy.BIAS_AUCTION, {"PAYMENT_RULE": "vcg"}, 0),
    ],
)
def test_what_a_fire_pays_of_its_offer_if_the_lane_has_room(policy: Policy, params: dict[str, Any], share: int) -> None:
    for trade in ran(policy, replace(SLACK, strategy=lambda _: Share(0.5)), **params).trades:
        assert trade.tip == pytest.approx(share * trade.offer, rel=0.011), "a fire uses its gas limit within 1 %"


def test_fifo_fires_in_the_order_of_heights() -> None:
    trades = [t for t in ran(Policy.FIFO, BUSY).trades if t.fired_at is not None]
    trades.sort(key=lambda trade: trade.fired_at or 0)
    assert [t.job.due for t in trades] == sorted(t.job.due for t in trades)


def test_higher_offers_fire_first_under_an_auction() -> None:
    groups = [replace(BUSY, name=name, load=0.7, worth=worth) for name, worth in (("rich", 80.0), ("poor", 10.0))]
    fired = Counter(t.job.group for t in ran(Policy.GBA_AUCTION, *groups).trades if t.fired_at == t.job.due)
    assert fired["rich"] > 3 * fired["poor"]


@pytest.mark.parametrize("policy", Policy)
def test_a_job_that_is_worth_less_than_a_fire_costs_is_never_scheduled(policy: Policy) -> None:
    market = ran(policy, replace(SLACK, worth=0.5, spread=0.1))
    assert all(trade.is_priced_out for trade in market.trades)


def test_agents_wait_until_a_fire_is_worth_its_price() -> None:
    """The lane's price rises with a burst, and falls after it."""
    burst = replace(BUSY, load=0.7, burst=(10, 40), life=60, worth=4.0)
    trades = ran(Policy.CIP1, burst, blocks=60).trades
    late = [t for t in trades if t.fired_at is not None and t.fired_at % 40 >= 15]
    assert len(late) > 3
    assert all(trade.utility > -trade.job.value for trade in late)


@pytest.mark.parametrize("policy", Policy)
def test_agents_spend_at_most_their_budgets(policy: Policy) -> None:
    worth = 1.5 if policy is Policy.FIFO else 40.0  # the policy has no price but the basefee
    group = replace(BUSY, agents=20, load=0.8, worth=worth, spread=0.1, budget_milli=200)
    params: dict[str, Any] = {"PAYMENT_RULE": "first_price"} if policy is Policy.BIAS_AUCTION else {}
    trades = ran(policy, group, blocks=60, **params).trades
    spent, values = Counter[int](), Counter[int]()
    for trade in trades:
        spent[trade.job.agent] += trade.tip + trade.burned
        values[trade.job.agent] += trade.job.value
    assert all(spent[agent] <= values[agent] // 5 for agent in values)
    assert sum(spent.values()) > sum(values.values()) / 10, "they spend most of it"
    rich = ran(policy, replace(group, budget_milli=None), blocks=60, **params).trades
    assert sum(t.fired_at is not None for t in rich) > sum(t.fired_at is not None for t in trades)


@pytest.mark.parametrize("policy", [Policy.CIP1, Policy.GBA_AUCTION])
def test_programs_bid_what_is_left_of_the_value(policy: Policy) -> None:
    """A locked fee may cost more than a late fire is worth. A program's bid does not, but for the query."""
    programs, fields = (ran(policy, replace(BUSY, bids_by_program=by_program)).trades for by_program in (True, False))
    late = [t for t in programs if t.fired_at is not None and t.fired_at > t.job.due]
    assert len(late) > 5
    assert all(trade.tip + trade.burned < trade.value + 10**9 for trade in late)
    assert any(t.utility < -(10**9) for t in fields if t.fired_at is not None)


def test_queries_are_paid_by_those_who_are_asked() -> None:
    programs, fields = (
        ran(Policy.GBA_AUCTION, replace(SLACK, bids_by_program=by_program)).trades for by_program in (True, False)
    )
    assert sum(t.burned for t in programs) > 1.005 * sum(t.burned for t in fields)


@pytest.mark.parametrize(("tier", "multiple"), [("economy", 0.8), ("urgent", 2.5)])
def test_tiers_tip_multiples_of_the_median(tier: str, multiple: float) -> None:
    named = replace(SLACK, name="named", load=0.05, strategy=lambda _: Tier(tier))
    priced = replace(SLACK, name="priced", agents=20, load=0.4, strategy=lambda _: Share(0.008), spread=0.01)
    market = ran(Policy.CIP1, named, priced, blocks=40)
    tips = {
        name: [t.tip / t.job.cycles for t in market.trades if t.job.group == name and t.job.due > 5]
        for name in market.groups
    }
    assert fmean(tips["named"]) == pytest.approx(multiple * fmean(tips["priced"]), rel=0.15)


def test_the_default_agent_bids_for_who_leaves_fields_open() -> None:
    trades = ran(Policy.CIP1, replace(SLACK, strategy=lambda _: DefaultAgent())).trades
    assert all(trade.fired_at == trade.job.due and trade.offer == 0 for trade in trades)


def test_fairness_weights_are_those_of_the_chain() -> None:
    quiet = replace(SLACK, name="quiet", active=(0.9, 1.0))
    market = ran(Policy.CIP1, BUSY, quiet)
    weights = [use.weights for use in market.uses[5:25]]
    assert all(set(each["quiet"]) == {2.0} for each in weights), "who never fired has the greatest weight"
    assert all(1 <= weight <= 2 for each in weights for weight in each["users"])
    assert {weight for each in weights for weight in each["users"]} > {1.0, 2.0}


def test_weights_per_deployer_are_shared_by_its_actors() -> None:
    market = ran(Policy.CIP1, replace(BUSY, actors=2), WEIGHT_PARTY="deployer")
    pairs = [use.weights["users"] for use in market.uses[10:]]
    assert all(each[0::2] == each[1::2] for each in pairs)
    assert min(min(each) for each in pairs) < 2, "fires count for the deployer"


def test_the_rate_is_that_of_the_chain() -> None:
    fixed = ran(Policy.BIAS_AUCTION, SLACK, BIAS_LAMBDA_MICRO=300_000, BIAS_LAMBDA_STEP_MILLI=0)
    assert {use.rate for use in fixed.uses} == {0.3}
    moving = [use.rate for use in ran(Policy.BIAS_AUCTION, SLACK, BIAS_INTERVAL_BLOCKS=8).uses]
    assert moving[:8] == [0.1] * 8
    assert moving[8:16] == [0.1125] * 8


def test_spammers_fire_late_under_an_auction() -> None:
    groups = [replace(BUSY, load=0.9), replace(BUSY, name="spam", load=0.4, strategy=lambda _: Spammer())]
    trades = ran(Policy.BIAS_AUCTION, *groups).trades
    share = {
        name: sum(t.fired_at == t.job.due for t in trades if t.job.group == name)
        / sum(t.job.group == name for t in trades)
        for name in ("users", "spam")
    }
    assert share["users"] > 2 * share["spam"]


SCRIPT = """
from kits.market.lab.experiments.registry import EXPERIMENTS
from kits.market.lab.experiment import Effort
for name, cell in (("rivals", ("learning", "overload", "bias vcg")), ("bid_source", ("cip1", 1.4, "program"))):
    print(sorted(EXPERIMENTS[name].run(cell, 1, Effort(15, 1)).items()))
"""


def test_numbers_do_not_depend_on_the_hash_seed() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0].count("late_max") > 1
    assert outputs[0] == outputs[1]
