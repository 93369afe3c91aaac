"""The tables of a scorecard, for notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cluster.common.errors import BadInput
from cluster.common.files import read_json_object
from cluster.record.folder import SCORECARD_FILE, SCORECARD_FORMAT
from cluster.tables.columns import Row, Source, Table, integer, number, text, truth

_KEY: Final = (text("variant", "policy and parameters"), text("attack", "name of the attack"))
SCORES: Final = Table(
    "scores",
    "The score of every attack on every variant.",
    (
        *_KEY,
        text("grade", "the worst of its grades, A to F; null if it has none"),
        text("outcome", "pass, fail or inconclusive"),
        truth("acted", "whether the attackers did something with every seed"),
        truth("recovered", "whether the chain recovered with every seed"),
        truth("free", "whether the attackers spent nothing"),
    ),
)
VALUES: Final = Table(
    "values",
    "Every metric of every attack with every seed, a row each.",
    (
        *_KEY,
        text("metric", "name of the metric"),
        text("grade", "grade of the metric's mean, A to F; null if it has none"),
        integer("seed", "", "the seed"),
        number("value", "", "its value; null if the run has none"),
    ),
)


def _rows(folder: Path) -> Iterator[Row]:
    path = folder / SCORECARD_FILE
    page = read_json_object(path)
    if page.get("format") != SCORECARD_FORMAT:
        raise BadInput(f"{path}: is of format {page.get('format')}; expected {SCORECARD_FORMAT}")
    for variant, attacks in page["variants"].items():
        for attack, score in attacks.items():
            key = {"variant": variant, "attack": attack}
            yield SCORES, key | {column.name: score[column.name] for column in SCORES.columns[len(_KEY) :]}
            for metric, values in score["values"].items():
                graded = {**key, "metric": metric, "grade": score["grades"].get(metric)}
                for seed, value in zip(score["seeds"], values, strict=True):
                    yield VALUES, {**graded, "seed": seed, "value": value}


SCORECARDS: Final = Source("a scorecard", (SCORECARD_FILE,), (SCORES, VALUES), _rows)
