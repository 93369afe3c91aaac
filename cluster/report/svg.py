"""Charts as SVG text, without a library and without scripts.

A :class:`Chart` is the content. :func:`render` draws it twice, for a desktop and for a phone, since text in a scaled
drawing would not stay legible; the page's style shows the one that fits. Colours are style variables of the page, so
that a drawing follows light and dark. No meaning depends on colour alone: series also differ in their dashes, and carry
their names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import pairwise
from typing import Final, Literal

LOG_SCALE_FROM_RATIO: Final = 20
"""Ratio of the largest to the smallest value above which an axis is logarithmic."""

LOG_MARGIN: Final = 1.2
"""Factor by which a logarithmic axis goes beyond its smallest and its largest value."""

DASHES: Final = ("", "7 4", "2 3", "9 3 2 3", "1 4", "12 4", "4 2 1 2", "6 6")
MARK_DASHES: Final = ("5 4", "1.5 3", "10 4")
COLOURS: Final = 8
LABEL_GAP: Final = 14.0
"""Minimum distance between two direct labels, the names at the ends of lines, in pixels."""

BAR_SHARE: Final = 0.78
MAX_BAR_PIXELS: Final = 22.0
BAND_NAME_ROWS: Final = 4
MAX_BANDS_NAMED: Final = 12
"""Maximum number of bands with full names. With more, the bands have short names in two rows, where there is room above
their starts."""
CROWDED_ROWS: Final = 2
MAX_BANDS_DRAWN: Final = 100
"""Maximum number of bands of faults that are drawn one by one. With more, a strip above the drawing shows the share
that they fill. Stalls are always drawn."""
STRIP_PIXELS: Final = 7.0
STRIP_STEP_PIXELS: Final = 6.0
STRIP_OPACITIES: Final = (0.25, 1.0)
"""Opacity of a stretch of the strip that is hardly filled by bands, and of a full one."""
STRIP_NAMES: Final = 2
"""Maximum number of bands that a hint of the strip names. The hint gives the number of the others."""
BAND_NAME_PIXELS: Final = 15.0
NAME_ASCENT_PIXELS: Final = 10.0
"""Height in pixels of a band's name above its base line."""
BAND_SHIFT_PIXELS: Final = 60.0
"""Maximum distance in pixels by which a short name may be shifted from its band's beginning."""
TICK_ROW_PIXELS: Final = 14.0
"""Height of a row of tick names below the x axis, in pixels."""
CHARACTER_PIXELS: Final = 6.6
"""Approximate width of a character in a chart's text, for fitting labels."""

Point = tuple[float, float]
Format = Callable[[float], str]


def number(value: float) -> str:
    """A number as a short text: ``950``, ``15 k``, ``20 M``; in scientific notation beyond the usual prefixes."""
    magnitude = abs(value)
    for limit, divisor, unit in ((1e15, 1e12, "T"), (1e12, 1e9, "G"), (1e9, 1e6, "M"), (1e6, 1e3, "k")):
        if limit > magnitude >= divisor and (divisor > 1e3 or magnitude >= 1e4):
            return f"{value / divisor:.3g} {unit}" if magnitude / divisor < 1_000 else f"{value / divisor:.0f} {unit}"
    if magnitude >= 1e15:
        return f"{value:.1e}"
    return f"{value:,.0f}" if float(value).is_integer() or magnitude >= 100 else f"{value:.3g}"


@dataclass(frozen=True, slots=True)
class Series:
    """A named series of points in ascending x.

    ``style`` is ``line``, ``step``, ``dots``, ``scatter``, ``bars`` or ``area``. The points of a scatter are not
    connected. Their shape depends on the series' colour, and the page's key names them.
    """

    name: str
    points: Sequence[Point]
    style: str = "line"
    colour: int = 0
    """The series' colour, as an index in the page's palette. It also determines the dashes."""
    muted: bool = False
    """Whether the series is drawn in grey and without a label, as a background for the others."""
    gap: float = math.inf
    """Distance in x beyond which two neighbouring points are not connected."""
    intervals: Sequence[tuple[float, float]] = ()
    """For each point, the lowest and the highest value that it may have. They are drawn as a whisker, and the points
    of a line are marked. Empty if no interval is known."""


@dataclass(frozen=True, slots=True)
class Band:
    """A marked and named stretch of the x axis, such as a fault."""

    start: float
    end: float
    name: str
    short: str = ""
    """The name used if there is no room for ``name``. If it is empty too, the band is drawn without a name."""
    is_stall: bool = False
    """Whether the band is a stall that was longer than allowed. Stalls are filled, faults hatched."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A horizontal line at a value, with its name."""

    value: float
    name: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: its data, its units, and the text that replaces it if it is empty."""

    ident: str
    title: str
    description: str
    """A text for readers who do not see the drawing."""
    x_label: str
    y_label: str
    series: Sequence[Series]
    bands: Sequence[Band] = ()
    marks: Sequence[Mark] = ()
    hints: Sequence[tuple[float, str]] = ()
    """Texts shown under the pointer, each with its x."""
    axis: Literal["", "height", "seconds"] = ""
    """What the x axis shows, if the page's script links it with those of other charts and with the timeline."""
    x_ticks: Sequence[float] = ()
    """The values of the ticks of the x axis. Empty means round numbers."""
    format_x: Format = number
    format_y: Format = number
    may_be_logarithmic: bool = False
    y_limit: float | None = None
    """A value that the value axis reaches at least, even if all values are smaller."""
    empty: str = "Nothing was recorded."

    @property
    def is_empty(self) -> bool:
        return not any(series.points for series in self.series)

    @property
    def labelled(self) -> list[Series]:
        """The series that have a label at the end of their line."""
        return [series for series in self.named if series.style not in ("bars", "scatter")]

    @property
    def named(self) -> list[Series]:
        """The series that have a name."""
        return [series for series in self.series if series.points and not series.muted]


@dataclass(frozen=True, slots=True)
class Size:
    """A drawing's size and margins, in pixels."""

    name: str
    width: float
    height: float
    left: float
    right: float
    top: float = 26.0
    bottom: float = 40.0
    x_ticks: int = 8
    y_ticks: int = 5
    direct_labels: bool = True

    @property
    def end(self) -> float:
        """The x coordinate of the right end of the x axis."""
        return self.width - self.right

    @property
    def floor(self) -> float:
        """The y coordinate of the x axis."""
        return self.height - self.bottom


SMALL: Final = Size("small", 400, 190, left=50, right=14, x_ticks=4, y_ticks=4, direct_labels=False)
"""The size of charts of which several are in a row; the same on a desktop and on a phone."""
WIDE: Final = Size("wide", 820, 280, left=64, right=124)
NARROW: Final = Size("narrow", 360, 250, left=50, right=14, x_ticks=4, y_ticks=4, direct_labels=False)


def render(chart: Chart | RowChart, sizes: Sequence[Size] = (WIDE, NARROW)) -> str:
    """A chart as HTML: one SVG drawing per size, or a sentence if there is nothing to draw."""
    if chart.is_empty:
        return f'<p class="empty">{escape(chart.empty)}</p>'
    if isinstance(chart, RowChart):
        return "".join(_drawn_rows(chart, size) for size in sizes)
    return "".join(_Drawing(chart, size).svg() for size in sizes)


SCATTER_PIXELS: Final = 4.2
POINT_RADIUS: Final = 3.2
"""Radius of the marked points of a line, in pixels."""
WHISKER_PIXELS: Final = 4.0
"""Half the width of the bars at the ends of a whisker."""
SCATTER_MARGIN: Final = 0.03
"""Share of the x axis that a scatter leaves free on each side of its points."""


def shape(colour: int, x: float, y: float, radius: float) -> str:
    """A point of a scatter as SVG: a circle, a square, a triangle or a diamond, depending on the series' colour."""
    r = radius
    match colour % 4:
        case 0:
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"/>'
        case 1:
            return f'<rect x="{x - r:.1f}" y="{y - r:.1f}" width="{2 * r:.1f}" height="{2 * r:.1f}"/>'
        case 2:
            return f'<path d="M{x:.1f} {y - 1.2 * r:.1f}l{1.2 * r:.1f} {2.2 * r:.1f}h{-2.4 * r:.1f}Z"/>'
        case _:
            d = 1.4 * r
            return f'<path d="M{x:.1f} {y - d:.1f}l{d:.1f} {d:.1f}l{-d:.1f} {d:.1f}l{-d:.1f} {-d:.1f}Z"/>'


# --- scales ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to pixels, linearly or logarithmically."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = (math.log10(max(v, self.low)) for v in (value, low, high))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self, wanted: int) -> list[float]:
        """The values of the ticks: round numbers within the scale, about ``wanted`` of them."""
        return _decades(self.low, self.high, wanted) if self.logarithmic else round_steps(self.low, self.high, wanted)


def round_steps(low: float, high: float, wanted: int) -> list[float]:
    """Evenly spaced round numbers from ``low`` to ``high``, about ``wanted`` of them."""
    span = high - low
    if span <= 0:
        return [low]
    rough = span / max(1, wanted)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _scale_from_zero(high: float, ticks: int, start: float, end: float) -> Scale:
    """A scale from 0 to a round value that is not below ``high``."""
    steps = round_steps(0.0, high, ticks)
    step = steps[1] if len(steps) > 1 else high
    return Scale(0.0, math.ceil(high / step - 1e-9) * step, start, end)


def _scale_around_zero(low: float, high: float, ticks: int, start: float, end: float) -> Scale:
    """A scale between round values that are not above ``low``, which is negative, and not below ``high``."""
    first, second, *_ = round_steps(0.0, high - low, ticks)
    step = second - first
    return Scale(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, start, end)


def _spans_decades(values: Sequence[float]) -> bool:
    """Whether an axis with these values is logarithmic: all are positive, and their ratio is large."""
    return bool(values) and min(values) > 0 and max(values) >= LOG_SCALE_FROM_RATIO * min(values)


def _decades(low: float, high: float, wanted: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    skip = max(1, -(-(last - first) // max(1, wanted)))
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    values = [factor * 10.0**power for power in range(first, last + 1, skip) for factor in factors]
    return [value for value in values if low * 0.999 <= value <= high * 1.001]


# --- drawing --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Drawing:
    """Draws one chart at one size."""

    chart: Chart
    size: Size
    x: Scale = field(init=False)
    y: Scale = field(init=False)
    bands: list[Band] = field(init=False)
    """The bands drawn individually."""
    crowd: list[Band] = field(init=False)
    """The bands drawn as a strip, sorted by start."""
    band_rows: list[tuple[Band, str, float, int]] = field(init=False)
    """The names above the drawing: each band with its name, the name's start in pixels, and the name's row."""
    tick_names: list[tuple[float, str, float, int]] = field(init=False)
    """The names below the x axis: each tick's value and name, the name's middle in pixels, and the name's row."""

    def __post_init__(self) -> None:
        chart = self.chart
        has_names_right = len(chart.labelled) > 1 or bool(chart.marks)
        size = self.size if has_names_right and self.size.direct_labels else replace(self.size, right=NARROW.right)
        xs = [*chart.x_ticks, *(x for series in chart.series for x, _ in series.points)]
        styles = {series.style for series in chart.series}
        has_room = "bars" in styles or bool(chart.x_ticks)
        pad = 0.5 if has_room else SCATTER_MARGIN * (max(xs) - min(xs)) if "scatter" in styles else 0.0
        self.x = Scale(min(xs) - pad, max(xs) + pad, size.left, size.end)
        faults = [band for band in chart.bands if not band.is_stall]
        self.crowd = sorted(faults, key=lambda band: band.start) if len(faults) > MAX_BANDS_DRAWN else []
        self.bands = [band for band in chart.bands if band.is_stall or not self.crowd]
        self.size = size
        self.band_rows = self._place_band_names()
        rows = 1 + max((row for *_, row in self.band_rows), default=-1)
        strip = STRIP_PIXELS if self.crowd else 0.0
        self.tick_names = self._place_tick_names()
        below = TICK_ROW_PIXELS * max((row for *_, row in self.tick_names), default=0)
        top = size.top + BAND_NAME_PIXELS * rows + strip
        self.size = replace(size, top=top, bottom=size.bottom + below, height=size.height + below)
        self.y = self._value_scale()

    def _value_scale(self) -> Scale:
        size, chart = self.size, self.chart
        values = [y for series in chart.series for _, y in series.points] + [mark.value for mark in chart.marks]
        values += [end for series in chart.series for interval in series.intervals for end in interval]
        if min(values) < 0:
            return _scale_around_zero(min(values), max(*values, 0.0), size.y_ticks, size.floor, size.top)
        positive = [value for value in values if value > 0]
        if chart.may_be_logarithmic and _spans_decades(positive):
            low, high = min(positive) / LOG_MARGIN, max(positive) * LOG_MARGIN
            return Scale(low, high, size.floor, size.top, logarithmic=True)
        return _scale_from_zero(max([*values, chart.y_limit or 0.0]) or 1.0, size.y_ticks, size.floor, size.top)

    def svg(self) -> str:
        size, chart = self.size, self.chart
        ident = f"{chart.ident}-{size.name}"
        parts = [
            _head(chart, size, size.height, self._linked()),
            _hatch(ident),
            *self._bands(ident),
            *self._axes(),
            *self._marks(),
            *(self._series(series) for series in chart.series if series.points),
            *self._direct_labels(),
            *self._hints(),
            "</svg>",
        ]
        return "".join(parts)

    def _linked(self) -> str:
        """The attributes by which the page's script finds the place of a height or a moment in the drawing."""
        if not self.chart.axis:
            return ""
        numbers = (self.x.low, self.x.high, self.x.start, self.x.end, self.size.top, self.size.floor)
        return f' data-axis="{self.chart.axis}" data-scale="{" ".join(f"{value:g}" for value in numbers)}"'

    def _axes(self) -> list[str]:
        size, chart = self.size, self.chart
        left, right, bottom = size.left, size.end, size.floor
        parts = []
        for value in self.y.ticks(size.y_ticks):
            at = self.y(value)
            parts.append(line("axis" if self.y.low < 0 == value else "grid", left, at, right, at))
            parts.append(text(chart.format_y(value), left - 8, at + 4, "tick", "end"))
        parts.append(line("axis", left, bottom, right, bottom))
        for value, name, middle, row in self.tick_names:
            at = self.x(value)
            parts.append(line("axis", at, bottom, at, bottom + 4))
            parts.append(text(name, middle, bottom + 17 + TICK_ROW_PIXELS * row, "tick", "middle"))
        note = " (log scale)" if self.y.logarithmic else ""
        parts.append(text(f"{chart.y_label}{note}", 2, 13, "label"))
        parts.append(text(chart.x_label, right, size.height - 6, "label", "end"))
        return parts

    def _place_tick_names(self) -> list[tuple[float, str, float, int]]:
        """Place the names of the ticks below the x axis. Names of given ticks have as many rows as they need."""
        placed, ends = [], list[float]()
        for value in self._whole_x_ticks():
            name, middle, row = self.chart.format_x(value), self.x(value), 0
            if self.chart.x_ticks:
                width = len(name) * CHARACTER_PIXELS
                middle = min(middle, self.size.width - width / 2)
                row = next((i for i, end in enumerate(ends) if middle - width / 2 > end), len(ends))
                ends[row:] = [middle + width / 2, *ends[row + 1 :]]
            placed.append((value, name, middle, row))
        return placed

    def _whole_x_ticks(self) -> Sequence[float]:
        if self.chart.x_ticks:
            return self.chart.x_ticks
        ticks = self.x.ticks(self.size.x_ticks)
        heights = all(float(x).is_integer() for series in self.chart.series for x, _ in series.points)
        return [value for value in ticks if not heights or float(value).is_integer()]

    def _bands(self, ident: str) -> list[str]:
        top, bottom = self.size.top, self.size.floor
        parts = []
        for band in self.bands:
            start, end = self._clamped(band)
            kind, fill = ("stall", "") if band.is_stall else ("band", f' fill="url(#{ident}-hatch)"')
            parts.append(rectangle(kind, start, top, max(2.0, end - start), bottom - top, more=fill))
            parts.append(line("band-edge", start, top, start, bottom))
            parts.append(line("band-edge", max(start + 2, end), top, max(start + 2, end), bottom))
        parts += self._strip()
        names = []
        names_from = top - (STRIP_PIXELS + 1 if self.crowd else 0)
        for band, name, start, row in self.band_rows:
            above = names_from - 5 - BAND_NAME_PIXELS * row
            parts.append(line("band-edge", self._clamped(band)[0], above + 3, self._clamped(band)[0], top))
            ground = (start - 1, above - NAME_ASCENT_PIXELS, len(name) * CHARACTER_PIXELS + 2, BAND_NAME_PIXELS - 2)
            names.append(rectangle("name-ground", *ground))  # no line of another name goes through this one
            names.append(text(name, start, above, "band-name"))
        return parts + names

    def _strip(self) -> list[str]:
        """The strip as SVG: it shows the share of each stretch that the crowd of bands fills, and names some bands."""
        if not self.crowd:
            return []
        left, columns = self.size.left, max(1, round((self.size.end - self.size.left) / STRIP_STEP_PIXELS))
        step = (self.size.end - left) / columns
        filled, touching, covered = [0.0] * columns, [list[Band]() for _ in range(columns)], left
        for band in self.crowd:
            start, end = self._clamped(band)
            for column in range(
                min(columns - 1, int((start - left) / step)), min(columns - 1, int((end - left) / step)) + 1
            ):
                touching[column].append(band)
                from_here, to_here = max(start, covered, left + column * step), min(end, left + (column + 1) * step)
                filled[column] += max(0.0, to_here - from_here) / step
            covered = max(covered, end)
        low, high = STRIP_OPACITIES
        parts = []
        for column, bands in enumerate(touching):
            if bands:
                opacity = low + (high - low) * min(1.0, filled[column])
                hint = f"<title>{escape(_crowd_text(bands))}</title>" if self.size.direct_labels else ""
                parts.append(
                    f'<rect class="strip" x="{left + column * step:.1f}" y="{self.size.top - STRIP_PIXELS - 1:.1f}"'
                    f' width="{step:.1f}" height="{STRIP_PIXELS:g}" fill-opacity="{opacity:.2f}">{hint}</rect>'
                )
        return [*parts, *self._strip_name()]

    def _strip_name(self) -> list[str]:
        """The strip's label as SVG: the number of its bands, if there is room next to the name of the value axis."""
        name = f"{len(self.crowd):,} faults"
        room = self.size.end - 2 - (len(self.chart.y_label) + 3) * CHARACTER_PIXELS
        return [text(name, self.size.end, 13, "band-name", "end")] if len(name) * CHARACTER_PIXELS < room else []

    def _place_band_names(self) -> list[tuple[Band, str, float, int]]:
        """Place the bands' names above the starts of the bands, in rows without overlap. The last row has short names.

        Returns each named band with its name, the name's start in pixels, and its row.
        """
        is_crowded = len(self.bands) > MAX_BANDS_NAMED
        placed, ends = [], [-math.inf] * (CROWDED_ROWS if is_crowded else BAND_NAME_ROWS)
        for band in sorted(self.bands, key=lambda band: band.start):
            for name in (band.short,) if is_crowded else (band.name, band.short):
                width = len(name) * CHARACTER_PIXELS
                start = max(self.size.left, min(self._clamped(band)[0], self.size.end - width))
                rows = ends if name == band.short else ends[:-1]
                row = next((i for i, end in enumerate(rows) if start > end), None)
                may_shift = name == band.short and not is_crowded
                if row is None and may_shift and min(ends) - start < BAND_SHIFT_PIXELS:
                    row, start = ends.index(min(ends)), min(ends)
                if name and row is not None and start + width <= self.size.end:
                    ends[row] = start + width + 10
                    placed.append((band, name, start, row))
                    break
        return placed

    def _clamped(self, band: Band) -> tuple[float, float]:
        low, high = self.size.left, self.size.end
        return max(low, min(high, self.x(band.start))), max(low, min(high, self.x(band.end)))

    def _marks(self) -> list[str]:
        """The marks as SVG: lines at their values, with names if there is room next to the drawing. Otherwise the
        page's key names them."""
        left, right = self.size.left, self.size.end
        _, places = self._label_positions()
        parts = []
        for order, (mark, at) in enumerate(zip(self.chart.marks, places, strict=True)):
            level = self.y(mark.value)
            parts.append(line("mark", left, level, right, level, MARK_DASHES[order % len(MARK_DASHES)]))
            if self.size.direct_labels:
                parts.append(text(mark.name, right + 8, at + 4, "mark-name"))
        return parts

    def _series(self, series: Series) -> str:
        if series.style == "bars":
            return self._bars(series)
        if series.style in ("dots", "scatter"):
            place, radius = 0, 2.6 if len(series.points) < 120 else 1.8
            if series.style == "scatter":
                place, radius = series.colour, SCATTER_PIXELS
            points = "".join(shape(place, self.x(x), self.y(y), radius) for x, y in series.points)
            return f'{self._whiskers(series)}<g class="dots {_colour(series)}">{points}</g>'
        path = self._path(series)
        alone = series.muted or len(self.chart.named) == 1
        dash = "" if alone else _dashes(DASHES[series.colour % len(DASHES)])
        area = ""
        if series.style == "area":
            first, last = self.x(series.points[0][0]), self.x(series.points[-1][0])
            bottom = self.size.floor
            under = f"L{last:.1f} {bottom:.1f}L{first:.1f} {bottom:.1f}Z"
            area = f'<path class="area {_colour(series)}" d="{path}{under}"/>'
        marked = self._whiskers(series)
        if series.intervals:
            points = "".join(shape(0, self.x(x), self.y(y), POINT_RADIUS) for x, y in series.points)
            marked += f'<g class="dots {_colour(series)}">{points}</g>'
        return f'{area}<path class="line {_colour(series)}" d="{path}"{dash}/>{marked}'

    def _whiskers(self, series: Series) -> str:
        """The intervals of a series as SVG: a line from end to end, with a bar at each end."""
        parts = []
        for (x, _), (low, high) in zip(series.points, series.intervals, strict=False):
            across, bottom, top = self.x(x), self.y(low), self.y(high)
            ends = "".join(f"M{across - WHISKER_PIXELS:.1f} {at:.1f}h{2 * WHISKER_PIXELS:g}" for at in (top, bottom))
            path = f"M{across:.1f} {top:.1f}V{bottom:.1f}{ends}"
            parts.append(f'<path class="line whisker {_colour(series)}" d="{path}"/>')
        return "".join(parts)

    def _path(self, series: Series) -> str:
        parts: list[str] = []
        before = -math.inf
        for x, y in series.points:
            across, up = f"{self.x(x):.1f}", f"{self.y(y):.1f}"
            is_apart, before = x - before > series.gap or not parts, x
            if is_apart:
                parts.append(f"M{across} {up}")
            elif series.style == "step":
                parts.append(f"H{across}V{up}")
            else:
                parts.append(f"L{across} {up}")
        return "".join(parts)

    def _bars(self, series: Series) -> str:
        xs = [x for x, _ in series.points]
        step = min((b - a for a, b in pairwise(xs)), default=1.0)
        width = min(MAX_BAR_PIXELS, max(1.0, abs(self.x(step) - self.x(0)) * BAR_SHARE))
        bottom = self.size.floor
        rectangles = []
        for x, y in series.points:
            height = bottom - self.y(y)
            if height <= 0:
                continue
            corner = min(3.0, width / 4)
            rectangles.append(
                f'<rect x="{self.x(x) - width / 2:.1f}" y="{self.y(y):.1f}" width="{width:.1f}"'
                f' height="{height:.1f}" rx="{corner:.1f}"/>'
            )
        return f'<g class="bars {_colour(series)}">{"".join(rectangles)}</g>'

    def _direct_labels(self) -> list[str]:
        """The names at the ends of the series' lines as SVG, with a leader to each name."""
        right = self.size.end
        places, _ = self._label_positions()
        parts = []
        for series, at in zip(self._labelled(), places, strict=True):
            across, end = self.x(series.points[-1][0]), self.y(series.points[-1][1])
            parts.append(f'<path class="leader" d="M{across:.1f} {end:.1f}L{right + 10:.1f} {at:.1f}"/>')
            dash = DASHES[series.colour % len(DASHES)]
            parts.append(line(f"line {_colour(series)}", right + 10, at, right + 24, at, dash))
            parts.append(text(series.name, right + 28, at + 4, "name"))
        return parts

    def _labelled(self) -> list[Series]:
        labelled = self.chart.labelled
        return labelled if self.size.direct_labels and len(labelled) > 1 else []

    def _label_positions(self) -> tuple[list[float], list[float]]:
        """The positions of the names of series and marks next to the drawing: near their lines, without overlap."""
        ends = [self.y(series.points[-1][1]) for series in self._labelled()]
        places = self._spread(ends + [self.y(mark.value) for mark in self.chart.marks])
        return places[: len(ends)], places[len(ends) :]

    def _spread(self, wanted: list[float]) -> list[float]:
        """Move wanted vertical positions so that they are at least a line of text apart and within the drawing."""
        order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
        placed = list(wanted)
        floor = self.size.top
        for i in order:
            placed[i] = max(placed[i], floor)
            floor = placed[i] + LABEL_GAP
        ceiling = self.size.floor + 4
        for i in reversed(order):
            placed[i] = min(placed[i], ceiling)
            ceiling = placed[i] - LABEL_GAP
        return placed

    def _hints(self) -> list[str]:
        """The hints as SVG: invisible columns, each with a text that is shown under the pointer."""
        if not self.size.direct_labels or not self.chart.hints:
            return []
        top, bottom = self.size.top, self.size.floor
        xs = [self.x(x) for x, _ in self.chart.hints]
        parts = []
        for i, (_, hint) in enumerate(self.chart.hints):
            start = (xs[i - 1] + xs[i]) / 2 if i else self.size.left
            end = (xs[i] + xs[i + 1]) / 2 if i + 1 < len(xs) else self.size.end
            parts.append(
                f'<rect class="hint" x="{start:.1f}" y="{top:.1f}" width="{max(0.5, end - start):.1f}"'
                f' height="{bottom - top:.1f}"><title>{escape(hint)}</title></rect>'
            )
        return parts


def _crowd_text(bands: Sequence[Band]) -> str:
    """A text with the names of the first bands, and the number of the others."""
    names = "; ".join(band.name for band in bands[:STRIP_NAMES])
    return names if len(bands) <= STRIP_NAMES else f"{names}; and {len(bands) - STRIP_NAMES:,} more"


def _colour(series: Series) -> str:
    return "muted" if series.muted else f"c{series.colour % COLOURS}"


def _head(chart: Chart | RowChart, size: Size, height: float, more: str = "") -> str:
    """The start of a drawing's SVG: its size, and the title and description for readers who do not see it.

    ``more`` is text with further attributes.
    """
    ident = f"{chart.ident}-{size.name}"
    return (
        f'<svg class="chart {size.name}" role="img" aria-labelledby="{ident}-title {ident}-text"'
        f' viewBox="0 0 {size.width:g} {height:g}" id="{ident}"{more}>'
        f'<title id="{ident}-title">{escape(chart.title)}</title>'
        f'<desc id="{ident}-text">{escape(chart.description)}</desc>'
    )


def _hatch(ident: str) -> str:
    return (
        f'<defs><pattern id="{ident}-hatch" width="7" height="7" patternUnits="userSpaceOnUse"'
        ' patternTransform="rotate(45)"><rect class="hatch-ground" width="7" height="7"/>'
        '<rect class="hatch-stripe" width="2" height="7"/></pattern></defs>'
    )


def line(kind: str, x1: float, y1: float, x2: float, y2: float, dash: str = "") -> str:
    """A line as SVG. ``kind`` is a class of the page's style."""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{_dashes(dash)}/>'


def circle(kind: str, x: float, y: float, radius: float) -> str:
    """A circle as SVG. ``kind`` is a class of the page's style."""
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>'


def rectangle(kind: str, x: float, y: float, width: float, height: float, corner: float = 0.0, more: str = "") -> str:
    """A rectangle as SVG. ``kind`` is a class of the page's style, ``more`` is text with further attributes."""
    rounded = f' rx="{corner:.1f}"' if corner else ""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" {place}{rounded}{more}/>'


def _dashes(dash: str) -> str:
    return f' stroke-dasharray="{dash}"' if dash else ""


def text(content: str, x: float, y: float, kind: str, anchor: str = "start") -> str:
    """A line of text as SVG. ``kind`` is a class of the page's style."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


# --- charts of rows -------------------------------------------------------------------------------------------------

ROW_PIXELS: Final = 34.0
NAME_PIXELS: Final = 16.0
"""Height of a row's name on a phone, in pixels. There the name is above the row, not left of it."""
POINT_PIXELS: Final = 4.4
RIGHT_PIXELS: Final = 24.0
BOTTOM_PIXELS: Final = 42.0


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a :class:`RowChart`: its name and its values, each with a name."""

    name: str
    values: Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class RowChart:
    """A chart with a few values on one axis for each row, such as percentiles. A value's position in its row determines
    its shape and colour. The page's key names them."""

    ident: str
    title: str
    description: str
    x_label: str
    rows: Sequence[Row]
    empty: str = "Nothing was recorded."
    may_be_logarithmic: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.rows

    @property
    def value_names(self) -> list[str]:
        """The names of a row's values, for the key. A row may lack the last values."""
        longest = max((row.values for row in self.rows), key=len, default=())
        return [name for name, _ in longest]


def _drawn_rows(chart: RowChart, size: Size) -> str:
    has_names_left = size.direct_labels
    left = 28 + max(len(row.name) for row in chart.rows) * CHARACTER_PIXELS if has_names_left else 14.0
    row_pixels = ROW_PIXELS if has_names_left else ROW_PIXELS + NAME_PIXELS
    right, bottom = size.width - RIGHT_PIXELS, 10 + row_pixels * len(chart.rows)
    values = [value for row in chart.rows for _, value in row.values]
    is_logarithmic = chart.may_be_logarithmic and _spans_decades(values)
    if is_logarithmic:
        scale = Scale(min(values) / LOG_MARGIN, max(values) * LOG_MARGIN, left, right, logarithmic=True)
    else:
        scale = _scale_from_zero(max(values) or 1.0, size.x_ticks, left, right)
    parts = [_head(chart, size, bottom + BOTTOM_PIXELS)]
    for value in scale.ticks(size.x_ticks):
        parts.append(line("grid", scale(value), 10, scale(value), bottom))
        parts.append(text(number(value), scale(value), bottom + 17, "tick", "middle"))
    parts.append(line("axis", left, bottom, right, bottom))
    note = " (log scale)" if is_logarithmic else ""
    parts.append(text(f"{chart.x_label}{note}", right, bottom + BOTTOM_PIXELS - 6, "label", "end"))
    for place, row in enumerate(chart.rows):
        at = 10 + row_pixels * (place + 1) - ROW_PIXELS / 2
        name_at = (left - 14, at + 4) if has_names_left else (left, at - NAME_PIXELS)
        parts.append(text(row.name, *name_at, "name", "end" if has_names_left else "start"))
        parts.append(_row(row, at, scale))
    return "".join([*parts, "</svg>"])


def _row(row: Row, at: float, scale: Scale) -> str:
    values = [value for _, value in row.values]
    words = ", ".join(f"{name} {number(value)}" for name, value in row.values)
    points = [
        f'<g class="dots c{place % COLOURS}">{shape(place, scale(value), at, POINT_PIXELS)}</g>'
        for place, value in enumerate(values)
    ]
    span = line("axis", scale(min(values)), at, scale(max(values)), at)
    return f'<g class="row"><title>{escape(f"{row.name}: {words}")}</title>{span}{"".join(reversed(points))}</g>'
