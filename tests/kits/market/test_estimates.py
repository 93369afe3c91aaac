"""Estimates are means with Student's intervals, paired by seed where two variants are compared."""

from __future__ import annotations

import math

import pytest

from kits.market.estimates import Estimate, Results, student


@pytest.mark.parametrize(
    ("outside", "freedom", "bound"),
    [(0.05, 1, 12.706), (0.05, 2, 4.303), (0.05, 3, 3.182), (0.05, 7, 2.365), (0.05, 30, 2.042), (0.01, 7, 3.499)],
)
def test_students_bounds_are_those_of_the_tables(outside: float, freedom: int, bound: float) -> None:
    assert student(outside, freedom) == pytest.approx(bound, abs=0.0006)


def results(*seeds: tuple[float, float, float]) -> Results:
    """Results of two cells: ``x`` of the first, ``x`` and ``y`` of the second, for each seed."""
    first = {number: {"x": values[0]} for number, values in enumerate(seeds)}
    return Results({(0,): first, (1,): {number: {"x": v[1], "y": v[2]} for number, v in enumerate(seeds)}})


PAIRED = results((10, 11, 1), (20, 21.5, 1), (30, 30.5, 1))
"""Seeds differ far more than cells do."""


def half(estimate: Estimate) -> float:
    """Half of the interval's length."""
    assert estimate.interval is not None
    return estimate.interval[1] - estimate.mean


def test_a_mean_has_students_interval() -> None:
    found = PAIRED.mean((0,), "x")
    assert found.mean == pytest.approx(20)
    assert half(found) == pytest.approx(4.3027 * 10 / math.sqrt(3), rel=1e-3)


def test_an_interval_has_no_value_that_the_measure_cannot_have() -> None:
    found = Results(PAIRED.rows, range_of=lambda measure: (0.0, 25.0)).mean((0,), "x")
    assert found.interval == (0.0, 25.0)


def test_a_change_is_paired_by_seed_and_many_tests_widen_its_interval() -> None:
    one, many = (PAIRED.change((1,), (0,), "x", tests) for tests in (1, 10))
    assert many.mean == one.mean == pytest.approx(1)
    assert half(one) == pytest.approx(4.3027 * 0.5 / math.sqrt(3), rel=1e-3)
    assert half(many) == pytest.approx(student(0.005, 2) * 0.5 / math.sqrt(3))
    assert half(many) > 2 * half(one)


def test_a_gap_is_between_measures_of_a_cell() -> None:
    assert PAIRED.gap((1,), "x", "y").mean == pytest.approx(20)


def test_one_seed_says_nothing() -> None:
    assert not results((1, 2, 3)).change((1,), (0,), "x").is_clear


@pytest.mark.parametrize(
    ("interval", "exceeds", "falls"),
    [((1.0, 3.0), True, False), ((-1.0, 5.0), False, False), ((-3.0, -1.0), False, True)],
)
def test_clear_estimates(interval: tuple[float, float], exceeds: bool, falls: bool) -> None:
    estimate = Estimate(sum(interval) / 2, interval)
    assert (estimate.exceeds(0.5), estimate.falls_below(-0.5)) == (exceeds, falls)
    assert not estimate.exceeds(2.5)
    assert not estimate.falls_below(-2.5)
