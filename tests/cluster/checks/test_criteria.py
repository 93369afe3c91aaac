"""Success criteria as data: a figure out of its bounds fails the run, one that is not there leaves it open."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cluster.audit.books import keep_books
from cluster.checks.kind import Judged
from cluster.checks.kinds.criteria import Criteria
from cluster.checks.metrics.actor_classes import use_by_actor
from cluster.checks.metrics.metrics import samples
from cluster.checks.run import check_run, judge_run
from cluster.checks.verdict import Check
from cluster.common.outcome import Outcome
from cluster.record.finalizations import Finalizations
from cluster.record.run import LoadRecord, RunRecord
from cluster.report.results import result_of
from cluster.scenario.metric_names import METRICS, SAMPLES
from cluster.scenario.sections.success import SuccessSection
from loadgen.workloads.measures import Sends, send_key
from tests.cluster.checks.cases import FAIL, INCONCLUSIVE, PASS
from tests.cluster.records import INTERVAL_MS, USER, WRITTEN, make_record, make_scenario, with_kill


def record_with(**success: Any) -> RunRecord:
    """A right run of twelve heights, under some criteria."""
    return make_record(
        scenario=make_scenario(success={"heights_compared": 10, "transactions": 5, "fires": 5} | success)
    )


def check(record: RunRecord) -> Check:
    return Criteria(Judged(keep_books(record))).check()


def later(record: RunRecord, height: int, by_ms: float) -> RunRecord:
    """The planted fault: from a height on everything becomes final later than it did."""
    record.finalizations = Finalizations(
        seen if seen.height < height else type(seen)(seen.at_ms + by_ms, seen.validator, seen.height)
        for seen in record.finalizations
    )
    return record


def test_a_latency_that_is_later_than_any_bound_fails_and_is_no_number_of_the_result() -> None:
    """The planted fault: a transaction never became final."""
    record = record_with(metrics={"load_latency_max_ms": {"at_most": 1e12}})
    sends = Sends()
    for key in (send_key(bytes(USER.verify_key), 0), send_key(b"x" * 32, 0)):
        sends.note("flood", key, 0, 0)
    judged = judge_run(replace(record, load=LoadRecord(sends=sends)))
    (found,) = [each for each in judged.verdict.checks if each.name == "criteria"]
    assert (found.verdict, "load_latency_max_ms infinite, " in found.detail) == (FAIL, True)
    assert "load_latency_max_ms" not in judged.metrics and "load_latency_p50_ms" in judged.metrics
    assert "Infinity" not in json.dumps(result_of(judged, WRITTEN))


def test_a_scenario_without_criteria_passes() -> None:
    found = check(make_record())
    assert (found.verdict, found.detail) == (PASS, "the scenario sets none")


# --- figures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bounds", "outcome"),
    [
        ("fires", {"at_least": 17}, PASS),
        ("fires", {"at_least": 18}, FAIL),
        ("fires", {"at_most": 17}, PASS),
        ("fires", {"at_most": 16.5}, FAIL),
        ("fires", {"at_least": 1, "at_most": 16}, FAIL),
        ("blocks_per_second", {"at_least": 3.9, "at_most": 4.1}, PASS),
        ("finality_latency_p95_ms", {"at_most": 50}, FAIL),
        ("lateness_p95_blocks", {"at_most": 0}, PASS),
        ("recovery_ms", {"at_most": 1_000}, INCONCLUSIVE),
        ("startup_seconds", {"at_most": 8}, INCONCLUSIVE),
    ],
)
def test_a_figure_is_held_against_its_bounds(name: str, bounds: dict[str, float], outcome: Outcome) -> None:
    found = check(record_with(metrics={name: {key: float(value) for key, value in bounds.items()}}))
    assert found.verdict is outcome
    assert name in found.detail


def test_the_numbers_are_told() -> None:
    assert check(record_with(metrics={"fires": {"at_least": 20.0}})).detail == "fires 17, at least 20 required"
    assert check(record_with(metrics={"fires": {"at_most": 9.0}})).detail == "fires 17, at most 9 allowed"
    assert check(record_with(metrics={"recovery_ms": {"at_most": 1.0}})).detail == "the run has no recovery_ms"


def test_a_slow_recovery_is_a_figure() -> None:
    record = with_kill(record_with(metrics={"recovery_ms": {"at_most": 400.0}}))
    assert check(record).verdict is PASS
    slow = later(record, height=9, by_ms=600.0)
    assert check(slow).verdict is FAIL
    assert check(slow).detail.startswith("recovery_ms ")


def test_one_that_fails_outweighs_one_that_is_missing_and_both_those_that_hold() -> None:
    right, wrong, missing = {"at_least": 1.0}, {"at_least": 999.0}, {"at_least": 1.0}
    found = check(record_with(metrics={"heights": right, "fires": wrong, "startup_seconds": missing}))
    assert (found.verdict, found.detail) == (FAIL, "fires 17, at least 999 required")
    assert check(record_with(metrics={"heights": right, "startup_seconds": missing})).verdict is INCONCLUSIVE


def test_a_run_that_was_ended_early_has_shown_nothing() -> None:
    record = record_with(metrics={"fires": {"at_least": 999.0}}, samples={"fires_per_block": {"at_least": 999.0}})
    record.interrupted = True
    assert check(record).verdict is INCONCLUSIVE


# --- samples --------------------------------------------------------------------------------------------------------


def test_samples_may_breach_up_to_their_share() -> None:
    """Of eleven intervals one is a second longer than the others."""

    def verdict(share: float) -> Outcome:
        bounds = {"at_most": INTERVAL_MS + 10, "breach_share": share}
        return check(later(record_with(samples={"block_interval_ms": bounds}), height=7, by_ms=1_000.0)).verdict

    assert verdict(0.0) is FAIL
    assert verdict(0.09) is FAIL
    assert verdict(0.1) is PASS


def test_breaches_are_told_with_their_values() -> None:
    bounds = {"at_most": 260.0, "breach_share": 0.05}
    found = check(later(record_with(samples={"block_interval_ms": bounds}), height=7, by_ms=1_000.0))
    assert found.detail == ("block_interval_ms: 10 of 11 samples are at most 260, 1,251 are not (9.1%, 5.0% allowed)")


@pytest.mark.parametrize("name", SAMPLES)
def test_every_kind_of_samples_can_breach(name: str) -> None:
    assert check(record_with(samples={name: {"at_least": 0.0}})).verdict is PASS
    assert check(record_with(samples={name: {"at_least": 1e9}})).verdict is FAIL


def test_without_samples_nothing_is_told() -> None:
    record = record_with(samples={"finality_latency_ms": {"at_most": 1.0}})
    record.proposals = {}
    found = check(record)
    assert (found.verdict, found.detail) == (INCONCLUSIVE, "the run has no sample of finality_latency_ms")


def test_a_broken_criterion_fails_the_run() -> None:
    verdict = check_run(record_with(metrics={"fires": {"at_least": 18.0}}))
    assert verdict.outcome is FAIL
    assert [found.name for found in verdict.checks if found.verdict is FAIL] == ["criteria"]


# --- names ----------------------------------------------------------------------------------------------------------


def test_every_figure_of_a_run_has_a_name_that_criteria_may_use() -> None:
    for record in (make_record(), with_kill(make_record()), make_record(backend="live")):
        judged = judge_run(record)
        assert judged.metrics.keys() <= METRICS.keys()
        assert samples(judged.books, judged.actors).keys() == SAMPLES.keys()


def test_figures_are_those_that_the_books_hold() -> None:
    books = keep_books(make_record())
    taken = samples(books, use_by_actor(books))
    assert taken["lateness_blocks"].total() == taken_sum(taken["fires_per_block"]) == 17
    assert taken_sum(taken["transactions_per_block"]) == 36
    assert taken["block_interval_ms"].total() == 11


def taken_sum(values: Any) -> float:
    return sum(value * count for value, count in values.items())


def test_bounds_in_words() -> None:
    section = SuccessSection.model_validate({"metrics": {"fires": {"at_least": 1_500.0, "at_most": 2_000.5}}})
    assert section.metrics["fires"].text == "at least 1,500 and at most 2,000.5"
