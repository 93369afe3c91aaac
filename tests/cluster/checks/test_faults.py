"""Faults and joins: an effect, progress, and targets that catch up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.record.finalizations import Finalizations
from cluster.record.run import RunRecord
from cluster.scenario.sections.validators import EpochSection
from tests.cluster.checks.cases import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    left_behind,
    network_stood_still,
    other_branch,
    run_check,
    status_of,
    with_epochs,
)
from tests.cluster.records import make_record, make_scenario, own_blocks, with_kill, with_late

# --- faults -----------------------------------------------------------------------------------------------------------


def never_began(record: RunRecord) -> None:
    record.faults[0].begun_ms = None


def missing(record: RunRecord) -> None:
    record.faults = []


def had_no_effect(record: RunRecord) -> None:
    record.faults[0].took_effect = False


def never_down(record: RunRecord) -> None:
    status_of(record, 2)["starts"] = 1


def does_not_say(record: RunRecord) -> None:
    record.validators[2].status = None


def never_back(record: RunRecord) -> None:
    record.faults[0].ended_ms = None


def nothing_on_disk(record: RunRecord) -> None:
    status_of(record, 2)["recovered_height"] = 0


def too_short(record: RunRecord) -> None:
    fault = record.faults[0]
    assert fault.begun_ms is not None
    fault.ended_ms = fault.begun_ms + 1


@pytest.mark.parametrize(
    ("plant", "verdict", "what"),
    [
        (never_began, INCONCLUSIVE, "never began"),
        (missing, INCONCLUSIVE, "1 of 1 faults never began"),
        (had_no_effect, INCONCLUSIVE, "had no observable effect"),
        (never_down, INCONCLUSIVE, "never down"),
        (does_not_say, INCONCLUSIVE, "does not say how it started"),
        (too_short, INCONCLUSIVE, "consecutive views may fail for"),
        (never_back, FAIL, "never came back"),
        (nothing_on_disk, FAIL, "found nothing on its own disk"),
        (left_behind, FAIL, "did not catch up: it has height 6, the others have 12"),
        (network_stood_still, FAIL, "no height was finalised in the 11,000 ms"),
    ],
)
def test_a_fault_that_did_not_go_as_it_should(plant: Callable[[RunRecord], None], verdict: Outcome, what: str) -> None:
    record = with_kill(make_record())
    plant(record)
    check = run_check(record, "faults")
    assert check.verdict is verdict
    assert what in check.detail


# --- joins ------------------------------------------------------------------------------------------------------------


def test_a_validator_that_joined_late_is_compared_from_there_on() -> None:
    record = with_late(make_record())
    verdict = check_run(record)
    assert [(check.name, check.detail) for check in verdict.checks if check.verdict is not PASS] == []
    assert (
        "the snapshot of height 1 (3 chunks from 2 peers) and took 50 ms; the validator executed 11 heights"
        in verdict.check("joins").detail
    )
    assert verdict.check("state_roots").detail.startswith("47 computed roots")
    assert "validator-3 from height 2 on" in verdict.check("agreement").detail


def test_what_a_late_validator_executed_wrongly_is_found() -> None:
    record = with_late(make_record(), snapshot=2)
    own_blocks(record.validators[3])[4] = replace(record.validators[3].blocks[4], computed_root=bytes(32))
    check = run_check(record, "state_roots")
    assert (check.verdict, "validator-3 at height 7" in check.detail) == (FAIL, True)
    other = with_late(make_record(), snapshot=2)
    other.validators[3].blocks = other_branch(7).blocks[2:]
    assert run_check(other, "agreement").detail.startswith("different blocks at height 7")
    assert run_check(other, "agreement").verdict is FAIL
    stolen = with_late(make_record(), snapshot=2)
    some = next(iter(stolen.validators[3].balances))
    stolen.validators[3].balances[some] += 1
    assert run_check(stolen, "conservation").verdict is FAIL


def test_a_late_validator_below_which_nobody_has_blocks_cannot_be_judged() -> None:
    record = with_late(make_record(), snapshot=6)
    for validator in record.validators[:3]:
        validator.blocks = validator.blocks[:4]
    check = run_check(record, "chain")
    assert (check.verdict, "no validator served the blocks below height 7" in check.detail) == (FAIL, True)
    record.interrupted = True
    assert run_check(record, "chain").verdict is INCONCLUSIVE


def no_snapshot(record: RunRecord) -> None:
    status_of(record, 3)["snapshot_height"] = 0


def join_missing(record: RunRecord) -> None:
    record.joins = []


def join_never_began(record: RunRecord) -> None:
    record.joins[0].begun_ms = None


def join_never_ended(record: RunRecord) -> None:
    record.joins[0].ended_ms = None


def does_not_say_how(record: RunRecord) -> None:
    record.validators[3].status = None


def stays_behind(record: RunRecord) -> None:
    record.validators[3].blocks = record.validators[3].blocks[:3]


def executed_too_little(record: RunRecord) -> None:
    record.validators[3].blocks = record.validators[3].blocks[:9]


@pytest.mark.parametrize(
    ("plant", "verdict", "what"),
    [
        (join_missing, INCONCLUSIVE, "1 of 1 joins never began"),
        (join_never_began, INCONCLUSIVE, "never began"),
        (join_never_ended, FAIL, "never received a snapshot"),
        (does_not_say_how, INCONCLUSIVE, "does not say how it began"),
        (no_snapshot, FAIL, "executed the chain from the genesis on"),
        (stays_behind, FAIL, "did not catch up: it has height 4, the others have 12"),
        (executed_too_little, INCONCLUSIVE, "executed 9 heights afterwards, 10 needed"),
    ],
)
def test_a_join_that_did_not_go_as_it_should(plant: Callable[[RunRecord], None], verdict: Outcome, what: str) -> None:
    record = with_late(make_record())
    plant(record)
    check = run_check(record, "joins")
    assert check.verdict is verdict
    assert what in check.detail


def test_an_interrupted_run_blames_no_fault() -> None:
    record = with_kill(make_record())
    never_back(record)
    record.interrupted = True
    assert run_check(record, "faults").verdict is INCONCLUSIVE


def test_all_validators_of_the_targets_host_must_come_back() -> None:
    record = with_kill(make_record(count=8, scenario=make_scenario(validators={"count": 8, "hosts": 4})))
    check = run_check(record, "faults")
    assert check.verdict is INCONCLUSIVE
    assert "validator-6 was started 1 time," in check.detail


# --- books ------------------------------------------------------------------------------------------------------------


def test_recovery_takes_a_quorum_of_the_committee() -> None:
    record = with_kill(make_record())
    ended = record.faults[0].ended_ms
    assert ended is not None
    record.finalizations = Finalizations(
        seen for seen in record.finalizations if seen.at_ms <= ended or seen.validator < 1
    )
    record.duration_ms = 100_000
    assert run_check(record, "recovery").verdict is FAIL
    one = EpochSection(from_view=1, members=["validator-0"])
    assert run_check(with_epochs(record, one), "recovery").verdict is PASS
    other = EpochSection(from_view=1, members=["validator-1"])
    assert run_check(with_epochs(record, other), "recovery").verdict is FAIL
