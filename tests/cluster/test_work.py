"""What the books say of timers that were passed over, and what they do not say where there was a reason."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.ledger import CONSERVATION, TIMERS, Ledger
from loadgen.workloads.script import encode_script
from tests.cluster.records import ACTOR, PRICE, ChainMaker, make_genesis
from validator.block import Effects, Scheduled
from validator.codec import pack_uint
from validator.genesis import Policy
from validator.transactions import Call

LANE = 10_000
CAP = 6_000
PARAMS: dict[str, Any] = {
    "SCAN_LIMIT": 100,
    "TIMER_GC_CYCLES": 40_000,
    "LANE_TIMER_CYCLES": LANE,
    "MAX_CYCLES_PER_FIRE": CAP,
    "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": CAP,
}


def chain(policy: Policy = Policy.CIP1, **params: Any) -> ChainMaker:
    return ChainMaker(make_genesis({**PARAMS, **params}, policy))


def schedule(maker: ChainMaker, **terms: Any) -> Scheduled:
    """A timer for the next block, with what its schedule says."""
    item = maker.scheduled(1, b"[]")
    operation = ["schedule", {"in": 1, "payload": "[]", **terms}]
    maker.transact(Call(ACTOR, "run", encode_script([operation])), Effects(scheduled=(item,)))
    return item


def passed_over(maker: ChainMaker) -> list[tuple[int, str]]:
    """Height and timer of each violation; there must be none of another kind."""
    ledger = Ledger(maker.genesis)
    for record in maker.blocks:
        ledger.apply(record.block, record.receipts)
    assert [v for v in ledger.violations if v.check != TIMERS or "passed over" not in v.what] == []
    return [(violation.height, violation.what.split()[1]) for violation in ledger.violations]


def name(timer: Scheduled) -> str:
    return timer.timer_id.hex()[:16]


@pytest.mark.parametrize("terms", [{}, {"gas_limit": CAP}, {"max_fee_per_cycle": PRICE}, {"max_fee_per_cycle": None}])
def test_a_timer_that_fitted_and_was_not_run_is_told_once(terms: dict[str, Any]) -> None:
    maker = chain()
    timer = schedule(maker, **terms)
    for _ in range(4):
        maker.seal()
    assert passed_over(maker) == [(2, name(timer))]


def test_one_that_ran_late_was_passed_over_as_well() -> None:
    maker = chain()
    timer = schedule(maker)
    maker.seal()
    maker.seal()
    maker.fire(timer)
    maker.seal()
    assert passed_over(maker) == [(2, name(timer))]


def test_what_does_not_fit_in_the_rest_of_the_lane_waits() -> None:
    maker = chain(LANE_TIMER_CYCLES=9_000)
    others = [schedule(maker) for _ in range(3)]
    small = schedule(maker, gas_limit=5_000)
    maker.seal()
    for other in others[:2]:
        maker.fire(other)
    maker.seal()
    assert passed_over(maker) == [(2, name(small))]


@pytest.mark.parametrize(
    ("params", "terms"),
    [
        ({}, {"gas_limit": CAP + 1}),
        ({}, {"max_fee_per_cycle": PRICE - 1}),
        ({"LANE_FEE_MULTIPLIER_MILLI": 2_001}, {"max_fee_per_cycle": 2 * PRICE}),
        ({"SCAN_LIMIT": 1}, {}),
        ({}, {"gas_limit": "no figure"}),
    ],
)
def test_what_had_a_reason_to_wait_was_not_passed_over(params: dict[str, Any], terms: dict[str, Any]) -> None:
    maker = chain(**params)
    schedule(maker, **terms)
    for _ in range(4):
        maker.seal()
    assert passed_over(maker) == []


@pytest.mark.parametrize(("allowed", "is_right"), [(PRICE + 2, True), (PRICE + 1, False)])
def test_a_timer_that_paid_more_for_the_lane_than_it_allows_is_told(allowed: int, is_right: bool) -> None:
    maker = chain()
    timer = schedule(maker, max_fee_per_cycle=allowed)
    maker.seal()
    maker.fire(timer, tip=2)
    maker.seal()
    ledger = Ledger(maker.genesis)
    for record in maker.blocks:
        ledger.apply(record.block, record.receipts)
    told = [violation.what for violation in ledger.violations if violation.check == CONSERVATION]
    what = f"fire of timer {name(timer)} was charged {PRICE + 2} a cycle for the lane, and allows {allowed}"
    assert told == ([] if is_right else [what])


def test_without_budget_for_removals_nothing_is_said() -> None:
    maker = chain()
    schedule(maker)
    maker.seal()
    maker.seal(gc_cycles=PARAMS["TIMER_GC_CYCLES"])
    assert passed_over(maker) == []


def test_the_default_bids_twice_the_first_price_for_good() -> None:
    maker = chain()
    timer = schedule(maker)
    maker.seal()
    for price in (PRICE, 2 * PRICE, 2 * PRICE + 1):
        maker.seal({"basefee_lane_timer": pack_uint(price)})
    assert passed_over(maker) == [(2, name(timer))]
    dear = chain()
    late = schedule(dear)
    dear.seal()
    dear.seal(gc_cycles=PARAMS["TIMER_GC_CYCLES"])
    dear.seal({"basefee_lane_timer": pack_uint(2 * PRICE + 1)})
    assert passed_over(dear) == [], "it was priced at the block before"
    dear.seal({"basefee_lane_timer": pack_uint(2 * PRICE)})
    assert passed_over(dear) == [(4, name(late))]


def test_an_agents_timers_are_not_judged() -> None:
    maker = chain()
    maker.bidders(1)
    for _ in range(3):
        maker.seal()
    assert passed_over(maker) == []


@pytest.mark.parametrize("activation", [0, 9])
def test_first_in_first_out_only_the_first_in_turn_is_judged(activation: int) -> None:
    policy = Policy.CIP1 if activation else Policy.FIFO
    maker = chain(policy, ACTIVATION_HEIGHT=activation)
    schedule(maker, gas_limit=CAP + 1)
    first = schedule(maker, max_fee_per_cycle=1)
    schedule(maker)
    for _ in range(2):
        maker.seal(p50_tip=b"")
    assert passed_over(maker) == [(2, name(first))]


def test_timers_that_waited_for_activation_are_priced_then() -> None:
    maker = chain(ACTIVATION_HEIGHT=2, SCAN_LIMIT=100)
    timer = schedule(maker)
    maker.seal(p50_tip=b"")
    maker.seal(p50_tip=b"", gc_cycles=PARAMS["TIMER_GC_CYCLES"])
    maker.seal(p50_tip=b"")
    assert passed_over(maker) == [(3, name(timer))]
