"""Memory is counted object by object, each once."""

from __future__ import annotations

import sys

import numpy as np

from kits.market.dos.case_runs import memory_bytes


class Box:
    """Holds something."""

    def __init__(self, content: object) -> None:
        self.content = content


def test_what_is_shared_counts_once() -> None:
    shared = b"x" * 1_000
    alone = memory_bytes([shared, b"y"])
    assert memory_bytes([shared, shared]) == sys.getsizeof([0, 0]) + sys.getsizeof(shared) < alone


def test_a_circle_ends() -> None:
    one: list[object] = []
    one.append([one])
    assert memory_bytes(one) == sys.getsizeof(one) + sys.getsizeof([one])


def test_what_grows_is_seen_in_every_container() -> None:
    for make in (list, tuple, set, frozenset, lambda items: dict.fromkeys(items, 0), lambda items: Box(list(items))):
        small, large = (memory_bytes(make([b"%d" % i for i in range(n)])) for n in (10, 1_010))
        assert large - small >= 1_000 * sys.getsizeof(b"10"), make


def test_arrays_count_the_memory_that_they_show() -> None:
    rows = np.zeros(10_000, np.int64)
    assert memory_bytes(rows) >= 80_000
    assert memory_bytes([rows, rows[:10]]) < 2 * 80_000 <= memory_bytes([rows, rows.copy()])
    assert memory_bytes(rows[:10]) >= 80_000, "a view keeps the whole array"


def test_what_is_left_out_hides_what_only_it_holds() -> None:
    held = b"x" * 10_000
    assert memory_bytes([Box(held)], without=(Box,)) < 1_000
    assert memory_bytes([Box(held), held], without=(Box,)) > 10_000


def test_types_and_functions_are_the_programs() -> None:
    program = [Box, test_a_circle_ends, sys]
    assert memory_bytes(program) == sys.getsizeof(program)
