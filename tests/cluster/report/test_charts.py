"""The data behind the report's charts."""

from __future__ import annotations

from cluster.record.run import Resources
from cluster.report.charts import resource_charts
from tests.cluster.records import make_record


def test_the_memory_of_a_validator_that_was_down_is_not_drawn_meanwhile() -> None:
    record = make_record()
    times = [0.0, 500.0, 1_000.0, 9_000.0, 9_500.0]
    record.resources = [Resources(at_ms, 0, 2_000_000, 5, 300_000_000, at_ms / 1_000, 40) for at_ms in times]
    memory = resource_charts(record)[0].chart.series[0]
    assert [at for at, _ in memory.points] == [0.0, 0.5, 1.0, 9.0, 9.5]
    assert 0.5 < memory.gap < 8.0
