"""The link model: what it does to messages, and that it is the random source alone that decides."""

from __future__ import annotations

from random import Random
from statistics import mean
from typing import Any

import pytest

from cluster.faults.link_model import LINK_QUEUE_BYTES, UPLINK_QUEUE_BYTES, Link, Links
from cluster.scenario.network import Network
from cluster.scenario.sections.links import LinksSection

NAMES = ["a", "b", "c", "d"]


def make_links(seed: int = 1, **fields: Any) -> Links:
    section = LinksSection.model_validate({"latency_ms": 10.0, "jitter_ms": 0.0, **fields})
    return Links(Network(section, NAMES, section.regions, seed=1), Random(seed))


def times(links: Links, count: int = 2_000, size: int = 100, gap_us: int = 0) -> list[int]:
    """How long each copy of messages from the first to the second validator takes."""
    found = []
    for number in range(count):
        now_us = number * gap_us
        found += [at_us - now_us for _, at_us in links.arrivals(0, (1,), size, now_us)]
    return found


def test_a_plain_link_has_its_latency() -> None:
    assert make_links().arrivals(0, range(4), 100, 7) == [(1, 10_007), (2, 10_007), (3, 10_007)]


def test_jitter_is_around_the_latency_and_never_before_now() -> None:
    found = times(make_links(jitter_ms=4.0))
    assert (min(found), max(found)) == pytest.approx((6_000, 14_000), abs=50)
    assert mean(found) == pytest.approx(10_000, abs=150)
    assert min(times(make_links(jitter_ms=40.0))) == 0


def test_loss_and_duplication_are_shares() -> None:
    links = make_links(loss=0.25, duplication=0.1)
    arrived = len(times(links))
    kept = links.sent - links.dropped
    assert links.sent == 2_000
    assert links.dropped == pytest.approx(500, abs=80)
    assert arrived - kept == pytest.approx(kept / 10, abs=50)


def test_what_is_held_back_is_overtaken() -> None:
    links = make_links(reordering=0.2)
    arrivals = [number * 1_000 + took for number, took in enumerate(times(links, gap_us=1_000))]
    assert arrivals != sorted(arrivals)
    held_back = sum(kind.reordered for kind in links.kinds)
    assert held_back == pytest.approx(400, abs=70)
    assert max(times(make_links(reordering=0.2))) <= 4 * 10_000 + 1
    plain = make_links()
    assert times(plain) == sorted(times(plain))


def test_bandwidth_lets_bytes_leave_one_after_the_other() -> None:
    links = make_links(bandwidth_kbps=8)  # 1,000 bytes a second
    assert times(links, count=3, size=100) == [110_000, 210_000, 310_000]
    assert links.arrivals(1, (0,), 100, 0) == [(0, 110_000)], "the other direction is another link"
    assert links.arrivals(0, (1,), 100, 5_000_000) == [(1, 5_110_000)], "it is free again"
    assert sum(kind.waited for kind in links.kinds) == 2


def test_an_uplink_is_shared_by_all_links_of_a_validator() -> None:
    links = make_links(uplink_kbps=8)  # 1,000 bytes a second
    assert links.arrivals(0, range(4), 100, 0) == [(1, 110_000), (2, 210_000), (3, 310_000)]
    assert links.arrivals(0, (1,), 100, 0) == [(1, 410_000)], "what comes later waits for all of it"
    assert links.arrivals(1, (0,), 100, 0) == [(0, 110_000)], "each validator has its own"
    assert links.arrivals(0, (1,), 100, 5_000_000) == [(1, 5_110_000)], "it is free again"
    assert sum(kind.waited for kind in links.kinds) == 3


def test_a_message_takes_its_link_after_the_uplink() -> None:
    links = make_links(uplink_kbps=8, bandwidth_kbps=4)
    assert links.arrivals(0, (1, 2), 100, 0) == [(1, 310_000), (2, 410_000)]


def test_what_is_lost_took_the_uplink_and_what_a_cut_link_keeps_back_did_not() -> None:
    links = make_links(uplink_kbps=8, loss=0.9)
    links.arrivals(0, [1] * 50, 100, 0)
    lossless = make_links(uplink_kbps=8)
    lossless.arrivals(0, [1] * 50, 100, 0)
    assert links._free_at_us == lossless._free_at_us == {-1: 5_000_000}
    lossless.change([lambda _sender, receiver, link: Link(is_cut=True) if receiver == 1 else link])
    assert lossless.arrivals(0, (1, 2), 100, 5_000_000) == [(2, 5_110_000)]


def test_an_uplink_has_a_longer_queue() -> None:
    links = make_links(uplink_kbps=8)
    sizes = [LINK_QUEUE_BYTES] * (UPLINK_QUEUE_BYTES // LINK_QUEUE_BYTES + 3)
    arrived = [arrival for size in sizes for arrival in links.arrivals(0, (1,), size, 0)]
    assert len(sizes) - len(arrived) == links.dropped == 2


def test_what_finds_a_full_queue_is_lost() -> None:
    links = make_links(bandwidth_kbps=8)
    arrived = times(links, count=10, size=LINK_QUEUE_BYTES // 4)
    assert len(arrived) == 5, "one on its way, and as many as fit behind it"
    assert links.dropped == 5


def test_regions_have_latencies_of_their_own() -> None:
    fields: dict[str, Any] = {
        "regions": {"east": ["a", "b"], "west": ["c"]},
        "latency_matrix_ms": {"east": {"east": 1.0, "west": 80.0}, "west": {"east": 90.0}},
    }
    links = make_links(**fields)
    assert links.arrivals(0, range(4), 1, 0) == [(1, 1_000), (2, 80_000), (3, 10_000)]
    assert links.arrivals(2, range(4), 1, 0) == [(0, 90_000), (1, 90_000), (3, 10_000)]
    one_way = make_links(**fields | {"latency_matrix_ms": {"east": {"west": 80.0}}})
    assert one_way.arrivals(2, (0,), 1, 0) == [(0, 80_000)], "the way back takes as long"


def test_what_travels_over_several_links_is_slower_and_survives_each_of_them() -> None:
    links = make_links(latency_ms=10.0, loss=0.5, topology="ring")
    assert {at_us for _, at_us in links.arrivals(0, [1, 3] * 40, 1, 0)} == {10_000}
    assert {at_us for _, at_us in links.arrivals(0, [2] * 40, 1, 0)} == {20_000}
    arrived = len(links.arrivals(0, [2] * 4_000, 1, 0))
    assert arrived == pytest.approx(1_000, abs=120), "half of the half"


def test_where_there_is_no_way_nothing_arrives_and_a_fault_does_not_make_one() -> None:
    edges = {"kind": "edges", "edges": [["a", "b"], ["c", "d"]], "allow_disconnected": True}
    links = make_links(topology=edges)
    assert links.arrivals(0, range(4), 1, 0) == [(1, 10_000)]
    assert (links.sent, links.dropped) == (3, 2)


def test_the_network_may_become_another() -> None:
    links = make_links()
    section = LinksSection.model_validate({"latency_ms": 7.0, "jitter_ms": 0.0, "topology": "star"})
    links.become(Network(section, NAMES, {}, seed=1))
    assert links.arrivals(1, (0, 2), 1, 0) == [(0, 7_000), (2, 14_000)]


def test_links_change_and_change_back() -> None:
    links = make_links()
    cut = Link(is_cut=True)
    before = links.arrivals(0, (1, 2), 1, 0)
    links.change([lambda sender, receiver, link: cut if (sender, receiver) == (0, 1) else link])
    assert links.arrivals(0, (1, 2), 1, 0) == before[1:]
    assert links.arrivals(1, (0,), 1, 0) == [(0, 10_000)]
    assert cut.dropped == links.dropped == 1
    links.change([lambda _sender, _receiver, link: link.with_changes({"latency_ms": 50.0})])
    assert links.arrivals(0, (1,), 1, 0) == [(1, 50_000)]
    links.change([])
    assert links.arrivals(0, (1, 2), 1, 0) == before


def test_the_random_source_alone_decides() -> None:
    fields = {"jitter_ms": 5.0, "loss": 0.1, "duplication": 0.1, "reordering": 0.1, "bandwidth_kbps": 10_000}
    assert times(make_links(3, **fields)) == times(make_links(3, **fields)) != times(make_links(4, **fields))


def test_a_broadcast_costs_no_copy_of_the_payload() -> None:
    """The model sees the payload's size only."""
    assert make_links().arrivals(0, range(4), 10**9, 0) == make_links().arrivals(0, range(4), 1, 0)
