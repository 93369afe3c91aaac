"""Estimates are means with Student's intervals, paired by seed where two variants are compared."""

from __future__ import annotations

import math
import random

import pytest

from kits.market.estimates import Estimate, Family, Results, decided, effect_size, holm, p_value, student


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


def test_a_change_is_paired_by_seed() -> None:
    found = PAIRED.change((1,), (0,), "x")
    assert found.mean == pytest.approx(1)
    assert half(found) == pytest.approx(4.3027 * 0.5 / math.sqrt(3), rel=1e-3)
    assert PAIRED.made == {(((1,), "x"), ((0,), "x")): [1, 1.5, 0.5]}


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1, 1.5, 0.5], 0.07418),  # t = 3.4641 with 2 degrees of freedom
        ([1, 2, 3, 4], 0.03047),  # t = 3.8730 with 3
        ([0.0, 0.0], 1.0),
        ([2.0, 2.0], 0.0),
        ([5.0], 1.0),
    ],
)
def test_p_values_are_those_of_students_t(differences: list[float], p: float) -> None:
    assert p_value(differences) == pytest.approx(p, abs=1e-5)


def family(*p: float) -> Family:
    """Comparisons of two seeds with these p-values: t is tan(pi / 2 * (1 - p)) with one degree of freedom."""
    ratios = [math.tan(math.pi / 2 * (1 - each)) for each in p]
    return {(((at,), "x"), ((-1,), "x")): [ratio + 1, ratio - 1] for at, ratio in enumerate(ratios)}


def levels(*p: float) -> list[float]:
    assert [p_value(each) for each in family(*p).values()] == pytest.approx(p)
    return [holm(family(*p))[key] for key in family(*p)]


def test_holms_levels_rise_until_a_comparison_is_not_significant() -> None:
    assert levels(0.04) == pytest.approx([0.05])
    assert levels(0.04, 0.001) == pytest.approx([0.05, 0.025])
    assert levels(0.001, 0.03, 0.04) == pytest.approx([0.05 / 3, 0.025, 0.025]), "0.04 is below 0.05, and not tested"
    assert levels(0.02, 0.03, 0.04) == pytest.approx([0.05 / 3] * 3)
    assert holm({}) == {}


def test_a_rules_intervals_allow_for_all_its_comparisons() -> None:
    """The best of many equal cells is no better than the others, though by itself it looks so."""
    drawn = random.Random(7)
    results = Results({(cell,): {seed: {"x": drawn.gauss()} for seed in range(6)} for cell in range(41)})

    def clear(found: Results) -> list[int]:
        return [cell for cell in range(1, 41) if found.change((cell,), (0,), "x").is_clear]

    assert clear(results) != []
    again = Results(results.rows)
    assert decided(clear, again) == []
    assert len(again.made) == 40


def test_comparisons_that_follow_from_others_are_in_the_family() -> None:
    results = Results({(cell,): {seed: {"x": cell + seed / 100} for seed in range(4)} for cell in range(3)})
    results.rows[1,][0]["x"] = 1.5  # type: ignore[index]

    def rule(found: Results) -> float:
        first = found.change((1,), (0,), "x")
        return half(found.change((2,), (0,), "x")) if first.is_clear else 0.0

    decided(rule, results)
    assert [round(level, 6) for level in results.outside.values()] == [0.025, 0.05]


def test_the_effect_size_is_in_deviations_of_the_differences() -> None:
    assert effect_size([1, 1.5, 0.5]) == pytest.approx(2)
    assert effect_size([1, 1.5, 0.5] * 4) == pytest.approx(2, rel=0.2), "it does not grow with seeds"
    assert effect_size([2, 2]) is None
    assert effect_size([2]) is None


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
