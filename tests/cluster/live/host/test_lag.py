"""How a process measures its lag: what the machine kept from it, and nothing that it did itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from cluster.live.host.lag import MAX_SPANS, TICK_S, LagMeter, Moment, moment
from cluster.record.host_info import Busyness
from tests.hangs import HANGS_AFTER_S


@dataclass
class Process:
    """What a process would read of itself, moved by hand."""

    at_s: float = 100.0
    cpu_s: float = 5.0
    waited_s: dict[int, float] = field(default_factory=lambda: {1: 3.0, 2: 3.0})

    def __call__(self) -> Moment:
        return Moment(self.at_s, 1_000.0 * self.at_s, self.cpu_s, dict(self.waited_s))

    def wait(self, meter: LagMeter, planned_s: float, took_s: float, cpu_s: float = 0.0, waited_s: float = 0.0) -> None:
        meter.begin()
        self.at_s += took_s
        self.cpu_s += cpu_s
        self.waited_s[2] += waited_s
        meter.end(planned_s)


def lag_of(meter: LagMeter) -> float:
    return sum(span.lag_ms for span in meter.drain())


@pytest.mark.parametrize(
    ("took_s", "cpu_s", "waited_s", "lag_ms"),
    [
        (1.0, 0.0, 0.0, 0.0),
        (3.0, 0.0, 0.0, 2_000.0),
        (3.0, 2.0, 0.0, 0.0),
        (3.0, 0.5, 0.0, 1_500.0),
        (1.0, 0.5, 0.4, 400.0),
        (3.0, 2.0, 1.2, 1_200.0),
        (1.0, 0.0, 9.0, 1_000.0),
    ],
    ids=["in time", "late", "busy itself", "half busy", "waited within", "busy and waited", "never more than it took"],
)
def test_late_without_own_work_or_waiting_for_a_processor_is_lag(
    took_s: float, cpu_s: float, waited_s: float, lag_ms: float
) -> None:
    process = Process()
    meter = LagMeter(process)
    process.wait(meter, 1.0, took_s, cpu_s, waited_s)
    assert lag_of(meter) == pytest.approx(lag_ms)


def test_what_lies_between_two_waits_and_a_thread_that_is_new_do_not_count() -> None:
    process = Process()
    meter = LagMeter(process)
    process.at_s += 5.0
    meter.begin()
    process.at_s += 1.0
    process.waited_s[9] = 50.0
    meter.end(1.0)
    assert lag_of(meter) == 0.0


def test_spans_are_told_once_and_lie_where_the_lag_was() -> None:
    process = Process()
    meter = LagMeter(process)
    for _ in range(8):
        process.wait(meter, 0.125, 0.125)
    for _ in range(4):
        process.wait(meter, 0.125, 0.5)
    assert meter.drain() == [(101_000.0, 102_000.0, 750.0), (102_000.0, 103_000.0, 750.0)]
    assert meter.drain() == []
    for _ in range(3 * MAX_SPANS):
        process.wait(meter, 1.0, 2.0)
    assert len(meter.drain()) == MAX_SPANS


def test_a_loop_is_measured_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look() -> float:
        ticked: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        meter = LagMeter()
        monkeypatch.setattr(meter, "end", lambda planned_s: ticked.done() or ticked.set_result(planned_s))
        measuring = asyncio.create_task(meter.run())
        planned_s = await asyncio.wait_for(ticked, HANGS_AFTER_S)
        meter.close()
        await asyncio.wait_for(measuring, HANGS_AFTER_S)
        return planned_s

    assert asyncio.run(look()) == TICK_S


def test_a_process_can_read_what_the_meter_asks_for() -> None:
    first, second = moment(), moment()
    assert second.at_s >= first.at_s and second.cpu_s >= first.cpu_s
    assert all(second.waited_s[thread] >= waited for thread, waited in first.waited_s.items())


class Times(NamedTuple):
    """Processor time by what it was used for; user time includes that of guests."""

    user: float
    idle: float
    steal: float
    guest: float


class TimesWithoutSteal(NamedTuple):
    """As a system that is never virtual counts it."""

    user: float
    idle: float


def test_the_machines_busyness(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([Times(20, 80, 0, 7), Times(40, 120, 40, 9), TimesWithoutSteal(20, 80), TimesWithoutSteal(40, 160)])
    monkeypatch.setattr("cluster.record.host_info.psutil.cpu_times", lambda: next(times))
    loads = iter([2.0, 5.0, 3.0])
    monkeypatch.setattr("cluster.record.host_info.os.getloadavg", lambda: (next(loads), 0.0, 0.0))
    busyness = Busyness()
    for _ in range(3):
        busyness.look()
    assert busyness.metrics() == {"load_average_max": 5.0, "steal_share": 0.4}
    assert Busyness().metrics() == {"load_average_max": 0.0}
