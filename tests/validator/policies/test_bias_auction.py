"""``bias_auction``, rule by rule, by examples of a few timers. Whole chains are held against a model of their own in
:mod:`tests.kits.conform.specification`."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.validator.chains import (
    ACTOR,
    ALICE,
    OTHER,
    PRICE,
    PROPOSER,
    RICH,
    SMALL,
    Chain,
    carried,
    fee,
    fired,
    make_genesis,
    number,
    schedule,
)
from validator.chain.genesis import Policy
from validator.chain.records import BIAS_RATE, BiasRate
from validator.chain.transactions import CancelTimer
from validator.policies.bias_auction import (
    LN2,
    MICRO,
    PRECISION,
    SATURATED,
    Ranked,
    bias,
    next_rate,
    payment,
    saturates_after,
    table,
)
from validator.primitives.params import Parameters, PaymentRule
from validator.primitives.types import BID_ESCROW_ADDRESS
from validator.transition.transition import Outcome


def auction(params: dict[str, Any] | None = None, **fields: Any) -> Chain:
    given = {**SMALL, "TIE_BREAK": "aged", "MIN_BASEFEE": PRICE, **(params or {})}
    return Chain(make_genesis(given, policy=Policy.BIAS_AUCTION, **fields))


def paid(outcome: Outcome) -> list[int]:
    return [number(fire.tip) for fire in outcome.receipts.fires]


def locked(chain: Chain) -> int:
    return chain.balance(BID_ESCROW_ADDRESS)


# --- bids are locked --------------------------------------------------------------------------------------------------


def test_a_bid_is_locked_and_what_is_not_paid_of_it_returned() -> None:
    chain = auction({"RESERVE_PRICE": 70})
    before = chain.balance(ACTOR)
    chain.run(schedule(1, bid=500, gas_limit=1_000))
    assert (locked(chain), chain.balance(ACTOR)) == (500, before - 500)
    outcome = chain.block()
    (fire,) = outcome.receipts.fires
    assert (number(fire.tip), number(fire.burned)) == (70, fire.cycles * PRICE)
    assert (locked(chain), chain.balance(ACTOR)) == (0, before - fee(fire))
    chain.require_conservation()


@pytest.mark.parametrize("end", ["cancelled", "by the system", "expired", "cannot pay"])
def test_a_bid_is_returned_when_its_timer_ends_without_a_fire(end: str) -> None:
    chain = auction(system_deployers=(ALICE,), actors={ACTOR: 10**9 if end == "cannot pay" else RICH, OTHER: RICH})
    before = chain.balance(ACTOR)
    chain.run(schedule(3, bid=500, save_as="s", expires_at=4))
    assert locked(chain) == 500
    (timer,) = chain.timers()
    match end:
        case "cancelled":
            chain.run(["cancel", {"saved": "s"}])
        case "by the system":
            chain.block(chain.system(CancelTimer(timer.timer_id)))
        case "expired":
            heavy = schedule(1, ["burn", 7_000], gas_limit=8_000, bid=10**6)
            chain.block(chain.call(heavy, heavy, heavy, actor=OTHER))
            for _ in range(4):
                chain.block(chain.call(heavy, heavy, heavy, actor=OTHER))
            assert timer.timer_id in {each.timer_id for block in chain.blocks for each in block.receipts.destroyed}
        case _:
            chain.empty(3)
            assert [each.reason for each in chain.blocks[-1].receipts.destroyed] == ["insufficient_funds"]
    assert timer.timer_id not in {timer.timer_id for timer in chain.timers()}
    assert locked(chain) == sum(timer.bid or 0 for timer in chain.timers())
    assert chain.balance(ACTOR) == before
    chain.require_conservation()


def test_what_a_payer_cannot_lock_is_refused() -> None:
    chain = auction(actors={ACTOR: 99, OTHER: RICH})
    assert chain.run(schedule(1, bid=100)).error == "InsufficientBalance"
    assert chain.run(schedule(1, bid=-1)).error == "TimerFeeOutOfRange"
    assert chain.run(schedule(1, bid=2**96)).error == "TimerFeeOutOfRange"
    assert chain.run(schedule(1, max_priority_fee_per_cycle=2**95)).error == "TimerFeeOutOfRange"
    sponsored = schedule(1, bid=100, fee_payer="sender", payer_cap=99)
    assert chain.run(sponsored, timer_allowance=10**6).error == "TimerFeePayerForbidden"
    assert chain.timers() == []
    assert locked(chain) == 0


def test_a_sponsor_pays_bid_and_fire_within_its_cap() -> None:
    chain = auction({"RESERVE_PRICE": 10**6})
    cost = 1_000 * PRICE + 500 * PRICE
    for cap, fires in ((cost + 500, 1), (cost + 499, 0)):
        chain.run(schedule(1, bid=500, fee_payer="sender", payer_cap=cap, gas_limit=1_000), timer_allowance=10**12)
        assert locked(chain) == 500
        outcome = chain.block()
        assert (len(outcome.receipts.fires), locked(chain)) == (fires, 0)
    chain.require_conservation()


def test_without_a_bid_the_priority_is_bid_for_each_cycle() -> None:
    chain = auction()
    chain.run(schedule(2, max_priority_fee_per_cycle=3, gas_limit=2_000), schedule(2, gas_limit=2_000), schedule(2))
    assert [timer.bid for timer in chain.timers()] == [6_000, 0, 0]
    assert locked(chain) == 6_000


def test_a_run_that_fails_locks_nothing() -> None:
    chain = auction()
    before = chain.balance(ACTOR)
    assert chain.run(schedule(1, bid=500), ["fail", ""]).error == "ScriptFailed"
    assert (locked(chain), chain.balance(ACTOR), chain.timers()) == (0, before, [])


# --- order ------------------------------------------------------------------------------------------------------------


def test_timers_go_by_bid_for_each_cycle() -> None:
    chain = auction()
    bids = [(900, 3_000), (500, 1_000), (800, 2_000), (0, 1_000)]
    chain.run(*[schedule(1, bid=bid, gas_limit=gas) for bid, gas in bids])
    assert [sequence for _, sequence in fired(chain.block())] == [1, 2, 0, 3]


def test_whoever_waits_overtakes_any_bid() -> None:
    """With λ of 1 a wait of n blocks is worth e^n: that of 8 less than 5,000, that of 9 more."""
    chain = auction({"BIAS_LAMBDA_MICRO": 10**6, "BIAS_LAMBDA_STEP_MILLI": 0, "LANE_TIMER_CYCLES": 8_000})
    rival = schedule(1, ["burn", 6_000], gas_limit=8_000, bid=5_000)
    chain.run(schedule(1, gas_limit=8_000), rival)
    late = []
    for _ in range(12):
        late += [chain.height - fire.trigger_height for fire in chain.block(chain.call(rival)).receipts.fires]
    assert late[:10] == [0] * 9 + [9]


def test_caps_on_fires() -> None:
    chain = auction({"MAX_FIRES_PER_ACTOR": 2, "MAX_FIRES_PER_BLOCK": 3})
    mine = [schedule(1, bid=100 + n, gas_limit=1_000) for n in range(4)]
    other = [schedule(1, bid=n, gas_limit=1_000) for n in range(2)]
    chain.block(chain.call(*mine), chain.call(*other, actor=OTHER, nonce=1))
    outcome = chain.block()
    assert [fire.actor for fire in outcome.receipts.fires] == [ACTOR, ACTOR, OTHER]
    assert sorted(carried(outcome)) == ["actor_limit", "actor_limit", "lane_full"]


def test_timers_beyond_their_actors_limit_keep_nobody_waiting() -> None:
    """However many there are: they do not count as looked at."""
    chain = auction({"MAX_FIRES_PER_ACTOR": 1, "SCAN_LIMIT": 3, "TIMER_GC_CYCLES": 1_200})
    mine = [schedule(1, bid=10**6, gas_limit=1_000) for _ in range(17)]
    chain.block(chain.call(*mine), chain.call(schedule(1, bid=1, gas_limit=1_000), actor=OTHER, nonce=1))
    outcome = chain.block()
    assert [fire.actor for fire in outcome.receipts.fires] == [ACTOR, OTHER]
    assert carried(outcome) == ["actor_limit"] * 16
    assert not chain.index.parties.table["closed"].any()


# --- payments ---------------------------------------------------------------------------------------------------------

CROWD = [(900, 8_000), (800, 8_000), (700, 8_000), (300, 8_000)]
"""Bids and gas limits: two fit into the lane."""


@pytest.mark.parametrize(
    ("rule", "reserve", "expected"),
    [
        (PaymentRule.VCG, 0, [699, 699]),
        (PaymentRule.CRITICAL, 0, [700, 700]),
        (PaymentRule.FIRST_PRICE, 0, [900, 800]),
        (PaymentRule.VCG, 850, [850, 800]),
        (PaymentRule.FIRST_PRICE, 850, [900, 800]),
    ],
)
def test_what_fires_pay(rule: PaymentRule, reserve: int, expected: list[int]) -> None:
    chain = auction({"PAYMENT_RULE": rule.value, "RESERVE_PRICE": reserve})
    chain.run(*[schedule(1, ["burn", 6_500], bid=bid, gas_limit=gas) for bid, gas in CROWD])
    outcome = chain.block()
    assert (paid(outcome), outcome.tips) == (expected, sum(expected))
    assert locked(chain) == 700 + 300
    assert chain.balance(PROPOSER) == sum(expected)
    chain.require_conservation()


def test_with_room_for_all_a_fire_pays_the_reserve() -> None:
    for reserve, expected in ((0, [0, 0]), (50, [50, 7])):
        chain = auction({"RESERVE_PRICE": reserve})
        chain.run(schedule(1, bid=10**6, gas_limit=1_000), schedule(1, bid=7, gas_limit=1_000))
        assert paid(chain.block()) == expected


RANKED = st.builds(
    Ranked, st.integers(0, 2**96 - 1), st.integers(1_000, 10**9), st.integers(0, 700).map(lambda n: bias(n, 100_000))
)


def score(timer: Ranked) -> int:
    return timer.strength // timer.gas_limit


@settings(max_examples=300, deadline=None, derandomize=True)
@given(RANKED, st.none() | RANKED, st.sampled_from(PaymentRule), st.integers(0, 2**96 - 1))
def test_a_payment_is_at_most_the_bid_and_at_least_the_reserve(
    winner: Ranked, left_out: Ranked | None, rule: PaymentRule, reserve: int
) -> None:
    due = payment(winner, left_out, Parameters(payment_rule=rule, reserve_price=reserve))
    assert min(winner.bid, reserve) <= due <= winner.bid


@settings(max_examples=300, deadline=None, derandomize=True)
@given(RANKED, RANKED)
def test_the_critical_payment_is_the_least_bid_that_wins(one: Ranked, other: Ranked) -> None:
    winner, loser = (one, other) if score(one) > score(other) else (other, one)
    due = payment(winner, loser, Parameters(payment_rule=PaymentRule.CRITICAL))
    exactly = (due << 32) * loser.gas_limit + winner.bias * loser.gas_limit
    assert exactly >= loser.strength * winner.gas_limit or due == winner.bid
    if due:
        less = ((due - 1) << 32) * loser.gas_limit + winner.bias * loser.gas_limit
        assert less < loser.strength * winner.gas_limit


# --- the rate ---------------------------------------------------------------------------------------------------------


def test_the_rate_falls_while_the_bias_grows_faster_than_values_decay() -> None:
    p = Parameters()
    steep = BiasRate(100_000, fires=2, waits=2 * 80, bids=2 * 10_000)
    assert bias(81, 100_000) - bias(80, 100_000) >> 32 > 10_000 // p.value_life_blocks
    assert next_rate(steep, p) == 100_000 - 12_500
    assert next_rate(structs.replace(steep, bids=10**9), p) == 100_000 + 12_500
    assert next_rate(structs.replace(steep, waits=0), p) == 100_000 + 12_500
    fixed = Parameters(bias_lambda_step_milli=0)
    assert next_rate(steep, fixed) == 100_000
    tight = Parameters(bias_lambda_min_micro=95_000, bias_lambda_max_micro=105_000)
    assert [next_rate(structs.replace(steep, bids=bids), tight) for bids in (0, 10**9)] == [95_000, 105_000]


def test_the_rate_moves_at_the_end_of_an_interval_with_fires() -> None:
    chain = auction({"BIAS_INTERVAL_BLOCKS": 4})

    def rate() -> BiasRate | None:
        found: BiasRate | None = chain.world().get(BIAS_RATE)
        return found

    chain.run(schedule(1, bid=10**9, gas_limit=1_000))
    assert rate() is None
    chain.block()
    assert rate() == BiasRate(100_000, 1, 0, 10**9)
    chain.empty(2)
    assert rate() == BiasRate(112_500)
    chain.empty(4)
    assert rate() == BiasRate(112_500)


def test_before_activation_bids_are_ignored() -> None:
    chain = auction({"ACTIVATION_HEIGHT": 2})
    chain.run(schedule(2, bid=500, gas_limit=1_000), schedule(1, bid=7))
    assert (locked(chain), [timer.bid for timer in chain.timers()]) == (0, [None, None])
    assert len(chain.block().receipts.fires) == 1
    assert paid(chain.block()) == [0]


EXACT = Context(prec=120, Emax=10**6)


def exact(waited: int, micro: int) -> int:
    with localcontext(EXACT):
        return int((Decimal(waited) * micro / MICRO).exp() * 2**32)


def test_the_constant() -> None:
    with localcontext(EXACT):
        assert int(Decimal(2).ln() * 2**PRECISION) == LN2


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(0, 7_000), st.integers(10_000, 10**7))
def test_a_bias_is_the_exact_one_rounded_down(waited: int, micro: int) -> None:
    if waited * micro < 60 * MICRO:
        assert bias(waited, micro) == exact(waited, micro)


@pytest.mark.parametrize("micro", [10_000, 99_999, 10**6, 10**7])
def test_a_bias_never_falls_and_saturates(micro: int) -> None:
    end = saturates_after(micro)
    values = [bias(waited, micro) for waited in range(end + 2)]
    assert values[0] == 2**32
    assert values == sorted(values)
    assert values[end] == values[end + 1] == SATURATED == bias(10**9, micro)
    assert values[end - 3] < SATURATED, "the bound is no more than two blocks late"


def test_the_table_ends_where_nothing_grows() -> None:
    found = table(10**6, 10**6)
    assert len(found) == saturates_after(10**6) + 1
    assert [int(high) << 64 | int(low) for high, low in found] == [bias(n, 10**6) for n in range(len(found))]
    assert found.dtype == np.uint64
    assert len(table(5, 10**6)) > 5
