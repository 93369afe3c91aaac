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
MEANS: Final = Table(
    "means",
    "The mean of every metric of an attack over the seeds, a row each.",
    (
        *_KEY,
        text("metric", "name of the metric"),
        number("mean", "", "its mean"),
        number("low", "", "lower end of its 95 % interval; null if there is none"),
        number("high", "", "upper end of its 95 % interval; null if there is none"),
        text("grade", "its grade, A to F; null if it has none"),
    ),
)
VALUES: Final = Table(
    "values",
    "Every metric of every attack with every seed, a row each.",
    (
        *_KEY,
        text("metric", "name of the metric"),
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
                mean, (low, high) = score[metric], score["intervals"][metric] or (None, None)
                if mean is not None:
                    grade = score["grades"].get(metric)
                    yield MEANS, {**key, "metric": metric, "mean": mean, "low": low, "high": high, "grade": grade}
                for seed, value in zip(score["seeds"], values, strict=True):
                    yield VALUES, {**key, "metric": metric, "seed": seed, "value": value}


SCORECARDS: Final = Source("a scorecard", (SCORECARD_FILE,), (SCORES, MEANS, VALUES), _rows)
