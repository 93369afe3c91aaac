"""The charts of a run's report, each with its numbers as a table.

Long curves are thinned to :data:`MAX_POINTS` points, with a note: of each group of neighbouring points the minimum and
the maximum are kept, so that rare values stay visible (:func:`thinned`). Each chart over time or height marks the
stalls that were longer than the scenario allows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from statistics import median
from typing import Final

import numpy as np
from markupsafe import Markup

from cluster.audit.books import Books
from cluster.checks.metrics.actor_classes import SHARES, ActorUse, ClassUse, gini_index, jain_index
from cluster.checks.metrics.load_latency import WorkloadLatency, latency_text, load_moments
from cluster.checks.metrics.metrics import finality_latencies
from cluster.common.quantiles import quantile
from cluster.record.run import Lag, Resources, RunRecord
from cluster.report.fault_labels import Marked, marked_text
from cluster.report.svg import (
    COLOURS,
    DASHES,
    MARK_DASHES,
    SMALL,
    Band,
    Chart,
    Mark,
    Point,
    Row,
    RowChart,
    Series,
    line,
    number,
    render,
    shape,
)
from validator.primitives.types import address_text

MAX_POINTS: Final = 240
MAX_NAMED_VALIDATORS: Final = 8
"""Maximum number of validators that the chart of heights names. If there are more, it names only validators that are
broken on purpose or that faults hit."""
MAX_VALIDATOR_COLUMNS: Final = 24
"""Maximum number of validators with a column each in the table of heights. With more, the table has columns for the
first, the median and the last validator to reach a height."""
OTHER_HOSTS: Final = "other hosts"


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of a chart's key."""

    name: str
    drawing: Markup
    always: bool = False
    """Whether the entry is shown even if there is room for names next to the lines."""


@dataclass(frozen=True, slots=True)
class ChartPanel:
    """A chart with its place on the page and the numbers behind it."""

    chart: Chart | RowChart
    drawing: Markup
    note: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    key: Sequence[Key] = ()
    texts: int = 0
    """Number of leading columns with text."""


Columns = Mapping[str, Sequence[float]]
"""Figures by name, each with an item a block from height 1 on."""


def charts(
    books: Books,
    marks: Sequence[Marked],
    uses: Sequence[ActorUse],
    classes: Sequence[ClassUse],
    latencies: Sequence[WorkloadLatency] = (),
) -> list[ChartPanel]:
    """The charts of the report, in order, without :func:`resource_charts`.

    ``marks`` are the run's faults and stalls (:func:`cluster.report.fault_labels.marked`). ``uses`` and ``classes`` are
    the fires by actor and by class (:mod:`cluster.checks.metrics.actor_classes`), ``latencies`` the load's latencies by
    workload.
    """
    return [
        heights_chart(books, marks),
        latency_chart(books, marks),
        fires_chart(books, marks),
        backlog_chart(books, marks),
        lateness_chart(classes),
        fairness_chart(uses, classes),
        basefee_chart(books, marks),
        lane_chart(books, marks),
        load_latency_chart(latencies),
        requests_chart(books.record, marks),
        response_chart(books.record, marks),
        lag_chart(books.record, marks),
    ]


# --- charts over time -----------------------------------------------------------------------------------------------


def heights_chart(books: Books, marks: Sequence[Marked]) -> ChartPanel:
    """Final height of each validator over time, with the faults and long stalls as bands."""
    record = books.record
    named, count = _named_validators(record), len(record.validators)
    series, colour, most = [], 0, 0
    for validator in record.validators:
        is_named = validator.name in named
        points = _height_points(books, validator.index)
        most = max(most, len(points))
        series.append(Series(validator.name, thinned(points), "step", colour, muted=not is_named))
        colour += is_named
    singled_out = set(named) if len(named) < count else set(_singled_out(record))
    chart = Chart(
        ident="heights",
        title="Final height of each validator over time",
        description=f"{count} validators, {record.duration_ms / 1_000:.0f} s. {marked_text(record, marks)}",
        x_label="time since the run began (s)",
        axis="seconds",
        y_label="final height",
        series=sorted(series, key=lambda one: (not one.muted, one.name in singled_out)),
        bands=_time_bands(marks),
        hints=[(at / 1_000, f"height {height} final at {at / 1_000:.2f} s") for height, at in _thinned_first(books)],
        empty="No validator finalised a height.",
    )
    note = "Coinciding lines are validators at the same height."
    if len(named) < count:
        note = f"{count} validators; only those with a fault or broken on purpose are named."
        if len(_singled_out(record)) > len(named):
            note = f"{count} validators; named are those broken on purpose, then those that most faults hit."
    note = _joined(note, _thin_note(most, "heights"))
    return _panel(chart, note, *_height_table(books))


def latency_chart(books: Books, marks: Sequence[Marked]) -> ChartPanel:
    """Finality latency by height, with median and 95th percentile."""
    latencies = finality_latencies(books.record)
    points = thinned([(float(height), value) for height, value in latencies.items()])
    values = list(latencies.values())
    found = [(quantile(values, share), name) for share, name in SHARES[:2]] if values else []
    lines = [Mark(value, f"{name} {value:,.0f} ms") for value, name in found]
    chart = Chart(
        ident="latency",
        title="Finality latency",
        description="; ".join(mark.name for mark in lines) or "No latencies were recorded.",
        x_label="height",
        axis="height",
        y_label="ms from first sight to first finalization",
        series=[Series("latency", points, "dots", 0)],
        may_be_logarithmic=True,
        marks=lines,
        bands=_height_bands(books, marks),
        hints=[(height, f"height {height:.0f}: {value:,.0f} ms") for height, value in points],
        empty="No block has both a proposal and a finalization, so there is no latency.",
    )
    note = "From the first sight of a height's block anywhere to its first finalization anywhere."
    note = _joined(note, _thin_note(len(latencies), "heights"), "The percentiles are of all." if points else "")
    return _panel(chart, note, ("Height", "Latency (ms)"), [(f"{h:.0f}", f"{v:,.0f}") for h, v in points])


# --- charts over height ---------------------------------------------------------------------------------------------


def fires_chart(books: Books, marks: Sequence[Marked]) -> ChartPanel:
    """Timer fires in each block."""
    blocks = books.ledger.blocks
    is_whole = _stretch(len(blocks)) == 1
    points = _curve(blocks.fires)
    chart = Chart(
        ident="fires",
        title="Timer fires per block",
        description=f"{books.ledger.timers.fires:,} fires in {books.ledger.height:,} blocks.",
        x_label="height",
        axis="height",
        y_label="fires",
        series=[Series("fires", points, "bars" if is_whole else "area", 0)] if books.ledger.timers.fires else [],
        empty="No timer fired.",
    )
    columns = {
        "Fires": blocks.fires,
        "Transactions": blocks.transactions,
        "Reverted": blocks.reverted,
        "Scheduled": blocks.scheduled,
        "Destroyed": blocks.destroyed,
    }
    return _height_panel(books, marks, chart, lambda place: f"{number(blocks.fires[place])} fires", columns, number)


def backlog_chart(books: Books, marks: Sequence[Marked]) -> ChartPanel:
    """Pending timers whose trigger height has passed."""
    backlog = books.ledger.blocks.backlog
    most = max(backlog, default=0)
    points = _curve(backlog)
    chart = Chart(
        ident="backlog",
        title="Backlog of due timers",
        description=f"At most {most:,.0f} due timers waited at once; {books.ledger.backlog:,} wait at the end.",
        x_label="height",
        axis="height",
        y_label="timers past their trigger height",
        series=[Series("backlog", points, "area", 1)] if books.ledger.timers.scheduled else [],
        empty="No timer was scheduled.",
    )
    columns = {"Backlog": backlog, "Pending in all": books.ledger.blocks.pending}
    return _height_panel(books, marks, chart, lambda place: f"backlog {number(backlog[place])}", columns, "{:,}".format)


def basefee_chart(books: Books, marks: Sequence[Marked]) -> ChartPanel:
    """The three basefees in force during each block."""
    blocks = books.ledger.blocks
    basefees = {
        "timer lane": blocks.basefee_lane_timer,
        "cycle": blocks.basefee_cycle,
        "cell": blocks.basefee_cell,
    }
    chart = Chart(
        ident="basefees",
        title="Basefees",
        description="The price of a cycle, of a cell and of the timer lane's cycle, in force during each block.",
        x_label="height",
        axis="height",
        y_label="smallest CBY units",
        series=_curves(basefees),
        may_be_logarithmic=True,
        empty="No block was finalised.",
    )

    def hint(place: int) -> str:
        return ", ".join(f"{name} {number(values[place])}" for name, values in basefees.items())

    return _height_panel(books, marks, chart, hint, basefees, "{:,.0f}".format)


def lane_chart(books: Books, marks: Sequence[Marked]) -> ChartPanel:
    """How full the timer lane and the transactions' lane were."""
    parameters, blocks = books.record.genesis.parameters, books.ledger.blocks
    limits = zip(blocks.lane_cycles, blocks.lane_limit, strict=True)
    lanes = {
        "timer lane": [100 * cycles / limit for cycles, limit in limits],
        "transactions": [100 * cycles / parameters.lane_user_cycles for cycles in blocks.user_cycles],
    }
    chart = Chart(
        ident="lanes",
        title="Lane use",
        description="Cycles used by timer fires and by transactions, as a share of what each lane allows.",
        x_label="height",
        axis="height",
        y_label="% of the lane's cycles",
        series=_curves(lanes),
        marks=[Mark(50.0, "target 50 %")] if blocks else [],
        format_y=lambda value: f"{value:g} %",
        y_limit=100.0,
        empty="No block was finalised.",
    )

    def hint(place: int) -> str:
        return ", ".join(f"{name} {values[place]:.0f} %" for name, values in lanes.items())

    columns = dict(zip(("Timer lane (%)", "Transactions (%)"), lanes.values(), strict=True))
    note = f"The timer lane's basefee rises above {parameters.lane_timer_cycles // 2:,} cycles a block and falls below."
    return _height_panel(books, marks, chart, hint, columns, "{:.1f}".format, note)


# --- charts of actors -----------------------------------------------------------------------------------------------


def lateness_chart(classes: Sequence[ClassUse]) -> ChartPanel:
    """How late the due timers of each class of actors were."""
    due = [group for group in classes if group.lateness]
    rows = [
        Row(group.name, [(name, float(group.lateness_blocks(share) or 0)) for share, name in LATENESS_SHARES])
        for group in due
    ]
    chart = RowChart(
        ident="lateness",
        title="Lateness of due timers by class of actor",
        description="; ".join(f"{row.name}: " + ", ".join(f"{n} {v:.0f}" for n, v in row.values) for row in rows),
        x_label="blocks after the trigger height",
        rows=rows,
        empty="No timer fired.",
    )
    note = "A class is a workload of the load plan, with the program that its actors run."
    return _row_panel(chart, note, ("Class", *(name for _, name in LATENESS_SHARES)), "{:.0f}".format)


LATENESS_SHARES: Final = (*SHARES, (1.0, "max"))


def fairness_chart(uses: Sequence[ActorUse], classes: Sequence[ClassUse]) -> ChartPanel:
    """Each actor's share of the fires against its fairness weight."""
    total = sum(use.fires for use in uses) or 1
    series = [
        Series(
            group.name,
            thinned(sorted((use.weight, 100 * use.fires / total) for use in group.actors)),
            "scatter",
            colour,
        )
        for colour, group in enumerate(classes)
    ]
    jain, gini = jain_index([use.served_share for use in uses]), gini_index([use.fires for use in uses])
    summary = (
        f"Jain's index of the share of due timers that fired is {jain:.3f} over {len(uses):,} actors"
        f" (1: all actors are served alike); the Gini index of fires is {gini:.3f} (0: all have the same number)."
        if jain is not None
        else f"None of {len(uses):,} actors had a timer fired."
    )
    chart = Chart(
        ident="fairness",
        title="Fairness",
        description=summary,
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
    keys = point_keys((one.colour, one.name) for one in chart.named)
    most = max((len(group.actors) for group in classes), default=0)
    note = _joined(
        f"{summary} Actors with many recent fires weigh less, down to 1.", _thin_note(most, "actors by their weight")
    )
    table = [] if chart.is_empty else rows
    return ChartPanel(chart, Markup(render(chart)), note if rows else "", columns, table, keys, texts=2)


ACTOR_DIGITS: Final = 14
MISSED_LOOKS: Final = 3


# --- charts of the load ---------------------------------------------------------------------------------------------


def load_latency_chart(latencies: Sequence[WorkloadLatency]) -> ChartPanel:
    """Latency from the intended send of a transaction to its final block, by workload."""
    measured = {each.workload: each.quantiles_ms for each in latencies if each.latencies_ms}
    finite = {
        workload: [(name, value) for name, value in quantiles.items() if value is not None and math.isfinite(value)]
        for workload, quantiles in measured.items()
    }
    rows = [Row(workload, values) for workload, values in finite.items() if values]
    chart = RowChart(
        ident="load-latency",
        title="Latency of the load by workload",
        description="; ".join(f"{row.name}: " + ", ".join(f"{n} {v:,.0f}" for n, v in row.values) for row in rows),
        x_label="ms from intended send to finality",
        rows=rows,
        may_be_logarithmic=True,
        empty="Too few transactions of the load became final.",
    )
    note = (
        "From the moment at which a transaction was to be sent to the first finalization of its block. What never"
        " became final is later than all that did."
    )
    columns = ("Workload", *(f"{name} (ms)" for name in chart.value_names))
    return _row_panel(chart, note, columns, latency_text)


def _row_panel(chart: RowChart, note: str, columns: tuple[str, ...], form: Callable[[float], str]) -> ChartPanel:
    """The panel of a chart of rows. ``form`` formats a value of its table; a value that a row lacks is infinite."""
    table = [
        (row.name, *(form(dict(row.values).get(name, math.inf)) for name in chart.value_names)) for row in chart.rows
    ]
    keys = point_keys(enumerate(chart.value_names))
    return ChartPanel(chart, Markup(render(chart)), note if chart.rows else "", columns, table, keys, texts=1)


def requests_chart(record: RunRecord, marks: Sequence[Marked]) -> ChartPanel:
    """Requests and failures of the load per second, over time."""
    moments, width_s = load_moments(record.load.timeline, record.began_epoch_ms), _width_s(record)
    rates = {
        "requests": [(moment.at_ms / 1_000, moment.requests / width_s) for moment in moments],
        "failures": [(moment.at_ms / 1_000, moment.failures / width_s) for moment in moments],
    }
    chart = Chart(
        ident="requests",
        title="Requests of the load",
        description=f"{record.load.requests:,} requests, {record.load.failures:,} of them failed.",
        x_label="time (s)",
        axis="seconds",
        y_label="a second",
        series=[Series(name, thinned(points), "line", at) for at, (name, points) in enumerate(rates.items())],
        bands=_time_bands(marks),
        hints=[
            (moment.at_ms / 1_000, f"{moment.requests:,} requests, {moment.failures:,} failures") for moment in moments
        ],
        empty="The load made no request.",
    )
    rows = [(f"{m.at_ms / 1_000:,.0f}", f"{m.requests:,}", f"{m.failures:,}") for m in moments[:MAX_POINTS]]
    note = _joined(f"Counted in stretches of {width_s:g} s.", _thin_note(len(moments), "stretches"))
    return _panel(chart, note, ("From (s)", "Requests", "Failures"), rows)


def response_chart(record: RunRecord, marks: Sequence[Marked]) -> ChartPanel:
    """Response times of the load's good answers, over time."""
    moments, width_s = load_moments(record.load.timeline, record.began_epoch_ms), _width_s(record)
    answered = [moment for moment in moments if moment.times_ms]
    series = [
        Series(
            name,
            thinned([(moment.at_ms / 1_000, moment.times_ms[name]) for moment in answered]),
            "line",
            at,
            gap=1.5 * width_s * _stretch(len(answered)),
        )
        for at, (_, name) in enumerate(SHARES)
    ]
    chart = Chart(
        ident="responses",
        title="Response times of the load",
        description=f"Percentiles of the good answers, in stretches of {width_s:g} s.",
        x_label="time (s)",
        axis="seconds",
        y_label="ms",
        series=series,
        bands=_time_bands(marks),
        may_be_logarithmic=True,
        empty="The load had no good answer.",
    )
    rows = [
        (f"{moment.at_ms / 1_000:,.0f}", *(f"{moment.times_ms[name]:,.1f}" for _, name in SHARES))
        for moment in answered[:MAX_POINTS]
    ]
    note = _joined("Of good answers alone; failures are counted above.", _thin_note(len(answered), "stretches"))
    return _panel(chart, note, ("From (s)", *(f"{name} (ms)" for _, name in SHARES)), rows)


def _width_s(record: RunRecord) -> float:
    return record.load.timeline.width_ms / 1_000


# --- charts of validators -------------------------------------------------------------------------------------------


def resource_charts(record: RunRecord, marks: Sequence[Marked]) -> list[ChartPanel]:
    """A small chart over time for each measured resource, with a line per validator."""
    found = []
    names, by_validator = record.scenario.validators.names, _looks_by_validator(record)
    for name, unit, value, is_rate in _RESOURCES:
        looks = {
            place: points
            for place, mine in sorted(by_validator.items())
            if (points := _resource_points(mine, value, is_rate))
        }
        series = [
            Series(
                names[place],
                thinned(points),
                "line",
                place,
                muted=place >= MAX_NAMED_VALIDATORS,
                gap=_gap(points),
            )
            for place, points in looks.items()
        ]
        chart = Chart(
            ident=f"resource-{name.split()[0].lower()}",
            title=name,
            description=f"{name} of {len(series)} validators over time.",
            x_label="time (s)",
            axis="seconds",
            y_label=unit,
            series=sorted(series, key=lambda one: not one.muted),
            bands=_time_bands(marks),
        )
        if series:
            note = _thin_note(max(map(len, looks.values())), "looks")
            found.append(ChartPanel(chart, Markup(render(chart, (SMALL,))), note, (), (), line_keys(chart)))
    return found


def lag_chart(record: RunRecord, marks: Sequence[Marked]) -> ChartPanel:
    """The share of time for which the machine kept each host, and the driver, from running."""
    by_host: dict[int | None, list[Lag]] = {None: []}
    for lag in sorted(record.lags, key=lambda lag: (lag.host is not None, lag.host or 0, lag.at_ms)):
        by_host.setdefault(lag.host, []).append(lag)
    hosts = [host for host in by_host if host is not None]
    worst = sorted(hosts, key=lambda host: -sum(lag.lag_ms for lag in by_host[host]))[: MAX_NAMED_VALIDATORS - 1]
    named = set(hosts if len(hosts) <= MAX_NAMED_VALIDATORS else worst)
    groups = {"driver": by_host[None]} | {f"host {host}": by_host[host] for host in hosts if host in named}
    if others := [lag for host in hosts if host not in named for lag in by_host[host]]:
        groups[OTHER_HOSTS] = sorted(others, key=lambda lag: lag.at_ms)
    series = []
    for place, (name, lags) in enumerate(groups.items()):
        shares = [(each.until_ms / 1_000, 100 * each.worst_share) for each in lags]
        series.append(Series(name, thinned(shares), "scatter", place, muted=name == OTHER_HOSTS))
    most = max(map(len, groups.values()))
    chart = Chart(
        ident="lag",
        title="Lag of the machine",
        description=f"The time that {len(hosts)} hosts and the driver wanted to run and could not, second by second.",
        x_label="time (s)",
        axis="seconds",
        y_label="% of the time that it could not run",
        series=sorted(series, key=lambda one: not one.muted) if record.lags else [],
        bands=_time_bands(marks),
        y_limit=100.0,
        empty="In the simulator there is no lag."
        if record.backend == "sim"
        else "The machine let every process run as it wanted to.",
    )
    note = "Delay for lack of a processor, without the host's own work."
    if others:
        note = f"{note} Named are the driver and the {len(named)} hosts with the most; {OTHER_HOSTS} are grey."
    note = _joined(note, _thin_note(most, "seconds"))
    keys = point_keys((one.colour, one.name) for one in chart.named)
    return ChartPanel(chart, Markup(render(chart)), "" if chart.is_empty else note, (), (), keys)


def _looks_by_validator(record: RunRecord) -> dict[int, list[Resources]]:
    found: dict[int, list[Resources]] = {}
    for look in record.resources:
        found.setdefault(look.validator, []).append(look)
    return found


def _resource_points(
    mine: Sequence[Resources], value: Callable[[Resources], float | None], is_rate: bool
) -> list[tuple[float, float]]:
    """The points of one validator's curve: seconds and values. A rate is the growth per second, without the intervals
    in which a counter restarted."""
    looks = [(look.at_ms / 1_000, value(look)) for look in mine]
    known = [(at, amount) for at, amount in looks if amount is not None]
    if is_rate:
        known = [
            (later, (after - before) / (later - earlier))
            for (earlier, before), (later, after) in pairwise(known)
            if after >= before and later > earlier
        ]
    return known


def _gap(points: Sequence[tuple[float, float]]) -> float:
    """The distance between two samples beyond which the curve is interrupted: the validator was down."""
    apart = [later - earlier for (earlier, _), (later, _) in pairwise(points)]
    return max(MISSED_LOOKS, 2 * _stretch(len(points))) * median(apart) if apart else math.inf


_RESOURCES: Final[tuple[tuple[str, str, Callable[[Resources], float | None], bool], ...]] = (
    ("Memory", "MB resident", lambda look: None if look.memory_bytes is None else look.memory_bytes / 1e6, False),
    ("Processor", "% of one processor", lambda look: look.cpu_seconds and 100 * look.cpu_seconds, True),
    ("Files open", "file descriptors", lambda look: look.open_files, False),
    ("Disk", "MB", lambda look: look.disk_bytes / 1e6, False),
    ("Messages sent", "messages a second", lambda look: look.messages_sent, True),
)


# --- helpers --------------------------------------------------------------------------------------------------------


def thinned(points: Sequence[Point]) -> list[Point]:
    """Thin points to at most :data:`MAX_POINTS`, in order: those with the least and the largest value of each stretch,
    and the last point."""
    size = _stretch(len(points))
    if size < 2:
        return list(points)
    values = np.fromiter((value for _, value in points), float, len(points))
    kept = {len(points) - 1}
    for start in range(0, len(points), size):
        stretch = values[start : start + size]
        kept |= {start + int(stretch.argmin()), start + int(stretch.argmax())}
    return [points[place] for place in sorted(kept)]


def _stretch(count: int) -> int:
    """Number of neighbouring points that are reduced to two; 1 if all are drawn."""
    return 1 if count <= MAX_POINTS else -(-count // ((MAX_POINTS - 1) // 2))


def _thin_note(count: int, what: str) -> str:
    """The note of a thinned chart; empty if all points are drawn."""
    size = _stretch(count)
    return f"Thinned: of each {size} {what} the least and the largest value are drawn." if size > 1 else ""


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _curve(values: Sequence[float]) -> list[Point]:
    """The points of a figure over heights, which begin with 1."""
    return thinned([(float(height), value) for height, value in enumerate(values, 1)])


def _curves(columns: Columns) -> list[Series]:
    return [Series(name, _curve(values), "line", colour) for colour, (name, values) in enumerate(columns.items())]


def _height_panel(
    books: Books,
    marks: Sequence[Marked],
    chart: Chart,
    hint: Callable[[int], str],
    columns: Columns,
    form: Callable[[float], str],
    note: str = "",
) -> ChartPanel:
    """The panel of a chart over heights. It shows faults and stalls, and has a hint and a row of numbers for each block
    that is drawn. ``hint`` has the place of a block in its columns."""
    drawn = sorted({int(height) for series in chart.series for height, _ in series.points})
    hints = [(height, f"height {height}: {hint(height - 1)}") for height in drawn]
    rows = [(str(height), *(form(values[height - 1]) for values in columns.values())) for height in drawn]
    whole_note = _joined(note, _thin_note(len(books.ledger.blocks), "blocks"))
    return _panel(
        replace(chart, bands=_height_bands(books, marks), hints=hints), whole_note, ("Height", *columns), rows
    )


def _panel(chart: Chart, note: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> ChartPanel:
    if chart.is_empty:
        return ChartPanel(chart, Markup(render(chart)), "", columns, [])
    return ChartPanel(chart, Markup(render(chart)), note, columns, rows, line_keys(chart))


def line_keys(chart: Chart) -> list[Key]:
    """The key of a chart of lines, for narrow drawings, which have no names next to the lines."""
    if chart.is_empty:
        return []
    named = chart.named if len(chart.named) > 1 else []
    keys = [Key(one.name, Markup(_line_key(f"c{one.colour % COLOURS}", DASHES[one.colour % COLOURS]))) for one in named]
    marks = enumerate(chart.marks)
    return keys + [Key(mark.name, Markup(_line_key("mark", MARK_DASHES[at % len(MARK_DASHES)]))) for at, mark in marks]


def _line_key(kind: str, dash: str) -> str:
    return f'<svg viewBox="0 0 26 8" role="presentation">{line(kind, 0, 4, 26, 4, dash)}</svg>'


def point_keys(names: Iterable[tuple[int, str]]) -> list[Key]:
    """The key of a chart of points, whose names are not next to them. Each name comes with the number of its shape."""
    points = [(name, f'<g class="dots c{place % COLOURS}">{shape(place, 6, 6, 4.2)}</g>') for place, name in names]
    head = '<svg class="point" viewBox="0 0 12 12" role="presentation">'
    return [Key(name, Markup(f"{head}{point}</svg>"), always=True) for name, point in points]


def _thinned_first(books: Books) -> list[tuple[int, float]]:
    """Heights and the times in milliseconds when they were first final, thinned, in the order of time."""
    first = books.record.first_finalizations
    ordered = thinned(sorted((at, float(height)) for height, at in first.items()))
    return [(int(height), at) for at, height in ordered]


def _height_points(books: Books, validator: int) -> list[tuple[float, float]]:
    """Seconds and final height of one validator, ascending."""
    moments = books.record.finalizations.moments_of(validator)
    highest = accumulate((height for _, height in moments), max, initial=0)
    risen = zip(moments, highest, strict=False)
    return [(at_ms / 1_000, float(height)) for (at_ms, height), before in risen if height > before]


def _height_table(books: Books) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The columns and rows of the table of heights: when each validator was first seen at a height, for some heights.
    For many validators the table has only the first, the median and the last time."""
    seen, validators = books.record.finalizations, books.record.validators
    heights = [int(height) for height, _ in thinned([(height, height) for height in seen.earliest()])]
    reached = seen.at_heights(heights)
    if len(validators) > MAX_VALIDATOR_COLUMNS:
        columns = ("Height", "Validators", "First (s)", "Median (s)", "Last (s)")
        ordered = [(height, sorted(reached[height].values())) for height in heights]
        rows = [
            (str(height), str(len(at)), *(f"{ms / 1_000:.2f}" for ms in (at[0], at[len(at) // 2], at[-1])))
            for height, at in ordered
        ]
        return columns, rows
    indices = [validator.index for validator in validators]
    return ("Height", *(f"{validator.name} (s)" for validator in validators)), [
        (str(h), *(f"{reached[h][i] / 1_000:.2f}" if i in reached[h] else "–" for i in indices)) for h in heights
    ]


def _singled_out(record: RunRecord) -> list[str]:
    """The validators that are broken on purpose, then those that faults hit, most often hit first."""
    hits = Counter(name for fault in record.faults for name in fault.targets)
    broken = [validator.name for validator in record.validators if validator.mutant or validator.byzantine]
    return list(dict.fromkeys([*broken, *(name for name, _ in hits.most_common())]))


def _named_validators(record: RunRecord) -> list[str]:
    """The validators that have a colour and a name in a chart that has a line for each validator."""
    if len(record.validators) <= MAX_NAMED_VALIDATORS:
        return [validator.name for validator in record.validators]
    return _singled_out(record)[:MAX_NAMED_VALIDATORS]


def _time_bands(marks: Sequence[Marked]) -> list[Band]:
    return [Band(each.begun_ms / 1_000, each.ended_ms / 1_000, each.title, each.short, each.is_stall) for each in marks]


def _height_bands(books: Books, marks: Sequence[Marked]) -> list[Band]:
    """Faults and stalls by the heights at which they began and ended."""
    top = max(1, books.ledger.height)
    return [
        Band(
            min(top, max(1, each.begun_height)),
            min(top, top if each.ended_height is None else each.ended_height),
            each.title,
            each.short,
            each.is_stall,
        )
        for each in marks
    ]
