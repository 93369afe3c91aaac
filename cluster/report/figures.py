"""The charts of a run's report, each with the numbers behind it as a table.

Long runs are thinned to :data:`MAX_POINTS` points a curve, and say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from markupsafe import Markup

from cluster.actor_classes import ActorUse, ClassUse, gini_index, jain_index
from cluster.books import Books
from cluster.ledger import BlockFigures
from cluster.measures import finality_latencies, first_finalizations
from cluster.quantiles import quantile
from cluster.record import Resources, RunRecord
from cluster.report.charts import (
    COLOURS,
    DASHES,
    MARK_DASHES,
    SMALL,
    Band,
    Chart,
    Mark,
    Series,
    line,
    number,
    render,
    shape,
)
from cluster.report.faults import named_faults
from cluster.report.rows import Row, RowChart, render_rows
from validator.types import address_text

MAX_POINTS: Final = 240
MAX_NAMED_VALIDATORS: Final = 8
"""With more validators than this, only those with a fault or broken on purpose are named in the chart of heights."""


@dataclass(frozen=True, slots=True)
class Key:
    """What names a line or a point of a chart, in the page's key."""

    name: str
    drawing: Markup
    always: bool = False
    """Also where there is room for names beside the lines."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with its place on the page and the numbers behind it."""

    chart: Chart | RowChart
    drawing: Markup
    note: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    key: Sequence[Key] = ()
    texts: int = 0
    """So many of the columns, the first ones, hold words and no numbers."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Some consecutive blocks shown as one point, at the last one's height."""

    blocks: Sequence[BlockFigures]

    @property
    def height(self) -> int:
        return self.blocks[-1].height

    @property
    def heights(self) -> str:
        first, last = self.blocks[0].height, self.blocks[-1].height
        return str(last) if first == last else f"{first}–{last}"

    def mean(self, value: Callable[[BlockFigures], float]) -> float:
        return sum(value(block) for block in self.blocks) / len(self.blocks)

    def most(self, value: Callable[[BlockFigures], float]) -> float:
        return max(value(block) for block in self.blocks)


def figures(books: Books, uses: Sequence[ActorUse], classes: Sequence[ClassUse]) -> list[Figure]:
    """Every chart of the report, in order; :func:`resource_figures` apart. ``uses`` are the actors' and ``classes``
    those by class (:mod:`cluster.actor_classes`)."""
    bins = in_bins(books.ledger.figures)
    return [
        heights_figure(books),
        latency_figure(books),
        fires_figure(books, bins),
        backlog_figure(books, bins),
        lateness_figure(classes),
        fairness_figure(uses, classes),
        basefee_figure(books, bins),
        lane_figure(books, bins),
    ]


# --- charts over time -----------------------------------------------------------------------------------------------


def heights_figure(books: Books) -> Figure:
    """Final height of each validator over time, with the faults as bands."""
    record = books.record
    singled_out = {name for fault in record.faults for name in fault.targets}
    singled_out.update(validator.name for validator in record.validators if validator.mutant)
    singled_out.update(validator.name for validator in record.validators if validator.byzantine)
    name_all = len(record.validators) <= MAX_NAMED_VALIDATORS
    series, colour = [], 0
    for validator in record.validators:
        named = name_all or validator.name in singled_out
        points = _height_points(books, validator.index)
        series.append(Series(validator.name, points, "step", colour, muted=not named))
        colour += named
    chart = Chart(
        ident="heights",
        title="Final height of each validator over time",
        description=f"{len(record.validators)} validators, {record.duration_ms / 1_000:.0f} s. {_fault_words(books)}",
        x_label="time since the run began (s)",
        y_label="final height",
        series=sorted(series, key=lambda one: (not one.muted, one.name in singled_out)),
        bands=_time_bands(record),
        hints=[(at / 1_000, f"height {height} final at {at / 1_000:.2f} s") for height, at in _thinned_first(books)],
        empty="No validator was seen to finalise a height.",
    )
    note = "Where lines coincide, the validators are at the same height."
    if not name_all:
        note = f"{len(record.validators)} validators; only those with a fault or broken on purpose are named."
    columns = ("Height", *(f"{validator.name} (s)" for validator in record.validators))
    return _figure(chart, note, columns, _height_rows(books))


def latency_figure(books: Books) -> Figure:
    """Finality latency by height, with median and 95th percentile."""
    latencies = finality_latencies(books.record)
    points = _thinned([(float(height), value) for height, value in latencies.items()])
    marks = []
    if latencies:
        values = list(latencies.values())
        marks = [Mark(quantile(values, share), f"{name} {quantile(values, share):,.0f} ms") for share, name in _SHARES]
    chart = Chart(
        ident="latency",
        title="Finality latency",
        description="; ".join(mark.name for mark in marks) or "No latencies were recorded.",
        x_label="height",
        y_label="ms from first sight to first finalization",
        series=[Series("latency", points, "dots", 0)],
        marks=marks,
        bands=_height_bands(books),
        hints=[(height, f"height {height:.0f}: {value:,.0f} ms") for height, value in points],
        empty="No block was seen both proposed and final, so there is no latency to show.",
    )
    note = "From the first sight of a height's block anywhere to its first finalization anywhere."
    return _figure(chart, note, ("Height", "Latency (ms)"), [(f"{h:.0f}", f"{v:,.0f}") for h, v in points])


_SHARES: Final = ((0.5, "p50"), (0.95, "p95"))


# --- charts over height ---------------------------------------------------------------------------------------------


def fires_figure(books: Books, bins: Sequence[Bin]) -> Figure:
    """Timer fires in each block."""
    points = [(float(one.height), one.mean(lambda block: block.fires)) for one in bins]
    chart = Chart(
        ident="fires",
        title="Timer fires per block",
        description=f"{books.ledger.fires:,} fires in {books.ledger.height:,} blocks.",
        x_label="height",
        y_label="fires",
        series=[Series("fires", points, "bars", 0)] if books.ledger.fires else [],
        bands=_height_bands(books),
        hints=[(one.height, f"height {one.heights}: {number(one.mean(lambda b: b.fires))} fires") for one in bins],
        empty="No timer fired.",
    )
    rows = [(one.heights, *(number(one.mean(value)) for value in _ACTIVITY)) for one in bins]
    columns = ("Height", "Fires", "Transactions", "Reverted", "Scheduled", "Destroyed")
    return _figure(chart, _bin_note(bins, "the mean"), columns, rows)


_ACTIVITY: Final[tuple[Callable[[BlockFigures], float], ...]] = (
    lambda block: block.fires,
    lambda block: block.transactions,
    lambda block: block.reverted,
    lambda block: block.scheduled,
    lambda block: block.destroyed,
)


def backlog_figure(books: Books, bins: Sequence[Bin]) -> Figure:
    """Timers that wait although their trigger height has passed."""
    points = [(float(one.height), one.most(lambda block: block.backlog)) for one in bins]
    most = max((value for _, value in points), default=0)
    chart = Chart(
        ident="backlog",
        title="Backlog of due timers",
        description=f"At most {most:,.0f} due timers waited at once; {books.ledger.backlog:,} wait at the end.",
        x_label="height",
        y_label="timers past their trigger height",
        series=[Series("backlog", points, "area", 1)] if books.ledger.timers else [],
        bands=_height_bands(books),
        hints=[(one.height, f"height {one.heights}: backlog {number(one.most(lambda b: b.backlog))}") for one in bins],
        empty="No timer was scheduled.",
    )
    rows = [
        (one.heights, f"{one.most(lambda b: b.backlog):,.0f}", f"{one.most(lambda b: b.pending):,.0f}") for one in bins
    ]
    note = _bin_note(bins, "the largest")
    return _figure(chart, note, ("Height", "Backlog", "Pending in all"), rows)


def basefee_figure(books: Books, bins: Sequence[Bin]) -> Figure:
    """The three basefees in force during each block."""
    series = [
        Series(name, [(float(one.height), one.most(value)) for one in bins], "line", colour)
        for colour, (name, value) in enumerate(_BASEFEES)
    ]
    chart = Chart(
        ident="basefees",
        title="Basefees",
        description="The price of a cycle, of a cell and of the timer lane's cycle, in force during each block.",
        x_label="height",
        y_label="smallest CBY units",
        series=series,
        bands=_height_bands(books),
        hints=[(one.height, _basefee_words(one)) for one in bins],
        may_be_logarithmic=True,
        empty="No block was finalised.",
    )
    rows = [(one.heights, *(f"{one.most(value):,.0f}" for _, value in _BASEFEES)) for one in bins]
    return _figure(chart, _bin_note(bins, "the largest"), ("Height", *(name for name, _ in _BASEFEES)), rows)


_BASEFEES: Final[tuple[tuple[str, Callable[[BlockFigures], float]], ...]] = (
    ("timer lane", lambda block: block.basefee_lane_timer),
    ("cycle", lambda block: block.basefee_cycle),
    ("cell", lambda block: block.basefee_cell),
)


def lane_figure(books: Books, bins: Sequence[Bin]) -> Figure:
    """How full the timer lane and the transactions' lane were."""
    parameters = books.record.genesis.parameters
    lanes: tuple[tuple[str, Callable[[BlockFigures], float]], ...] = (
        ("timer lane", lambda block: 100 * block.lane_cycles / block.lane_limit),
        ("transactions", lambda block: 100 * block.user_cycles / parameters.lane_user_cycles),
    )
    chart = Chart(
        ident="lanes",
        title="Lane use",
        description="Cycles used by timer fires and by transactions, as a share of what each lane allows.",
        x_label="height",
        y_label="% of the lane's cycles",
        series=[
            Series(name, [(float(one.height), one.mean(value)) for one in bins], "line", colour)
            for colour, (name, value) in enumerate(lanes)
        ],
        marks=[Mark(50.0, "target 50 %")] if bins else [],
        bands=_height_bands(books),
        hints=[
            (one.height, f"height {one.heights}: " + ", ".join(f"{name} {one.mean(v):.0f} %" for name, v in lanes))
            for one in bins
        ],
        format_y=lambda value: f"{value:g} %",
        y_limit=100.0,
        empty="No block was finalised.",
    )
    rows = [(one.heights, *(f"{one.mean(value):.1f}" for _, value in lanes)) for one in bins]
    columns = ("Height", "Timer lane (%)", "Transactions (%)")
    note = f"The timer lane's basefee rises above {parameters.lane_timer_cycles // 2:,} cycles a block and falls below."
    return _figure(chart, " ".join(filter(None, (note, _bin_note(bins, "the mean")))), columns, rows)


# --- charts of actors -----------------------------------------------------------------------------------------------


def lateness_figure(classes: Sequence[ClassUse]) -> Figure:
    """How late the timers of each class of actors fired."""
    fired = [group for group in classes if group.fires]
    rows = [
        Row(group.name, [(name, float(group.lateness_blocks(share) or 0)) for share, name in LATENESS_SHARES])
        for group in fired
    ]
    chart = RowChart(
        ident="lateness",
        title="Lateness of fires by class of actor",
        description="; ".join(f"{row.name}: " + ", ".join(f"{n} {v:.0f}" for n, v in row.values) for row in rows),
        x_label="blocks after the trigger height",
        rows=rows,
        empty="No timer fired.",
    )
    keys = [Key(name, Markup(_point_key(place)), always=True) for place, name in enumerate(chart.value_names)]
    note = "A class is a workload of the load plan, with the program that its actors run."
    table = [(row.name, *(f"{value:.0f}" for _, value in row.values)) for row in rows]
    columns = ("Class", *(name for _, name in LATENESS_SHARES))
    return Figure(chart, Markup(render_rows(chart)), note if rows else "", columns, table, keys, texts=1)


LATENESS_SHARES: Final = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (1.0, "max"))


def fairness_figure(uses: Sequence[ActorUse], classes: Sequence[ClassUse]) -> Figure:
    """Each actor's share of the fires against its fairness weight."""
    total = sum(use.fires for use in uses) or 1
    series = [
        Series(
            group.name,
            _thinned(sorted((use.weight, 100 * use.fires / total) for use in group.actors)),
            "scatter",
            colour,
        )
        for colour, group in enumerate(classes)
    ]
    jain, gini = jain_index([use.served_share for use in uses] or [1.0]), gini_index([use.fires for use in uses])
    words = (
        f"Jain's index of the share of due timers that fired is {jain:.3f} over {len(uses):,} actors"
        f" (1: all are served alike); the Gini index of fires is {gini:.3f} (0: all have the same number)."
    )
    chart = Chart(
        ident="fairness",
        title="Fairness",
        description=words,
        x_label="mean fairness weight of the actor (1 to 2)",
        y_label="% of all fires",
        series=series if any(use.fires for use in uses) else [],
        format_x=lambda value: f"{value:.3g}",
        empty="No timer fired.",
    )
    rows = [
        (
            address_text(use.actor)[:ACTOR_DIGITS] + "…",
            use.group,
            f"{use.weight:.2f}",
            f"{use.due:,}",
            f"{use.fires:,}",
            f"{100 * use.fires / total:.2f}",
            f"{100 * use.served_share:.1f}",
        )
        for use in sorted(uses, key=lambda use: -use.fires)[:MAX_POINTS]
    ]
    columns = ("Actor", "Class", "Weight", "Due", "Fires", "% of fires", "% of due")
    keys = [Key(one.name, Markup(_point_key(one.colour)), always=True) for one in chart.named]
    note = f"{words} Who fired much lately weighs less, down to 1."
    table = [] if chart.is_empty else rows
    return Figure(chart, Markup(render(chart)), note if rows else "", columns, table, keys, texts=2)


ACTOR_DIGITS: Final = 14
MISSED_LOOKS: Final = 3


# --- charts of validators -------------------------------------------------------------------------------------------


def resource_figures(record: RunRecord) -> list[Figure]:
    """What each validator used over time, a small chart for each resource that was told."""
    found = []
    for name, unit, value, is_rate in _RESOURCES:
        series = [
            Series(validator, points, "line", place, muted=place >= MAX_NAMED_VALIDATORS, gap=_gap(points))
            for place, validator in enumerate(record.scenario.validators.names)
            if (points := _resource_points(record, place, value, is_rate))
        ]
        chart = Chart(
            ident=f"resource-{name.split()[0].lower()}",
            title=name,
            description=f"{name} of {len(series)} validators over time.",
            x_label="time (s)",
            y_label=unit,
            series=series,
            bands=_time_bands(record),
        )
        if series:
            found.append(Figure(chart, Markup(render(chart, (SMALL,))), "", (), (), _line_keys(chart)))
    return found


def _resource_points(
    record: RunRecord, validator: int, value: Callable[[Resources], float | None], is_rate: bool
) -> list[tuple[float, float]]:
    """Seconds and values; of a rate, the growth a second, but where a counter began anew."""
    looks = [(look.at_ms / 1_000, value(look)) for look in record.resources if look.validator == validator]
    known = [(at, amount) for at, amount in looks if amount is not None]
    if is_rate:
        known = [
            (later, (after - before) / (later - earlier))
            for (earlier, before), (later, after) in pairwise(known)
            if after >= before and later > earlier
        ]
    return _thinned(known)


def _gap(points: Sequence[tuple[float, float]]) -> float:
    """So much time between two looks says that the validator was down meanwhile."""
    apart = [later - earlier for (earlier, _), (later, _) in pairwise(points)]
    return MISSED_LOOKS * median(apart) if apart else math.inf


_RESOURCES: Final[tuple[tuple[str, str, Callable[[Resources], float | None], bool], ...]] = (
    ("Memory", "MB resident", lambda look: None if look.memory_bytes is None else look.memory_bytes / 1e6, False),
    ("Processor", "% of one processor", lambda look: look.cpu_seconds and 100 * look.cpu_seconds, True),
    ("Files open", "file descriptors", lambda look: look.open_files, False),
    ("Disk", "MB", lambda look: look.disk_bytes / 1e6, False),
    ("Messages sent", "messages a second", lambda look: look.messages_sent, True),
)


# --- helpers --------------------------------------------------------------------------------------------------------


def in_bins(blocks: Sequence[BlockFigures]) -> list[Bin]:
    """At most :data:`MAX_POINTS` bins of equally many blocks."""
    size = max(1, -(-len(blocks) // MAX_POINTS))
    return [Bin(blocks[i : i + size]) for i in range(0, len(blocks), size)]


def _figure(chart: Chart, note: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Figure:
    return Figure(chart, Markup(render(chart)), note, columns, [] if chart.is_empty else rows, _line_keys(chart))


def _line_keys(chart: Chart) -> list[Key]:
    """For where there is no room for names beside the lines."""
    if chart.is_empty:
        return []
    named = chart.named if len(chart.named) > 1 else []
    keys = [Key(one.name, Markup(_line_key(f"c{one.colour % COLOURS}", DASHES[one.colour % COLOURS]))) for one in named]
    marks = enumerate(chart.marks)
    return keys + [Key(mark.name, Markup(_line_key("mark", MARK_DASHES[at % len(MARK_DASHES)]))) for at, mark in marks]


def _line_key(kind: str, dash: str) -> str:
    return f'<svg viewBox="0 0 26 8" role="presentation">{line(kind, 0, 4, 26, 4, dash)}</svg>'


def _point_key(place: int) -> str:
    points = f'<g class="dots c{place % COLOURS}">{shape(place, 6, 6, 4.2)}</g>'
    return f'<svg class="point" viewBox="0 0 12 12" role="presentation">{points}</svg>'


def _bin_note(bins: Sequence[Bin], word: str) -> str:
    size = len(bins[0].blocks) if bins else 1
    return f"Each point stands for {size} blocks: {word} of them." if size > 1 else ""


def _thinned(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most :data:`MAX_POINTS` of the points, the last one always among them."""
    found = list(points)
    step = max(1, -(-len(found) // MAX_POINTS))
    return list(reversed(found[::-1][::step]))


def _thinned_first(books: Books) -> list[tuple[int, float]]:
    """Heights and when they were first final, thinned, in the order of time."""
    first = first_finalizations(books.record.finalizations)
    ordered = sorted(first.items(), key=lambda item: item[1])
    step = max(1, -(-len(ordered) // MAX_POINTS))
    return ordered[::step]


def _height_points(books: Books, validator: int) -> list[tuple[float, float]]:
    """Seconds and final height of one validator, rising."""
    points: list[tuple[float, float]] = []
    seen = sorted(
        (f for f in books.record.finalizations if f.validator == validator), key=lambda f: (f.at_ms, f.height)
    )
    for finalization in seen:
        if not points or finalization.height > points[-1][1]:
            points.append((finalization.at_ms / 1_000, float(finalization.height)))
    return _thinned(points)


def _height_rows(books: Books) -> list[tuple[str, ...]]:
    """When each validator was first seen at a height, thinned."""
    reached: dict[int, dict[int, float]] = {}
    for seen in books.record.finalizations:
        times = reached.setdefault(seen.height, {})
        times[seen.validator] = min(seen.at_ms, times.get(seen.validator, seen.at_ms))
    heights = sorted(reached)
    step = max(1, -(-len(heights) // MAX_POINTS))
    indices = [validator.index for validator in books.record.validators]
    return [
        (str(h), *(f"{reached[h][i] / 1_000:.2f}" if i in reached[h] else "–" for i in indices))
        for h in heights[::step]
    ]


def _time_bands(record: RunRecord) -> list[Band]:
    """The faults, in seconds."""
    return [
        Band(
            fault.begun_ms / 1_000,
            (record.duration_ms if fault.ended_ms is None else fault.ended_ms) / 1_000,
            named.title,
            named.short,
        )
        for named in named_faults(record)
        if (fault := named.fault).begun_ms is not None
    ]


def _height_bands(books: Books) -> list[Band]:
    """The faults, by the heights at which they began and ended."""
    top = max(1, books.ledger.height)
    return [
        Band(
            min(top, max(1, fault.height_when_begun)),
            min(top, fault.height_when_ended if fault.height_when_ended is not None else top),
            named.title,
            named.short,
        )
        for named in named_faults(books.record)
        if (fault := named.fault).begun_ms is not None
    ]


def _fault_words(books: Books) -> str:
    names = [f"{fault.kind} of {fault.whom}" for fault in books.record.faults if fault.begun_ms is not None]
    return f"Marked: {', '.join(names)}." if names else "There were no faults."


def _basefee_words(one: Bin) -> str:
    return f"height {one.heights}: " + ", ".join(f"{name} {number(one.most(value))}" for name, value in _BASEFEES)
