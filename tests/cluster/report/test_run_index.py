"""The index of runs: everything in the folder is told as what it is, and nothing of it is an error."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cluster.commands.cli.main import main
from cluster.commands.inspect.run_list import print_runs
from cluster.report import run_index as index
from cluster.report.results import finish_run
from cluster.report.run_index import INDEX_FILE, read_entry, read_index, refresh_index, write_index
from tests.cluster.commands.compare.folders import write_run, write_sweep
from tests.cluster.records import make_record


def test_runs_and_sweeps_are_told_newest_first(tmp_path: Path) -> None:
    finish_run(make_record(), tmp_path / "real")
    write_run(tmp_path / "failed", 7, verdict="fail", checks=[{"name": "timers", "verdict": "fail", "detail": "early"}])
    write_sweep(tmp_path / "swept", range(3))
    (tmp_path / "latest").symlink_to("real")
    for age, name in enumerate(("real/result.json", "failed/result.json", "swept/summary.json")):
        os.utime(tmp_path / name, (1_000_000 - age, 1_000_000 - age))
    real, failed, swept = read_index(tmp_path)
    assert (real.name, real.state, real.scenario, real.backend, real.seed) == ("real", "pass", "synthetic", "sim", "1")
    assert [word for _, word in real.links] == ["report", "result", "scenario", "JUnit"]
    assert real.metrics["heights"] == 12
    assert (failed.state, failed.note) == ("fail", "timers: early")
    assert (swept.kind, swept.state, swept.seed, swept.scenario) == ("sweep", "pass", "3 seeds", "sweep smoke 0123")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"verdict": "pass"}',
        '{"verdict": "maybe"}',
        '{"verdict": "pass", "metrics": 3}',
        '{"verdict": "pass", "metrics": {"fires": 1' + "0" * 400 + "}}",
        "[" * 9_999,
    ],
)
def test_a_result_that_is_none_is_broken(tmp_path: Path, content: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "result.json").write_text(content)
    entry = read_entry(tmp_path / "run")
    assert (entry.state, entry.outcome) == ("broken", None)
    assert "result.json" in entry.note
    assert "\n" not in entry.note


@pytest.mark.parametrize("content", ["", "{}", '{"seeds": "x", "passed": 1, "failed": [], "undecided": []}', "[]"])
def test_a_summary_that_is_none_is_broken(tmp_path: Path, content: str) -> None:
    (write_sweep(tmp_path / "sweep", range(2)) / "summary.json").write_text(content)
    assert read_entry(tmp_path / "sweep").state == "broken"


def test_a_result_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MAX_RESULT_BYTES", 10)
    assert "too large" in read_entry(write_run(tmp_path / "run")).note


def test_a_result_that_cannot_be_opened_is_broken(tmp_path: Path) -> None:
    (tmp_path / "run" / "result.json").mkdir(parents=True)
    assert read_entry(tmp_path / "run").state == "broken"


def test_other_folders_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "going" / "logs").mkdir(parents=True)
    (tmp_path / "foreign").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "file").touch()
    (write_sweep(tmp_path / "sweep", range(2)) / "summary.json").unlink()
    states = {entry.name: entry.state for entry in read_index(tmp_path)}
    assert states == {"going": "unfinished", "foreign": "foreign", "sweep": "unfinished"}


def test_the_page_links_and_escapes(tmp_path: Path) -> None:
    write_run(tmp_path / "a <b> & 100%", scenario="<script>alert(1)</script>")
    write_index(tmp_path, read_index(tmp_path))
    text = (tmp_path / INDEX_FILE).read_text()
    assert "<script>alert" not in text
    assert 'href="a%20%3Cb%3E%20%26%20100%25/result.json"' in text


def test_foreign_executors_are_named(tmp_path: Path) -> None:
    names = [f"validator-{number}" for number in range(5)]
    write_run(tmp_path / "run", validators=[{"name": name, "executor": "./<mine> 'x'"} for name in names])
    write_run(tmp_path / "old", validators=[{"name": "validator-0", "height": 3}, 7])
    write_index(tmp_path, entries := read_index(tmp_path))
    (run,) = [entry for entry in entries if entry.name == "run"]
    assert run.page()["executors"] == dict.fromkeys(names, "./<mine> 'x'")
    page = (tmp_path / INDEX_FILE).read_text()
    assert "executor of validator-2: <code>./&lt;mine&gt; &#39;x&#39;</code>" in page and "<mine>" not in page
    assert page.count("executor of ") == 3 and "and 2 more executors" in page


def test_only_the_newest_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MAX_SHOWN", 2)
    for number in range(5):
        write_run(tmp_path / f"run-{number}")
    write_index(tmp_path, entries := read_index(tmp_path))
    assert len(entries) == 5
    text = (tmp_path / INDEX_FILE).read_text()
    assert text.count("data-search=") == 2
    assert "The 3 oldest are left out." in text


def test_only_a_run_of_the_folder_has_its_index_written_anew(tmp_path: Path) -> None:
    refresh_index(write_run(tmp_path / "elsewhere" / "run"), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    refresh_index(write_run(tmp_path / "runs" / "run"), tmp_path / "runs")
    assert (tmp_path / "runs" / INDEX_FILE).exists()
    assert not list((tmp_path / "runs").glob(".*"))


def test_a_narrow_terminal_shows_folder_and_scenario_too(tmp_path: Path) -> None:
    write_run(tmp_path / "20260304-050607-smoke", verdict="fail", scenario="one-offline")
    console = Console(file=StringIO(), width=80)
    print_runs(console, read_index(tmp_path))
    told = "".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    for words in ("20260304-050607-smoke", "one-offline", "fail"):
        assert words in told


def test_the_page_tells_runs_of_one_scenario_apart_by_their_folders(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name)
    write_index(tmp_path, read_index(tmp_path))
    page = (tmp_path / INDEX_FILE).read_text(encoding="utf-8")
    for name in ("a", "b"):
        assert f'smoke<span class="folder mono">{name}/</span>' in page


def test_the_command_lists_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "one")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "result.json").write_text("{")
    assert main(["runs", str(tmp_path), "--json", str(tmp_path / "index.json")]) == 0
    printed = capsys.readouterr().out
    assert "✓ pass" in printed
    assert "broken" in printed
    assert "0123456" in printed
    assert [line.split()[2:4] for line in printed.splitlines() if "✓" in line] == [["one", "smoke"]]
    page = {entry["name"]: entry["state"] for entry in json.loads((tmp_path / "index.json").read_text())}
    assert page == {"one": "pass", "broken": "broken"}
    assert main(["runs", str(tmp_path / "missing")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
