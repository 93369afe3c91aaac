"""Finalizations in columns, against a list."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.record import finalizations as module
from cluster.record.finalizations import Finalization, Finalizations, FinalMoments

SEEN = st.builds(
    Finalization,
    st.floats(0, 1_000, allow_nan=False).map(lambda at: round(at, 1)),
    st.integers(0, 3),
    st.integers(1, 9),
)


@given(st.lists(SEEN), st.sets(st.integers(0, 3), max_size=2), st.integers(1, 7), st.integers(0, 9))
def test_columns_answer_like_a_list(seen: list[Finalization], left_out: set[int], part: int, height: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AT_A_TIME", part)
        found = Finalizations(seen)
        assert list(found) == seen
        assert list(found.by_time()) == sorted(seen, key=lambda each: each.at_ms)
        assert len(found) == len(seen)
        assert found == Finalizations(seen)
        counted = [each for each in seen if each.validator not in left_out]
        earliest = {h: min(e.at_ms for e in counted if e.height == h) for h in sorted({e.height for e in counted})}
        assert list(found.earliest(left_out).items()) == list(earliest.items())
        assert found.first_ms == min((each.at_ms for each in seen), default=None)
        assert found.highest(500.0) == max((each.height for each in seen if each.at_ms <= 500.0), default=0)
        for validator in range(4):
            moments = sorted((each.at_ms, each.height) for each in seen if each.validator == validator)
            assert found.moments_of(validator) == moments
        above = [each for each in seen if each.height > height]
        assert found.first_above(height) == {
            v: min(e.at_ms for e in above if e.validator == v) for v in {e.validator for e in above}
        }
        assert found.at_heights([height]) == {
            height: {
                v: min(e.at_ms for e in seen if e.validator == v and e.height == height)
                for v in {e.validator for e in seen if e.height == height}
            }
        }


def test_what_was_remembered_goes_with_the_next_one() -> None:
    found = Finalizations([Finalization(5.0, 0, 1)])
    assert found.earliest() == {1: 5.0}
    found.append(Finalization(3.0, 1, 1))
    assert found.earliest() == {1: 3.0}
    assert found[-1] == Finalization(3.0, 1, 1)


def test_one_takes_few_bytes() -> None:
    found = Finalizations()
    tracemalloc.start()
    for height in range(50_000):
        found.append(Finalization(float(height), height % 64, height))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 18 * 50_000


@given(
    st.dictionaries(st.integers(1, 12), st.integers(0, 9).map(float)),
    st.integers(-1, 10),
    st.integers(-1, 10),
    st.data(),
)
def test_moments_answer_like_a_walk(first: dict[int, float], at: int, other: int, data: st.DataObject) -> None:
    found, known = FinalMoments(first), data.draw(st.sets(st.integers(1, 12)))
    until = [height for height, ms in first.items() if ms <= at]
    assert found.until(at) == len(until)
    assert sorted(found.heights[: found.until(at)]) == sorted(until)
    assert found.count(at, other) == sum(at < ms <= other for ms in first.values())
    assert found.highest(at) == max(until, default=0)
    after = [height for height, ms in first.items() if ms > at and height in known]
    assert found.lowest_after(at, known) == min(after, default=None)
    assert found.highest_of(known) == max(first.keys() & known, default=0)
    times = sorted(ms for ms in first.values() if ms <= at)
    for count in (1, 3):
        assert found.newest(at, count) == (times[-count] if len(times) >= count else None)


def test_answers_are_remembered_until_the_next_one() -> None:
    found = Finalizations([Finalization(5.0, 0, 1)])
    assert (found.moments().highest(9.0), dict(found.first_above(0))) == (1, {0: 5.0})
    assert found.moments() is found.moments()
    found.append(Finalization(6.0, 1, 2))
    assert (found.moments().highest(9.0), dict(found.first_above(0))) == (2, {0: 5.0, 1: 6.0})
    found.append(Finalization(1.0, 1, 3))
    assert (found.moments().highest(2.0), dict(found.first_above(0))) == (3, {0: 5.0, 1: 1.0})
