"""The data behind the report's charts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cluster.audit.books import keep_books
from cluster.record.finalizations import Finalization
from cluster.record.run import Resources
from cluster.report.charts import MAX_POINTS, heights_chart, resource_charts, thinned
from cluster.report.fault_labels import marked
from cluster.report.svg import Chart
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
