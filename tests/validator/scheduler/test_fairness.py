"""Fairness weights, exact: from 2 for who did not fire down to 1 at the median of those who did."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validator.chain.records import Fires
from validator.primitives.types import Address
from validator.scheduler.fairness import FairnessWeights, FireCounts

ACTORS = [Address(bytes([i]) * 20) for i in range(8)]
COUNTS = st.dictionaries(st.sampled_from(ACTORS), st.integers(1, 30))


def weights_over(counts: dict[Address, int]) -> FairnessWeights:
    """The weights where so often has fired in one block."""
    recent = FireCounts()
    recent.count(Fires(tuple(sorted(counts.items()))), +1)
    return FairnessWeights(recent.by_account, recent.divisor())


def weight_model(counts: dict[Address, int], actor: Address) -> Fraction:
    """``W = 2 - min(r / m, 1)`` with the median ``m`` of the non-zero counts, at least 1."""
    ascending = sorted(counts.values())
    size = len(ascending)
    median = Fraction(ascending[(size - 1) // 2] + ascending[size // 2], 2) if size else Fraction(0)
    return 2 - min(Fraction(counts.get(actor, 0)) / max(Fraction(1), median), Fraction(1))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(COUNTS)
def test_weights_against_fractions(counts: dict[Address, int]) -> None:
    weights = weights_over(counts)
    for actor in ACTORS:
        exact = Fraction(weights.weight(actor), weights.divisor)
        assert exact == weight_model(counts, actor)
        assert 1 <= exact <= 2


@settings(max_examples=100, deadline=None, derandomize=True)
@given(COUNTS)
def test_who_fired_more_weighs_no_more(counts: dict[Address, int]) -> None:
    weights = weights_over(counts)
    ranked = sorted(ACTORS, key=lambda actor: counts.get(actor, 0))
    values = [weights.weight(actor) for actor in ranked]
    assert values == sorted(values, reverse=True)


def test_the_line_from_two_to_one() -> None:
    few = {ACTORS[0]: 2, ACTORS[1]: 4, ACTORS[2]: 8}
    weights = weights_over(few)
    assert weights.divisor == 8, "twice the median"
    shown = [Fraction(weights.weight(actor), weights.divisor) for actor in (ACTORS[3], *ACTORS[:3])]
    assert shown == [2, Fraction(3, 2), 1, 1]


@pytest.mark.parametrize(
    ("counts", "divisor"), [([], 2), ([1], 2), ([1, 1], 2), ([1, 2], 3), ([1, 2, 3], 4), ([1, 2, 4, 9], 6), ([5], 10)]
)
def test_the_divisor_is_twice_the_median_and_at_least_two(counts: list[int], divisor: int) -> None:
    assert weights_over(dict(zip(ACTORS, counts, strict=False))).divisor == divisor


def test_a_mean_instead_of_a_median_is_caught() -> None:
    counts = {ACTORS[0]: 1, ACTORS[1]: 1, ACTORS[2]: 10}
    mean = FairnessWeights(counts, max(2, 2 * sum(counts.values()) // 3))
    assert Fraction(mean.weight(ACTORS[0]), mean.divisor) != weight_model(counts, ACTORS[0])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(COUNTS, st.booleans()), max_size=8))
def test_blocks_that_come_and_go_leave_the_counts_of_those_that_stay(
    blocks: list[tuple[dict[Address, int], bool]],
) -> None:
    recent, staying = FireCounts(), Counter[Address]()
    for counts, _ in blocks:
        recent.count(Fires(tuple(sorted(counts.items()))), +1)
    for counts, stays in reversed(blocks):
        if stays:
            staying.update(counts)
        else:
            recent.count(Fires(tuple(sorted(counts.items()))), -1)
    assert recent.by_account == staying
    assert recent.divisor() == weights_over(staying).divisor


def test_a_count_that_only_grows_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    count = FireCounts.count
    monkeypatch.setattr(FireCounts, "count", lambda self, fires, sign: count(self, fires, abs(sign)))
    with pytest.raises(AssertionError):
        test_blocks_that_come_and_go_leave_the_counts_of_those_that_stay()
