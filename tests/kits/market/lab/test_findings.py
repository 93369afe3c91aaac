"""The findings quote a lab, and the lab can be run again: its table is in the repository."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console

from cluster.report.svg import WIDE, _Drawing
from kits.market.lab.experiments.registry import EXPERIMENTS
from kits.market.lab.exports import svg_of
from kits.market.lab.page import charts, command, facets, plot_chart
from kits.market.lab.running import LOG_FILE, Lab, plan, read_lab, run_lab, run_one
from kits.market.lab.table import rounded

DOCS: Final = Path(__file__).resolve().parents[4] / "docs"
FOLDER: Final = DOCS / "findings"
ROUNDED: Final = 1e-8
"""The table's numbers have nine digits."""
CHEAP: Final = ("lane_multiplier", "rivals")
"""Experiments of which one run is made again outside of soak tests."""


@pytest.fixture(scope="module")
def lab() -> Lab:
    """The lab of the findings. Its table has the digest of its summary, and the rows of today's factors and seeds."""
    return read_lab(FOLDER, EXPERIMENTS)


@pytest.fixture(scope="module")
def text() -> str:
    return (DOCS / "findings.md").read_text(encoding="utf-8")


def test_the_findings_are_of_all_experiments(lab: Lab, text: str) -> None:
    assert [each.name for each in lab.experiments] == list(EXPERIMENTS)
    assert not lab.is_quick
    assert lab.digest in text and command(lab) in text


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_findings_quote_what_the_rule_decides(lab: Lab, text: str, name: str) -> None:
    """The rule of today is applied to the table, so a changed rule needs changed findings."""
    experiment, quoted = EXPERIMENTS[name], " ".join(text.split())
    decision = lab.decision(experiment)
    page: dict[str, Any] = json.loads((FOLDER / "lab.json").read_text(encoding="utf-8"))["experiments"][name]
    for said in (decision.answer, decision.recommendation, decision.limits):
        assert " ".join(said.split()) in quoted
    assert page["answer"] == decision.answer and page["digest"] == lab.digest_of(experiment)
    assert f"`{page['digest'][:16]}`" in text


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_interval_and_no_axis_has_values_that_a_measure_cannot_have(lab: Lab, name: str) -> None:
    """The interval of a variance began at -0.141, and the axes of shares ended at 1.5."""
    experiment, results = EXPERIMENTS[name], lab.results(EXPERIMENTS[name])
    for cell in experiment.cells():
        for measure, value in next(iter(results.rows[cell].values())).items():
            least, most = experiment.metric(measure).range
            assert value is not None and least <= value <= most + ROUNDED
            assert least > -inf or most < inf or measure == "waiting_gain", f"the range of {measure} is known"
            low, high = results.mean(cell, measure).interval or (-inf, inf)
            assert least <= low <= high <= most
    for plot in experiment.plots:
        (least, most), drawings = experiment.metric(plot.measure).range, facets(experiment, plot)
        for number, fixed in enumerate(drawings):
            chart = plot_chart(experiment, results, plot, fixed, f"plot-{number}")
            axis = _Drawing(chart, WIDE).y
            assert axis.high <= most
            assert axis.low >= min(least, 0)


def test_a_strangers_policy_is_held_against_the_others(lab: Lab, text: str) -> None:
    """The table of the page is that of the lab that was run with the file."""
    own = read_lab(FOLDER / "patience", EXPERIMENTS)
    (rivals,) = own.experiments
    assert rivals.policies["patience"].source == (DOCS / "lab/patience.py").read_text(encoding="utf-8")
    assert own.digest in text and own.decision(rivals).recommendation in " ".join(text.split())
    assert f"makes {len(own.decided['rivals'][1].made)} comparisons with six policies" in text
    usual = {row.key: row.measures for row in lab.rows if row.experiment == "rivals"}
    assert {row.key: row.measures for row in own.rows if row.levels["policy"] != "patience"} == usual
    results = own.results(rivals)
    section = text.partition("## A stranger's policy")[2]
    for line in (line for line in section.splitlines() if line.startswith("| `")):
        name, unit, better, *shown = (cell.strip(" `") for cell in line.strip("|").split("|"))
        metric = rivals.metric(name)
        assert (unit, better) == (metric.unit, metric.better)
        cells = [("learning", "overload", str(policy)) for policy in rivals.factors["policy"]]
        assert shown == [f"{results.mean(cell, name).mean:.3g}" for cell in cells]
    drawing = svg_of(charts(rivals, results)[0])
    assert (DOCS / "images/rivals-patience.svg").read_text(encoding="utf-8") == drawing


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEAP)
def test_a_run_gives_the_row_of_the_findings(lab: Lab, name: str) -> None:
    check_first_run(lab, name)


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name not in CHEAP])
def test_a_run_of_each_experiment_gives_its_row(lab: Lab, name: str) -> None:
    check_first_run(lab, name)


@pytest.mark.soak
def test_a_full_lab_has_the_digest_of_the_findings(lab: Lab, tmp_path: Path) -> None:
    again = run_lab(list(EXPERIMENTS.values()), False, tmp_path, None, Console(quiet=True))
    assert again.digest == lab.digest and (tmp_path / LOG_FILE).exists()


def check_first_run(lab: Lab, name: str) -> None:
    """Make the first run of an experiment again."""
    experiments = [EXPERIMENTS[name]]
    row, expected = (
        run_one(experiments, False, plan(experiments, False)[0]),
        next(row for row in lab.rows if row.experiment == name),
    )
    assert row.key == expected.key
    assert {name: rounded(value) for name, value in row.measures.items()} == dict(expected.measures)
