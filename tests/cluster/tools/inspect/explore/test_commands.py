"""``stampede explore``: its verdicts, its files and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.tools.cli.main import main


def test_exhausted_searches_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    assert main(["explore", "--views", "1", "--faults", "none", "byzantine", "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("simplex, 4 validators, 1 view, none: exhausted; 189 states, 828 moves, depth 7, ")
    searches = json.loads(file.read_text())["searches"]
    assert [each["scope"]["byzantine"] for each in searches] == [None, 0, 1, 2, 3]
    assert {each["end"] for each in searches} == {"exhausted"}
    assert searches[0]["states"] == 189


def test_a_bounded_search_is_inconclusive(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "--views", "2", "--faults", "none", "--max-states", "100"]) == 3
    assert "bounded: " in capsys.readouterr().out


def test_a_violation_fails_and_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "schedule.json"
    planted = ["--protocol", "hotstuff", "--views", "1", "--mutant", "finalizes-after-timeout"]
    assert main(["explore", *planted, "--faults", "none", "--schedule", str(file)]) == 1
    found = capsys.readouterr().out
    assert "violation: own_votes: validator 0 finalizes view 1, which it gave up" in found
    assert main(["explore", "--replay", str(file)]) == 1
    again = capsys.readouterr().out
    assert again.splitlines()[-1] == "violation: own_votes: validator 0 finalizes view 1, which it gave up"
    page = json.loads(file.read_text())
    page["scope"]["mutant"] = None
    file.write_text(json.dumps(page))
    assert main(["explore", "--replay", str(file)]) == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--mutant", "wrong-balance"], "--mutant: "),
        (["--validators", "3", "--faults", "byzantine"], "3 validators withstand none"),
        (["--replay", "none.json"], "none.json: No such file"),
        (["--faults", "flood"], "flood"),
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", *arguments]) == 2
    assert problem in capsys.readouterr().err
