"""The files and annotations of a command's end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.commands.cli.main import _parser as command_parser
from cluster.commands.console.outputs import (
    MAX_ANNOTATIONS,
    MAX_DETAIL,
    MAX_LISTED,
    Ending,
    OutputOptions,
    Outputs,
    Part,
    annotations_of,
    markdown,
)
from cluster.common.errors import BadInput
from cluster.common.outcome import Outcome

AGAIN = "stampede run x.yaml --seed 7  # at commit 0123"


@pytest.fixture(autouse=True)
def actions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def ending(*parts: Part, outcome: Outcome = Outcome.FAIL, again: str = AGAIN) -> Ending:
    return Ending(
        title="run x, y: z",
        outcome=outcome,
        parts=parts,
        kind="check",
        figures={"final heights": "40"},
        facts={"seed": "7"},
        again=again,
        page=lambda: {"verdict": outcome.value},
        junit=lambda: "<testsuites />",
    )


def failed(name: str = "state_roots", detail: str = "height 3: two roots") -> Part:
    return Part(name, Outcome.FAIL, detail)


def test_a_failed_check_is_an_error_and_an_inconclusive_one_a_warning() -> None:
    undecided = Part("faults", Outcome.INCONCLUSIVE, "kill: no effect")
    assert list(annotations_of(ending(undecided, failed()))) == [
        f"::error title=run x%2C y%3A z%3A check state_roots::height 3: two roots%0Aagain: {AGAIN}",
        f"::warning title=run x%2C y%3A z%3A check faults::kill: no effect%0Aagain: {AGAIN}",
    ]


@pytest.mark.parametrize("planted", ["a\n::error::planted", "a\r::error::planted", "a\r\n::set-output name=x::y"])
def test_no_text_gives_another_command_of_the_workflow(planted: str) -> None:
    (line,) = annotations_of(ending(failed(planted, planted), again=planted))
    assert len(line.splitlines()) == 1
    assert line.startswith("::error title=") and line.count("::") == 2 + planted.count("::") * 2
    title = line.split("::")[1]
    assert ":" not in title and "," not in title


def test_a_per_cent_sign_is_escaped_once() -> None:
    (line,) = annotations_of(ending(failed(detail="100 %\n")))
    assert "100 %25%0A" in line


def test_no_more_annotations_than_a_workflow_shows() -> None:
    lines = list(annotations_of(ending(*(failed(f"c{number}") for number in range(25)))))
    assert len(lines) == MAX_ANNOTATIONS
    assert lines[-1].endswith("::16 more checks")


@pytest.mark.parametrize("value", [None, "", "false"])
def test_there_are_none_outside_of_a_workflow(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if value is None:
        monkeypatch.delenv("GITHUB_ACTIONS")
    else:
        monkeypatch.setenv("GITHUB_ACTIONS", value)
    assert not list(annotations_of(ending(failed())))


def test_an_end_without_parts_that_is_no_pass_is_annotated() -> None:
    (line,) = annotations_of(ending(outcome=Outcome.INCONCLUSIVE))
    assert line == "::warning title=run x%2C y%3A z::inconclusive"
    assert not list(annotations_of(ending(outcome=Outcome.PASS)))


def test_the_summary_has_verdict_parts_figures_and_the_command() -> None:
    text = markdown(ending(failed(detail="a | b\n<img src=x> *c* `d`")))
    assert text.splitlines()[0] == "## ✕ run x, y: z: fail"
    assert "| state\\_roots | fail | a \\| b &lt;img src=x&gt; \\*c\\* \\`d\\` |" in text
    assert "| final heights | 40 |" in text and "| seed | 7 |" in text
    assert f"\n    {' '.join(AGAIN.split())}\n" in text


def test_a_part_with_a_command_is_repeated_by_it() -> None:
    part = Part("9", Outcome.FAIL, "x", "stampede run x --seed 9")
    assert "\n    stampede run x --seed 9\n" in markdown(ending(part, again=""))
    (line,) = annotations_of(ending(part, again=""))
    assert line.endswith("%0Aagain: stampede run x --seed 9")


def test_a_summary_is_bounded() -> None:
    text = markdown(ending(*(failed(f"c{number}", "x" * 10_000) for number in range(MAX_LISTED + 7))))
    assert "7 more checks did not pass." in text
    assert len(text) < (MAX_LISTED + 1) * (MAX_DETAIL + 100)


def test_files_are_written_and_the_summary_of_a_step_is_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = Outputs(tmp_path / "r.json", tmp_path / "r.xml", tmp_path / "summary.md")
    (tmp_path / "summary.md").write_text("before\n")
    outputs.write(ending(failed()))
    assert json.loads((tmp_path / "r.json").read_text()) == {"verdict": "fail"}
    assert (tmp_path / "r.xml").read_text() == "<testsuites />"
    assert (tmp_path / "summary.md").read_text() == markdown(ending(failed()))
    assert capsys.readouterr().out.startswith("::error ")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    (tmp_path / "summary.md").write_text("before\n")
    outputs.write(ending(failed()))
    assert (tmp_path / "summary.md").read_text() == "before\n" + markdown(ending(failed()))


def test_a_summary_that_cannot_be_appended_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "gone" / "file"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    with pytest.raises(BadInput, match="file: cannot be written: No such file or directory"):
        Outputs(summary=file).write(ending(failed()))


@pytest.mark.parametrize(
    "words",
    [["run", "smoke"], ["up", "smoke"], ["attach", "runs/x"], ["drill", "reorg"], ["sweep", "smoke"], ["fuzz"]],
    ids=lambda words: words[0],
)
def test_each_command_takes_the_options(words: list[str]) -> None:
    seeds = ["--seeds", "0:2"] if words[0] in ("sweep", "fuzz") else []
    given = [*words, *seeds, "--json", "a", "--junit", "b", "--summary", "c", "--quiet"]
    options = command_parser().parse_args(given)
    command = options.make(options)
    assert isinstance(command, OutputOptions)
    assert command.outputs == Outputs(Path("a"), Path("b"), Path("c"), quiet=True)
