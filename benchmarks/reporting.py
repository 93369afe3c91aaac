"""What every benchmark shares: its options, its table, its JSON file.

A benchmark is ``python benchmarks/NAME.py [--quick] [--json FILE]``. It prints a table of its metrics and writes
``{"metric": {"value": x, "unit": "…", "goal": y}}``; the goal is ``null`` where none is set. ``--quick`` ends within a
minute.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

# A benchmark may be named as a package is, and Python looks for modules beside the benchmark first. Every benchmark
# imports this module, or one that does, before any package; what is measured is the tree that the benchmark stands in.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure. ``at_least`` says on which side of the goal is good."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    at_least: bool = True

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached, ``None`` where there is none."""
        if self.goal is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal


@dataclass(frozen=True, slots=True)
class Size:
    """How large a run the user asked for."""

    quick: bool
    full: bool = False


def run_benchmark(
    description: str | None,
    measure: Callable[[Size], list[Metric]],
    full: str | None = None,
    table: Callable[[list[Metric]], Table] | None = None,
) -> None:
    """Parse the options, measure, print the table, write the JSON file.

    ``full`` says what ``--full`` adds, where a benchmark has that option; ``table`` makes another table than a row for
    each metric.
    """
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smaller run that ends within a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the metrics here")
    if full is not None:
        parser.add_argument("--full", action="store_true", help=full)
    options = parser.parse_args()
    metrics = measure(Size(options.quick, getattr(options, "full", False)))
    Console().print((table or _table)(metrics))
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(metrics), indent=2) + "\n", encoding="utf-8")


def said(metrics: list[Metric]) -> list[Metric]:
    """A benchmark of many minutes says what it found as it goes."""
    for metric in metrics:
        print(f"{metric.name}: {metric.value:,.2f} {metric.unit}", flush=True)
    return metrics


def as_json(metrics: list[Metric]) -> dict[str, dict[str, float | str | None]]:
    return {m.name: {"value": m.value, "unit": m.unit, "goal": m.goal} for m in metrics}


def _table(metrics: list[Metric]) -> Table:
    table = Table("metric", "value", "unit", "goal", box=None, pad_edge=False)
    for column in (1, 3):
        table.columns[column].justify = "right"
    for metric in metrics:
        sign = {None: "", True: " ✓", False: " ✕"}[metric.met]
        bound = "≥" if metric.at_least else "≤"
        goal = "" if metric.goal is None else f"{bound} {metric.goal:,g}{sign}"
        table.add_row(metric.name, f"{metric.value:,.2f}", metric.unit, goal)
    return table
