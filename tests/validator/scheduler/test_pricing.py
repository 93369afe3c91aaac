"""Basefees, lane price, median tip and default bid, against models in fractions and plain lists."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validator.primitives.params import P50Weight, Parameters
from validator.scheduler import pricing
from validator.scheduler.pricing import BASEFEE_SLOPE, default_bid, lane_price, median_tip, next_basefee

REPEATABLE = settings(max_examples=400, deadline=None, derandomize=True)
PARAMETERS = Parameters()
FEES = st.integers(PARAMETERS.min_basefee, PARAMETERS.max_basefee)
FIRES = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 50)), max_size=12)


def basefee_model(basefee: int, used: int, target: int, slope: int) -> int:
    """``slope`` says how far off the target the step reaches its most, an eighth."""
    share = min(Fraction(abs(used - target), target) / slope, Fraction(1, 8))
    step = floor(basefee * share)
    if used > target:
        return min(basefee + max(step, 1), PARAMETERS.max_basefee)
    if used < target:
        return max(basefee - step, PARAMETERS.min_basefee)
    return basefee


@REPEATABLE
@given(FEES, st.integers(0, 10**9), st.integers(1, 10**9), st.integers(1, 8))
def test_basefee_against_fractions(basefee: int, used: int, target: int, slope: int) -> None:
    assert next_basefee(basefee, used, target, slope, PARAMETERS) == basefee_model(basefee, used, target, slope)


@pytest.mark.parametrize("slope", [1, 8])
def test_basefee_saturates_at_an_eighth(slope: int) -> None:
    fee, target = 8_000_000, 1_000
    far = target * slope // 8
    assert next_basefee(fee, target, target, slope, PARAMETERS) == fee
    assert next_basefee(fee, target + far, target, slope, PARAMETERS) == fee + fee // 8
    assert next_basefee(fee, target + far - 1, target, slope, PARAMETERS) < fee + fee // 8
    assert next_basefee(fee, 100 * target, target, slope, PARAMETERS) == fee + fee // 8
    assert next_basefee(fee, max(0, target - far), target, slope, PARAMETERS) == fee - fee // 8
    assert next_basefee(fee, target + 1, target, slope, PARAMETERS) == fee + fee // (slope * target)


def test_basefee_keeps_its_borders() -> None:
    p = replace(PARAMETERS, min_basefee=5, initial_basefee=5, max_basefee=9)
    assert next_basefee(5, 2, 1, 8, p) == 6, "at least one unit upward"
    assert next_basefee(5, 0, 1, 8, p) == 5
    assert next_basefee(9, 10**9, 1, 8, p) == 9
    assert next_basefee(7, 0, 2, 8, p) == 7, "no unit downward where the step rounds to nothing"


def test_a_wrong_slope_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pricing, "next_basefee", lambda f, u, t, s, p: next_basefee(f, u, t, 9 - s, p))
    assert pricing.next_basefee(8_000_000, 1_100, 1_000, 1, PARAMETERS) != basefee_model(8_000_000, 1_100, 1_000, 1)


@REPEATABLE
@given(st.integers(1, 2**96 - 1), st.integers(0, 10**4))
def test_lane_price(basefee: int, milli: int) -> None:
    p = replace(PARAMETERS, lane_fee_multiplier_milli=milli)
    assert lane_price(basefee, p) == floor(Fraction(basefee * milli, 1_000))


@REPEATABLE
@given(FIRES)
def test_median_by_fires(fires: list[tuple[int, int]]) -> None:
    tips = sorted(tip for tip, _ in fires)
    expected = tips[(len(tips) - 1) // 2] if tips else 0
    assert median_tip(fires, P50Weight.FIRES) == expected
    assert median_tip(fires[::-1], P50Weight.FIRES) == expected


@REPEATABLE
@given(FIRES)
def test_median_by_cycles(fires: list[tuple[int, int]]) -> None:
    total = sum(cycles for _, cycles in fires)
    reach = [
        tip for tip in sorted({tip for tip, _ in fires}) if sum(c for t, c in fires if t <= tip) >= Fraction(total, 2)
    ]
    expected = reach[0] if fires else 0
    assert median_tip(fires, P50Weight.CYCLES) == expected
    assert median_tip(fires[::-1], P50Weight.CYCLES) == expected


def test_three_cheap_fires_swing_the_one_median_and_not_the_other() -> None:
    fires = [(100, 1_000_000), (1, 1_000), (1, 1_000), (1, 1_000)]
    assert median_tip(fires, P50Weight.FIRES) == 1
    assert median_tip(fires, P50Weight.CYCLES) == 100


def test_default_bid() -> None:
    assert default_bid(1_000, 500, PARAMETERS) == (2_000, 500)
    capped = replace(PARAMETERS, default_tip_cap=8)
    assert default_bid(1_000, 500, capped) == (2_000, 125)
    assert default_bid(1_000, 100, capped) == (2_000, 100)
    assert default_bid(7, 500, capped) == (14, 0)
    assert BASEFEE_SLOPE == 8
