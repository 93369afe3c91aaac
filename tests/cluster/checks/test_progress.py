"""Heights, stalls, load and problems around a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cluster.checks.run import check_run
from cluster.record.finalizations import Finalizations
from cluster.record.run import RunRecord, note_own_problem
from tests.cluster.checks.cases import FAIL, INCONCLUSIVE, PASS, run_check, status_of
from tests.cluster.records import ChainMaker, answer, make_chain, make_record, make_scenario

# --- progress ---------------------------------------------------------------------------------------------------------


def test_a_stall_fails() -> None:
    record = make_record()
    record.finalizations = Finalizations(
        replace(f, at_ms=f.at_ms + 6_000 * (f.height > 7)) for f in record.finalizations
    )
    check = run_check(record, "progress")
    assert check.verdict is FAIL
    assert "after height 7, allowed 5,000" in check.detail


def test_a_standstill_at_the_end_counts_as_a_stall() -> None:
    record = make_record(make_chain(11))
    record.duration_ms += 60_000
    check = run_check(record, "progress")
    assert check.verdict is FAIL
    assert "after height 11" in check.detail


def test_a_target_that_was_not_reached_fails_unless_the_run_was_interrupted() -> None:
    record = make_record(make_chain(11))
    assert run_check(record, "progress").verdict is FAIL
    record.interrupted = True
    assert run_check(record, "progress").verdict is INCONCLUSIVE


@pytest.mark.parametrize("asked", [False, True])
def test_an_interrupted_run_says_what_was_final_where_nobody_served_a_block(asked: bool) -> None:
    record = make_record()
    record.interrupted = True
    for validator in record.validators:
        validator.blocks, validator.status = [], None
    if not asked:
        record.validators = []
    check = run_check(record, "progress")
    assert check.verdict is INCONCLUSIVE
    assert check.detail == "height 12 was final when it was interrupted, target 12; no validator served a block"


def test_heights_are_counted_among_those_that_served_them() -> None:
    record = make_record()
    never_answered(record)
    check = run_check(record, "agreement")
    assert check.verdict is INCONCLUSIVE
    assert check.detail.startswith("only 3 of 4 validators served a block; the same block at all 12 heights of 3 valid")


def stuck(record: RunRecord, height: int) -> None:
    record.validators[3].blocks = record.validators[3].blocks[:height]
    answer(record)


@pytest.mark.parametrize("height", [0, 11])
def test_a_validator_that_is_stuck_below_the_target_fails_by_name(height: int) -> None:
    record = make_record()
    stuck(record, height)
    check = run_check(record, "progress")
    assert check.verdict is FAIL
    assert check.detail == f"validator-3 stopped at height {height}, target 12; the highest validator reached 12"
    record.interrupted = True
    assert run_check(record, "progress").verdict is INCONCLUSIVE


def diverged(record: RunRecord) -> None:
    status_of(record, 3)["diverged"] = {"height": 11, "reason": "state_root"}


def mutated(record: RunRecord) -> None:
    record.validators[3].mutant = "planted"


def never_answered(record: RunRecord) -> None:
    record.validators[3].blocks, record.validators[3].status = [], None


@pytest.mark.parametrize("plant", [diverged, mutated, never_answered])
def test_a_validator_whose_end_has_another_reason_is_not_blamed_for_it(plant: Callable[[RunRecord], None]) -> None:
    record = make_record()
    stuck(record, 10)
    plant(record)
    assert run_check(record, "progress").verdict is PASS
    assert check_run(record).outcome is not PASS or record.validators[3].mutant


def test_progress_needs_enough_heights_and_times() -> None:
    few = make_record(scenario=make_scenario(success={"heights_compared": 30}))
    assert run_check(few, "progress").verdict is INCONCLUSIVE
    timeless = make_record()
    timeless.finalizations = Finalizations()
    assert run_check(timeless, "progress").verdict is INCONCLUSIVE


# --- load -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [{"transactions": 37}, {"fires": 18}])
def test_too_little_load_is_inconclusive(wanted: dict[str, int]) -> None:
    success = {"heights_compared": 10, "transactions": 1, "fires": 1, **wanted}
    assert run_check(make_record(scenario=make_scenario(success=success)), "load").verdict is INCONCLUSIVE


def test_a_run_without_load_does_not_pass() -> None:
    maker = ChainMaker()
    for _ in range(12):
        maker.seal()
    assert check_run(make_record(maker)).outcome is INCONCLUSIVE


# --- problems ---------------------------------------------------------------------------------------------------------


def test_problems_fail_and_interruption_is_inconclusive() -> None:
    record = make_record()
    record.problems = ["Locust died"]
    check = run_check(record, "no_problems")
    assert (check.verdict, check.detail) == (FAIL, "Locust died")
    record.interrupted = True
    assert run_check(record, "no_problems").verdict is INCONCLUSIVE


def test_a_problem_of_a_process_of_the_harness_is_no_failure_of_the_chain() -> None:
    record = make_record()
    note_own_problem(record, "the load generator ended early")
    note_own_problem(record, "the load generator ended early")
    check = run_check(record, "no_problems")
    assert (check.verdict, check.detail) == (INCONCLUSIVE, "the load generator ended early")
    record.problems.append("validator-1 was lost")
    assert run_check(record, "no_problems").verdict is FAIL
