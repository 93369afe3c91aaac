"""The scorecard as its reader sees it.

On a terminal it is a table for each variant, the worst attacks first. The page also has a heat map of attack by variant
for each graded metric.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from cluster.commands.console.output import columns_that_fit, plain_table, print_line
from cluster.common.outcome import Outcome
from cluster.common.wording import counted, first_few
from cluster.report.page import render_page
from cluster.report.svg import number
from kits.market.dos.measures import METRICS
from kits.market.dos.scorecard import SPEND_RATIOS, Score, Scorecard
from kits.market.dos.section import GRADES, Grade
from kits.market.estimates import Cell, Estimate

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

COLUMNS: Final = {
    "lateness_p99": "late p99",
    "honest_fires_ratio": "fires ×",
    "user_transactions_ratio": "txs ×",
    "destroyed_added": "lost +",
    "recovery_blocks": "recovery",
    "spend": "spend",
    "spend_ratio": "spend ×",
    "lateness_p50": "late p50",
    "lateness_max": "late max",
    "waiting": "waiting",
    "honest_fires_per_block": "fires",
    "cpu_full_ratio": "cpu, full ×",
    "state_bytes_per_coin": "state / coin",
    "block_cycles_ratio": "cycles ×",
    "cpu_ratio": "cpu ×",
    "block_rate_ratio": "rate ×",
    "state_bytes_added": "state +",
    "memory_bytes_added": "memory +",
    "memory_bytes_per_coin": "memory / coin",
    "pool_transactions_added": "pool +",
    "spend_per_block_of_delay": "spend / delay",
    "spend_per_fire_displaced": "spend / fire",
}
"""Column headings of the metrics that are shown, keyed by metric. A terminal shows the first ones that fit."""
STYLES: Final = {"A": "green", "B": "green", "C": "yellow", "D": "red", "F": "bold red", None: "dim"}
NAMED: Final = 3
"""Maximum number of attacks that the outcome names."""
NOTHING: Final = "–"
FREE: Final = "free"
OVERALL: Final = "grade"
"""Name of the heat map of the attacks' overall grades."""
HELD: Final = "against"
"""Name of the heat map of variants against the reference."""
HELD_COLOURS: Final[dict[tuple[bool, bool], Grade | None]] = {
    (True, False): "A",
    (True, True): "C",
    (False, True): "F",
    (False, False): None,
}
"""The grades whose colours a cell of that map has, by whether there are better and worse metrics."""
HeatCell = tuple[Grade | None, str, str]
"""The colour of a cell, by a grade; its sign; and its text."""


def print_scorecard(console: Console, card: Scorecard) -> None:
    """Print the tables, the problems of runs, and the outcome."""
    for variant, scores in card.scores.items():
        print_line(console, f"{card.plan.name} as {variant}, {counted(len(card.plan.seeds), 'seed')}")
        rows = _rows(card, scores)
        fitting = columns_that_fit(rows, console.width)
        console.print(_table(rows, [score.grade for score in ordered(scores)], fitting))
        if fitting < len(rows[0]):
            what = counted(len(rows[0]) - fitting, "more column")
            print_line(console, f"{what} on the scorecard's page, and in a wider terminal")
    for problem in card.problems:
        print_line(console, f"problem  {problem}")
    print_line(console, f"outcome  {summary(card)}")


def summary(card: Scorecard) -> str:
    """The outcome of a scorecard and its reason, in one line."""
    scores = card.by_cell.values()
    low = [f"{score.attack} on {score.variant} {score.grade}" for score in scores if score.is_too_low]
    idle = [f"{score.attack} on {score.variant}" for score in scores if not score.acted]
    parts = [f"{len(low)} of {len(scores)} below {card.dos.at_least}: {first_few(low, NAMED)}"] if low else []
    parts += [f"did nothing: {first_few(idle, NAMED)}"] if idle else []
    parts += ["interrupted"] if card.interrupted else []
    return ": ".join(filter(None, [card.outcome.value, "; ".join(parts)]))


def ordered(scores: tuple[Score, ...]) -> list[Score]:
    """Sort scores by grade, the worst first. Scores of equal grade are sorted by lateness, the greatest first."""

    def place(score: Score) -> tuple[int, float]:
        rank = -1 if score.grade is None else GRADES.index(score.grade)
        return -rank, -(score.metrics["lateness_p99"].mean if "lateness_p99" in score.metrics else 0.0)

    return sorted(scores, key=place)


def cell(score: Score, name: str) -> str:
    """A metric of an attack as text, with its confidence interval unless the interval is a single point."""
    estimate = score.metrics.get(name)
    if estimate is None:
        return NOTHING
    if name in SPEND_RATIOS and score.is_free:
        return FREE
    text = with_interval(estimate)
    return f">{text}" if name == "recovery_blocks" and not score.recovered else text


def with_interval(estimate: Estimate) -> str:
    """An estimate as text: ``mean (low–high)``, or only the mean if all seeds agree or there is one seed."""
    if estimate.interval is None:
        return number(estimate.mean)
    mean, low, high = (number(value) for value in (estimate.mean, *estimate.interval))
    return mean if low == high else f"{mean} ({low}–{high})"


def against(card: Scorecard, score: Score) -> str:
    """How an attack on a variant compares with the same attack on the reference, as text such as ``2 better, 1 worse``;
    empty for the reference."""
    found = card.against.get((score.variant, score.attack))
    if found is None:
        return "" if score.variant == card.reference else NOTHING
    parts = [f"{len(names)} {word}" for word, names in (("better", found.better), ("worse", found.worse)) if names]
    return ", ".join(parts) or "same"


def _rows(card: Scorecard, scores: tuple[Score, ...]) -> list[list[str]]:
    """The table of a variant as text: the headings, then a row for each attack."""
    is_held = any((score.variant, score.attack) in card.against for score in scores)
    rows = [["attack", "", *([f"to {card.reference.split()[0]}"] if is_held else []), *COLUMNS.values()]]
    for score in ordered(scores):
        sign = "?" if score.outcome is Outcome.INCONCLUSIVE or score.grade is None else score.grade
        held = [against(card, score)] if is_held else []
        rows.append([score.attack, sign, *held, *(cell(score, name) for name in COLUMNS)])
    return rows


def _table(rows: list[list[str]], grades: list[Grade | None], fitting: int) -> Table:
    headings = rows[0][:fitting]
    table = plain_table(headings, right=set(COLUMNS.values()), folded=())
    for row, letter in zip(rows[1:], grades, strict=True):
        table.add_row(*row[:fitting], style=STYLES[letter])
    return table


# --- the page ---------------------------------------------------------------------------------------------------------


def render_scorecard(card: Scorecard) -> str:
    """The HTML page of a scorecard."""
    variants, title = card.plan.variants, f"Against the same attack on {card.reference}"
    others = [variant for variant in variants if variant != card.reference]
    return render_page(
        "dos.html.j2",
        card=card,
        summary=summary(card),
        outcome=card.outcome,
        maps=[
            _map(card, OVERALL, "Grade of each attack", variants, partial(_graded, card, OVERALL)),
            *([_map(card, HELD, title, others, partial(_held, card))] if card.against else []),
            *(_map(card, name, METRICS[name].text, variants, partial(_graded, card, name)) for name in card.dos.bounds),
        ],
        columns=[(heading, METRICS[name].text) for name, heading in COLUMNS.items()],
        metrics={name: METRICS[name] for name in dict.fromkeys((*COLUMNS, *card.dos.bounds))},
        tables=[
            (variant, [{"score": score, "cells": [cell(score, name) for name in COLUMNS]} for score in ordered(scores)])
            for variant, scores in card.scores.items()
        ],
        problems=card.problems,
        bounds=[(name, _bounds_text(bounds)) for name, bounds in card.dos.bounds.items()],
        letters=GRADES,
    )


def _map(
    card: Scorecard, name: str, title: str, variants: Sequence[str], cell_of: Callable[[Cell], HeatCell]
) -> dict[str, Any]:
    """A heat map, as data for the page's template: a row for each attack, and in it a cell for each variant."""
    rows = [(attack, [cell_of((variant, attack)) for variant in variants]) for attack in card.plan.attacks]
    return {"name": name, "title": title, "rows": rows, "variants": variants}


def _held(card: Scorecard, place: Cell) -> HeatCell:
    if (found := card.against.get(place)) is None:
        return None, "", NOTHING
    parts = [
        f"{word}: {', '.join(names)}" for word, names in (("better", found.better), ("worse", found.worse)) if names
    ]
    return HELD_COLOURS[bool(found.better), bool(found.worse)], "" if parts else "same", "; ".join(parts)


def _graded(card: Scorecard, name: str, place: Cell) -> HeatCell:
    if (score := card.by_cell.get(place)) is None:
        return None, "?", NOTHING
    letter, text = (score.grade, _overall(score)) if name == OVERALL else (score.grades.get(name), cell(score, name))
    return letter, letter or "?", text


def _overall(score: Score) -> str:
    """The names of the metrics that determine an attack's grade, as text; empty if the grade is the best."""
    worst = [name for name, letter in score.grades.items() if letter == score.grade and letter != GRADES[0]]
    return ", ".join(worst)


def _bounds_text(bounds: tuple[float, ...]) -> list[str]:
    sign = "≤" if bounds[0] < bounds[-1] else "≥"
    return [f"{sign} {number(bound)}" for bound in bounds]
