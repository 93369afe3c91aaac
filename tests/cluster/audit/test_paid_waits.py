"""How long a timer that pays may wait: the bound follows from the parameters, right prices keep it, others do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.audit.fee_market import USUAL_SLOPE, risen
from cluster.audit.paid_waits import Full, Lane, PaidWaits, TooLong, Wait
from validator.primitives.params import DEFAULTS, Parameters

TIMER = b"\x01" * 32
START = 1_000_000
RICH = 10**30
CAP = DEFAULTS.max_cycles_per_fire_auction_phase

Price = Callable[[int], int]
"""The basefee of a block behind one with this basefee."""


def timer(max_fee: int = 2 * START, gas_limit: int = CAP, spare: int = RICH) -> Wait:
    return Wait(TIMER, gas_limit, max_fee, spare)


def full_of_cycles(basefee: int, p: Parameters = DEFAULTS) -> Lane:
    return Lane(p, p.lane_timer_cycles, 0, basefee, START)


def full_of_cells(basefee: int, p: Parameters = DEFAULTS) -> Lane:
    return Lane(p, 0, p.lane_timer_cells, START, basefee)


def first_too_long(wait: Wait, following: Price, lane: Callable[[int], Lane] = full_of_cycles) -> TooLong | None:
    """Have a timer wait block after block, as long as it pays and at most 100 times."""
    waits, basefee = PaidWaits(), START
    for _ in range(100):
        if basefee > wait.max_fee:
            return None
        found = waits.enter(lane(basefee), [wait])
        if found:
            return found[0]
        basefee = following(basefee)
    return None


def right(basefee: int) -> int:
    """Behind a full lane."""
    p = DEFAULTS
    return risen(basefee, p.lane_timer_cycles, p.lane_timer_cycles // 2, p.lane_basefee_slope, p)


def test_twice_the_price_lasts_for_six_blocks() -> None:
    """The default agent's maximum fee (SPEC §9: some five blocks of growth)."""
    waits, basefee = PaidWaits(), START
    while basefee <= 2 * START:
        assert waits.enter(full_of_cycles(basefee), [timer()]) == []
        basefee = right(basefee)
    assert waits.longest == 6
    assert first_too_long(timer(), lambda basefee: basefee) == TooLong(TIMER, 7, Full.CYCLES)


@pytest.mark.parametrize("wrong", [lambda b: b, lambda b: b - b // 8, lambda b: b + b // 80])
def test_a_price_that_rises_too_little_is_told(wrong: Price) -> None:
    assert first_too_long(timer(), right) is None
    assert first_too_long(timer(), wrong) is not None


def test_the_cells_of_the_lane_have_a_bound_by_the_cell_basefee_and_the_payers_means() -> None:
    p = DEFAULTS
    means = timer(max_fee=RICH, spare=3 * START * p.max_cells_per_fire)

    def cells(basefee: int) -> int:
        return risen(basefee, p.lane_timer_cells, p.block_cells_target, USUAL_SLOPE, p)

    waits, basefee = PaidWaits(), START
    while basefee * p.max_cells_per_fire <= means.spare:
        assert waits.enter(full_of_cells(basefee), [means]) == []
        basefee = cells(basefee)
    assert waits.longest == 10
    assert first_too_long(means, lambda basefee: basefee, full_of_cells) == TooLong(TIMER, 11, Full.CELLS)


def test_a_wait_for_another_reason_begins_a_new_count() -> None:
    waits = PaidWaits()
    for number in range(40):
        lane = full_of_cycles(START) if number % 7 else full_of_cells(START)
        assert waits.enter(lane, [timer()]) == []
    assert waits.longest == 6


def test_a_block_in_which_it_does_not_wait_begins_a_new_count() -> None:
    waits = PaidWaits()
    for number in range(40):
        assert waits.enter(full_of_cycles(START), [timer()] if number % 7 else []) == []
    assert waits.longest == 6


@pytest.mark.parametrize(
    ("params", "lane"),
    [
        ({"max_cycles_per_fire_auction_phase": 1_500_000}, full_of_cycles),
        ({"block_cells_target": 2_000_000}, full_of_cells),
        ({}, lambda basefee, p: Lane(p, 0, 0, basefee, basefee)),
    ],
    ids=["the rest is below the target", "cells below the target", "neither is used up"],
)
def test_without_a_rise_there_is_no_bound(params: dict[str, int], lane: Callable[[int, Parameters], Lane]) -> None:
    p = Parameters.from_names({name.upper(): value for name, value in params.items()})
    waits = PaidWaits()
    for _ in range(40):
        assert waits.enter(lane(START, p), [timer(gas_limit=p.max_cycles_per_fire_auction_phase)]) == []
    assert waits.longest == 0


def test_a_price_that_cannot_rise_any_more_has_no_bound() -> None:
    p = Parameters.from_names({"MAX_BASEFEE": START, "INITIAL_BASEFEE": START})
    assert first_too_long(timer(), lambda basefee: basefee, lambda basefee: full_of_cycles(basefee, p)) is None


@settings(max_examples=200)
@given(
    slope=st.integers(1, 8),
    multiplier=st.integers(1, 10_000),
    lane=st.integers(20_000, 10**9),
    uses=st.lists(st.tuples(st.booleans(), st.integers(0, 10**9)), max_size=60),
    gas_share=st.integers(1, 100),
    start=st.integers(10_000, 10**12),
    headroom=st.integers(1, 1_000),
)
def test_right_prices_never_break_the_bound(
    slope: int,
    multiplier: int,
    lane: int,
    uses: list[tuple[bool, int]],
    gas_share: int,
    start: int,
    headroom: int,
) -> None:
    """However an attacker fills the lane, as long as prices follow SPEC §7 and the timer pays when it is counted."""
    cap = max(1_000, lane * gas_share // 100)
    names = {"LANE_TIMER_CYCLES": lane, "MAX_CYCLES_PER_FIRE": cap, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": cap}
    p = Parameters.from_names(
        names | {"LANE_BASEFEE_SLOPE": slope, "LANE_FEE_MULTIPLIER_MILLI": multiplier, "INITIAL_BASEFEE": start}
    )
    target, basefee, cell, waits = lane // 2, start, start, PaidWaits()
    max_fee, means = headroom * start * multiplier // 1_000, headroom * start * p.max_cells_per_fire
    for by_cycles, drawn in uses:
        cycles = lane - min(drawn % lane, cap - 1) if by_cycles else drawn % (lane - cap + 1)
        cells = drawn % p.lane_timer_cells if by_cycles else p.lane_timer_cells + drawn % 1_000
        pays = basefee * multiplier // 1_000 <= max_fee and cell * p.max_cells_per_fire <= means
        wait = [Wait(TIMER, cap, max_fee, means)] if pays else []
        assert waits.enter(Lane(p, cycles, cells, basefee, cell), wait) == []
        basefee, cell = (
            risen(before, used, goal, steep, p)
            if used > goal
            else max(p.min_basefee, before - before * min(8 * (goal - used), steep * goal) // (8 * steep * goal))
            for before, used, goal, steep in (
                (basefee, cycles, target, slope),
                (cell, cells, p.block_cells_target, USUAL_SLOPE),
            )
        )
