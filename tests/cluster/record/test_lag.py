"""A machine that is too slow is not a broken chain: lag excuses what it explains, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from cluster.checks.run import check_run, judge_run
from cluster.checks.verdict import Check
from cluster.common.outcome import Outcome
from cluster.record.lag import MAX_LAGS, LagLog, explains_delay, lag_by_host, running_ms
from cluster.record.run import FaultRecord, Lag, RunRecord
from cluster.report.charts import lag_chart
from cluster.report.fault_labels import marked
from cluster.report.results import result_of
from cluster.report.svg import Chart
from cluster.watches.watched_simulation import simulate
from tests.cluster.records import WRITTEN, make_record, make_scenario, stalled, with_kill

BEGAN_MS, LENGTH_MS, LIMIT_MS = 1_250.0, 7_251.0, 5_000
"""About when height 5 was final, and how long :func:`stalled` then takes to the next one; what is allowed."""


def lagging(record: RunRecord, lag_ms: float, hosts: int = 4, at_ms: float = BEGAN_MS + 100) -> RunRecord:
    """Each of so many hosts could not run for so long, second by second, of 7 seconds."""
    record.lags += [
        Lag(at_ms + 1_000 * second, at_ms + 1_000 * (second + 1), lag_ms / 7, host)
        for host in range(hosts)
        for second in range(7)
    ]
    return record


def judged(record: RunRecord, name: str = "progress") -> Check:
    return check_run(record).check(name)


def test_a_stall_without_lag_is_a_fail() -> None:
    check = judged(stalled(make_record()))
    assert (check.verdict, "too slow" in check.detail) == (Outcome.FAIL, False)


def test_a_stall_that_lag_explains_is_inconclusive_and_says_so() -> None:
    record = lagging(stalled(make_record()), lag_ms=4_000.0)
    verdict = check_run(record)
    check = verdict.check("progress")
    assert verdict.outcome is check.verdict is Outcome.INCONCLUSIVE
    assert "without a final block after height 5, allowed 5,000 ms; the machine was too slow to tell" in check.detail


@pytest.mark.parametrize(
    "spoil",
    [
        lambda record: lagging(record, lag_ms=2_000.0),
        lambda record: lagging(record, lag_ms=6_900.0, hosts=1),
        lambda record: lagging(record, lag_ms=6_900.0, at_ms=BEGAN_MS + LENGTH_MS + 1_000),
        lambda record: record.lags.append(Lag(BEGAN_MS, BEGAN_MS + LENGTH_MS, LENGTH_MS, None)),
    ],
    ids=["too little", "a quorum without it", "at another time", "of the driver alone"],
)
def test_lag_that_does_not_explain_the_stall_excuses_nothing(spoil) -> None:  # type: ignore[no-untyped-def]
    record = stalled(make_record())
    spoil(record)
    assert judged(record).verdict is Outcome.FAIL


def test_lag_of_two_of_four_hosts_leaves_no_quorum() -> None:
    assert judged(lagging(stalled(make_record()), lag_ms=4_000.0, hosts=2)).verdict is Outcome.INCONCLUSIVE


def test_one_stall_that_is_explained_hides_no_other() -> None:
    record = lagging(stalled(stalled(make_record(), after=5), after=8), lag_ms=4_000.0)
    check = judged(record)
    assert check.verdict is Outcome.FAIL
    assert "after height 8" in check.detail


def fault(kind: str, *targets: str) -> FaultRecord:
    times = {"begun_ms": BEGAN_MS, "ended_ms": BEGAN_MS + LENGTH_MS}
    return FaultRecord(kind, ", ".join(targets), 5, targets=targets, **times)  # type: ignore[arg-type]


def test_what_a_pause_keeps_from_running_is_no_lag() -> None:
    record = lagging(stalled(make_record()), lag_ms=7_000.0)
    record.faults = [fault("pause", "validator-1")]
    assert running_ms(record, 1, BEGAN_MS, BEGAN_MS + LENGTH_MS) == LENGTH_MS
    assert running_ms(record, 2, BEGAN_MS, BEGAN_MS + LENGTH_MS) == pytest.approx(LENGTH_MS - 7_000)


def test_where_faults_alone_leave_no_quorum_lag_excuses_nothing() -> None:
    record = lagging(stalled(make_record()), lag_ms=6_900.0)
    record.faults = [fault("kill", "validator-1", "validator-2")]
    assert judged(record).verdict is Outcome.FAIL


def test_of_those_that_faults_left_one_that_lags_is_enough() -> None:
    record = lagging(stalled(make_record()), lag_ms=6_900.0, hosts=1)
    record.faults = [fault("kill", "validator-2")]
    assert judged(record).verdict is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("lag_share", "outcome"), [(0.0, Outcome.FAIL), (0.3, Outcome.FAIL), (0.6, Outcome.INCONCLUSIVE)]
)
def test_a_target_that_was_missed_is_inconclusive_where_it_was_reached_without_lag(
    lag_share: float, outcome: Outcome
) -> None:
    """Twelve heights of twenty: they would have been twenty with two fifths of the time lost, not with less."""
    record = make_record(scenario=make_scenario(stop={"height": 20}))
    record.time_up = "the time was up after 4 s"
    record.lags = [
        Lag(at_ms, at_ms + 500, 500 * lag_share, host) for host in range(4) for at_ms in range(0, 4_000, 500)
    ]
    verdict = check_run(record)
    assert verdict.check("progress").verdict is outcome
    assert verdict.check("no_problems").verdict is outcome
    record.problems.append("validator-1 was lost")
    assert check_run(record).check("no_problems").verdict is Outcome.FAIL


@pytest.mark.parametrize(("ended_ms", "outcome"), [(3_500.0, Outcome.INCONCLUSIVE), (None, Outcome.FAIL)])
def test_a_target_that_was_missed_with_a_quorum_still_down_is_a_fail(ended_ms: float | None, outcome: Outcome) -> None:
    """A fault that was not over at the end left no quorum to be slow."""
    record = make_record(scenario=make_scenario(stop={"height": 20}))
    record.lags = [Lag(0.0, 4_000.0, 2_400.0, host) for host in range(4)]
    targets = ("validator-1", "validator-2")
    record.faults = [FaultRecord("kill", "2", 5, begun_ms=3_000.0, ended_ms=ended_ms, targets=targets)]
    assert judged(record).verdict is outcome


@pytest.mark.parametrize(("host", "outcome"), [(2, Outcome.INCONCLUSIVE), (1, Outcome.FAIL)])
def test_one_validator_that_stays_behind_is_excused_by_its_own_host_alone(host: int, outcome: Outcome) -> None:
    record = make_record()
    record.validators[2].blocks = record.validators[2].blocks[:7]
    record.lags = [Lag(0.0, record.duration_ms, 0.6 * record.duration_ms, host)]
    assert judged(record).verdict is outcome


def test_one_validator_that_a_fault_left_behind_is_not_excused_by_its_host() -> None:
    record = make_record()
    record.validators[2].blocks = record.validators[2].blocks[:7]
    record.lags = [Lag(0.0, record.duration_ms, 0.6 * record.duration_ms, 2)]
    record.faults = [FaultRecord("kill", "validator-2", 7, begun_ms=1_750.0, targets=("validator-2",))]
    assert judged(record).verdict is Outcome.FAIL


@pytest.mark.parametrize(("lag_ms", "outcome"), [(0.0, Outcome.FAIL), (6_900.0, Outcome.INCONCLUSIVE)])
def test_a_late_recovery_is_excused_likewise(lag_ms: float, outcome: Outcome) -> None:
    record = with_kill(make_record())
    success = record.scenario.success.model_copy(update={"recovery_ms": 2_000, "stall_ms": 60_000})
    record.scenario = record.scenario.model_copy(update={"success": success})
    record = lagging(stalled(record, after=8), lag_ms, at_ms=2_300.0)
    assert judged(record, "recovery").verdict is outcome


@pytest.mark.parametrize(("lag_ms", "outcome"), [(0.0, Outcome.FAIL), (60_000.0, Outcome.INCONCLUSIVE)])
def test_a_standstill_during_a_fault_is_excused_likewise(lag_ms: float, outcome: Outcome) -> None:
    record = stalled(with_kill(make_record()), by_ms=80_000.0)
    begun_ms = record.faults[0].begun_ms = BEGAN_MS + 200
    record.faults[0].ended_ms = begun_ms + 70_000
    record.lags = [Lag(begun_ms, begun_ms + 70_000, lag_ms, host) for host in range(4)]
    record.validators[2].status = {**(record.validators[2].status or {}), "starts": 2, "recovered_height": 5}
    assert judged(record, "faults").verdict is outcome


@pytest.mark.parametrize(("committee", "outcome"), [([0, 1, 2, 3], Outcome.INCONCLUSIVE), ([2, 3, 4, 5], Outcome.FAIL)])
def test_lag_of_hosts_that_are_in_no_committee_excuses_nothing(committee: list[int], outcome: Outcome) -> None:
    record = stalled(make_record(count=6, scenario=make_scenario(validators=6)))
    lagging(record, lag_ms=6_900.0, hosts=2)
    names = {f"validator-{index}" for index in committee}
    found = explains_delay(record, [names], BEGAN_MS, BEGAN_MS + LENGTH_MS, LIMIT_MS)
    assert bool(found) is (outcome is Outcome.INCONCLUSIVE)


def test_lag_is_a_figure_of_the_run_and_on_its_page() -> None:
    record = lagging(make_record(backend="live"), lag_ms=700.0, hosts=2)
    record.lags.append(Lag(0.0, 1_000.0, 30.0, None))
    judged = judge_run(record)
    figures = judged.metrics
    assert (figures["host_lag_ms"], figures["driver_lag_ms"]) == (700, 30)
    lag = result_of(judged, WRITTEN)["lag"]
    assert lag == {"host-0": {"lag_ms": 700}, "host-1": {"lag_ms": 700}, "driver": {"lag_ms": 30}}
    chart = lag_chart(record, marked(record)).chart
    assert isinstance(chart, Chart)
    assert [series.name for series in chart.series] == ["driver", "host 0", "host 1"]
    assert chart.series[1].points[0] == pytest.approx(((BEGAN_MS + 1_100) / 1_000, 10.0))


def test_in_the_simulator_there_is_none() -> None:
    record = simulate(make_scenario(stop={"height": 3}), 1)
    assert record.lags == []
    assert judge_run(record).metrics["host_lag_ms"] == 0
    assert "In the simulator there is no lag." in lag_chart(record, marked(record)).drawing


def test_the_log_is_bounded_and_loses_no_lag() -> None:
    record = make_record()
    log = LagLog(record)
    for second in range(3 * MAX_LAGS):
        for host in (0, None):
            log.note(Lag(1_000.0 * second, 1_000.0 * (second + 1), 2.0, host))
    assert len(record.lags) <= 2 * MAX_LAGS
    assert lag_by_host(record) == {0: 6.0 * MAX_LAGS, None: 6.0 * MAX_LAGS}
    mine = sorted((lag for lag in record.lags if lag.host == 0), key=lambda lag: lag.at_ms)
    assert all(one.until_ms == other.at_ms for one, other in pairwise(mine))
    half = replace(mine[0], at_ms=0.0, until_ms=2_000.0, lag_ms=100.0)
    assert (half.within(1_500.0, 9_000.0), half.within(2_000.0, 9_000.0)) == (25.0, 0.0)


@pytest.mark.parametrize("second", [0, 1, 2 * MAX_LAGS // 3, MAX_LAGS - 1, 2 * MAX_LAGS])
def test_the_worst_second_stays_visible(second: int) -> None:
    record = make_record(backend="live")
    log = LagLog(record)
    for each in range(3 * MAX_LAGS):
        log.note(Lag(1_000.0 * each, 1_000.0 * (each + 1), 930.0 if each == second else 2.0, 0))
    assert max(lag.worst_share for lag in record.lags) == pytest.approx(0.93)
    chart = lag_chart(record, marked(record)).chart
    assert isinstance(chart, Chart)
    (drawn,) = (max(value for _, value in series.points) for series in chart.series if series.points)
    assert drawn == pytest.approx(93.0)


def test_of_many_hosts_the_worst_are_named() -> None:
    record = make_record(backend="live")
    record.lags = [Lag(0.0, 1_000.0, 10.0 * host, host) for host in range(40)]
    chart = lag_chart(record, marked(record)).chart
    assert isinstance(chart, Chart)
    assert [series.name for series in chart.named] == [f"host {host}" for host in range(33, 40)]
    (others,) = (series for series in chart.series if series.muted)
    assert max(value for _, value in others.points) == pytest.approx(32.0)
