"""The pages of a lab: what they show, and that a browser shows them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from cluster.common.errors import BadInput
from kits.market.estimates import Cell, Results
from kits.market.lab.experiment import Decision
from kits.market.lab.page import facets, plot_chart, render_experiment, render_index, write_pages
from kits.market.lab.running import Lab, plan, run_lab, run_one
from kits.market.lab.table import Row
from tests.cluster.browser import DESK, PHONE, Browser, chromium, needs_chromium
from tests.kits.market.lab.planted import OTHER, SLOPE, Slope

SIZES = {"desk": DESK, "phone": PHONE}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lab") / "out"


@pytest.fixture(scope="module")
def lab(folder: Path) -> Lab:
    made = run_lab([SLOPE, OTHER], True, folder, 1, Console(file=io.StringIO()))
    write_pages(folder, made)
    return made


def test_a_page_has_all_that_an_experiment_says(lab: Lab) -> None:
    page = render_experiment(lab, SLOPE)
    for text in (
        "Slope &lt;of&gt; a line",
        SLOPE.question,
        SLOPE.hypothesis,
        SLOPE.rule,
        '<p id="answer">y changes by 5.00.</p>',
        "<strong>Grow.</strong>",
        "A line &lt;only&gt;.",
        '<th scope="row"><code>y</code></th><td class="wrap" data-label="Definition">height &lt;of&gt; y</td>',
        '<td class="wrap" data-label="Unit">metres</td><td data-label="Better">more</td>',
        "1 comparison of the rule, corrected for all of them",
        '<td data-label="At">plain</td><td data-label="Of">4</td><td data-label="Less that of">-1</td>',
        "y (metres)",
        "<code>kind</code>: plain, steep; <code>x</code>: -1, 0.5, 4",
        "12 runs of 10 blocks: seeds 0 to 1 for each combination",
        '<dd class="mono" id="digest">' + lab.digest_of(SLOPE),
        ">stampede lab run slope --quick</pre>",
        "A quick run.",
    ):
        assert text in page, text
    assert page.count("<svg") > 4
    assert "nan" not in page.partition("<main>")[2].partition("<script>")[0]
    assert ">12.1 <span" in page, "mean of 12 and 12 + 1/7"


def test_a_page_that_fails_keeps_no_other_from_being_written(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "slope.html").mkdir()
    with pytest.raises(BadInput, match=r"slope\.html: cannot be written"):
        write_pages(tmp_path, lab)
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"other.html", "index.html"}


def test_a_full_lab_has_no_warning_and_another_command(lab: Lab) -> None:
    rows = run_rows(is_quick=False)
    page = render_experiment(Lab([SLOPE], False, lab.commit, rows), SLOPE)
    assert "A quick run." not in page
    assert ">stampede lab run slope</pre>" in page


def run_rows(is_quick: bool) -> list[Row]:
    return [run_one([SLOPE], is_quick, trial) for trial in plan([SLOPE], is_quick)]


def test_the_index_has_each_experiment_and_the_digest_of_all(lab: Lab) -> None:
    page = render_index(lab)
    assert '<a href="slope.html">Slope &lt;of&gt; a line</a>' in page
    assert '<a href="other.html">Another</a>' in page
    assert f'id="digest">{lab.digest}<' in page
    assert ">stampede lab run-all --quick</pre>" in page
    assert "<h1>2 experiments</h1>" in page


def test_a_plot_has_the_means_and_their_intervals(lab: Lab) -> None:
    results = lab.results(SLOPE)
    chart = plot_chart(SLOPE, results, SLOPE.plots[0], {}, "p")
    assert [one.name for one in chart.series] == ["plain", "steep"]
    assert {one.style for one in chart.series} == {"line"}
    steep = chart.series[1]
    estimate = results.mean(("steep", 4), "y")
    assert steep.points[2][1] == estimate.mean
    assert steep.intervals[2] == estimate.interval
    assert estimate.interval[0] < estimate.mean < estimate.interval[1]
    assert [chart.format_x(at) for at in chart.x_ticks] == ["-1", "0.5", "4"]
    assert [round(x) for x, _ in steep.points] == list(chart.x_ticks)


def test_cells_without_a_measure_are_left_out_of_a_plot(lab: Lab) -> None:
    chart = plot_chart(SLOPE, lab.results(SLOPE), SLOPE.plots[1], {}, "p")
    assert {one.style for one in chart.series} == {"scatter"}
    assert [[round(x) for x, _ in one.points] for one in chart.series] == [[1]] * 3
    assert '<td class="num" data-label="only"></td>' in render_experiment(lab, SLOPE)


def test_a_single_seed_has_no_interval() -> None:
    results = Results({cell: {0: {"y": 2.0}} for cell in SLOPE.cells()})
    assert results.mean(("plain", 4), "y").interval is None
    chart = plot_chart(SLOPE, results, SLOPE.plots[0], {}, "p")
    assert chart.series[0].intervals == [(2.0, 2.0)] * 3


class Many(Slope):
    """Too many lines for one drawing, and some combinations of levels are missing."""

    plots = Slope.plots[:1]  # type: ignore[assignment]
    factors = {"a": (1, 2, 3), "b": (1, 2, 3, 4), "x": (0, 1)}

    def cells(self) -> list[Cell]:
        return [cell for cell in super().cells() if cell[0] != 2 and (cell[0], cell[2]) != (3, 1)]

    def decide(self, results: Results) -> Decision:
        return Decision("Many.", "None.", "None.")


MANY = Many()


def test_a_plot_with_too_many_lines_is_several_without_empty_ones() -> None:
    assert facets(MANY, MANY.plots[0]) == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert facets(SLOPE, SLOPE.plots[0]) == [{}]
    rows = [Row("slope", dict(zip(MANY.factors, map(str, cell), strict=True)), 0, {"y": 1.0}) for cell in MANY.cells()]
    page = render_experiment(Lab([MANY], True, "c", rows), MANY)
    titles = re.findall(r'<h2 id="plot-0-\d-heading">([^<]*)</h2>', page)
    assert titles == ["Height, a 1", "Height, a 3"]
    results = Lab([MANY], True, "c", rows).results(MANY)
    charts = [plot_chart(MANY, results, MANY.plots[0], {"a": a}, "p") for a in (1, 3)]
    assert [[chart.format_x(at) for at in chart.x_ticks] for chart in charts] == [["0", "1"], ["0"]]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.slow
@needs_chromium
@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", ["desk", "phone"])
@pytest.mark.parametrize("name", ["slope.html", "index.html"])
def test_it_opens_without_a_complaint_and_fits(
    browser: Browser, folder: Path, name: str, size: str, dark: bool
) -> None:
    browser.open(folder / name, size=SIZES[size], dark=dark)
    assert browser.errors == []
    width, inner = browser.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= inner == SIZES[size][0]
    is_cut = "(each) => each.scrollWidth > each.clientWidth + 1"
    assert browser.evaluate(f"[...document.querySelectorAll('td, dd, h2, p')].filter({is_cut}).length") == 0
