"""The comparison as a page."""

from __future__ import annotations

from html import escape
from typing import Final

from markupsafe import Markup

from cluster.report.page import render_page
from cluster.report.svg import line, number
from cluster.tools.compare.comparison import Change, Comparison
from cluster.tools.compare.comparison_table import cells

WIDTH: Final = 180.0
HEIGHT: Final = 22.0
MARGIN: Final = 8.0
MIN_SCALE: Final = 0.05
MAX_SCALE: Final = 2.0
"""Changes beyond it are drawn at the edge."""


def render_comparison(comparison: Comparison) -> str:
    """The page as HTML."""
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
    """The largest change that is drawn to scale, as a share."""
    ends = [
        abs(end)
        for change in changes
        if change.adjusted_p_value is not None and change.share_interval is not None
        for end in change.share_interval
    ]
    return min(MAX_SCALE, max([MIN_SCALE, *ends]))


def _drawing(change: Change, scale: float) -> str:
    """The change and its interval on an axis from minus to plus the scale, zero in the middle."""
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
        f'<circle class="{kind}" cx="{across(share):.1f}" cy="{middle:g}" r="4"/></svg>'
    )


def _range(interval: tuple[float, float]) -> str:
    low, high = (number(end) for end in interval)
    return low if low == high else f"{low} … {high}"
