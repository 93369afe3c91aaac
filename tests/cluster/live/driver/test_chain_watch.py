"""The one view of the chain that the driver makes of what all validators report."""

from __future__ import annotations

from cluster.live.driver.chain_watch import HEIGHTS_REMEMBERED, ChainWatch
from cluster.live.host.observations import FinalSeen, HeightSeen
from cluster.record.finalizations import Finalizations
from cluster.record.run import RunRecord
from tests.cluster.live.handover.parts import left_by
from tests.cluster.records import OUTSIDER_KEY, make_record, make_scenario
from validator.node.events import BlockFinal
from validator.primitives.types import Hash, Height


def final(height: int) -> FinalSeen:
    return FinalSeen(0.0, BlockFinal(Height(height), height, Hash(b""), Hash(b""), 1, 2, 0, 0, 0, 0, 0, 0))


def test_each_height_counts_once_and_few_are_remembered() -> None:
    watch, last = ChainWatch(make_record(backend="live"), 0.0), 3 * HEIGHTS_REMEMBERED
    counted = []
    for height in range(1, last + 1):
        watch.take(0, [final(height)])
        watch.take(1, [final(height), final(max(1, height - HEIGHTS_REMEMBERED + 1))])
        counted.append(len(watch.chain.heights))
    watch.take(2, map(final, range(1, last + 1)))
    sample = watch.sample(0.0, [])
    assert {sample.fires, sample.transactions} == {last, 2 * last}
    assert max(counted) <= 2 * HEIGHTS_REMEMBERED


def test_what_an_external_validator_serves_is_seen_and_not_counted() -> None:
    """Its status page says nothing about fires and transactions, and may pass over heights."""
    record = make_record(backend="live")
    record.finalizations = Finalizations()
    watch = ChainWatch(record, 1_000.0)
    watch.take(0, [final(4), final(7)])
    watch.take(3, [HeightSeen(1_250.0, 4), HeightSeen(1_500.0, 7), HeightSeen(1_750.0, 7)])
    seen = [(each.at_ms, each.validator, each.height) for each in record.finalizations]
    assert seen == [(0.0, 0, 4), (0.0, 0, 7), (250.0, 3, 4), (500.0, 3, 7)]
    sample = watch.sample(0.0, [])
    assert (watch.height, sample.fires, sample.transactions) == (7, 4, 2)


def outsider_record() -> RunRecord:
    """The record of a live run whose validator 3 is external."""
    nodes = [{}, {}, {}, {"external": {"public_key": OUTSIDER_KEY, "address": "192.0.2.7:7000"}}]
    record = make_record(scenario=make_scenario(validators={"count": 4, "nodes": nodes}), backend="live")
    record.finalizations = Finalizations()
    return record


def test_a_height_that_was_served_to_an_earlier_driver_is_not_noted_again() -> None:
    """Else a validator that serves an old height would seem to have it from the hand-over on only."""
    record = outsider_record()
    first = ChainWatch(record, 1_000.0)
    first.take(0, [final(7)])
    first.take(3, [HeightSeen(1_250.0, 7)])
    second = ChainWatch(record, 1_000.0, left=left_by(first))
    second.take(3, [HeightSeen(9_000.0, 7)])
    assert [(each.at_ms, each.height) for each in record.finalizations.without({0})] == [(250.0, 7)]
    second.take(0, [final(8)])
    second.take(3, [HeightSeen(9_500.0, 8)])
    assert [(each.at_ms, each.height) for each in record.finalizations.without({0})] == [(250.0, 7), (8_500.0, 8)]


def test_a_height_that_an_external_validator_claims_is_noted_once_one_of_ours_has_it() -> None:
    """Else a false one would leave all others behind, and one of 33 bits would not fit into the record."""
    record = make_record(backend="live")
    record.finalizations = Finalizations()
    watch = ChainWatch(record, 1_000.0)
    watch.take(3, [HeightSeen(1_250.0, 2**62)])
    assert not len(record.finalizations)
    watch.take(0, [final(4)])
    watch.take(3, [HeightSeen(1_500.0, 2**62), HeightSeen(1_750.0, 2**62)])
    assert [(each.at_ms, each.height) for each in record.finalizations.without({0})] == [(500.0, 4)]
    assert watch.height == 4
