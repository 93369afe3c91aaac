"""The mechanisms of nodes follow from status pages, reorganizations, joins and the monitor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cluster.audit.books import keep_books
from cluster.checks.metrics.reached import mechanisms_reached
from cluster.record.rules import Mechanism
from cluster.record.run import FaultRecord, MonitorRecord, Reorg, RunRecord
from tests.cluster.records import ChainMaker, make_genesis, make_record, make_scenario, with_late
from tests.repository.sources import text_files

OF_CHAIN = set(mechanisms_reached(keep_books(make_record())))


def added(record: RunRecord) -> set[Mechanism]:
    """Beyond what the chain reaches by itself."""
    found = mechanisms_reached(keep_books(record))
    assert found == [mechanism for mechanism in Mechanism if mechanism in found]
    return set(found) - OF_CHAIN


def with_status(**fields: Any) -> RunRecord:
    record = make_record()
    page = record.validators[1].status
    assert page is not None
    page.update(fields)
    return record


def test_of_a_run_in_which_nothing_happens_to_nodes() -> None:
    assert added(make_record()) == set()
    assert Mechanism.TIP_MEDIAN_EVEN in OF_CHAIN


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"transactions_refused": {"mempool_full": 2, "malformed": 1}}, {Mechanism.POOL_FULL}),
        ({"transactions_refused": {"sender_limit": 1, "unaffordable": 0}}, {Mechanism.POOL_SENDER_LIMIT}),
        ({"transactions_refused": {"unaffordable": 1}}, {Mechanism.POOL_UNAFFORDABLE}),
        ({"transactions_refused": {"nonce_too_high": 1}}, {Mechanism.POOL_NONCE_TOO_HIGH}),
        ({"transactions_refused": {"replacement_underpriced": 1}}, {Mechanism.POOL_UNDERPRICED}),
        ({"transactions_dropped": {"unaffordable": 1, "stale_nonce": 1}}, set()),
        (
            {"transactions_dropped": {"replaced": 1, "evicted": 1, "expired": 1}},
            {Mechanism.POOL_REPLACED, Mechanism.POOL_EVICTED, Mechanism.POOL_EXPIRED},
        ),
        ({"replayed_blocks": 3}, {Mechanism.BLOCKS_REPLAYED}),
        ({"first_block": 1}, set()),
        ({"first_block": 4}, {Mechanism.ARCHIVE_PRUNED}),
        ({"first_block": 4, "snapshot_height": 3}, {Mechanism.SNAPSHOT_JOINED}),
    ],
)
def test_a_status_page_tells(fields: dict[str, Any], expected: set[Mechanism]) -> None:
    assert added(with_status(**fields)) == expected


def test_a_byzantine_validator_tells_nothing() -> None:
    record = with_status(replayed_blocks=3)
    record.validators[1].byzantine = ("garbage",)
    record.reorgs = [Reorg(1, 5, 3)]
    assert added(record) == set()


def test_a_validator_that_is_down_tells_nothing() -> None:
    record = make_record()
    record.validators[1].status = None
    assert added(record) == set()


def with_small_world(reorg: Reorg) -> RunRecord:
    """Epochs of 4 blocks; the fires of block 3 leave the window with block 6, those of later ones afterwards."""
    maker = ChainMaker(make_genesis({"EPOCH_LENGTH": 4, "RING_BUFFER_SIZE": 4, "FAIRNESS_WINDOW_BLOCKS": 2}))
    for height in range(1, 13):
        maker.transfer(height)
        if height == 2:
            maker.schedule(1)
        maker.seal()
    record = make_record(maker)
    record.reorgs = [reorg]
    return record


@pytest.mark.parametrize(
    ("reorg", "expected"),
    [
        (Reorg(0, 2, 1), set()),
        (Reorg(0, 2, 2), {Mechanism.DEEP_BRANCH_GIVEN_UP}),
        (Reorg(0, 3, 2), {Mechanism.DEEP_BRANCH_GIVEN_UP, Mechanism.EPOCH_ROLLED_BACK}),
        (Reorg(0, 8, 1), {Mechanism.EPOCH_ROLLED_BACK}),
        (Reorg(0, 5, 1), set()),
        (Reorg(0, 6, 1), {Mechanism.WINDOW_ROLLED_BACK}),
        (Reorg(0, 7, 1), set()),
    ],
)
def test_what_a_branch_that_was_given_up_had_done(reorg: Reorg, expected: set[Mechanism]) -> None:
    record = with_small_world(reorg)
    record.reorgs = []
    before = set(mechanisms_reached(keep_books(record)))
    record.reorgs = [reorg]
    found = set(mechanisms_reached(keep_books(record)))
    assert found - before == expected | {Mechanism.BRANCH_GIVEN_UP}


@pytest.mark.parametrize(
    ("views", "is_reached"),
    [((1, 2, 3, 4), False), ((1, 2, 4, 5), True), ((1, 3, 4, 5), True), ((1, 4, 5, 6), True), ((1, 2), False)],
)
def test_a_view_at_the_border_of_two_committees_without_a_final_block(views: Sequence[int], is_reached: bool) -> None:
    epoch = {"from_view": 3, "members": [f"validator-{index}" for index in range(4)]}
    scenario = make_scenario(validators={"count": 5, "epochs": [epoch]})
    maker = ChainMaker()
    for view in views:
        maker.seal(view=view)
    found = mechanisms_reached(keep_books(make_record(maker, scenario)))
    assert (Mechanism.BORDER_VIEW_FAILED in found) == is_reached
    everybody = make_record(maker, make_scenario(validators=5))
    assert Mechanism.BORDER_VIEW_FAILED not in mechanisms_reached(keep_books(everybody))


def late(epoch_length: int) -> RunRecord:
    """One joined by the snapshot of height 1, and took part from height 2 on."""
    maker = ChainMaker(make_genesis({"EPOCH_LENGTH": epoch_length, "RING_BUFFER_SIZE": epoch_length}))
    for height in range(1, 13):
        maker.transfer(height)
        maker.seal()
    return with_late(make_record(maker))


@pytest.mark.parametrize(("epoch_length", "crosses"), [(2, True), (3, False)])
def test_a_join_by_snapshot_and_one_while_an_epoch_begins(epoch_length: int, crosses: bool) -> None:
    record = late(epoch_length)
    found = mechanisms_reached(keep_books(record))
    assert Mechanism.SNAPSHOT_JOINED in found
    assert (Mechanism.SNAPSHOT_JOINED_ACROSS_EPOCH in found) == crosses
    record.joins[0].height_when_ended = None
    assert Mechanism.SNAPSHOT_JOINED_ACROSS_EPOCH not in mechanisms_reached(keep_books(record)), "it did not end"


def test_a_disk_that_was_lost_is_replaced_by_a_snapshot() -> None:
    record = late(2)
    record.joins = []
    fault = FaultRecord("wipe", "validator-3", 1, 1.0, 2.0, True, impaired=("validator-3",), height_when_ended=2)
    record.faults = [fault]
    assert Mechanism.SNAPSHOT_JOINED_ACROSS_EPOCH in mechanisms_reached(keep_books(record))
    record.faults = [replace(fault, impaired=("validator-2",))]
    assert Mechanism.SNAPSHOT_JOINED_ACROSS_EPOCH not in mechanisms_reached(keep_books(record))


def test_what_the_monitor_saw() -> None:
    record = make_record()
    record.monitor = MonitorRecord([], {"answers": 0}, (Mechanism.TIMEOUTS_LENGTHENED,))
    assert added(record) == {Mechanism.TIMEOUTS_LENGTHENED}
    record.monitor = MonitorRecord([], {"answers": 1})
    assert added(record) == {Mechanism.STUCK_PEER_ANSWERED}


def test_the_documentation_has_every_mechanism() -> None:
    section = text_files()["docs/operations.md"].partition("### Mechanisms")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [mechanism.value for mechanism in Mechanism]
