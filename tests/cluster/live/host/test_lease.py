"""A host whose driver is silent ends; one that did not run meanwhile, or takes part in nothing, does not."""

from __future__ import annotations

import threading

import pytest

from cluster.live.host import lease as lease_module
from cluster.live.host.lease import Lease

WAIT_S = 20.0


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(Lease, "_watch", lambda self: None)
    return Clock()


def look(lease: Lease, clock: Clock, seconds: float, step_s: float = 0.5) -> list[bool]:
    found = []
    for _ in range(round(seconds / step_s)):
        clock.now_s += step_s
        found.append(lease.look())
    return found


def test_a_lease_lasts_as_long_as_it_is_renewed(clock: Clock) -> None:
    lease = Lease(lambda length_s: None, clock)
    lease.renew(5.0)
    assert not any(look(lease, clock, 4.5))
    lease.renew(5.0)
    assert look(lease, clock, 5.0) == [False] * 9 + [True]


def test_time_in_which_the_host_did_not_run_does_not_count(clock: Clock) -> None:
    lease = Lease(lambda length_s: None, clock)
    lease.renew(5.0)
    assert look(lease, clock, 240.0, step_s=60.0) == [False] * 4, "stopped for a minute, four times"
    assert lease.look() is False
    assert look(lease, clock, 1.0)[-1]


def test_a_host_at_rest_does_not_end(clock: Clock) -> None:
    lease = Lease(lambda length_s: None, clock)
    lease.renew(5.0)
    lease.give_up()
    assert not any(look(lease, clock, 10.0))
    lease.renew(1.0)
    assert not any(look(lease, clock, 10.0))


def test_its_end_is_told_once_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "LOOK_EVERY_S", 0.01)
    ended = threading.Event()
    lengths: list[float] = []

    def end(length_s: float) -> None:
        lengths.append(length_s)
        ended.set()

    lease = Lease(end)
    lease.renew(30.0)
    lease.renew(0.05)
    assert ended.wait(WAIT_S)
    assert lengths == [0.05]
