"""The data behind the report's charts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cluster.audit.books import keep_books
from cluster.checks.metrics.load_latency import WorkloadLatency
from cluster.record.finalizations import Finalization
from cluster.record.run import LoadRecord, Resources, RunRecord
from cluster.report.charts import (
    MAX_POINTS,
    heights_chart,
    load_latency_chart,
    requests_chart,
    resource_charts,
    response_chart,
    thinned,
)
from cluster.report.fault_labels import marked
from cluster.report.svg import Chart, RowChart
from cluster.report.tables import workload_table
from loadgen.workloads.measures import LoadTimeline
from tests.cluster.records import make_record, make_scenario, with_kill


def test_the_memory_of_a_validator_that_was_down_is_not_drawn_meanwhile() -> None:
    record = make_record()
    times = [0.0, 500.0, 1_000.0, 9_000.0, 9_500.0]
    record.resources = [Resources(at_ms, 0, 2_000_000, 5, 300_000_000, at_ms / 1_000, 40) for at_ms in times]
    chart = resource_charts(record, marked(record))[0].chart
    assert isinstance(chart, Chart)
    memory = chart.series[0]
    assert [at for at, _ in memory.points] == [0.0, 0.5, 1.0, 9.0, 9.5]
    assert 0.5 < memory.gap < 8.0


def test_a_byzantine_validator_makes_nothing_final_first() -> None:
    nodes = [{}, {}, {}, {"byzantine": "silent-leader"}]
    record = make_record(scenario=make_scenario(validators={"count": 4, "nodes": nodes}))
    record.validators[3].byzantine = ("silent-leader",)
    honest = record.first_finalizations
    record.finalizations.append(Finalization(1.0, 3, 12))
    assert min(seen.at_ms for seen in record.finalizations if seen.height == 12) == 1.0 < honest[12]
    assert record.first_finalizations == honest, "as the checks have it"
    chart = heights_chart(keep_books(record), marked(record)).chart
    assert isinstance(chart, Chart)
    assert chart.hints == [(at / 1_000, f"height {h} final at {at / 1_000:.2f} s") for h, at in honest.items()]


@given(st.lists(st.integers(-5, 5).map(float), max_size=3 * MAX_POINTS), st.integers(0, 6 * MAX_POINTS))
def test_thinning_keeps_extremes_order_and_measured_values(values: list[float], more: int) -> None:
    points = [(float(place), value) for place, value in enumerate([*values, *range(more)])]
    kept = thinned(points)
    assert len(kept) <= max(MAX_POINTS, 1)
    assert kept == sorted(kept)
    assert set(kept) <= set(points)
    if points:
        assert kept[-1] == points[-1]
        for extreme in (min, max):
            assert extreme(value for _, value in kept) == extreme(value for _, value in points)
    if len(points) <= MAX_POINTS:
        assert kept == points


def test_of_many_validators_the_table_of_heights_has_the_first_and_the_last() -> None:
    record = make_record(count=30, scenario=make_scenario(validators=30))
    panel = heights_chart(keep_books(record), marked(record))
    assert panel.columns == ("Height", "Validators", "First (s)", "Median (s)", "Last (s)")
    assert panel.rows[0] == ("1", "30", "0.33", "0.38", "0.42")


def test_of_many_validators_that_faults_hit_those_that_most_hit_are_named() -> None:
    record = make_record(count=20, scenario=make_scenario(validators=20))
    fault = with_kill(make_record()).faults[0]
    hit = [place for place in range(20) for _ in range(1 + place)]
    record.faults = [replace(fault, targets=(f"validator-{place}",)) for place in hit]
    record.validators[0].mutant = "double-fire"
    panel = heights_chart(keep_books(record), marked(record))
    assert isinstance(panel.chart, Chart)
    named = {series.name for series in panel.chart.named}
    assert named == {"validator-0", *(f"validator-{place}" for place in range(13, 20))}
    assert "then those that most faults hit" in panel.note


# --- the load -------------------------------------------------------------------------------------------------------


def with_requests() -> RunRecord:
    """Seven seconds: two good ones, a failing one, three without any request, a slow one."""
    record, timeline = make_record(), LoadTimeline()
    for second, took_ms in ((0, 10.0), (1, 10.0), (2, None), (6, 900.0)):
        for _ in range(5):
            timeline.requested(1_000 * second)
            if took_ms is None:
                timeline.failed(1_000 * second)
            else:
                timeline.answered(1_000 * second, took_ms)
    record.load = LoadRecord(requests=20, failures=5, timeline=timeline)
    return record


def test_requests_and_failures_are_drawn_a_second() -> None:
    record = with_requests()
    chart = requests_chart(record, []).chart
    assert isinstance(chart, Chart)
    requests, failures = chart.series
    assert list(requests.points) == [(0, 5), (1, 5), (2, 5), (3, 0), (4, 0), (5, 0), (6, 5)]
    assert [at for at, rate in failures.points if rate] == [2]
    record.load.timeline.width_ms = 2_000
    wide = requests_chart(record, []).chart
    assert isinstance(wide, Chart)
    assert wide.series[0].points[0] == (0, 2.5)


def test_response_times_are_drawn_where_there_are_answers() -> None:
    chart = response_chart(with_requests(), []).chart
    assert isinstance(chart, Chart)
    for series in chart.series:
        assert [at for at, _ in series.points] == [0, 1, 6]
        assert series.gap < 5, "the stretch without answers is left open"
        assert series.points[2][1] > 50 * series.points[0][1]
    nothing = response_chart(make_record(), []).chart
    assert nothing.is_empty


def test_the_latency_of_the_load_is_drawn_and_listed_by_workload() -> None:
    latencies = [
        WorkloadLatency("heartbeat", 4, 0, 0, 0, 4, 3, [100.0, 200.0, 300.0]),
        WorkloadLatency("transfer", 5, 2, 1, 3, 3, 3, [100.0, 200.0, 4_000.0], unsent=7),
        WorkloadLatency("flood", 1, 0, 1, 0, 0),
        WorkloadLatency("storm", 9, 0, 0, 0, 9, 1, [100.0]),
    ]
    panel = load_latency_chart(latencies)
    assert isinstance(panel.chart, RowChart)
    assert [(row.name, dict(row.values)) for row in panel.chart.rows] == [
        ("heartbeat", {"p50": 200.0}),
        ("transfer", {"p50": 200.0, "p95": 4_000.0, "p99": 4_000.0, "max": 4_000.0}),
    ], "what never became final has no place on the axis"
    assert panel.chart.value_names == ["p50", "p95", "p99", "max"]
    assert panel.rows[0] == ("heartbeat", "200", "never", "never", "never")
    columns, rows = workload_table(latencies)
    assert rows[1] == ("transfer", "5", "2", "3", "7", "1", "3", "0", "200", "4,000", "4,000", "4,000")
    assert rows[2] == ("flood", "1", "0", "0", "0", "1", "0", "0", "–", "–", "–", "–")
    assert rows[3][-4:] == ("never", "never", "never", "never")
    assert {len(row) for row in rows} == {len(columns)}
    assert load_latency_chart([]).chart.is_empty
