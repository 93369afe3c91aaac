"""The statistics, against known answers, brute force and their own promises."""

from __future__ import annotations

from itertools import combinations, product
from random import Random

import numpy as np
import pytest

from cluster.commands.compare.statistics import (
    FALSE_DISCOVERY_RATE,
    adjusted,
    batch_means,
    compare_independent,
    compare_paired,
    needed,
)


def generator(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_permutations_of_small_groups_are_all_gone_through() -> None:
    a, b = [1.0, 4.0, 2.0], [5.0, 3.0, 9.0, 7.0]
    pooled, observed = a + b, abs(sum(b) / 4 - sum(a) / 3)
    splits = [[pooled[i] for i in chosen] for chosen in combinations(range(7), 3)]
    changes = [abs((sum(pooled) - sum(one)) / 4 - sum(one) / 3) for one in splits]
    found = compare_independent(a, b, generator())
    assert found.p_value == pytest.approx(sum(change >= observed - 1e-9 for change in changes) / 35)
    assert found.least_p_value == pytest.approx(1 / 35)


def test_flips_of_few_pairs_are_all_gone_through() -> None:
    a, b = [1.0, 2.0, 3.0, 4.0], [2.0, 2.5, 2.9, 6.0]
    changes = [y - x for x, y in zip(a, b, strict=True)]
    observed = abs(sum(changes))
    flips = [abs(sum(s * c for s, c in zip(signs, changes, strict=True))) for signs in product((1, -1), repeat=4)]
    found = compare_paired(a, b, generator())
    assert found.p_value == pytest.approx(sum(flip >= observed - 1e-9 for flip in flips) / 16)
    assert found.least_p_value == 2 / 16


def test_equal_groups_do_not_differ() -> None:
    same = [3.0] * 8
    assert compare_independent(same, same, generator()).p_value == 1.0
    assert compare_paired(same, same, generator()).p_value == 1.0
    assert compare_paired(same, same, generator()).is_constant
    assert not compare_paired(same, [4.0] * 8, generator()).is_constant


def test_a_clear_difference_is_found_with_its_interval() -> None:
    random = Random(5)
    a = [random.gauss(100, 5) for _ in range(40)]
    b = [random.gauss(110, 5) for _ in range(40)]
    found = compare_independent(a, b, generator())
    assert found.p_value < 0.001
    low, high = found.change_interval
    assert 6 < low < found.change < high < 14
    assert found.intervals[0][0] < found.means[0] < found.intervals[0][1]


def test_pairs_show_what_the_spread_between_seeds_hides() -> None:
    random = Random(5)
    a = [random.gauss(100, 30) for _ in range(12)]
    b = [value + random.gauss(2, 1) for value in a]
    assert compare_paired(a, b, generator()).p_value < 0.01
    assert compare_independent(a, b, generator()).p_value > 0.5


def test_the_same_seed_gives_the_same_result() -> None:
    random = Random(1)
    a, b = ([random.random() for _ in range(30)] for _ in range(2))
    assert compare_independent(a, b, generator(7)) == compare_independent(a, b, generator(7))
    assert compare_paired(a, b, generator(7)) == compare_paired(a, b, generator(7))


@pytest.mark.slow
@pytest.mark.parametrize("paired", [False, True])
def test_where_nothing_differs_few_p_values_are_small(paired: bool) -> None:
    random, compare = Random(2), compare_paired if paired else compare_independent
    small = 0
    for trial in range(100):
        a, b = ([random.gauss(0, 1) for _ in range(6)] for _ in range(2))
        small += compare(a, b, generator(trial)).p_value <= 0.05
    assert small <= 12


@pytest.mark.slow
def test_intervals_hold_the_true_mean_about_as_often_as_they_say() -> None:
    random = Random(3)
    held = 0
    for trial in range(100):
        a = [random.gauss(10, 2) for _ in range(30)]
        low, high = compare_independent(a, a, generator(trial)).intervals[0]
        held += low <= 10 <= high
    assert held >= 87


def test_p_values_are_adjusted_for_their_number() -> None:
    assert adjusted([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert adjusted([0.5]) == [0.5]
    assert adjusted([]) == []
    assert adjusted([0.9, 0.95]) == pytest.approx([0.95, 0.95])


def test_of_many_true_nulls_about_none_is_called_significant() -> None:
    random = Random(4)
    p_values = []
    for trial in range(60):
        a, b = ([random.gauss(0, 1) for _ in range(8)] for _ in range(2))
        p_values.append(compare_independent(a, b, generator(trial)).p_value)
    assert min(p_values) <= 0.05, "some are small by chance"
    assert sum(p <= FALSE_DISCOVERY_RATE for p in adjusted(p_values)) == 0


def test_stretches_cover_a_series_once() -> None:
    one, other = batch_means(list(range(10)), [2.0 * value for value in range(10)], 4)
    assert len(one) == len(other) == 4
    assert other == [2 * value for value in one]
    assert one == [0.5, 3.0, 5.5, 8.0] or sum(one) > 0


def test_large_groups_are_done_in_bounded_memory() -> None:
    values = generator().normal(size=30_000)
    found = compare_independent(values.tolist(), (values + 0.1).tolist(), generator())
    assert found.p_value < 0.01


@pytest.mark.parametrize("tests", [1, 2, 7, 23, 60])
@pytest.mark.parametrize("is_paired", [True, False])
def test_so_many_as_are_needed_suffice_for_one_figure_and_one_less_does_not(is_paired: bool, tests: int) -> None:
    wanted = needed(is_paired, tests)
    assert wanted is not None
    for count, is_enough in ((wanted, True), (wanted - 1, False)):
        found = (compare_paired if is_paired else compare_independent)(
            [1.0 + each / 100 for each in range(count)], [9.0 + each / 99 for each in range(count)], generator()
        )
        sure = adjusted([found.p_value, *[1.0] * (tests - 1)])[0]
        assert (sure <= FALSE_DISCOVERY_RATE) is is_enough


def test_of_more_figures_than_resamples_tell_apart_no_number_is_enough() -> None:
    assert needed(True, 10**6) is None
