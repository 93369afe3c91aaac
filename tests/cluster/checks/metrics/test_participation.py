"""The part of each validator in consensus, and the check of external ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.audit.books import Books, keep_books
from cluster.checks.kind import Judged
from cluster.checks.kinds.progress import TakingPart
from cluster.checks.metrics.metrics import participation
from cluster.checks.verdict import Check
from cluster.common.outcome import Outcome
from cluster.record.run import RunRecord
from cluster.scenario.model import Scenario
from cluster.watches.watched_simulation import simulate
from tests.cluster.records import OUTSIDER_KEY

MUTE = ["silent-leader", "vote-withholder"]


def run(*behaviours: str, heights: int = 24) -> RunRecord:
    nodes: list[dict[str, Any]] = [{}, {}, {}, {"byzantine": list(behaviours)} if behaviours else {}]
    fields = {"name": "part", "validators": {"nodes": nodes}, "stop": {"height": heights}}
    return simulate(Scenario.model_validate({**fields, "load": {"users": [{"workload": "heartbeat"}]}}), 3)


def judged_as_external(record: RunRecord, **section: Any) -> Books:
    """The books of a run as if its last validator had been another party's."""
    external = {"external": {"public_key": OUTSIDER_KEY, "address": "127.0.0.1:7000", **section}}
    scenario = Scenario.model_validate(
        {"name": "part", "validators": {"nodes": [{}, {}, {}, external]}, "stop": record.scenario.stop.model_dump()}
    )
    return keep_books(replace(record, scenario=scenario))


@pytest.fixture(scope="module")
def healthy() -> RunRecord:
    return run()


@pytest.fixture(scope="module")
def mute() -> RunRecord:
    return run(*MUTE)


def check_participation(books: Books) -> Check:
    return TakingPart(Judged(books)).check()


def test_each_validators_part_follows_from_blocks_and_certificates(healthy: RunRecord) -> None:
    books = keep_books(healthy)
    parts = participation(books)
    assert [part.name for part in parts] == [f"validator-{index}" for index in range(4)]
    assert sum(part.proposed for part in parts) == books.ledger.height
    assert sum(part.led for part in parts) == max(books.views.values())
    for part in parts:
        assert 0 < part.proposed <= part.led and 0 < part.votes <= part.certificates
        assert part.height >= 24
    assert check_participation(books).applies is False


def test_an_external_validator_that_takes_part_passes(healthy: RunRecord) -> None:
    found = check_participation(judged_as_external(healthy))
    assert found.verdict is Outcome.PASS and found.applies
    assert "validator-3 led " in found.detail


def test_an_external_validator_that_neither_proposes_nor_votes_fails(mute: RunRecord) -> None:
    part = participation(keep_books(mute))[3]
    assert part.led >= 3 and (part.proposed, part.votes) == (0, 0) and part.certificates > 0
    found = check_participation(judged_as_external(mute))
    assert found.verdict is Outcome.FAIL
    assert "validator-3 led " in found.detail and "proposed 0 final blocks, and voted in 0 of " in found.detail


def test_it_need_not_if_the_scenario_says_so(mute: RunRecord) -> None:
    assert check_participation(judged_as_external(mute, takes_part=False)).applies is False


def test_too_little_seen_is_inconclusive(mute: RunRecord) -> None:
    assert mute.monitor is not None
    unseen = replace(mute, monitor=replace(mute.monitor, voters={}))
    assert check_participation(judged_as_external(unseen)).verdict is Outcome.INCONCLUSIVE
