"""``gba_auction``, rule by rule, by examples of a few timers. Whole chains are held against a model of their own in
:mod:`tests.kits.conform.specification`."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validator.chains import (
    ACTOR,
    ALICE,
    OTHER,
    PRICE,
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
from validator.chain.block import Effects, FireReceipt
from validator.chain.genesis import GenesisAgent, Policy
from validator.chain.records import ActorWeight, actor_weight_key
from validator.chain.transactions import CancelTimer
from validator.policies.gba_auction import fire_score
from validator.primitives.params import Parameters
from validator.primitives.types import Address, TimerId
from validator.scheduler.fairness import ONE, Decay

LEAST = Decay.of(Parameters()).least
EPOCHS = {"EPOCH_LENGTH": 4, "RING_BUFFER_SIZE": 8}
DEAR = {"max_fee_per_cycle": 2**60}


def auction(params: dict[str, Any] | None = None, **fields: Any) -> Chain:
    return Chain(make_genesis({**SMALL, "TIE_BREAK": "aged", **(params or {})}, policy=Policy.GBA_AUCTION, **fields))


def record_of(chain: Chain, actor: Address) -> ActorWeight | None:
    record: ActorWeight | None = chain.world().get(actor_weight_key(actor))
    return record


# --- prices -----------------------------------------------------------------------------------------------------------


def test_a_fee_limit_covers_the_cycles_basefee_and_the_tip() -> None:
    chain = auction({"MIN_BASEFEE": PRICE})
    chain.run(
        schedule(1, gas_limit=1_000, max_fee_per_cycle=PRICE + 3, max_priority_fee_per_cycle=3),
        schedule(1, gas_limit=1_000, max_fee_per_cycle=PRICE, max_priority_fee_per_cycle=0),
    )
    before = chain.balance(ACTOR)
    outcome = chain.block()
    first, second = outcome.receipts.fires
    assert (number(first.tip_per_cycle), number(second.tip_per_cycle)) == (3, 0)
    assert number(first.burned) == first.cycles * PRICE
    assert chain.balance(ACTOR) == before - fee(first) - fee(second)
    assert chain.globals.burned_timer_lane == 0
    chain.require_conservation()


def test_a_fee_limit_below_the_basefee_is_refused_and_one_that_fell_below_it_waits() -> None:
    chain = auction({"BLOCK_CYCLES_TARGET": 2})
    receipt = chain.run(schedule(1, max_fee_per_cycle=PRICE - 1))
    assert receipt.error == "TimerRejectedBelowBasefee"
    price = chain.globals.basefee_cycle
    assert price > PRICE
    assert chain.run(schedule(1, max_fee_per_cycle=price, max_priority_fee_per_cycle=0)).error == ""
    assert chain.globals.basefee_cycle > price
    assert carried(chain.block()) == ["below_basefee"]


def test_the_lanes_basefee_is_an_alias_of_the_cycles() -> None:
    chain = auction({"BLOCK_CYCLES_TARGET": 2, "LANE_FEE_MULTIPLIER_MILLI": 3_000})
    for _ in range(3):
        outcome = chain.block(chain.call(schedule(1)))
        assert outcome.basefee_lane_timer == outcome.prices.basefee_cycle
        assert outcome.prices.lane_price == 0


def test_the_default_agent_and_agents_price_open_fields() -> None:
    agent = GenesisAgent("builtin:fixed", 3 * PRICE, 11)
    chain = auction({"MIN_BASEFEE": PRICE}, agents={ACTOR: agent})
    chain.block(chain.call(schedule(1)), chain.call(schedule(1), actor=OTHER, nonce=1))
    outcome = chain.block()
    assert [(fire.actor, number(fire.tip_per_cycle)) for fire in outcome.receipts.fires] == [(ACTOR, 11), (OTHER, 0)]


# --- before the transactions ------------------------------------------------------------------------------------------


def test_timers_fire_before_the_transactions_of_their_block() -> None:
    chain = auction(system_deployers=(ALICE,))
    chain.run(schedule(1, ["emit", "fired", ""]), schedule(1, ["burn", 7_900], gas_limit=8_000, **DEAR))
    timers = chain.timers()
    outcome = chain.block(*(chain.system(CancelTimer(timer.timer_id), nonce=1 + n) for n, timer in enumerate(timers)))
    assert len(outcome.receipts.fires) == 2, "who cancels in the block comes too late"
    assert [receipt.error for receipt in outcome.receipts.transactions] == ["", ""]


def test_a_transaction_sees_what_a_fire_of_its_block_paid() -> None:
    chain = auction(actors={ACTOR: RICH, OTHER: 0})
    chain.run(schedule(1, ["transfer", {"to": "0x" + OTHER.hex(), "amount": 77}]))
    chain.block(chain.call(["transfer", {"to": "0x" + ALICE.hex(), "amount": 77}], actor=OTHER))
    assert chain.balance(OTHER) == 0
    assert chain.blocks[-1].receipts.transactions[0].error == ""


def test_a_waiting_timer_can_be_cancelled_in_the_block_that_carried_it() -> None:
    chain = auction({"SCAN_LIMIT": 1, "TIMER_GC_CYCLES": 2_400}, system_deployers=(ALICE,))
    chain.run(*[schedule(1, gas_limit=1_000, max_priority_fee_per_cycle=0) for _ in range(3)])
    last = chain.timers()[-1]
    outcome = chain.block(chain.system(CancelTimer(last.timer_id)))
    assert last.timer_id in outcome.carried
    assert outcome.backlog == len(chain.timers()) == 3 - len(outcome.receipts.fires) - 1


# --- who cannot pay -----------------------------------------------------------------------------------------------


def test_a_timer_whose_payer_cannot_pay_waits_until_it_can() -> None:
    chain = auction(actors={ACTOR: 1_000, OTHER: RICH})
    chain.run(schedule(1, max_priority_fee_per_cycle=5, gas_limit=1_000), schedule(1, gas_limit=1_000))
    for _ in range(3):
        outcome = chain.block()
        assert carried(outcome) == ["insufficient_funds"] * 2
        assert outcome.receipts.destroyed == ()
    chain.block(chain.transfer(ACTOR, RICH // 10))
    assert len(chain.block().receipts.fires) == 2
    chain.require_conservation()


# --- weights and slices -------------------------------------------------------------------------------------------


def test_an_actor_that_used_its_slice_waits_for_the_others() -> None:
    """The slice of the least weight is a fortieth of the lane, and any fire uses it up."""
    chain = auction()
    heavy = [schedule(1, ["burn", 1_000], gas_limit=2_000, **DEAR, max_priority_fee_per_cycle=9) for _ in range(3)]
    light = schedule(1, gas_limit=1_000, **DEAR, max_priority_fee_per_cycle=1)
    chain.block(chain.call(*heavy), chain.call(light, actor=OTHER, nonce=1))
    outcome = chain.block()
    assert [fire.actor for fire in outcome.receipts.fires] == [ACTOR, OTHER, ACTOR, ACTOR]


def test_set_aside_timers_come_by_tip_and_only_while_the_lane_lasts() -> None:
    chain = auction({"LANE_TIMER_CYCLES": 8_000})
    tips = [1, 9, 5, 7]
    mine = [schedule(1, ["burn", 1_000], gas_limit=2_000, **DEAR, max_priority_fee_per_cycle=tip) for tip in tips]
    chain.run(*mine, schedule(1, ["burn", 7_000], gas_limit=8_000, **DEAR, max_priority_fee_per_cycle=0))
    outcome = chain.block()
    assert [number(fire.tip_per_cycle) for fire in outcome.receipts.fires] == [9, 7, 5, 1]
    assert carried(outcome) == ["lane_full"]


def test_the_scan_limit_holds_in_each_pass() -> None:
    chain = auction({"SCAN_LIMIT": 2})
    chain.run(*[schedule(1, gas_limit=1_000, **DEAR, max_priority_fee_per_cycle=0) for _ in range(6)])
    outcome = chain.block()
    assert fired(outcome) == [(2, 0), (2, 1), (2, 2)], "one in the first pass, two in the second"


@pytest.mark.parametrize("slices", [4, 10**9])
def test_timers_that_are_set_aside_keep_nobody_from_its_slice(slices: int) -> None:
    """However many there are, and however small a slice is."""
    chain = auction({"SCAN_LIMIT": 3, "TIMER_GC_CYCLES": 1_200, "BUDGET_SLICES": slices})
    mine = [schedule(1, gas_limit=1_000, **DEAR, max_priority_fee_per_cycle=9) for _ in range(40)]
    chain.block(chain.call(*mine), chain.call(schedule(1, gas_limit=1_000, **DEAR), actor=OTHER, nonce=1))
    fires = chain.block().receipts.fires
    assert [fire.actor for fire in fires] == [ACTOR, OTHER, ACTOR, ACTOR, ACTOR]
    assert not chain.index.parties.table["closed"].any()


def test_of_equal_tips_the_actor_of_more_weight_goes_first() -> None:
    chain = auction(EPOCHS)
    chain.run(schedule(1, gas_limit=1_000, **DEAR, max_priority_fee_per_cycle=3), actor=OTHER)
    chain.block()
    assert record_of(chain, OTHER) is not None
    chain.empty(4)
    both = [schedule(1, gas_limit=1_000, **DEAR, max_priority_fee_per_cycle=3)]
    chain.block(chain.call(*both), chain.call(*both, actor=OTHER, nonce=chain.nonces[ALICE] + 1))
    assert [fire.actor for fire in chain.block().receipts.fires] == [OTHER, ACTOR]


@pytest.mark.parametrize(("patience", "expected"), [(3, [ACTOR, OTHER]), (64, [OTHER, ACTOR])])
def test_a_starving_timer_goes_before_those_of_its_tip(patience: int, expected: list[Address]) -> None:
    chain = auction({**EPOCHS, "STARVATION_BLOCKS": patience}, actors={ACTOR: 1_000, OTHER: RICH})
    equal = schedule(1, gas_limit=1_000, **DEAR, max_priority_fee_per_cycle=3)
    chain.block(chain.call(equal), chain.call(equal, actor=OTHER, nonce=1))
    assert [fire.actor for fire in chain.block().receipts.fires] == [OTHER]
    chain.empty(3)
    chain.block(chain.transfer(ACTOR, RICH // 10), chain.call(equal, actor=OTHER, nonce=chain.nonces[ALICE] + 1))
    assert [fire.actor for fire in chain.block().receipts.fires] == expected


def test_a_weight_moves_at_the_end_of_an_epoch_and_decays_when_its_actor_is_idle() -> None:
    chain = auction(EPOCHS)
    chain.run(schedule(1, gas_limit=1_000, **DEAR, max_priority_fee_per_cycle=3))
    chain.block()
    first = record_of(chain, ACTOR)
    assert first is not None and (first.epoch, first.weight, first.fires) == (0, LEAST, 1)
    rules = Decay.of(chain.parameters)
    weights = [rules.weight(first, epoch) for epoch in range(30)]
    assert weights[0] == LEAST < weights[1]
    assert weights[1:] == sorted(weights[1:], reverse=True)
    assert weights[-1] == LEAST, "an idle actor weighs no more than a fresh one"
    chain.empty(4)
    chain.run(schedule(1, gas_limit=1_000, **DEAR, max_priority_fee_per_cycle=3))
    chain.block()
    second = record_of(chain, ACTOR)
    assert second is not None and second.epoch > 0
    assert (second.weight, second.fires) == (rules.weight(first, second.epoch), 1)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.integers(1, 1_000),
    st.integers(1, 1_000),
    st.lists(st.lists(st.integers(0, ONE), max_size=4), min_size=1, max_size=12),
)
def test_weights_follow_exact_ones_within_their_bound(decay: int, least: int, epochs: list[list[int]]) -> None:
    """The bound is that of :func:`validator.scheduler.fairness.weight_at`: 1 / λ + 1 units."""
    parameters = Parameters(weight_lambda_milli=decay, weight_min_milli=least, starvation_floor_milli=least)
    rules, rate = Decay.of(parameters), Fraction(decay, 1_000)
    exact, record = Fraction(rules.least), None
    for epoch, scores in enumerate(epochs):
        assert abs(rules.weight(record, epoch) - exact) <= 1 / rate + 1
        if scores:
            record = rules.with_fires(record, epoch, sum(scores), len(scores))
        mean = Fraction(sum(scores), len(scores)) if scores else Fraction(0)
        exact = min(Fraction(rules.most), max(Fraction(rules.least), (1 - rate) * exact + rate * mean))


def receipt(ok: bool, cycles: int, tip: int, trigger: int) -> FireReceipt:
    return FireReceipt(
        timer_id=TimerId(bytes(32)),
        actor=ACTOR,
        trigger_height=trigger,
        sequence=0,
        fee_payer=ACTOR,
        ok=ok,
        error="",
        cycles=cycles,
        cells=0,
        burned=b"",
        tip=b"",
        tip_per_cycle=tip.to_bytes(12, "big").lstrip(b"\0"),
        effects=Effects((), (), (), (), ()),
    )


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.booleans(), st.integers(0, 2_000_000), st.integers(0, 2**96 - 1), st.integers(0, 2**96 - 1), st.integers(0, 999)
)
def test_a_score_is_the_mean_of_four_figures(ok: bool, cycles: int, tip: int, p50: int, late: int) -> None:
    p = Parameters()
    exact: tuple[Fraction, ...] = (
        Fraction(tip, tip + p50) if tip + p50 else Fraction(1, 2),
        Fraction(ok),
        Fraction(late, late + p.starvation_blocks),
        1 - Fraction(cycles, p.lane_timer_cycles),
    )
    score = fire_score(receipt(ok, cycles, tip, 1_000 - late), 1_000, p50, p)
    assert abs(Fraction(score, ONE) - sum(exact, Fraction(0)) / 4) <= Fraction(2, ONE)
    assert 0 <= score <= ONE


@pytest.mark.parametrize("field", ["ok", "cycles", "tip", "trigger"])
def test_each_figure_counts(field: str) -> None:
    plain: dict[str, Any] = {"ok": False, "cycles": 1_000_000, "tip": 5, "trigger": 90}
    better = plain | {"ok": True, "cycles": 1, "tip": 50, "trigger": 1}
    scores = [fire_score(receipt(**plain | {field: each[field]}), 100, 5, Parameters()) for each in (plain, better)]
    assert scores[0] < scores[1]
