"""Progress during a fault, by the quorums of the committees that were active."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.checks.kinds.faults import faults_at_once
from cluster.common.outcome import Outcome
from cluster.record.finalizations import Finalizations
from cluster.record.run import FaultRecord, RunRecord
from cluster.scenario.sections.validators import EpochSection, NodeSection
from tests.cluster.checks.cases import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    later_from,
    left_behind,
    network_stood_still,
    run_check,
    with_epochs,
)
from tests.cluster.records import make_record, with_kill, with_late


def test_who_never_was_there_counts_as_missing_too() -> None:
    """With one of four that joins later or is byzantine, another one that is down leaves no quorum."""
    record = with_kill(make_record())
    network_stood_still(record)
    assert run_check(record, "faults").verdict is FAIL
    late = with_late(record, at_height=11, snapshot=11)
    assert run_check(late, "faults").verdict is PASS
    nodes = [NodeSection(byzantine=["silent-leader"] if index == 1 else []) for index in range(4)]
    section = record.scenario.validators.model_copy(update={"nodes": nodes})
    byzantine = replace(record, scenario=record.scenario.model_copy(update={"validators": section}))
    assert run_check(byzantine, "faults").verdict is PASS
    epochs = [EpochSection(from_view=5, members=["validator-0", "validator-1", "validator-2"])]
    section = record.scenario.validators.model_copy(update={"epochs": epochs})
    small = replace(record, scenario=record.scenario.model_copy(update={"validators": section}))
    assert run_check(small, "faults").verdict is PASS, "a committee of three withstands nothing"


def test_drawn_leaders_may_fail_for_longer() -> None:
    record = with_kill(make_record())
    network_stood_still(record)
    consensus = record.scenario.consensus.model_copy(update={"leader_election": "random"})
    drawn = replace(record, scenario=record.scenario.model_copy(update={"consensus": consensus}))
    assert run_check(drawn, "faults").verdict is INCONCLUSIVE


def with_two_of_four_down() -> RunRecord:
    """Two of four validators are down for thirty seconds, and heights become final within them."""
    record = with_kill(make_record())
    fault = record.faults[0]
    fault.is_hard, fault.targets, fault.impaired = True, ("validator-1", "validator-3"), ("validator-1", "validator-3")
    fault.ended_ms = (fault.begun_ms or 0) + 30_000
    later_from(record, 6, 9_000)
    record.duration_ms += 40_000
    return record


def test_the_twin_of_one_that_is_killed_votes_on() -> None:
    record = with_two_of_four_down()
    assert "finalised without a quorum" in run_check(record, "faults").detail
    nodes = [*(NodeSection() for _ in range(3)), NodeSection(byzantine=["twins"])]
    validators = record.scenario.validators.model_copy(update={"nodes": nodes})
    record.scenario = record.scenario.model_copy(update={"validators": validators})
    assert "finalised without a quorum" not in run_check(record, "faults").detail


def test_what_was_proposed_before_the_quorum_was_lost_may_become_final_after_it() -> None:
    record = with_two_of_four_down()
    fault = record.faults[0]
    assert "finalised without a quorum" in run_check(record, "faults").detail
    record.proposals = dict.fromkeys(record.proposals, fault.begun_ms or 0.0)
    assert "finalised without a quorum" not in run_check(record, "faults").detail


def test_a_quorum_is_lost_until_the_first_is_back() -> None:
    record = with_two_of_four_down()
    fault = record.faults[0]
    fault.first_back_ms = (fault.begun_ms or 0) + 2_000
    assert "finalised without a quorum" not in run_check(record, "faults").detail


def test_who_lost_its_disk_may_not_vote_yet() -> None:
    """One of four is down; another one came back by a snapshot right before, and abstains."""
    record = with_kill(make_record())
    network_stood_still(record)
    assert run_check(record, "faults").verdict is FAIL
    begun_ms = record.faults[0].begun_ms or 0.0
    lost = replace(record.faults[0], kind="wipe", begun_ms=begun_ms - 900, ended_ms=begun_ms - 1, is_hard=True)
    lost.targets = lost.impaired = ("validator-3",)
    record.faults.append(lost)
    assert "no height was finalised" not in run_check(record, "faults").detail


def test_what_was_lost_right_before_the_end_leaves_nobody_behind() -> None:
    record = with_kill(make_record())
    left_behind(record)
    assert run_check(record, "faults").verdict is FAIL
    consensus = record.scenario.consensus.model_copy(update={"rebroadcast_ms": 3_600_000})
    record.scenario = record.scenario.model_copy(update={"consensus": consensus})
    assert "did not catch up" not in run_check(record, "faults").detail


def test_a_partition_is_judged_by_the_committees_on_its_sides() -> None:
    """Two against two is no quorum of four; of a committee of two on one side it is one."""
    record = with_kill(make_record())
    names = [f"validator-{index}" for index in range(4)]
    fault = record.faults[0]
    fault.kind, fault.sides, fault.is_hard = "partition", (tuple(names[:2]), tuple(names[2:])), True
    fault.targets, fault.impaired = (), tuple(names)
    fault.ended_ms = (fault.begun_ms or 0) + 30_000
    later_from(record, 6, 9_000)
    record.duration_ms += 40_000
    check = run_check(record, "faults")
    assert (check.verdict, "finalised without a quorum" in check.detail) == (FAIL, True)
    fault.sides, fault.impaired = (tuple(names[:3]), tuple(names[3:])), (names[3],)
    assert run_check(record, "faults").verdict is PASS
    fault.sides, fault.impaired = (tuple(names[:2]), tuple(names[2:])), tuple(names)
    epochs = [EpochSection(from_view=5, members=names[2:])]
    section = record.scenario.validators.model_copy(update={"epochs": epochs})
    small = replace(record, scenario=record.scenario.model_copy(update={"validators": section}))
    assert run_check(small, "faults").verdict is PASS, "one committee is whole on one side"


@pytest.mark.parametrize(
    ("from_view", "verdict"),
    [(2, FAIL), (5, PASS), (7, PASS), (1_000, FAIL)],
    ids=["over before", "when it begins", "until the first block after it", "long after"],
)
def test_a_fault_is_judged_by_the_committees_of_its_time(from_view: int, verdict: Outcome) -> None:
    """A committee of three, which withstands nothing, excuses a standstill only where it rules."""
    record = with_kill(make_record())
    network_stood_still(record)
    small = EpochSection(from_view=from_view, members=["validator-0", "validator-1", "validator-2"])
    everybody = EpochSection(from_view=from_view + 2, members=[f"validator-{index}" for index in range(4)])
    assert run_check(with_epochs(record, small, everybody), "faults").verdict is verdict


def test_a_committee_far_off_excuses_no_standstill_to_the_end() -> None:
    record = with_kill(make_record())
    network_stood_still(record)
    record.finalizations = Finalizations(seen for seen in record.finalizations if seen.height < 6)
    small = ["validator-0", "validator-1", "validator-2"]
    assert run_check(with_epochs(record, EpochSection(from_view=1_000, members=small)), "faults").verdict is FAIL
    assert run_check(with_epochs(record, EpochSection(from_view=40, members=small)), "faults").verdict is PASS


def test_the_first_epoch_may_begin_with_the_chain() -> None:
    """Nobody else ever votes then: that two others are down excuses nothing."""
    record = with_kill(make_record())
    network_stood_still(record)
    record.faults[0].impaired = ("validator-1", "validator-2")
    assert run_check(with_epochs(record), "faults").verdict is PASS
    one = EpochSection(from_view=1, members=["validator-0"])
    assert run_check(with_epochs(record, one), "faults").verdict is FAIL


MOMENTS = st.tuples(st.none() | st.integers(0, 12).map(float), st.none() | st.integers(0, 5).map(float))


@given(st.lists(MOMENTS, max_size=9))
def test_faults_at_once_are_those_whose_times_overlap(moments: list[tuple[float | None, float | None]]) -> None:
    faults = [
        FaultRecord("pause", "validator-0", 1, begun, None if begun is None or lasts is None else begun + lasts)
        for begun, lasts in moments
    ]

    def overlap(one: FaultRecord, other: FaultRecord) -> bool:
        if one.begun_ms is None or other.begun_ms is None:
            return False
        ends = [math.inf if fault.ended_ms is None else fault.ended_ms for fault in (one, other)]
        return one.begun_ms <= ends[1] and other.begun_ms <= ends[0]

    assert faults_at_once(faults) == [
        [number for number, other in enumerate(faults) if overlap(fault, other)] for fault in faults
    ]
