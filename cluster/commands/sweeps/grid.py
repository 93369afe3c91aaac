"""A sweep over a grid of settings: each cell is the scenario with one value of each setting, run with all seeds.

Each cell is a sweep in a folder below the grid's folder, so ``stampede compare`` takes cells as groups, and an
interrupted grid goes on where it was. ``grid.json`` identifies the grid; another grid is refused in its folder.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rich.console import Console

from cluster.commands.console.output import plain_table, print_line
from cluster.commands.console.outputs import Ending, Part
from cluster.commands.sweeps.log import LineLog
from cluster.commands.sweeps.runner import EXIT_OUTCOMES, SHOWN, Summary, parts_of, sweep_suite
from cluster.commands.sweeps.tasks import ScenarioTask
from cluster.common.checkout import checkout_commit, version
from cluster.common.errors import BadInput, ExitCode
from cluster.common.outcome import Outcome, worst
from cluster.common.wording import counted
from cluster.record.folder import GRID_FILE
from cluster.report.junit import junit_xml
from cluster.report.svg import number
from cluster.scenario.overrides import Change, SettingError, parse_setting, setting_text

MAX_CELLS: Final = 1_000
SHOWN_METRICS: Final = ("blocks_per_second", "fires_per_second", "finality_latency_p50_ms", "finality_latency_p95_ms")
"""The metrics of a cell in the table, as means over its seeds."""
MAX_NAME: Final = 80
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._=-]+")


@dataclass(frozen=True, slots=True)
class Axis:
    """One setting of a grid, with its values."""

    settings: tuple[Change, ...]

    @property
    def path(self) -> str:
        return self.settings[0].path

    @property
    def text(self) -> str:
        """The axis as one line, which identifies it."""
        return "; ".join(map(setting_text, self.settings))


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a grid."""

    number: int
    settings: tuple[Change, ...]
    task: ScenarioTask

    @property
    def words(self) -> tuple[str, ...]:
        """The value of each setting as text, as in a file."""
        return tuple(setting_text(each).partition("=")[2] for each in self.settings)

    @property
    def title(self) -> str:
        return " ".join(map(setting_text, self.settings))

    @property
    def folder(self) -> str:
        """The name of the cell's folder."""
        return f"cell-{self.number}-{_NOT_IN_NAMES.sub('_', self.title)}"[:MAX_NAME]


CellSummary = tuple[Cell, Summary]


def parse_axis(text: str) -> Axis:
    """Parse ``PATH=V1,V2,…``; the values are YAML. Raises :class:`argparse.ArgumentTypeError`."""
    path, equals, values = text.partition("=")
    try:
        listed = parse_setting(f"{path}=[{values}]") if equals else parse_setting(text)
    except SettingError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not isinstance(listed.value, list) or not listed.value:
        raise argparse.ArgumentTypeError(f"{text!r} names no value: expected PATH=V1,V2,…")
    settings = tuple(Change(path, value) for value in listed.value)
    if len(set(map(setting_text, settings))) < len(settings):
        raise argparse.ArgumentTypeError(f"{path}: a value is given twice")
    return Axis(settings)


def cells_of(
    load: Callable[[Sequence[Change]], ScenarioTask], axes: Sequence[Axis], seeds: int, max_runs: int
) -> list[Cell]:
    """The cells of a grid, the last axis fastest. ``load`` gives the task of a scenario with changes.

    Raises :class:`BadInput` for a repeated setting, more than ``max_runs`` runs, and a cell that is no scenario.
    """
    paths = [axis.path for axis in axes]
    if len(set(paths)) < len(paths):
        raise BadInput("--grid: a setting is given twice")
    combinations = list(product(*(axis.settings for axis in axes)))
    if len(combinations) > MAX_CELLS or len(combinations) * seeds > max_runs:
        counts = f"{counted(len(combinations), 'cell')} of {counted(seeds, 'seed')}"
        raise BadInput(f"--grid: {counts}: expected at most {MAX_CELLS:,} cells and {max_runs:,} runs")
    return [Cell(place, settings, load(settings)) for place, settings in enumerate(combinations, start=1)]


def begin_grid(folder: Path, title: str, axes: Sequence[Axis]) -> None:
    """Begin a grid in an empty folder, or check that the folder is of the same grid and commit.

    Raises :class:`BadInput`.
    """
    identity = {"task": title, "commit": checkout_commit(), "grid": [axis.text for axis in axes]}
    LineLog(folder / GRID_FILE, dict[str, Any], "grid", identity).close()


def run_cells(cells: Sequence[Cell], run: Callable[[Cell], Summary], stop_on_fail: bool) -> list[CellSummary]:
    """Run the cells one after the other, up to an interruption or, with ``stop_on_fail``, to the first failure."""
    done: list[CellSummary] = []
    for cell in cells:
        summary = run(cell)
        done.append((cell, summary))
        if summary.interrupted or (stop_on_fail and (summary.failed or summary.crashed)):
            break
    return done


def outcome_of(done: Sequence[CellSummary], cells: Sequence[Cell]) -> Outcome:
    """The worst outcome of all cells; at best inconclusive if some did not run."""
    missing = [Outcome.INCONCLUSIVE] if len(done) < len(cells) else []
    return worst([EXIT_OUTCOMES[summary.exit_code] for _, summary in done] + missing)


def exit_code(done: Sequence[CellSummary], outcome: Outcome) -> ExitCode:
    """The exit code of a grid with an outcome."""
    if outcome is not Outcome.FAIL and any(summary.crashed for _, summary in done):
        return ExitCode.CRASH
    return ExitCode[outcome.name]


def grid_page(title: str, axes: Sequence[Axis], done: Sequence[CellSummary]) -> dict[str, Any]:
    """The content of the grid's ``summary.json``: totals, and each cell with its means."""
    totals = [summary.page() for _, summary in done]
    return {
        "task": title,
        "grid": {axis.path: [each.value for each in axis.settings] for axis in axes},
        "seeds": sum(page["seeds"] for page in totals),
        "passed": sum(page["passed"] for page in totals),
        "failed": [seed for page in totals for seed in page["failed"]],
        "undecided": [seed for page in totals for seed in page["undecided"]],
        "crashed": [seed for page in totals for seed in page["crashed"]],
        "cells": [
            {
                "settings": {each.path: each.value for each in cell.settings},
                "folder": cell.folder,
                "verdict": EXIT_OUTCOMES[summary.exit_code].value,
                **page,
                "metrics": means_of(summary),
            }
            for (cell, summary), page in zip(done, totals, strict=True)
        ],
    }


def means_of(summary: Summary) -> dict[str, float]:
    """The mean of each metric over the seeds that have it."""
    values: dict[str, list[float]] = {}
    for outcome in summary.outcomes:
        for name, value in outcome.metrics.items():
            values.setdefault(name, []).append(value)
    return {name: fmean(found) for name, found in sorted(values.items())}


def table_of(axes: Sequence[Axis], done: Sequence[CellSummary]) -> tuple[list[str], list[tuple[str, ...]]]:
    """The summary as a table: headings and a row per cell."""
    headings = [*(axis.path for axis in axes), "verdict", "passed", "failed", "undecided", *SHOWN_METRICS]
    rows = []
    for cell, summary in done:
        means: Mapping[str, float] = means_of(summary)
        counts = [f"{len(found):,}" for found in summary.by_word.values()]
        figures = [number(means[name]) if name in means else "–" for name in SHOWN_METRICS]
        rows.append((*cell.words, EXIT_OUTCOMES[summary.exit_code].value, *counts, *figures))
    return headings, rows


def ending_of(title: str, axes: Sequence[Axis], cells: Sequence[Cell], done: Sequence[CellSummary]) -> Ending:
    """Describe the end of a grid."""
    outcome = outcome_of(done, cells)
    parts = [
        Part(f"{part.name} of {cell.title}", part.outcome, part.detail, part.again)
        for cell, summary in done
        if EXIT_OUTCOMES[summary.exit_code] is not Outcome.PASS
        for part in parts_of(cell.task, summary)
    ]
    suites = [replace(sweep_suite(cell.task, summary), name=f"{title} {cell.title}") for cell, summary in done]
    return Ending(
        title=title,
        outcome=outcome,
        parts=parts,
        kind="seed",
        figures={"cells": f"{len(done):,} of {len(cells):,}"},
        facts={"commit": checkout_commit(), "version": version()},
        again="",
        page=lambda: grid_page(title, axes, done),
        junit=lambda: junit_xml(suites),
        table=table_of(axes, done),
    )


def print_grid(console: Console, ending: Ending, quiet: bool) -> None:
    """Print the table of cells and the verdict; with ``quiet`` only the cells that did not pass."""
    headings, rows = ending.table
    verdict = headings.index("verdict")
    shown = [row for row in rows if not quiet or row[verdict] != Outcome.PASS]
    table = plain_table(headings, right=headings[verdict + 1 :], folded=())
    for row in shown:
        table.add_row(*row)
    if shown:
        console.print(table)
    for part in ending.parts[:SHOWN] if quiet else ():
        print_line(console, f"seed {part.name}: {part.detail}")
        print_line(console, f"  again  {part.again}")
    print_line(console, f"{ending.title}: {ending.outcome.value}: {ending.figures['cells']} cells")
