"""The command line of the lab."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from kits.market.lab.experiments import registry
from kits.market.lab.experiments.registry import EXPERIMENTS
from kits.market.lab.table import TABLE_FILE, read_table
from tests.kits.market.lab.planted import OTHER, SLOPE
from tests.kits.market.lab.test_running import Interrupted


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "EXPERIMENTS", {"slope": SLOPE, "other": OTHER})


def test_the_list_has_all_experiments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "list"]) == ExitCode.PASS
    text = capsys.readouterr().out
    assert main(["lab", "list", "--json"]) == ExitCode.PASS
    pages = json.loads(capsys.readouterr().out)
    assert [page["name"] for page in pages] == list(EXPERIMENTS)
    for page in pages:
        assert page["name"] in text
        for name in ("title", "question", "hypothesis", "rule", "factors", "metrics"):
            assert page[name], name
        quick, full = (page[effort]["seeds"] for effort in ("quick", "full"))
        assert len(quick) < len(full) and not {*quick} & {*full}
        assert page["quick"]["blocks"] < page["full"]["blocks"]


@pytest.mark.usefixtures("planted")
def test_run_all_writes_table_pages_and_digest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["lab", "run-all", "--quick", "--jobs", "1", "--out", str(out)]) == ExitCode.PASS
    text = capsys.readouterr().out
    digest = json.loads((out / "lab.json").read_text())["digest"]
    assert f"digest  {digest}" in text
    assert "slope: y changes by 5.00. Grow." in text
    names = {"runs.jsonl", "lab.npz", "lab.json", "index.html", "slope.html", "other.html"}
    assert {path.name for path in out.iterdir()} == names
    pages = {name: (out / name).read_text() for name in names if name.endswith(".html")}
    for name in pages:
        (out / name).unlink()
    assert main(["lab", "report", str(out)]) == ExitCode.PASS
    assert f"digest  {digest}" in capsys.readouterr().out
    assert {name: (out / name).read_text() for name in pages} == pages


@pytest.mark.usefixtures("planted")
def test_run_makes_one_experiment(tmp_path: Path) -> None:
    assert main(["lab", "run", "other", "--quick", "--jobs", "1", "--out", str(tmp_path / "out")]) == ExitCode.PASS
    assert {row.experiment for row in read_table(tmp_path / "out" / TABLE_FILE, {"other": ("kind", "x")})} == {"other"}


def test_an_interruption_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "EXPERIMENTS", {"slope": Interrupted()})
    monkeypatch.setattr(Interrupted, "after", 3)
    command = ["lab", "run", "slope", "--quick", "--jobs", "1", "--out", str(tmp_path / "my out")]
    assert main(command) == ExitCode.INCONCLUSIVE
    said = capsys.readouterr()
    assert f"the same command with --out '{tmp_path}/my out' makes the others" in said.out
    assert said.err == "stampede: interrupted\n"
    monkeypatch.setattr(Interrupted, "after", 9)
    assert main(command) == ExitCode.PASS
    assert "12 runs, 3 of them done before" in capsys.readouterr().out


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "slop"], "unknown experiment 'slop'; did you mean slope?"),
        (["run", "nothing"], "unknown experiment 'nothing'; known: slope, other"),
        (["run"], "the following arguments are required: NAME (see stampede lab run --help)"),
        (["run-all", "--jobs", "0"], "argument --jobs: "),
        (["run-all", "--quick", "--out", "FOLDER"], "FOLDER: is not empty and holds no lab to continue"),
        (["report", "FOLDER"], "FOLDER: holds no results of a lab"),
        (["report", "FOLDER/none"], "FOLDER/none: holds no results of a lab"),
        (["lost"], "argument list|run|run-all|report|tune: unknown choice 'lost'"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (tmp_path / "file").touch()
    given = ["lab", *(each.replace("FOLDER", str(tmp_path)) for each in arguments)]
    assert main(given) == ExitCode.BAD_INPUT
    said = capsys.readouterr()
    assert said.err.startswith("stampede: " + message.replace("FOLDER", str(tmp_path)))
    assert said.err.count("\n") == 1
    assert said.out == ""
