"""A chart of rows: for each of several things a few values on one axis, such as percentiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from cluster.report.svg import (
    CHARACTER_PIXELS,
    COLOURS,
    NARROW,
    WIDE,
    Scale,
    Size,
    line,
    number,
    round_steps,
    shape,
    text,
)

ROW_PIXELS: Final = 34.0
NAME_PIXELS: Final = 16.0
"""On a phone, a row's name is above it."""
POINT_PIXELS: Final = 4.4
RIGHT_PIXELS: Final = 24.0
BOTTOM_PIXELS: Final = 42.0


@dataclass(frozen=True, slots=True)
class Row:
    """A name, and the values that belong to it, each with its name."""

    name: str
    values: Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class RowChart:
    """The values; shape and colour follow the position, and the page's key names them."""

    ident: str
    title: str
    description: str
    x_label: str
    rows: Sequence[Row]
    empty: str = "Nothing was recorded."

    @property
    def is_empty(self) -> bool:
        return not self.rows

    @property
    def value_names(self) -> list[str]:
        """For the key."""
        return [name for name, _ in self.rows[0].values] if self.rows else []


def render_rows(chart: RowChart) -> str:
    """The drawings for desk and phone, or a sentence if there is nothing to draw."""
    if chart.is_empty:
        return f'<p class="empty">{escape(chart.empty)}</p>'
    return "".join(_drawing(chart, size) for size in (WIDE, NARROW))


def _drawing(chart: RowChart, size: Size) -> str:
    beside = size.direct_labels
    left = 28 + max(len(row.name) for row in chart.rows) * CHARACTER_PIXELS if beside else 14.0
    row_pixels = ROW_PIXELS if beside else ROW_PIXELS + NAME_PIXELS
    right, bottom = size.width - RIGHT_PIXELS, 10 + row_pixels * len(chart.rows)
    scale = _scale(chart, size, left, right)
    ident = f"{chart.ident}-{size.name}"
    parts = [
        f'<svg class="chart {size.name}" role="img" aria-labelledby="{ident}-title {ident}-text"',
        f' viewBox="0 0 {size.width:g} {bottom + BOTTOM_PIXELS:g}" id="{ident}">',
        f'<title id="{ident}-title">{escape(chart.title)}</title>',
        f'<desc id="{ident}-text">{escape(chart.description)}</desc>',
    ]
    for value in scale.ticks(size.x_ticks):
        parts.append(line("grid", scale(value), 10, scale(value), bottom))
        parts.append(text(number(value), scale(value), bottom + 17, "tick", "middle"))
    parts.append(line("axis", left, bottom, right, bottom))
    parts.append(text(chart.x_label, right, bottom + BOTTOM_PIXELS - 6, "label", "end"))
    for place, row in enumerate(chart.rows):
        at = 10 + row_pixels * (place + 1) - ROW_PIXELS / 2
        name_at = (left - 14, at + 4) if beside else (left, at - NAME_PIXELS)
        parts.append(text(row.name, *name_at, "name", "end" if beside else "start"))
        parts.append(_row(row, at, scale))
    return "".join([*parts, "</svg>"])


def _scale(chart: RowChart, size: Size, left: float, right: float) -> Scale:
    high = max(value for row in chart.rows for _, value in row.values) or 1.0
    steps = round_steps(0.0, high, size.x_ticks)
    step = steps[1] if len(steps) > 1 else high
    return Scale(0.0, math.ceil(high / step - 1e-9) * step, left, right)


def _row(row: Row, at: float, scale: Scale) -> str:
    values = [value for _, value in row.values]
    words = ", ".join(f"{name} {number(value)}" for name, value in row.values)
    points = [
        f'<g class="dots c{place % COLOURS}">{shape(place, scale(value), at, POINT_PIXELS)}</g>'
        for place, value in enumerate(values)
    ]
    span = line("axis", scale(min(values)), at, scale(max(values)), at)
    return f'<g class="row"><title>{escape(f"{row.name}: {words}")}</title>{span}{"".join(reversed(points))}</g>'
