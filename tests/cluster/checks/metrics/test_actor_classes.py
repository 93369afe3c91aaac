"""Classes of actors, how late they are served, and how fairly, against naive counts."""

from __future__ import annotations

from collections import Counter
from statistics import median

import pytest

from cluster.audit.books import Books, keep_books
from cluster.checks.metrics.actor_classes import (
    OTHERS,
    class_of_actors,
    gini_index,
    jain_index,
    use_by_actor,
    use_by_class,
)
from cluster.commands.drills.expectations import cancelled
from cluster.record.archive import BlockRecord
from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.watches.watched_simulation import simulate
from spec.encoding import Scheduled, read_receipts
from tests.cluster.records import ACTOR, make_record

SCENARIO = Scenario.model_validate(
    {
        "name": "classes",
        "load": {
            "users": [
                {"workload": "heartbeat", "count": 2, "interval_ms": 300},
                {"workload": "flood", "count": 2, "interval_ms": 300, "options": {"timers": 12, "burn": 60_000}},
                {
                    "workload": "program",
                    "options": {"program": "subscription", "calls": []},
                },
            ]
        },
        "stop": {"height": 14},
    }
)


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return simulate(SCENARIO, 5)


@pytest.fixture(scope="module")
def books(record: RunRecord) -> Books:
    return keep_books(record)


def test_a_class_is_a_workload_and_its_program(record: RunRecord) -> None:
    assert list(class_of_actors(record).values()) == [
        "heartbeat",
        "heartbeat",
        "flood",
        "flood",
        "program subscription",
    ]


def scheduled_in(record: BlockRecord) -> list[Scheduled]:
    receipts = read_receipts(record.receipts)
    runs = (receipts.transactions, receipts.fires, receipts.callbacks, receipts.messages)
    return [item for each in runs for run in each for item in run.effects.scheduled]


def ends(books: Books) -> dict[bytes, int]:
    """At which height each timer ended."""
    found: dict[bytes, int] = {}
    for height, record in enumerate(books.chain, start=1):
        receipts = read_receipts(record.receipts)
        found |= {fire.timer_id: height for fire in receipts.fires}
        found |= {each.timer_id: height for each in receipts.destroyed}
        found |= dict.fromkeys(cancelled(record), height)
    return found


def test_every_fire_and_every_due_timer_is_counted_once(books: Books) -> None:
    uses = use_by_actor(books)
    ledger = books.ledger
    assert sum(use.fires for use in uses) == ledger.timers.fires > 0
    ended = ends(books)
    scheduled = [item for record in books.chain for item in scheduled_in(record)]
    due = [item for item in scheduled if item.trigger_height <= ended.get(item.timer_id, ledger.height)]
    assert sum(use.due for use in uses) == len(due)
    gone = {each for record in books.chain for each in cancelled(record)}
    late = Counter(
        ended.get(item.timer_id, ledger.height + 1) - item.trigger_height for item in due if item.timer_id not in gone
    )
    assert sum((use.lateness for use in uses), Counter()) == late
    assert {use.group for use in uses} == {"heartbeat", "flood"}


def test_classes_are_the_sums_of_their_actors(books: Books) -> None:
    classes = use_by_class(use_by_actor(books))
    assert [group.name for group in classes] == ["flood", "heartbeat"]
    assert sum(group.fires for group in classes) == books.ledger.timers.fires
    for group in classes:
        assert group.fires <= sum(group.lateness.values()) <= group.due
        late = group.lateness_blocks(1.0)
        assert late == max(group.lateness)


def test_weights_are_those_of_the_specification(books: Books) -> None:
    """Naively: W of every actor that had a timer due at each look, from all fires before."""
    uses = use_by_actor(books)
    ledger = books.ledger
    fires = [
        (fire.actor, height)
        for height, record in enumerate(books.chain, start=1)
        for fire in read_receipts(record.receipts).fires
    ]
    looks = range(1, ledger.height + 1)
    for use in uses:
        total = 0.0
        for height in looks:
            recent = Counter(actor for actor, at in fires if at < height)
            counts = sorted(recent.values())
            middle = counts[(len(counts) - 1) // 2] + counts[len(counts) // 2] if counts else 0
            divisor = max(2, middle)
            total += (2 * divisor - min(2 * recent[use.actor], divisor)) / divisor
        assert use.weight == pytest.approx(total / len(looks))


def test_weights_follow_the_candidates_of_the_chain() -> None:
    """Naively: an average over the medians of all heights, and the clip bounds of the chain."""
    params = {"MEDIAN_SMOOTHING_MILLI": 300, "WEIGHT_CLIP_MIN_MILLI": 500, "WEIGHT_CLIP_MAX_MILLI": 1_900}
    chain = {"params": {**params, "WEIGHT_PARTY": "deployer"}}
    books = keep_books(simulate(Scenario.model_validate({**SCENARIO.model_dump(), "chain": chain}), 5))
    uses, average = use_by_actor(books), 0.0
    totals = dict.fromkeys((use.actor for use in uses), 0.0)
    fires = [receipts.fires for record in books.chain if (receipts := read_receipts(record.receipts))]
    for height in range(1, books.ledger.height + 1):
        recent = Counter(fire.actor for block in fires[: height - 1] for fire in block)
        if recent:
            newest = float(median(recent.values()))
            average = 0.3 * newest + 0.7 * average if average else newest
        for use in uses:
            totals[use.actor] += min(1.9, max(0.5, 2 - min(2, recent[use.actor] / (average or 1))))
    for use in uses:
        assert use.weight == pytest.approx(totals[use.actor] / books.ledger.height, abs=0.001)


def test_actors_that_are_not_the_loads_are_others() -> None:
    (use,) = use_by_actor(keep_books(make_record()))
    assert (use.actor, use.group) == (ACTOR, OTHERS)


def test_the_indices_at_their_ends() -> None:
    assert jain_index([5.0, 5.0, 5.0]) == 1.0
    assert jain_index([9.0, 0.0, 0.0]) == pytest.approx(1 / 3)
    assert gini_index([5.0, 5.0, 5.0]) == pytest.approx(0.0)
    assert gini_index([0.0, 0.0, 0.0, 8.0]) == pytest.approx(0.75)
    assert (jain_index([0.0, 0.0]), gini_index([0.0, 0.0])) == (None, 0.0)
