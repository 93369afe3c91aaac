"""The table that ``stampede compare`` prints."""

from __future__ import annotations

from typing import Any

from cluster.common.wording import counted
from cluster.report.svg import number
from cluster.tools.compare.comparison import Change, Comparison


def print_comparison(console: Any, comparison: Comparison, with_all: bool) -> None:
    """Print the table: significant changes first, then the other metrics that differ."""
    from rich.table import Table
    from rich.text import Text

    for letter, group in (("A", comparison.first), ("B", comparison.second)):
        commits = ", ".join(group.of("commit")[:3]) or "unknown"
        about = f"{counted(len(group.runs), 'run')}, {group.of('scenario')[0]}, commit {commits}"
        console.print(Text(f"{letter}  {group.name}  ({about})"), soft_wrap=True)
    for warning in comparison.warnings:
        console.print(Text(f"note  {warning}", style="yellow"), soft_wrap=True)
    shown = [change for change in comparison.changes if with_all or not change.difference.is_constant]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("metric", "A", "B", "change", "interval", "p", ""):
        table.add_column(heading, justify="left" if heading in ("metric", "") else "right", no_wrap=True)
    for change in shown:
        style = {"better": "green", "worse": "red", "": "dim"}.get(change.word, "")
        table.add_row(*cells(change), style=style)
    console.print(table)
    constant = len(comparison.changes) - len(shown)
    if constant:
        console.print(f"{counted(constant, 'metric')} without a difference between any runs: --all", soft_wrap=True)
    console.print(Text(f"significant  {comparison.summary}"), soft_wrap=True)
    console.print(Text(comparison.method, style="dim"))


def cells(change: Change) -> tuple[str, ...]:
    """A row's texts: name, both means, the change, its interval, the adjusted p-value, the direction."""
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
    """A change in per cent, with its sign."""
    text = f"{100 * share:+.1f} %" if abs(share) < 10 else f"{100 * share:+,.0f} %"
    return text.replace("-", "\N{MINUS SIGN}")


def probability(p_value: float) -> str:
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"
