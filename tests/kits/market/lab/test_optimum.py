"""The referee's choice is a best one: compared with an exact dynamic programme, and with all choices."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kits.market.lab import optimum
from kits.market.lab.optimum import Knapsacks, best_welfare, reduced
from kits.market.lab.population import Job


def best_value(values: list[int], weights: list[int], capacity: int) -> int:
    """The value of a best choice, by dynamic programming over capacities."""
    best = [0] * (capacity + 1)
    for value, weight in zip(values, weights, strict=True):
        for room in range(capacity, weight - 1, -1):
            best[room] = max(best[room], best[room - weight] + value)
    return best[capacity]


def drawn(random: Random, count: int, capacity: int) -> tuple[list[int], list[int]]:
    """Items of similar density, among which the greedy choice is often not a best one."""
    weights = [random.randint(1, capacity // 2) for _ in range(count)]
    return [max(1, weight * 10 + random.randint(-9, 9)) for weight in weights], weights


@pytest.mark.parametrize("seed", range(40))
def test_the_choice_is_as_good_as_a_dynamic_programmes(seed: int) -> None:
    random = Random(seed)
    capacity = random.randint(10, 120)
    values, weights = drawn(random, random.randint(1, 40), capacity)
    taken = Knapsacks().best(values, weights, capacity)
    assert sum(weights[place] for place in taken) <= capacity
    assert sum(values[place] for place in taken) == best_value(values, weights, capacity)
    assert taken == sorted(set(taken))


def test_a_greedy_choice_is_worse_on_these_items() -> None:
    """The comparison above would notice a referee that is only greedy."""
    worse = 0
    for seed in range(40):
        random = Random(seed)
        capacity = random.randint(10, 120)
        values, weights = drawn(random, random.randint(1, 40), capacity)
        order = sorted(range(len(values)), key=lambda place: -values[place] / weights[place])
        worse += optimum._greedy(values, weights, capacity, order) < best_value(values, weights, capacity)
    assert worse > 15


ITEMS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 12)), min_size=1, max_size=9)


@settings(max_examples=150, deadline=None)
@given(ITEMS, st.integers(1, 40))
def test_each_best_choice_agrees_with_the_decided_items(items: list[tuple[int, int]], capacity: int) -> None:
    values, weights = [list(each) for each in zip(*items, strict=True)]
    if sum(weights) <= capacity:
        return
    sure, open_places = reduced(values, weights, capacity)
    best = best_value(values, weights, capacity)
    for choice in product((False, True), repeat=len(items)):
        taken = {place for place, is_taken in enumerate(choice) if is_taken}
        if sum(weights[place] for place in taken) <= capacity and sum(values[place] for place in taken) == best:
            assert set(sure) <= taken <= {*sure, *open_places}


def test_most_items_of_a_large_lane_are_decided_by_the_bound() -> None:
    random = Random(1)
    weights = [random.randint(10_000, 80_000) for _ in range(300)]
    values = [weight * int(400_000 * random.lognormvariate(0, 0.8)) for weight in weights]
    sure, open_places = reduced(values, weights, 400_000)
    assert len(open_places) < 60
    taken = Knapsacks().best(values, weights, 400_000)
    scaled = [weight // 10 for weight in weights]
    assert set(sure) <= set(taken)
    assert sum(values[place] for place in taken) <= best_value(values, scaled, 40_000)


def test_a_bound_that_decides_too_much_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimum, "_greedy", lambda values, *_: 2 * sum(values))
    values, weights = [60, 100, 120], [10, 20, 30]
    taken = Knapsacks().best(values, weights, 50)
    assert sum(values[place] for place in taken) != best_value(values, weights, 50)


def job(number: int, due: int, cycles: int, value: int, life: int = 4) -> Job:
    return Job(number, "all", 0, 0, due, cycles, value, life)


def test_what_did_not_fit_waits_and_loses_value() -> None:
    jobs = (job(0, 1, 60, 400), job(1, 1, 60, 300), job(2, 3, 10, 7, life=1))
    assert best_welfare(jobs, 100) == 400 + 300 * 3 // 4 + 7
    assert best_welfare(jobs, 100, 1) == 7
    assert best_welfare(jobs[:2], 60, 0) == 400 + 225
    assert best_welfare((), 100) == 0


def test_a_job_that_is_worth_nothing_any_more_is_dropped() -> None:
    jobs = tuple(job(number, 1, 100, 8, life=2) for number in range(4))
    assert best_welfare(jobs, 100) == 8 + 4


def test_the_solver_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    Knapsacks().best([60, 100, 120], [10, 20, 30], 50)
    assert capfd.readouterr() == ("", "")
