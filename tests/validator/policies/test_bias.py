"""The bias against decimal arithmetic of a hundred digits: exact, rounded down, growing, saturating."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validator.policies.bias import LN2, MICRO, PRECISION, SATURATED, bias, saturates_after, table

EXACT = Context(prec=120, Emax=10**6)


def exact(waited: int, micro: int) -> int:
    with localcontext(EXACT):
        return int((Decimal(waited) * micro / MICRO).exp() * 2**32)


def test_the_constant() -> None:
    with localcontext(EXACT):
        assert int(Decimal(2).ln() * 2**PRECISION) == LN2


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(0, 7_000), st.integers(10_000, 10**7))
def test_a_bias_is_the_exact_one_rounded_down(waited: int, micro: int) -> None:
    if waited * micro < 60 * MICRO:
        assert bias(waited, micro) == exact(waited, micro)


@pytest.mark.parametrize("micro", [10_000, 99_999, 10**6, 10**7])
def test_a_bias_never_falls_and_saturates(micro: int) -> None:
    end = saturates_after(micro)
    values = [bias(waited, micro) for waited in range(end + 2)]
    assert values[0] == 2**32
    assert values == sorted(values)
    assert values[end] == values[end + 1] == SATURATED == bias(10**9, micro)
    assert values[end - 3] < SATURATED, "the bound is no more than two blocks late"


def test_the_table_ends_where_nothing_grows() -> None:
    found = table(10**6, 10**6)
    assert len(found) == saturates_after(10**6) + 1
    assert [int(high) << 64 | int(low) for high, low in found] == [bias(n, 10**6) for n in range(len(found))]
    assert found.dtype == np.uint64
    assert len(table(5, 10**6)) > 5
