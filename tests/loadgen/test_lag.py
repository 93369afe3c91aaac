"""The lag of an event loop, by sleeps that are planted."""

from __future__ import annotations

import pytest

from loadgen.lag import MAX_KEPT, TICK_S, LoopLag


def lag(*overshoots: float) -> tuple[LoopLag, float]:
    """One whose sleeps were so much too long, and the time now."""
    found, now = LoopLag(), 100.0
    for overshoot in overshoots:
        found.begin(now)
        now += TICK_S + overshoot
        found.end(now)
    return found, now


def test_it_is_behind_for_as_long_as_it_sleeps_too_long() -> None:
    found, now = lag(0.0, 0.3, 0.0, 0.2)
    assert found.behind_s(100.0, now) == pytest.approx(0.5)
    assert LoopLag().behind_s(100.0, now) == 0.0


def test_only_what_is_in_the_stretch_counts() -> None:
    found, now = lag(0.3, 0.0, 0.2)
    assert found.behind_s(now - 0.1, now) == pytest.approx(0.1), "a part of the last"
    assert found.behind_s(now - 0.2 - TICK_S, now) == pytest.approx(0.2)
    assert found.behind_s(now - 0.2 - 2 * TICK_S - 0.1, now) == pytest.approx(0.3)


def test_the_sleep_that_goes_on_counts() -> None:
    found, now = lag(0.0)
    found.begin(now)
    assert found.behind_s(now, now + TICK_S) == pytest.approx(0.0)
    assert found.behind_s(now, now + TICK_S + 0.4) == pytest.approx(0.4)
    assert found.behind_s(now + TICK_S + 0.1, now + TICK_S + 0.4) == pytest.approx(0.3)


def test_it_is_bounded() -> None:
    found, now = lag(*[0.1] * 3 * MAX_KEPT)
    assert found.behind_s(0.0, now) == pytest.approx(0.1 * MAX_KEPT)
