"""A live validator's links: what the model says happens to its messages, by a clock that the tests advance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cluster.faults.link_effects import LinkEffect
from cluster.faults.link_kind import LinkFault
from cluster.live.network import links as links_module
from cluster.live.network.links import OutgoingLinks
from cluster.scenario import Scenario
from cluster.scenario.network import Network
from cluster.scenario.sections.faults import BaseFault
from cluster.scenario.sections.links import LinksSection

NAMES = ["a", "b", "c", "d"]
CLEAR = {"latency_ms": 0.0, "jitter_ms": 0.0}


class FakeAlarm:
    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self.when = when
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeClock:
    """Time that passes where a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.alarms: list[FakeAlarm] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], object]) -> FakeAlarm:
        alarm = FakeAlarm(when, callback)
        self.alarms.append(alarm)
        return alarm

    def advance(self, to: float) -> None:
        while due := [alarm for alarm in self.alarms if not alarm.is_cancelled and alarm.when <= to]:
            first = min(due, key=lambda alarm: alarm.when)
            self.alarms.remove(first)
            self.now = max(self.now, first.when)
            first.callback()
        self.now = to


def network(section: dict[str, Any]) -> Network:
    links = LinksSection.model_validate(CLEAR | section)
    return Network(links, NAMES, links.regions, 1)


class Wire:
    """The links of validator ``a``, and what came out of them."""

    def __init__(self, seed: int = 1, index: int = 0, **section: Any) -> None:
        self.clock: Any = FakeClock()
        self.links = OutgoingLinks(network(section), index, seed)
        self.arrived: list[tuple[float, int, bytes]] = []

    def send(self, receiver: int, frame: bytes, later_us: int = 0) -> None:
        self.links.send(receiver, frame, later_us, self.clock, self._deliver)

    def _deliver(self, receiver: int, frame: bytes) -> None:
        self.arrived.append((round(self.clock.now * 1_000, 3), receiver, frame))


def fault(**fields: Any) -> LinkEffect:
    plan: BaseFault = Scenario.model_validate(
        {
            "name": "links",
            "validators": [{"name": name} for name in NAMES],
            "faults": [{"at_height": 2, "for_ms": 9} | fields],
        }
    ).faults[0]
    assert isinstance(plan, LinkFault)
    return plan.effect(NAMES)


def test_a_clear_link_delivers_at_once_and_sets_no_alarm() -> None:
    wire = Wire()
    wire.send(1, b"x")
    assert wire.arrived == [(0.0, 1, b"x")]
    assert wire.clock.alarms == []
    assert wire.links.totals()["delayed"] == 0


def test_latency_holds_messages_up_and_keeps_their_order() -> None:
    wire = Wire(latency_ms=20.0)
    for number in range(3):
        wire.send(1, b"%d" % number)
        wire.clock.advance(wire.clock.now + 0.001)
    wire.send(2, b"other")
    assert wire.arrived == []
    wire.clock.advance(1.0)
    assert wire.arrived == [(20.0, 1, b"0"), (21.0, 1, b"1"), (22.0, 1, b"2"), (23.0, 2, b"other")]
    assert wire.links.totals()["delayed"] == 4


def test_what_comes_sooner_than_what_waits_moves_the_alarm() -> None:
    wire = Wire(latency_ms=50.0, regions={"near": ["a", "b"]}, latency_matrix_ms={"near": {"near": 5.0}})
    wire.send(2, b"far")
    wire.send(1, b"near")
    wire.clock.advance(1.0)
    assert wire.arrived == [(5.0, 1, b"near"), (50.0, 2, b"far")]


def test_a_partition_cuts_links_until_it_is_over_and_counts_what_it_dropped() -> None:
    wire, cut = Wire(latency_ms=10.0), fault(kind="partition", groups=[["a", "b"]])
    wire.send(2, b"under way")
    wire.links.set_faults({7: cut})
    wire.send(1, b"same side")
    wire.send(2, b"lost")
    wire.send(3, b"lost")
    wire.links.set_faults({})
    wire.send(2, b"healed")
    wire.clock.advance(1.0)
    assert sorted(frame for _, _, frame in wire.arrived) == [b"healed", b"same side", b"under way"]
    counts = wire.links.faults.counts()[7]
    assert (counts.sent, counts.dropped) == (2, 2)
    assert wire.links.totals()["dropped"] == 2
    assert cut.seen(counts) == (True, "2 messages dropped")


def test_a_one_way_cut_is_at_the_sender_alone() -> None:
    cut = fault(kind="one_way_partition", **{"from": ["a"]})
    sender, other = Wire(), Wire(index=1)
    for wire in (sender, other):
        wire.links.set_faults({1: cut})
    sender.send(1, b"lost")
    other.send(0, b"heard")
    assert sender.arrived == []
    assert [frame for _, _, frame in other.arrived] == [b"heard"]


def test_a_worse_link_loses_doubles_and_reorders() -> None:
    wire = Wire()
    worse = fault(kind="degrade", loss=0.2, duplication=0.2, reordering=0.2, latency_ms=10)
    wire.links.set_faults({1: worse})
    for number in range(1_000):
        wire.send(1, b"%d" % number)
        wire.clock.advance(wire.clock.now + 0.001)
    wire.clock.advance(10.0)
    counts = wire.links.faults.counts()[1]
    assert counts.sent == counts.slower == 1_000
    assert len(wire.arrived) == 1_000 - counts.dropped + counts.duplicated
    assert 130 < counts.dropped < 270
    numbers = [int(frame) for _, _, frame in wire.arrived]
    assert numbers != sorted(numbers)
    assert counts.reordered > 100


def test_a_link_draws_from_its_own_source() -> None:
    """What is sent to one peer does not shift what happens to another; the seed and the pair decide."""

    def fates(busy: bool, **which: Any) -> list[bytes]:
        wire = Wire(loss=0.5, **which)
        for number in range(60):
            wire.send(1, b"%d" % number)
            if busy:
                wire.send(2, b"other")
        return [frame for _, receiver, frame in wire.arrived if receiver == 1]

    alone = fates(False)
    assert 10 < len(alone) < 50
    assert fates(True) == alone
    assert fates(False, seed=2) != alone
    assert fates(False, index=3) != alone


def test_bandwidth_lets_bytes_leave_one_after_the_other() -> None:
    wire = Wire(bandwidth_kbps=8)
    for _ in range(3):
        wire.send(1, bytes(100))
    wire.clock.advance(1.0)
    assert [at for at, _, _ in wire.arrived] == [100.0, 200.0, 300.0]


def test_an_uplink_is_shared_by_all_links_even_if_they_are_clear() -> None:
    wire = Wire(uplink_kbps=8)
    for receiver in (1, 2, 3):
        wire.send(receiver, bytes(100))
    wire.clock.advance(1.0)
    assert [(at, receiver) for at, receiver, _ in wire.arrived] == [(100.0, 1), (200.0, 2), (300.0, 3)]


def test_what_a_leader_sends_comes_later_even_on_a_clear_link() -> None:
    wire = Wire()
    assert not wire.links.faults.delay_leaders
    wire.links.set_faults({4: fault(kind="leader_delay", delay_ms=70)})
    assert wire.links.faults.delay_leaders
    wire.send(1, b"slow", wire.links.faults.leader_delay_us())
    wire.send(2, b"fast")
    wire.clock.advance(1.0)
    assert wire.arrived == [(0.0, 2, b"fast"), (70.0, 1, b"slow")]
    assert wire.links.faults.counts()[4].delayed == 1


def test_what_is_under_way_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "MAX_WAITING_MESSAGES", 5)
    wire = Wire(latency_ms=10.0)
    for number in range(8):
        wire.send(1, b"%d" % number)
    monkeypatch.setattr(links_module, "MAX_WAITING_BYTES", 3)
    wire.clock.advance(1.0)
    wire.send(1, b"four")
    wire.clock.advance(2.0)
    assert [frame for _, _, frame in wire.arrived] == [b"0", b"1", b"2", b"3", b"4"]
    assert wire.links.totals()["overflowed"] == 4


def test_nothing_arrives_once_they_are_closed() -> None:
    wire = Wire(latency_ms=10.0)
    wire.send(1, b"x")
    wire.links.close()
    wire.clock.advance(1.0)
    assert wire.arrived == []
