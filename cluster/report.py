"""The report of a run for people: one HTML file that needs nothing else, neither network nor scripts.

This module turns books and verdict into charts and tables (pure but for reading the template); the page itself is
``templates/report.html.j2``. Long runs are thinned to :data:`MAX_POINTS` points a curve, and say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cluster.books import Books
from cluster.charts import DASHES, MARK_DASHES, Band, Chart, Mark, Series, number, render
from cluster.checks import Outcome, Verdict
from cluster.divergence.words import lines
from cluster.ledger import BlockFigures
from cluster.measures import finality_latencies, first_finalizations, metrics, quantile

TEMPLATES: Final = Path(__file__).parent / "templates"
TEMPLATE: Final = "report.html.j2"
MAX_POINTS: Final = 240
MAX_NAMED_VALIDATORS: Final = 8
"""With more validators than this, only those with a fault or broken on purpose are named in the chart of heights."""

ROOT_DIGITS: Final = 16
OUTCOME_WORDS: Final = {Outcome.PASS: "Pass", Outcome.FAIL: "Fail", Outcome.INCONCLUSIVE: "Inconclusive"}
OUTCOME_SIGNS: Final = {Outcome.PASS: "✓", Outcome.FAIL: "✕", Outcome.INCONCLUSIVE: "?"}


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with its place on the page and the numbers behind it."""

    chart: Chart
    drawing: Markup
    note: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


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


def render_report(books: Books, verdict: Verdict, command: str) -> str:
    """The report as HTML. ``command`` is the one that reproduces the run."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    record = books.record
    return environment.get_template(TEMPLATE).render(
        scenario=record.scenario,
        record=record,
        verdict=verdict.outcome.value,
        words=OUTCOME_WORDS,
        signs=OUTCOME_SIGNS,
        outcome=verdict.outcome,
        checks=verdict.checks,
        tiles=tiles(books),
        figures=figures(books),
        validators=validator_rows(books),
        divergences=["\n".join(lines(page)) for page in books.bisections],
        faults=fault_rows(books),
        facts=facts(books),
        metrics=[(name, number(value), value) for name, value in metrics(books).items()],
        mutated=[(validator.name, validator.mutant) for validator in record.validators if validator.mutant],
        byzantine=[
            (validator.name, ", ".join(validator.byzantine)) for validator in record.validators if validator.byzantine
        ],
        command=command,
        dashes=DASHES,
        mark_dashes=MARK_DASHES,
    )


def figures(books: Books) -> list[Figure]:
    """Every chart of the report, in order."""
    bins = in_bins(books.ledger.figures)
    return [
        heights_figure(books),
        latency_figure(books),
        fires_figure(books, bins),
        backlog_figure(books, bins),
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
    bands = [
        Band(fault.begun_ms / 1_000, (record.duration_ms if fault.ended_ms is None else fault.ended_ms) / 1_000, name)
        for fault in record.faults
        if fault.begun_ms is not None and (name := f"{fault.kind} {fault.target}")
    ]
    chart = Chart(
        ident="heights",
        title="Final height of each validator over time",
        description=f"{len(record.validators)} validators, {record.duration_ms / 1_000:.0f} s. {_fault_words(books)}",
        x_label="time since the run began (s)",
        y_label="final height",
        series=sorted(series, key=lambda one: (not one.muted, one.name in singled_out)),
        bands=bands,
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


# --- tables ---------------------------------------------------------------------------------------------------------


def tiles(books: Books) -> list[tuple[str, str, str]]:
    """Name, value and unit of the figures that matter most."""
    found = metrics(books)
    wanted = (
        ("heights", "final heights", ""),
        ("blocks_per_second", "block rate", "/s"),
        ("fires", "timer fires", ""),
        ("fires_per_second", "fire rate", "/s"),
        ("transactions", "transactions", ""),
        ("finality_latency_p50_ms", "finality p50", "ms"),
        ("finality_latency_p95_ms", "finality p95", "ms"),
        ("backlog_max", "largest backlog", "timers"),
        ("longest_stall_ms", "longest stall", "ms"),
    )
    return [(label, number(found[name]), unit) for name, label, unit in wanted if name in found]


def validator_rows(books: Books) -> list[dict[str, Any]]:
    """One row a validator: what it served and what befell it."""
    rows = []
    for validator in books.record.validators:
        chain, status = books.seals[validator.name], validator.status or {}
        last = chain.at(chain.tip)
        diverged = next((told for told in books.divergences if told.validator == validator.name), None)
        rows.append(
            {
                "name": validator.name,
                "height": f"{chain.tip:,}",
                "state_root": last.computed_root.hex()[:ROOT_DIGITS] if last else "",
                "starts": status.get("starts", ""),
                "faults": [fault.kind for fault in books.record.faults if validator.name in fault.targets],
                "mutant": validator.mutant,
                "byzantine": ", ".join(validator.byzantine),
                "diverged": diverged.height if diverged is not None else None,
                "snapshot": chain.first_height - 1,
                "silent": not chain,
            }
        )
    return rows


def fault_rows(books: Books) -> list[dict[str, str]]:
    """One row a fault: when it was, and what was seen of it."""
    rows = []
    for fault in books.record.faults:
        begun, ended = (
            "never" if at is None else f"{at / 1_000:.1f} s, height {height if height is not None else '?'}"
            for at, height in (
                (fault.begun_ms, fault.height_when_begun),
                (fault.ended_ms, fault.height_when_ended),
            )
        )
        rows.append(
            {
                "name": f"{fault.kind} {fault.target}",
                "planned": fault.planned,
                "begun": begun,
                "ended": ended,
                "bit": "yes" if fault.bit else "not seen",
                "evidence": fault.evidence,
            }
        )
    return rows


def facts(books: Books) -> list[tuple[str, str]]:
    """What the run was."""
    record = books.record
    found = [
        ("Scenario", record.scenario.name),
        ("Backend", "live testnet" if record.backend == "live" else "simulator, virtual time"),
        ("Seed", str(record.seed)),
        ("Commit", record.commit),
        ("Duration", f"{record.duration_ms / 1_000:.1f} s" + (" (virtual)" if record.backend == "sim" else "")),
        ("Validators", f"{record.scenario.validators.count} on {record.scenario.validators.host_count} hosts"),
        ("Chain", record.genesis.chain_id),
    ]
    if record.digest is not None:
        found.append(("Digest", record.digest))
    return found


# --- helpers --------------------------------------------------------------------------------------------------------


def in_bins(blocks: Sequence[BlockFigures]) -> list[Bin]:
    """At most :data:`MAX_POINTS` bins of equally many blocks."""
    size = max(1, -(-len(blocks) // MAX_POINTS))
    return [Bin(blocks[i : i + size]) for i in range(0, len(blocks), size)]


def _figure(chart: Chart, note: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Figure:
    return Figure(chart, Markup(render(chart)), note, columns, [] if chart.is_empty else rows)


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


def _height_bands(books: Books) -> list[Band]:
    """The faults, by the heights at which they began and ended."""
    top = max(1, books.ledger.height)
    return [
        Band(
            min(top, max(1, fault.height_when_begun)),
            min(top, fault.height_when_ended if fault.height_when_ended is not None else top),
            f"{fault.kind} {fault.target}",
        )
        for fault in books.record.faults
        if fault.begun_ms is not None
    ]


def _fault_words(books: Books) -> str:
    names = [f"{fault.kind} of {fault.target}" for fault in books.record.faults if fault.begun_ms is not None]
    return f"Marked: {', '.join(names)}." if names else "There were no faults."


def _basefee_words(one: Bin) -> str:
    return f"height {one.heights}: " + ", ".join(f"{name} {number(one.most(value))}" for name, value in _BASEFEES)
