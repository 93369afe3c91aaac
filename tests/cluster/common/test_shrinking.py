"""Shrinking: what must stay does, and nothing else; nothing is tried twice, and the runs are limited."""

from __future__ import annotations

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.common.shrinking import NoCandidate, Shrinker, ddmin

NEEDED = {4, 5}


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 24).flatmap(lambda size: st.tuples(st.just(size), st.sets(st.integers(0, max(size - 1, 0))))))
def test_ddmin_keeps_what_is_needed_and_nothing_else(drawn: tuple[int, set[int]]) -> None:
    size, needed = drawn
    needed = {item for item in needed if item < size}
    asked = []

    def holds(part: list[int]) -> bool:
        asked.append(part)
        return needed <= set(part)

    assert ddmin(list(range(size)), holds) == sorted(needed)
    assert len(asked) <= size * size + 4 * size + 4


def test_ddmin_ends_at_parts_of_which_none_can_go_alone() -> None:
    kept = ddmin(list(range(9)), lambda part: len(part) % 2 == 1)
    assert len(kept) == 1


def numbers(most_runs: int, tried: list[list[int]]) -> Shrinker[list[int], int]:
    """A list that fails if it has what is needed. Lists of odd length cannot be run."""

    def failure_of(numbers: list[int]) -> int | None:
        assert numbers not in tried, "nothing is tried twice"
        tried.append(numbers)
        if len(numbers) % 2:
            raise NoCandidate
        return len(numbers) if set(numbers) >= NEEDED else None

    return Shrinker(list(range(16)), 16, failure_of, most_runs)


def without_pairs(search: Shrinker[list[int], int]) -> None:
    for at in range(len(search.best) - 1):
        search.holds(search.best[:at] + search.best[at + 1 :])
        search.holds(search.best[:at] + search.best[at + 2 :])


def test_the_passes_are_repeated_until_nothing_gets_smaller() -> None:
    tried: list[list[int]] = []
    search = numbers(1_000, tried)
    assert set(search.shrink(partial(without_pairs, search))) == NEEDED
    assert (search.failure, search.is_used_up) == (2, False)
    assert search.runs == sum(len(each) % 2 == 0 for each in tried) < len(tried), "what cannot be run costs no run"
    known = len(tried)
    assert search.holds(list(range(16))) and len(tried) == known


def test_it_ends_with_its_runs() -> None:
    search = numbers(3, [])
    assert set(search.shrink(partial(without_pairs, search))) >= NEEDED, "never less than what fails"
    assert (search.runs, search.is_used_up) == (3, True)
