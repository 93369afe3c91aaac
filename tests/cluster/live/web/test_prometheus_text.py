"""Histograms in Prometheus' text format, of one page and of many."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from cluster.live.web.prometheus_text import Histogram, merge_pages, render_histograms, render_metric

BOUNDS = (0.1, 1, 5)


def buckets_of(text: str) -> list[tuple[float, int]]:
    return [(float(bound), int(count)) for bound, count in re.findall(r'_bucket\{.*le="([^"]+)"\} (\d+)', text)]


@given(st.lists(st.floats(0, 10, allow_nan=False)))
def test_a_bucket_counts_the_values_up_to_its_bound(values: list[float]) -> None:
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.observe(value)
    lines = histogram.lines("h")
    naive = [(bound, sum(value <= bound for value in values)) for bound in (*BOUNDS, float("inf"))]
    assert buckets_of("\n".join(lines)) == naive
    assert abs(float(lines[-2].removeprefix("h_sum ")) - sum(values)) < 1e-3
    assert lines[-1] == f"h_count {len(values)}"


def test_the_text_of_a_histogram() -> None:
    histogram = Histogram(BOUNDS)
    histogram.observe(1)
    histogram.observe(7)
    assert render_histograms("h", "Things.", "", {"": histogram}) == (
        "# HELP h Things.\n# TYPE h histogram\n"
        'h_bucket{le="0.1"} 0\nh_bucket{le="1"} 1\nh_bucket{le="5"} 1\nh_bucket{le="+Inf"} 2\nh_sum 8.0\nh_count 2\n'
    )
    assert 'h_bucket{job="a",le="0.1"} 0\n' in render_histograms("h", "Things.", "job", {"a": histogram})


def test_pages_with_histograms_are_merged_below_one_description() -> None:
    """A planted gauge has a name like a histogram's sample: it stays a metric."""
    histogram = Histogram((1,))
    histogram.observe(0.5)
    page = render_histograms("h", "Things.", "", {"": histogram}) + render_metric("other_count", "gauge", "One.", 3)
    text = merge_pages({"v0": page, "v1": page}, "validator")
    assert text.splitlines() == [
        "# HELP h Things.",
        "# TYPE h histogram",
        'h_bucket{validator="v0",le="1"} 1',
        'h_bucket{validator="v0",le="+Inf"} 1',
        'h_sum{validator="v0"} 0.5',
        'h_count{validator="v0"} 1',
        'h_bucket{validator="v1",le="1"} 1',
        'h_bucket{validator="v1",le="+Inf"} 1',
        'h_sum{validator="v1"} 0.5',
        'h_count{validator="v1"} 1',
        "# HELP other_count One.",
        "# TYPE other_count gauge",
        'other_count{validator="v0"} 3',
        'other_count{validator="v1"} 3',
    ]
