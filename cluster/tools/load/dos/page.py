"""The scorecard as a page: a heat map of attack by variant for each graded metric, and the tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cluster.report.page import render_page
from cluster.report.svg import number
from cluster.scenario.sections.dos import GRADES, METRICS, Grade
from cluster.tools.load.dos.scorecard import Score, Scorecard
from cluster.tools.load.dos.scorecard_output import COLUMNS, NOTHING, cell, ordered, summary

OVERALL: Final = "grade"
"""Name of the heat map of the attacks' overall grades."""


def render_scorecard(card: Scorecard) -> str:
    """The HTML page of a scorecard."""
    return render_page(
        "dos.html.j2",
        card=card,
        summary=summary(card),
        outcome=card.outcome,
        maps=[_heat_map(card, OVERALL, "Grade of each attack"), *(_heat_map(card, name) for name in card.dos.bounds)],
        columns=[(heading, METRICS[name]) for name, heading in COLUMNS.items()],
        tables=[
            (variant, [{"score": score, "cells": [cell(score, name) for name in COLUMNS]} for score in ordered(scores)])
            for variant, scores in card.scores.items()
        ],
        problems=[*card.baseline_problems, *_problems(card)],
        bounds=[(name, METRICS[name], _bounds_text(bounds)) for name, bounds in card.dos.bounds.items()],
        letters=GRADES,
    )


def _heat_map(card: Scorecard, name: str, title: str = "") -> dict[str, Any]:
    """The heat map of a metric, or of the overall grades, as data for the page's template.

    It has a row for each attack, and in it a cell for each variant: its grade and its text.
    """
    value: Callable[[Score], str] = _overall if name == OVERALL else lambda score: cell(score, name)
    by_variant = {variant: {score.attack: score for score in scores} for variant, scores in card.scores.items()}
    rows = [
        (attack, [_cell(by_variant[variant].get(attack), name, value) for variant in card.plan.variants])
        for attack in card.plan.attacks
    ]
    return {"name": name, "title": title or METRICS[name], "rows": rows, "variants": card.plan.variants}


def _cell(score: Score | None, name: str, value: Callable[[Score], str]) -> tuple[Grade | None, str]:
    if score is None:
        return None, NOTHING
    return (score.grade if name == OVERALL else score.grades.get(name)), value(score)


def _overall(score: Score) -> str:
    """The names of the metrics that determine an attack's grade, as text; empty if the grade is the best."""
    worst = [name for name, letter in score.grades.items() if letter == score.grade and letter != GRADES[0]]
    return ", ".join(worst)


def _bounds_text(bounds: tuple[float, ...]) -> list[str]:
    sign = "≤" if bounds[0] < bounds[-1] else "≥"
    return [f"{sign} {number(bound)}" for bound in bounds]


def _problems(card: Scorecard) -> list[str]:
    return [problem for scores in card.scores.values() for score in scores for problem in score.problems]
