"""What a lab gives to a paper: figures as SVG and PDF, tables as CSV and LaTeX.

A figure is the drawing of the page in the page's light colours, with its title and key. PDF is made from the SVG by
svglib and ReportLab, which need no other program and no font.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from html import escape
from pathlib import Path
from typing import Any, Final

from cluster.common.files import STYLE_FILE, all_tried, write_for_user
from cluster.report.svg import CHARACTER_PIXELS, COLOURS, SCATTER_PIXELS, WIDE, Chart, render, shape, text
from kits.market.lab.experiment import Experiment
from kits.market.lab.page import charts, figures, level_text
from kits.market.lab.running import Lab

ABOVE: Final = 30.0
"""Height of the title, in pixels."""
KEY_ROW: Final = 20.0
KEY_LEFT: Final = 8.0
KEY_GAP: Final = 36.0
FONT: Final = "Helvetica, Arial, sans-serif"
TEX: Final = {each: "\\" + each for each in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "λ": r"$\lambda$",
    "α": r"$\alpha$",
    "×": r"$\times$",
}


def write_exports(folder: Path, lab: Lab) -> list[str]:
    """Write figures and tables of all experiments into a folder. Returns the files' names. Raises
    :class:`~cluster.common.errors.BadInput`."""
    folder.mkdir(exist_ok=True)
    made: dict[str, Callable[[], str | bytes]] = {}
    for each in lab.experiments:
        for number, chart in enumerate(charts(each, lab.results(each))):
            drawing = svg_of(chart)
            made[f"{each.name}-{number + 1}.svg"] = partial(str, drawing)
            made[f"{each.name}-{number + 1}.pdf"] = partial(pdf_of, drawing)
        made[f"{each.name}.csv"] = partial(csv_of, lab, each)
        made[f"{each.name}.tex"] = partial(tex_of, lab, each)
    with all_tried() as trying:
        for name, content in made.items():
            with trying():
                write_for_user(folder / name, content())
    return list(made)


# --- figures ----------------------------------------------------------------------------------------------------------


@cache
def _colours() -> dict[str, str]:
    """The light colours of pages, by name."""
    first = STYLE_FILE.read_text(encoding="utf-8").partition("}")[0]
    return dict(re.findall(r"--([\w-]+):\s*(#[0-9a-fA-F]+)", first))


def _style() -> str:
    colours = _colours()
    rules = [
        f"text{{font-family:{FONT};font-size:12px;fill:{colours['ink-2']}}}",
        f"text.name,text.title{{fill:{colours['ink']}}}",
        "text.title{font-size:14px;font-weight:bold}",
        f".grid{{stroke:{colours['grid']}}}",
        f".axis,.leader{{stroke:{colours['axis']};fill:none}}",
    ]
    for number in range(COLOURS):
        colour = colours[f"c{number}"]
        rules.append(f".line.c{number}{{stroke:{colour};fill:none;stroke-width:2}}")
        rules.append(f".dots.c{number}{{fill:{colour}}}")
    return "".join([*rules, ".whisker{stroke-width:1.3}"])


def svg_of(chart: Chart) -> str:
    """A chart as a whole SVG file."""
    if chart.is_empty:
        body, width, height = text(chart.empty, 8, 20, "label"), WIDE.width, 40.0
    else:
        drawing = render(chart, (WIDE,))
        found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawing)
        assert found is not None, "each drawing has a size"
        width, height = float(found[1]), float(found[2])
        inner = drawing.partition(">")[2].removesuffix("</svg>")
        body = re.sub(r"<(defs|title|desc)\b.*?</\1>", "", inner)
    keys = list(_keys(chart, height + ABOVE))
    whole = height + ABOVE + KEY_ROW * (1 + max((row for row, _ in keys), default=-1))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{whole:g}"'
        f' viewBox="0 0 {width:g} {whole:g}">'
        f"<title>{escape(chart.title)}</title><desc>{escape(chart.description)}</desc><style>{_style()}</style>"
        f'<rect width="{width:g}" height="{whole:g}" fill="#ffffff"/>{text(chart.title, 2, 18, "title")}'
        f'<g transform="translate(0 {ABOVE:g})">{body}</g>{"".join(key for _, key in keys)}</svg>\n'
    )


def _keys(chart: Chart, top: float) -> Iterator[tuple[int, str]]:
    """The key of points, which have no names next to them: the row and the drawing of each name."""
    named = [one for one in chart.named if one.style == "scatter"]
    across, row = KEY_LEFT, 0
    for one in named if len(named) > 1 else ():
        width = KEY_GAP + CHARACTER_PIXELS * len(one.name)
        if across > KEY_LEFT and across + width > WIDE.width:
            across, row = KEY_LEFT, row + 1
        at = top + KEY_ROW * row
        point = f'<g class="dots c{one.colour % COLOURS}">{shape(one.colour, across + 6, at + 6, SCATTER_PIXELS)}</g>'
        yield row, point + text(one.name, across + 16, at + 10, "name")
        across += width


def pdf_of(drawing: str) -> bytes:
    """An SVG drawing as PDF. Equal drawings give equal bytes."""
    from reportlab.graphics import renderPDF
    from reportlab.pdfgen.canvas import Canvas
    from svglib.svglib import svg2rlg

    found: Any = svg2rlg(io.BytesIO(drawing.encode()))
    data = io.BytesIO()
    canvas = Canvas(data, pagesize=(found.width, found.height), invariant=1)
    renderPDF.draw(found, canvas, 0, 0)
    canvas.save()
    return data.getvalue()


# --- tables -----------------------------------------------------------------------------------------------------------


def csv_of(lab: Lab, experiment: Experiment) -> str:
    """All runs of an experiment: the level of each factor, the seed and the measures, a row for each run."""
    rows = [row for row in lab.rows if row.experiment == experiment.name]
    measures = sorted({name for row in rows for name in row.measures})
    data = io.StringIO()
    out = csv.writer(data, lineterminator="\n")
    out.writerow([*experiment.factors, "seed", *measures])
    for row in rows:
        out.writerow([*row.levels.values(), row.seed, *(row.measures.get(name, "") for name in measures)])
    return data.getvalue()


def tex_of(lab: Lab, experiment: Experiment) -> str:
    """The table of an experiment's page as LaTeX: means over seeds with their 95 % intervals, and the definitions."""
    columns = [*experiment.factors, *experiment.shown]
    lines = [rf"\begin{{tabular}}{{{'l' * len(experiment.factors)}{'r' * len(experiment.shown)}}}", r"\hline"]
    lines += [_row(columns), r"\hline"]
    for cell, found in figures(experiment, lab.results(experiment)):
        shown = [mean + (f" ({interval})" if interval else "") for _, mean, interval in found]
        lines.append(_row([*map(level_text, cell), *shown]))
    lines += [r"\hline", r"\end{tabular}"]
    for name in experiment.shown:
        metric = experiment.metric(name)
        better = f"; {metric.better} is better" if metric.better else ""
        lines.append(f"% {name}: {metric.text}{better}")
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return " & ".join("".join(TEX.get(each, each) for each in cell) for cell in cells) + r" \\"
