"""``stampede export`` of labs and scorecards."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from cluster.record.folder import SCORECARD_FILE
from kits.market.lab.table import TABLE_FILE, Row, write_table
from tests.kits.market.dos.cards import large_card

ROWS = [Row("one", {"k": "a", "n": "1"}, 0, {"y": 1.5, "z": -0.25}), Row("two", {"k": "b"}, 3, {"w": 2.0})]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_lab_has_a_row_for_each_measure(tmp_path: Path) -> None:
    write_table(tmp_path / TABLE_FILE, ROWS)
    assert main(["export", str(tmp_path)]) == ExitCode.PASS
    assert [tuple(row.values()) for row in rows(tmp_path / "tables" / "measures.csv")] == [
        ("one", "k=a, n=1", "0", "y", "1.5"),
        ("one", "k=a, n=1", "0", "z", "-0.25"),
        ("two", "k=b", "3", "w", "2.0"),
    ]


def test_a_scorecard_has_scores_and_values(tmp_path: Path) -> None:
    card = large_card(range(3))
    (tmp_path / SCORECARD_FILE).write_text(json.dumps(card.page()))
    assert main(["export", str(tmp_path)]) == ExitCode.PASS
    tables = tmp_path / "tables"
    scores = {(variant, score.attack): score for variant, found in card.scores.items() for score in found}
    assert {(row["variant"], row["attack"]): row["grade"] for row in rows(tables / "scores.csv")} == {
        key: score.grade for key, score in scores.items()
    }
    for row in rows(tables / "values.csv"):
        score = scores[row["variant"], row["attack"]]
        value = score.rows[int(row["seed"])][row["metric"]]
        assert row["grade"] == score.grades.get(row["metric"], "")
        assert row["value"] == ("" if value is None else str(value))


def test_a_scorecard_of_another_format_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / SCORECARD_FILE).write_text('{"format": "other"}')
    assert main(["export", str(tmp_path)]) == ExitCode.BAD_INPUT
    assert "is of format other; expected stampede-dos/1" in capsys.readouterr().err
