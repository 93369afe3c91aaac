"""The benchmark of many validators guesses rates from one calibration, and only of runs that it has a rate of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.benchmarks.test_simulator import load


def test_one_calibration_serves_all_guesses_and_no_run_has_no_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = load("scale", monkeypatch)
    calibrations: list[Any] = []
    monkeypatch.setattr(scale, "calibrate", lambda scenario, tell: calibrations.append(scenario))
    guess = SimpleNamespace(rate=8.0, rate_low=5.0, rate_high=9.0)
    monkeypatch.setattr(scale, "estimate", lambda *given: guess)
    scenario = scale._scenario("simplex", 4, 32)
    with pytest.raises(scale.Unavailable, match="the run has no rate"):
        scale._guess(scenario, [])
    assert scale._guess(scenario, [10.0]) == [pytest.approx(0.2), 0.0]
    assert scale._guess(scenario, [8.0]) == [0.0, 1.0]
    assert len(calibrations) == 1
