"""Allowances: what a peer gets over time is bounded, whoever asks how often, and everybody gets something."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from consensus.allowance import Allowances

BURST, TICK, LARGEST = 100, 10, 150

stories = st.lists(st.one_of(st.none(), st.integers(1, LARGEST)), max_size=80)
"""Ticks, and the sizes of the answers that are due between them."""


@given(stories)
def test_in_so_many_ticks_a_peer_gets_a_burst_and_what_they_add(story: list[int | None]) -> None:
    allowances = Allowances(BURST, TICK, 1)
    given_bytes = [0]
    for size in story:
        if size is None:
            allowances.tick()
            given_bytes.append(0)
        elif allowances.take(1, size):
            given_bytes[-1] += size
    sums = [0, *accumulate(given_bytes)]
    for first in range(len(given_bytes)):
        for last in range(first, len(given_bytes)):
            assert sums[last + 1] - sums[first] < BURST + (last - first) * TICK + LARGEST


@given(stories)
def test_whoever_waits_gets_an_answer_of_any_size(story: list[int | None]) -> None:
    allowances = Allowances(BURST, TICK, 1)
    for size in story:
        _ = allowances.tick() if size is None else allowances.take(1, size)
    for _ in range(LARGEST // TICK):
        allowances.tick()
    assert allowances.take(1, LARGEST)


def test_each_peer_has_its_own_and_those_with_less_than_all_are_bounded() -> None:
    allowances = Allowances(BURST, TICK, 2)
    assert allowances.take(1, BURST)
    assert allowances.take(2, TICK)
    assert [allowances.take(peer, 1) for peer in (1, 2, 3)] == [False, True, False]
    allowances.tick()
    assert (len(allowances), allowances.take(1, 1)) == (2, True)
    allowances.tick()
    assert (len(allowances), allowances.take(3, 1)) == (1, True), "the second peer's is full again"
