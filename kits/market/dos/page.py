"""The scorecard as a page: a heat map of attack by variant for each graded metric, and the tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cluster.report.page import render_page
from cluster.report.svg import number
from cluster.scenario.sections.dos import GRADES, METRICS, Grade
from kits.market.dos.scorecard import Against, Score, Scorecard
from kits.market.dos.scorecard_output import COLUMNS, NOTHING, cell, ordered, summary

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


def render_scorecard(card: Scorecard) -> str:
    """The HTML page of a scorecard."""
    return render_page(
        "dos.html.j2",
        card=card,
        summary=summary(card),
        outcome=card.outcome,
        maps=[
            _heat_map(card, OVERALL, "Grade of each attack"),
            *([_held_map(card)] if card.against else []),
            *(_heat_map(card, name) for name in card.dos.bounds),
        ],
        columns=[(heading, METRICS[name]) for name, heading in COLUMNS.items()],
        tables=[
            (variant, [{"score": score, "cells": [cell(score, name) for name in COLUMNS]} for score in ordered(scores)])
            for variant, scores in card.scores.items()
        ],
        problems=card.problems,
        bounds=[(name, METRICS[name], _bounds_text(bounds)) for name, bounds in card.dos.bounds.items()],
        letters=GRADES,
    )


def _heat_map(card: Scorecard, name: str, title: str = "") -> dict[str, Any]:
    """The heat map of a metric, or of the overall grades, as data for the page's template.

    It has a row for each attack, and in it a cell for each variant: its colour, by a grade; its sign; and its text.
    """
    value: Callable[[Score], str] = _overall if name == OVERALL else lambda score: cell(score, name)
    by_variant = {variant: {score.attack: score for score in scores} for variant, scores in card.scores.items()}
    rows = [
        (attack, [_cell(by_variant[variant].get(attack), name, value) for variant in card.plan.variants])
        for attack in card.plan.attacks
    ]
    return {"name": name, "title": title or METRICS[name], "rows": rows, "variants": card.plan.variants}


def _held_map(card: Scorecard) -> dict[str, Any]:
    """The heat map of each variant against the reference, for the same attack."""
    variants = [variant for variant in card.plan.variants if variant != card.reference]
    rows = [
        (attack, [_held_cell(card.against.get((variant, attack))) for variant in variants])
        for attack in card.plan.attacks
    ]
    title = f"Against the same attack on {card.reference}"
    return {"name": HELD, "title": title, "rows": rows, "variants": variants}


def _held_cell(found: Against | None) -> HeatCell:
    if found is None:
        return None, "", NOTHING
    parts = [
        f"{word}: {', '.join(names)}" for word, names in (("better", found.better), ("worse", found.worse)) if names
    ]
    return HELD_COLOURS[bool(found.better), bool(found.worse)], "" if parts else "same", "; ".join(parts)


def _cell(score: Score | None, name: str, value: Callable[[Score], str]) -> HeatCell:
    if score is None:
        return None, "?", NOTHING
    letter = score.grade if name == OVERALL else score.grades.get(name)
    return letter, letter or "?", value(score)


def _overall(score: Score) -> str:
    """The names of the metrics that determine an attack's grade, as text; empty if the grade is the best."""
    worst = [name for name, letter in score.grades.items() if letter == score.grade and letter != GRADES[0]]
    return ", ".join(worst)


def _bounds_text(bounds: tuple[float, ...]) -> list[str]:
    sign = "≤" if bounds[0] < bounds[-1] else "≥"
    return [f"{sign} {number(bound)}" for bound in bounds]
