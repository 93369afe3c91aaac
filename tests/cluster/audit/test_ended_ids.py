"""Ids that are over: the table against a ``dict``, and what an id takes."""

from __future__ import annotations

import tracemalloc
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.audit.ended_ids import Ended, EndedIds


def id_of(number: int) -> bytes:
    return sha256(number.to_bytes(8, "big")).digest()


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 7), st.integers(1, 2**29 - 1))))
def test_the_table_is_a_mapping(ends: list[tuple[int, int, int]]) -> None:
    table, naive = EndedIds(), dict[bytes, Ended]()
    # all in one segment, and some with the same slot
    ids = [(256 * number).to_bytes(8, "big") + bytes(24) for number in range(41)]
    for number, outcome, height in ends:
        table.add(ids[number], outcome, height)
        naive[ids[number]] = Ended(outcome, height)
    assert len(table) == len(naive)
    for key in ids:
        assert table.get(key) == naive.get(key)
        assert (key in table) == (key in naive)


@pytest.mark.slow
def test_an_id_takes_a_few_bytes() -> None:
    table = EndedIds()
    tracemalloc.start()
    for number in range(100_000):
        table.add(id_of(number), number % 5, number + 1)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 22 * 100_000
    assert all(table.get(id_of(number)) == (number % 5, number + 1) for number in range(0, 100_000, 997))
    assert id_of(100_000) not in table
