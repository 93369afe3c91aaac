"""``stampede explore``: its verdicts, its files and its errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest

from cluster.commands.cli.main import main

PAGE: Final = Path(__file__).parents[3] / "docs/exploration.md"
SHOWN: Final = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


def without_seconds(text: str) -> list[str]:
    return re.sub(r", [0-9.]+ s$", "", text, flags=re.MULTILINE).split()


def test_exhausted_searches_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    assert main(["explore", "--views", "1", "--faults", "none", "byzantine", "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("simplex, 4 validators, 1 view, none: exhausted; 30 states, 131 moves, depth 7, ")
    searches = json.loads(file.read_text())["searches"]
    assert [each["scope"]["byzantine"] for each in searches] == [None, 0, 1, 2, 3]
    assert {each["end"] for each in searches} == {"exhausted"}
    assert searches[0]["states"] == 30


def test_a_bounded_search_is_inconclusive(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "--views", "2", "--faults", "none", "--max-states", "100"]) == 3
    assert "bounded: " in capsys.readouterr().out


def test_a_violation_fails_and_is_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("explore-schedule.json")
    planted = ["--protocol", "hotstuff", "--views", "1", "--mutant", "finalizes-after-timeout"]
    assert main(["explore", *planted, "--faults", "none"]) == 1
    found = capsys.readouterr().out
    (shown,) = SHOWN.findall(PAGE.read_text())
    assert without_seconds(found) == without_seconds(shown)
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
