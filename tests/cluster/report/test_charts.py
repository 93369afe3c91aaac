"""The data behind the report's charts."""

from __future__ import annotations

from cluster.audit.books import keep_books
from cluster.record.finalizations import Finalization
from cluster.record.run import Resources
from cluster.report.charts import heights_chart, resource_charts
from cluster.report.fault_labels import marked
from cluster.report.svg import Chart
from tests.cluster.records import make_record, make_scenario


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
