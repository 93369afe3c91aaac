"""The times of a run, while the wall clock of its machine is set."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cluster.common.checkout import CLOCK_VARIABLE
from cluster.live.driver.chain_watch import ChainWatch
from cluster.live.driver.ray_session import RaySession
from cluster.live.handover.handover import RunClock
from cluster.live.host.lag import MIN_LAG_MS, LagMeter
from cluster.live.host.observations import Observations
from cluster.live.nodes.ray_nodes import Place
from cluster.live.processes.steady_clock import CLOCK, SteadyClock
from tests.cluster.records import make_record
from validator.node.events import BlockFinal
from validator.primitives.types import Hash, Height

HOUR_S = 3_600.0


def step(monkeypatch: pytest.MonkeyPatch, by_s: float) -> None:
    """Set the wall clock of this machine, as far as this process knows."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + by_s)


@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S])
def test_what_hosts_see_and_when_faults_begin_is_of_one_clock(monkeypatch: pytest.MonkeyPatch, by_s: float) -> None:
    """Else each finalization after a step is too late for `recovery`, or before the fault."""
    clock, record = RunClock(), make_record(backend="live")
    watch, seen = ChainWatch(record, clock.began_epoch_ms), Observations()
    step(monkeypatch, by_s)
    begun_ms = clock.now_ms()
    seen.finalized(BlockFinal(Height(7), 7, Hash(b""), Hash(b""), 0, 0, 0, 0, 0, 0, 0, 0))
    watch.take(2, seen.drain())
    *_, found = record.finalizations
    assert begun_ms <= found.at_ms <= clock.now_ms()


def test_a_step_is_no_lag_and_leaves_lags_where_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, meter = RunClock(), LagMeter()
    step(monkeypatch, HOUR_S)
    meter.begin()
    meter._span_began = meter._before._replace(at_s=meter._before.at_s - 2.0)
    meter._lag_s = 2 * MIN_LAG_MS
    meter.end(0.0)
    (span,) = meter.drain()
    assert span.until_ms - clock.began_epoch_ms <= clock.now_ms()


def test_another_driver_on_the_machine_goes_on_in_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    first = RunClock()
    reading, left_ms = CLOCK.reading, first.now_ms()
    step(monkeypatch, HOUR_S)
    another = RunClock()
    another.take_over(first.began_epoch_ms, reading)
    assert left_ms <= another.now_ms() < left_ms + HOUR_S


def test_on_another_machine_the_wall_clock_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    first = RunClock()
    another = RunClock()
    another.take_over(first.began_epoch_ms - 60_000.0, "another-boot -12.5")
    assert 60_000.0 <= another.now_ms() < 120_000.0
    assert SteadyClock("another-boot -12.5").epoch_ms() > first.began_epoch_ms


class StartingRay:
    """Notes the options of the actor that it is to start."""

    def __init__(self) -> None:
        self.options_given: dict[str, Any] = {}

    def remote(self, *_: object) -> Any:
        return self

    def options(self, **options: Any) -> Any:
        self.options_given = options
        return self


def test_a_host_that_is_started_after_a_step_has_its_drivers_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = StartingRay()
    clock = RunClock()
    step(monkeypatch, HOUR_S)
    RaySession(ray, None).start_host(Place("ab" * 28, "127.0.0.1"), 0, 1, ())
    given = ray.options_given["runtime_env"]["env_vars"]
    of_the_host = SteadyClock(given[CLOCK_VARIABLE])
    assert of_the_host.epoch_ms() - clock.began_epoch_ms <= clock.now_ms()
