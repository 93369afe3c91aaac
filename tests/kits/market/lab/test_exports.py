"""Figures as SVG and PDF, tables as CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from cluster.report.svg import Chart, Series
from kits.market.lab.exports import csv_of, pdf_of, svg_of, tex_of, write_exports
from kits.market.lab.page import charts
from kits.market.lab.running import Lab, run_lab
from tests.kits.market.lab.planted import SLOPE

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return run_lab([SLOPE], True, tmp_path_factory.mktemp("lab") / "out", 1, Console(file=io.StringIO()))


def texts(drawing: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(drawing).iter(f"{SVG}text")]


def test_a_figure_stands_alone(lab: Lab) -> None:
    line, points = (svg_of(chart) for chart in charts(SLOPE, lab.results(SLOPE)))
    assert {"Height", "y (metres)", "plain", "steep", "-1", "0.5", "4", "x"} <= {*texts(line)}
    assert "var(" not in line and 'class="narrow' not in line and "style" in line
    root = ElementTree.fromstring(points)
    assert {"-1", "0.5", "4"} <= {*texts(points)}, "the key of points is in the drawing"
    assert float(root.attrib["height"]) > float(ElementTree.fromstring(line).attrib["height"])


def test_a_long_key_has_several_rows() -> None:
    series = [Series(f"a long name of a series {n}", [(n, 1.0)], "scatter", n) for n in range(8)]
    root = ElementTree.fromstring(svg_of(Chart("c", "T", "D", "x", "y", series)))
    names = [each for each in root.iter(f"{SVG}text") if (each.text or "").startswith("a long")]
    assert len({each.attrib["y"] for each in names}) > 1
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    assert all(float(e.attrib["x"]) + 6.6 * 25 <= width and float(e.attrib["y"]) < height for e in names)


def test_an_empty_figure_says_so() -> None:
    assert "Nothing was recorded." in texts(svg_of(Chart("c", "T", "D", "x", "y", [])))


def test_a_pdf_has_the_figures_text_and_is_the_same_each_time(lab: Lab) -> None:
    drawing = svg_of(charts(SLOPE, lab.results(SLOPE))[0])
    data = pdf_of(drawing)
    assert data.startswith(b"%PDF-") and data == pdf_of(drawing)
    assert b"/MediaBox" in data


def test_a_csv_has_a_row_for_each_run(lab: Lab) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_of(lab, SLOPE))))
    assert len(rows) == len(lab.rows) == 12
    assert rows[0] == {"kind": "plain", "x": "-1", "seed": "0", "only": "", "y": "-1.0"}
    assert rows[-1] == {"kind": "steep", "x": "4", "seed": "1", "only": "10.0", "y": "12.1428571"}


def test_a_latex_table_has_the_pages_figures_and_the_definitions(lab: Lab) -> None:
    text = tex_of(lab, SLOPE)
    assert r"\begin{tabular}{llrr}" in text and r"\end{tabular}" in text
    assert r"steep & 4 & 12.1 (11.2 to 13) & 10 (10 to 10) \\" in text
    assert "% y: height <of> y, in metres; more is better" in text


def test_signs_of_latex_are_written_as_text(lab: Lab) -> None:
    from kits.market.lab.exports import _row

    assert _row(["a_b", "5 %", "λ", "{x}"]) == r"a\_b & 5 \% & $\lambda$ & \{x\} \\"


def test_all_files_are_written(lab: Lab, tmp_path: Path) -> None:
    names = write_exports(tmp_path / "export", lab)
    assert {path.name for path in (tmp_path / "export").iterdir()} == {*names}
    assert {*names} == {f"slope{end}" for end in (".csv", ".tex", "-1.svg", "-1.pdf", "-2.svg", "-2.pdf")}
