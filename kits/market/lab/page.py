"""The pages of a lab: one for each experiment, and an index."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from cluster.common.files import all_tried, write_for_user
from cluster.common.wording import counted
from cluster.report.charts import ChartPanel, Key, line_keys, point_keys
from cluster.report.page import render_page
from cluster.report.svg import COLOURS, Chart, Series, render
from cluster.report.svg import number as short_number
from cluster.scenario.code.gate import digest_of
from kits.market.estimates import Cell, Estimate, Level, Results, Side, effect_size
from kits.market.lab.experiment import Experiment, Plot
from kits.market.lab.running import Lab

INDEX_FILE: Final = "index.html"
DODGE: Final = 0.09
"""Distance in x between the points of neighbouring series at a level, where levels are 1 apart."""
FIGURES: Final = 3
"""Significant digits of a figure on a page."""


def page_file(experiment: Experiment) -> str:
    return f"{experiment.name}.html"


def write_pages(folder: Path, lab: Lab) -> None:
    """Write the page of each experiment and the index.

    Raises :class:`BadInput` with a line for each page that cannot be written, after all others were.
    """
    with all_tried() as trying:
        for experiment in lab.experiments:
            with trying():
                write_for_user(folder / page_file(experiment), render_experiment(lab, experiment))
        with trying():
            write_for_user(folder / INDEX_FILE, render_index(lab))


def command(lab: Lab, experiment: Experiment | None = None) -> str:
    """The command that repeats an experiment, or all of the lab."""
    given, one = lab.experiments[0].given, experiment or (lab.experiments[0] if len(lab.experiments) == 1 else None)
    words = ["run-all"] if one is None else ["run", one.name if one.file is None else f"./{one.file.file}"]
    words += [word for each in given["policies"] for word in ("--policy", f"./{each['name']}.py")]
    words += ["--quick"] if lab.is_quick else []
    words += [] if given["seeds"] is None else ["--seeds", ":".join(map(str, given["seeds"]))]
    words += [] if given["blocks"] is None else ["--blocks", str(given["blocks"])]
    return shlex.join(["stampede", "lab", *words])


def render_index(lab: Lab) -> str:
    """The index of a lab, as HTML."""
    rows = [{"experiment": each, "file": page_file(each), "decision": lab.decision(each)} for each in lab.experiments]
    return render_page(
        "lab_index.html.j2",
        lab=lab,
        rows=rows,
        runs=counted(len(lab.rows), "run"),
        command=command(lab),
    )


def render_experiment(lab: Lab, experiment: Experiment) -> str:
    """The result page of an experiment, as HTML."""
    (decision, results), effort = lab.decided[experiment.name], experiment.effort(lab.is_quick)
    return render_page(
        "lab.html.j2",
        lab=lab,
        experiment=experiment,
        decision=decision,
        effort=effort,
        seeds=experiment.seeds(lab.is_quick),
        runs=counted(len(experiment.cells()) * effort.seeds, "run"),
        panels=[_panel(chart) for chart in charts(experiment, results)],
        metrics=lab.metrics(experiment),
        comparisons=[_comparison(results, *sides) for sides in results.made],
        family=counted(len(results.made), "comparison"),
        measures=experiment.shown,
        rows=[
            {"levels": list(zip(experiment.factors, map(level_text, cell), strict=True)), "figures": found}
            for cell, found in figures(experiment, results)
        ],
        digest=lab.digest_of(experiment),
        code=[
            {"name": each["name"], "digest": digest_of(each["source"])}
            for each in (*filter(None, [experiment.given["file"]]), *experiment.given["policies"])
        ],
        command=command(lab, experiment),
    )


def figures(experiment: Experiment, results: Results) -> Iterator[tuple[Cell, list[tuple[str, str, str]]]]:
    """For each cell the measures that the table shows: name, mean and interval as text."""
    for cell in experiment.cells():
        yield (
            cell,
            [
                (measure, *_texts(results.mean(cell, measure))) if results.has(cell, measure) else (measure, "", "")
                for measure in experiment.shown
            ],
        )


def _comparison(results: Results, one: Side, other: Side) -> dict[str, Any]:
    """A row of the table of comparisons."""
    estimate, size = results.compared(one, other), effect_size(results.made[one, other])
    usual = results.mean(*other).mean
    (cell, measure), (base, against) = one, other
    shared = [level for level, its in zip(cell, base, strict=True) if level == its]
    return {
        "measure": measure,
        "at": ", ".join(map(level_text, shared)),
        "cell": _differing(cell, shared) if measure == against else measure,
        "base": _differing(base, shared) if measure == against else against,
        "difference": _figure(estimate.mean),
        "interval": " to ".join(map(_figure, estimate.interval or ())),
        "is_clear": estimate.is_clear,
        "size": "" if size is None else _figure(size),
        "share": f"{estimate.mean / usual:+,.0%}" if usual else "",
    }


def _differing(cell: Cell, shared: Sequence[Level]) -> str:
    return ", ".join(level_text(level) for level in cell if level not in shared)


def _texts(estimate: Estimate) -> tuple[str, str]:
    return _figure(estimate.mean), " to ".join(map(_figure, estimate.interval or ()))


def _figure(value: float) -> str:
    """A figure as text, such as ``0.0312``, ``-1.5`` or ``1,234``."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.{FIGURES}g}" if abs(value) >= 1e-4 else f"{value:.1g}"


def level_text(level: Level) -> str:
    return level if isinstance(level, str) else short_number(level)


# --- plots ------------------------------------------------------------------------------------------------------------


def facets(experiment: Experiment, plot: Plot) -> list[dict[str, Level]]:
    """The levels that each drawing of a plot fixes. A plot has several drawings if one would have too many lines."""
    others = [name for name in experiment.factors if name != plot.over]
    fixed: list[str] = []
    while prod(len(experiment.factors[name]) for name in others) > COLOURS:
        fixed.append(others.pop(0))
    levels = product(*(experiment.factors[name] for name in fixed))
    return [dict(zip(fixed, each, strict=True)) for each in levels]


def _matches(experiment: Experiment, cell: Cell, fixed: dict[str, Level]) -> bool:
    return fixed.items() <= dict(zip(experiment.factors, cell, strict=True)).items()


def charts(experiment: Experiment, results: Results) -> list[Chart]:
    """The charts of all plots of an experiment."""
    return [
        plot_chart(experiment, results, plot, fixed, f"plot-{place}-{part}")
        for place, plot in enumerate(experiment.plots)
        for part, fixed in enumerate(facets(experiment, plot))
        if any(_matches(experiment, cell, fixed) for cell in experiment.cells())
    ]


def _panel(chart: Chart) -> ChartPanel:
    is_scatter = any(one.style == "scatter" for one in chart.named)
    keys: Sequence[Key] = ()
    if len(chart.named) > 1:
        keys = point_keys((one.colour, one.name) for one in chart.named) if is_scatter else line_keys(chart)
    return ChartPanel(chart, Markup(render(chart)), "", (), (), keys)


def plot_chart(experiment: Experiment, results: Results, plot: Plot, fixed: dict[str, Level], ident: str) -> Chart:
    """The chart of a plot: a series for each combination of the factors that are not on the x axis, with intervals.

    ``fixed`` are levels of factors that hold for the whole chart. Levels without a cell are left out. Numbers on the x
    axis are equally far apart and connected. Texts are not connected.
    """
    over = list(experiment.factors).index(plot.over)
    shown = {cell[over] for cell in experiment.cells() if _matches(experiment, cell, fixed)}
    levels = [level for level in experiment.factors[plot.over] if level in shown]
    lines = [name for name in experiment.factors if name != plot.over and name not in fixed]
    combinations = list(product(*(experiment.factors[name] for name in lines)))
    style = "scatter" if any(isinstance(level, str) for level in levels) else "line"
    series = []
    for place, combination in enumerate(combinations):
        shift = (place - (len(combinations) - 1) / 2) * DODGE
        chosen = {**fixed, **dict(zip(lines, combination, strict=True))}
        points, intervals = [], []
        for at, level in enumerate(levels):
            cell = tuple(level if name == plot.over else chosen[name] for name in experiment.factors)
            if results.has(cell, plot.measure):
                estimate = results.mean(cell, plot.measure)
                points.append((at + shift, estimate.mean))
                intervals.append(estimate.ends)
        name = ", ".join(map(level_text, combination))
        series.append(Series(name, points, style, place, intervals=intervals))
    metric = experiment.metric(plot.measure)
    title = ", ".join([plot.title, *(f"{name} {level_text(level)}" for name, level in fixed.items())])
    return Chart(
        ident=ident,
        title=title,
        description=f"{plot.measure} over {plot.over}, with 95 % intervals: {metric.text}. The table has the figures.",
        x_label=plot.over,
        y_label=f"{plot.measure} ({metric.unit})" if metric.unit else plot.measure,
        series=series,
        x_ticks=range(len(levels)),
        format_x=lambda at: level_text(levels[round(at)]),
        empty="No run has this measure.",
    )
