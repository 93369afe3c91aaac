"""Output of a comparison: the table that ``stampede compare`` prints, and an HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from markupsafe import Markup

from cluster.commands.compare.budget import Finding
from cluster.commands.compare.comparison import Change, Comparison
from cluster.commands.console.output import plain_table, print_line
from cluster.commands.console.outputs import Level, annotation
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.report.page import render_page
from cluster.report.svg import circle, line, number

WIDTH: Final = 180.0
HEIGHT: Final = 22.0
MARGIN: Final = 8.0
MIN_SCALE: Final = 0.05
MAX_SCALE: Final = 2.0
"""Maximum change, as a share, that is drawn to scale; larger ones are drawn at the edge."""


def print_comparison(console: Any, comparison: Comparison, with_all: bool) -> None:
    """Print the table: significant changes first, then the other metrics that differ."""
    from rich.text import Text

    for letter, group in (("A", comparison.first), ("B", comparison.second)):
        commits = ", ".join(group.of("commit")[:3]) or "unknown"
        about = f"{counted(len(group.runs), 'run')}, {group.of('scenario')[0]}, commit {commits}"
        console.print(Text(f"{letter}  {group.name}  ({about})"), soft_wrap=True)
    for warning in comparison.warnings:
        console.print(Text(f"note  {warning}", style="yellow"), soft_wrap=True)
    shown = [change for change in comparison.changes if with_all or not change.difference.is_constant]
    numbers = ("A", "B", "change", "interval", "p")
    table = plain_table(("metric", *numbers, ""), right=numbers, folded=())
    for change in shown:
        style = {"better": "green", "worse": "red", "": "dim"}.get(change.word, "")
        table.add_row(*cells(change), style=style)
    console.print(table)
    constant = len(comparison.changes) - len(shown)
    if constant:
        console.print(f"{counted(constant, 'metric')} without a difference between any runs: --all", soft_wrap=True)
    console.print(Text(f"significant  {comparison.summary}"), soft_wrap=True)
    console.print(Text(comparison.method, style="dim"))


def print_findings(console: Any, findings: Sequence[Finding]) -> None:
    """Print a line for each metric that exceeds its budget or cannot be judged; in a workflow of GitHub annotations."""
    for finding in findings:
        if finding.outcome is Outcome.PASS:
            continue
        level: Level = "error" if finding.outcome is Outcome.FAIL else "warning"
        for text in (f"{finding.outcome.value}  {finding.text}", *annotation(level, "compare", finding.text)):
            print_line(console, text)
    if findings:
        counts = Counter(finding.outcome for finding in findings)
        within, over, open_ = (counts[each] for each in (Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE))
        print_line(console, f"budget  {counted(within, 'metric')} within, {over:,} worse, {open_:,} inconclusive")


def cells(change: Change) -> tuple[str, ...]:
    """The texts of a row: name, both means, change, interval, adjusted p-value and direction."""
    difference, share, interval = change.difference, change.share, change.share_interval
    tested = change.adjusted_p_value is not None
    if share is not None and interval is not None:
        shown, between = percent(share), f"{percent(interval[0])} … {percent(interval[1])}"
    else:
        shown = number(difference.change)
        between = " … ".join(number(end) for end in difference.change_interval)
    p_value = "" if change.adjusted_p_value is None else probability(change.adjusted_p_value)
    means = [number(mean) for mean in difference.means]
    return change.name, *means, shown, between if tested else "", p_value, change.word


def percent(share: float) -> str:
    """A share as text in per cent, with its sign."""
    text = f"{100 * share:+.1f} %" if abs(share) < 10 else f"{100 * share:+,.0f} %"
    return text.replace("-", "\N{MINUS SIGN}")


def probability(p_value: float) -> str:
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


# --- the page --------------------------------------------------------------------------------------------------------


def render_comparison(comparison: Comparison) -> str:
    """The HTML page of a comparison."""
    changed = [change for change in comparison.changes if not change.difference.is_constant]
    scale = _scale(changed)
    rows = [
        {
            "cells": cells(change),
            "significant": change.is_significant,
            "tested": change.adjusted_p_value is not None,
            "word": change.word,
            "intervals": [_range(interval) for interval in change.difference.intervals],
            "drawing": Markup(_drawing(change, scale)),
        }
        for change in changed
    ]
    return render_page(
        "compare.html.j2",
        comparison=comparison,
        rows=rows,
        scale=scale,
        constant=[change.name for change in comparison.changes if change.difference.is_constant],
    )


def _scale(changes: list[Change]) -> float:
    """The end of the axis on which changes are drawn, as a share: the largest end of an interval, within limits."""
    ends = [
        abs(end)
        for change in changes
        if change.adjusted_p_value is not None and change.share_interval is not None
        for end in change.share_interval
    ]
    return min(MAX_SCALE, max([MIN_SCALE, *ends]))


def _drawing(change: Change, scale: float) -> str:
    """Draw the change and its interval on an axis from minus to plus the scale, with zero in the middle."""
    share, interval = change.share, change.share_interval
    if share is None or interval is None or change.adjusted_p_value is None:
        return ""

    def across(value: float) -> float:
        return WIDTH / 2 + max(-1.0, min(1.0, value / scale)) * (WIDTH / 2 - MARGIN)

    kind = {"better": "c2", "worse": "c1", "": "muted"}.get(change.word, "c0")
    middle = HEIGHT / 2
    words = escape(" ".join(cells(change)[3:5]))
    return (
        f'<svg class="interval" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{words}">'
        f"{line('axis', WIDTH / 2, 2, WIDTH / 2, HEIGHT - 2)}"
        f"{line(f'line {kind}', across(interval[0]), middle, across(interval[1]), middle)}"
        f"{circle(kind, across(share), middle, 4)}</svg>"
    )


def _range(interval: tuple[float, float]) -> str:
    low, high = (number(end) for end in interval)
    return low if low == high else f"{low} … {high}"
