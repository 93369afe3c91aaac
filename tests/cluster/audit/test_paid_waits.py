"""How long a timer that pays may wait: the bound follows from the parameters, right prices keep it, others do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.audit.paid_waits import Full, PaidWaits, Wait, Waited
from spec.fees import CYCLE_SLOPE, next_basefee
from spec.parameters import DEFAULTS
from spec.phase import Phase
from spec.world import Genesis, World

TIMER = b"\x01" * 32
START = 1_000_000
RICH = 10**30
CAP = DEFAULTS["MAX_CYCLES_PER_FIRE_AUCTION_PHASE"]

Price = Callable[[int], int]
"""The basefee of a block behind one with this basefee."""


def timer(max_fee: int = 2 * START, gas_limit: int = CAP, spare: int = RICH) -> Wait:
    return Wait(TIMER, gas_limit, max_fee, spare)


def world(**parameters: int) -> World:
    return World(Genesis(DEFAULTS | parameters))


USUAL = world()


def lane_of(chain: World, cycles: int, cells: int, basefee_lane: int, basefee_cell: int) -> Phase:
    chain.basefee_lane, chain.basefee_cell = basefee_lane, basefee_cell
    phase = Phase(chain)
    phase.cycles, phase.cells = cycles, cells
    return phase


def full_of_cycles(basefee: int, chain: World = USUAL) -> Phase:
    return lane_of(chain, chain.parameters["LANE_TIMER_CYCLES"], 0, basefee, START)


def full_of_cells(basefee: int, chain: World = USUAL) -> Phase:
    return lane_of(chain, 0, chain.parameters["LANE_TIMER_CELLS"], START, basefee)


def first_too_long(wait: Wait, following: Price, lane: Callable[[int], Phase] = full_of_cycles) -> Waited | None:
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
    lane = DEFAULTS["LANE_TIMER_CYCLES"]
    return next_basefee(USUAL, basefee, lane, lane // 2, DEFAULTS["LANE_BASEFEE_SLOPE"])


def test_twice_the_price_lasts_for_six_blocks() -> None:
    """The default agent's maximum fee (SPEC §9: some five blocks of growth)."""
    waits, basefee = PaidWaits(), START
    while basefee <= 2 * START:
        assert waits.enter(full_of_cycles(basefee), [timer()]) == []
        basefee = right(basefee)
    assert waits.longest == 6
    assert first_too_long(timer(), lambda basefee: basefee) == Waited(TIMER, 7, Full.CYCLES)


@pytest.mark.parametrize("wrong", [lambda b: b, lambda b: b - b // 8, lambda b: b + b // 80])
def test_a_price_that_rises_too_little_is_told(wrong: Price) -> None:
    assert first_too_long(timer(), right) is None
    assert first_too_long(timer(), wrong) is not None


def test_the_cells_of_the_lane_have_a_bound_by_the_cell_basefee_and_the_payers_means() -> None:
    most = DEFAULTS["MAX_CELLS_PER_FIRE"]
    means = timer(max_fee=RICH, spare=3 * START * most)

    def cells(basefee: int) -> int:
        used, target = DEFAULTS["LANE_TIMER_CELLS"], DEFAULTS["BLOCK_CELLS_TARGET"]
        return next_basefee(USUAL, basefee, used, target, CYCLE_SLOPE)

    waits, basefee = PaidWaits(), START
    while basefee * most <= means.spare:
        assert waits.enter(full_of_cells(basefee), [means]) == []
        basefee = cells(basefee)
    assert waits.longest == 10
    assert first_too_long(means, lambda basefee: basefee, full_of_cells) == Waited(TIMER, 11, Full.CELLS)


@pytest.mark.parametrize(("lane", "waits"), [(full_of_cells, [timer()]), (full_of_cycles, [])])
def test_a_wait_for_another_reason_or_none_begins_a_new_count(lane: Callable[[int], Phase], waits: list[Wait]) -> None:
    counted = PaidWaits()
    for number in range(40):
        given = (full_of_cycles(START), [timer()]) if number % 7 else (lane(START), waits)
        assert counted.enter(*given) == []
    assert counted.longest == 6


@pytest.mark.parametrize(
    ("params", "lane"),
    [
        ({"MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 1_500_000}, full_of_cycles),
        ({"BLOCK_CELLS_TARGET": 2_000_000}, full_of_cells),
        ({}, lambda basefee, chain: lane_of(chain, 0, 0, basefee, basefee)),
    ],
    ids=["the rest is below the target", "cells below the target", "neither is used up"],
)
def test_without_a_rise_there_is_no_bound(params: dict[str, int], lane: Callable[[int, World], Phase]) -> None:
    chain, waits = world(**params), PaidWaits()
    cap = chain.parameters["MAX_CYCLES_PER_FIRE_AUCTION_PHASE"]
    for _ in range(40):
        assert waits.enter(lane(START, chain), [timer(gas_limit=cap)]) == []
    assert waits.longest == 0


def test_a_price_that_cannot_rise_any_more_has_no_bound() -> None:
    chain = world(MAX_BASEFEE=START)
    assert first_too_long(timer(), lambda basefee: basefee, lambda basefee: full_of_cycles(basefee, chain)) is None


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
    chain = world(
        LANE_TIMER_CYCLES=lane,
        MAX_CYCLES_PER_FIRE_AUCTION_PHASE=cap,
        LANE_BASEFEE_SLOPE=slope,
        LANE_FEE_MULTIPLIER_MILLI=multiplier,
    )
    p = chain.parameters
    basefee, cell, waits = start, start, PaidWaits()
    max_fee, means = headroom * start * multiplier // 1_000, headroom * start * p["MAX_CELLS_PER_FIRE"]
    for by_cycles, drawn in uses:
        cycles = lane - min(drawn % lane, cap - 1) if by_cycles else drawn % (lane - cap + 1)
        cells = drawn % p["LANE_TIMER_CELLS"] if by_cycles else p["LANE_TIMER_CELLS"] + drawn % 1_000
        pays = basefee * multiplier // 1_000 <= max_fee and cell * p["MAX_CELLS_PER_FIRE"] <= means
        wait = [Wait(TIMER, cap, max_fee, means)] if pays else []
        assert waits.enter(lane_of(chain, cycles, cells, basefee, cell), wait) == []
        basefee = next_basefee(chain, basefee, cycles, lane // 2, slope)
        cell = next_basefee(chain, cell, cells, p["BLOCK_CELLS_TARGET"], CYCLE_SLOPE)
