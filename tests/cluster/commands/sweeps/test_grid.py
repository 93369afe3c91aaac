"""Grids: what cells there are, what they come to, where an interrupted grid goes on, and what is refused."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from cluster.commands.cli.main import main
from cluster.commands.sweeps.grid import Cell, begin_grid, cells_of, ending_of, parse_axis, run_cells
from cluster.commands.sweeps.log import SweepLog
from cluster.commands.sweeps.outcome import SeedOutcome
from cluster.commands.sweeps.runner import Summary
from cluster.commands.sweeps.tasks import ScenarioTask
from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput, ExitCode
from cluster.common.outcome import Outcome
from cluster.report.run_index import read_entry
from cluster.scenario.overrides import Change

GOOD = SeedOutcome(7, "pass", "", [], 40, 30, {}, 0, "d", 1.0, {"blocks_per_second": 4.0})
BAD = SeedOutcome(8, "fail", "agreement: two blocks", [], 40, 30, {}, 0, "d", 1.0, {"blocks_per_second": 2.0})
AXES = (parse_axis("validators.count=4,7"), parse_axis("links.loss=0,0.1"))


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "s.yaml"
    path.write_text("name: tiny\nstop: {height: 4, drain_blocks: 0}\n")
    return path


def cells(scenario: Path, seeds: int = 2, axes: Sequence[object] = AXES) -> list[Cell]:
    def load(settings: Sequence[Change]) -> ScenarioTask:
        return ScenarioTask.load(scenario, settings)

    return cells_of(load, axes, seeds, 1_000_000)  # type: ignore[arg-type]


def test_the_cells_are_the_product_of_all_values(scenario: Path) -> None:
    found = cells(scenario)
    assert [cell.title for cell in found] == [
        "validators.count=4 links.loss=0",
        "validators.count=4 links.loss=0.1",
        "validators.count=7 links.loss=0",
        "validators.count=7 links.loss=0.1",
    ]
    assert [cell.task.scenario(1).validators.count for cell in found] == [4, 4, 7, 7]
    assert found[1].folder == "cell-2-validators.count=4_links.loss=0.1"
    assert "--set validators.count=7 --set links.loss=0.1" in found[3].task.command(9)


def test_values_may_be_any_yaml(scenario: Path) -> None:
    axis = parse_axis("validators.nodes=[{}, {}, {}, {byzantine: silent-leader}],[]")
    assert [change.value for change in axis.settings] == [[{}, {}, {}, {"byzantine": "silent-leader"}], []]
    names = {cell.folder for cell in cells(scenario, axes=[axis])}
    assert len(names) == 2 and all("/" not in name and " " not in name for name in names)


@pytest.mark.parametrize("text", ["", "validators.count", "validators.count=", "a b=1", "x=1,1", "x={", "x=1],[2"])
def test_a_wrong_axis_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_axis(text)


def test_what_is_no_grid_is_refused(scenario: Path) -> None:
    with pytest.raises(BadInput, match="given twice"):
        cells(scenario, axes=[AXES[0], AXES[0]])
    with pytest.raises(BadInput, match=r"validators\.count"):
        cells(scenario, axes=[parse_axis("validators.count=4,0")])
    with pytest.raises(BadInput, match="4 cells of 300,000 seeds: expected at most"):
        cells(scenario, seeds=300_000)


def test_the_worst_cell_decides_and_a_missing_one_is_no_pass(scenario: Path) -> None:
    found = cells(scenario)
    good, bad = Summary((GOOD,), 1, False), Summary((GOOD, BAD), 2, False)
    whole = ending_of("grid", AXES, found, [(cell, good) for cell in found])
    assert (whole.outcome, list(whole.parts)) == (Outcome.PASS, [])
    assert ending_of("grid", AXES, found, [(cell, good) for cell in found[:3]]).outcome is Outcome.INCONCLUSIVE
    failed = ending_of("grid", AXES, found, [(found[0], good), (found[1], bad)])
    assert failed.outcome is Outcome.FAIL
    assert [part.name for part in failed.parts] == ["8 of validators.count=4 links.loss=0.1"]
    assert failed.parts[0].again.startswith("stampede run ")
    headings, rows = failed.table
    assert rows[1][: len(headings)][2:7] == ("fail", "1", "1", "0", "3")
    suites = ElementTree.fromstring(failed.junit().encode())
    assert [(suite.get("name"), suite.get("failures")) for suite in suites] == [
        ("grid validators.count=4 links.loss=0", "0"),
        ("grid validators.count=4 links.loss=0.1", "1"),
    ]


def test_an_interrupted_cell_ends_the_grid_and_a_failed_one_if_asked(scenario: Path) -> None:
    found = cells(scenario)
    interrupted, failed = Summary((), 1, True), Summary((BAD,), 1, False)
    assert len(run_cells(found, lambda cell: interrupted, stop_on_fail=False)) == 1
    assert len(run_cells(found, lambda cell: failed, stop_on_fail=False)) == 4
    assert len(run_cells(found, lambda cell: failed, stop_on_fail=True)) == 1


def test_a_folder_of_another_grid_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "g").mkdir()
    begin_grid(tmp_path / "g", "grid of x", AXES)
    begin_grid(tmp_path / "g", "grid of x", AXES)
    for title, axes in (("grid of y", AXES), ("grid of x", AXES[:1])):
        with pytest.raises(BadInput, match="another grid"):
            begin_grid(tmp_path / "g", title, axes)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(BadInput, match="is not empty and holds no grid"):
        begin_grid(tmp_path / "other", "grid of x", AXES)
    (tmp_path / "g" / "grid.json").write_text("{\n")
    with pytest.raises(BadInput, match="line 1: "):
        begin_grid(tmp_path / "g", "grid of x", AXES)


def write_log(folder: Path, cell: Cell, *outcomes: SeedOutcome) -> None:
    with closing(SweepLog(folder / cell.folder, cell.task.title, checkout_commit())) as log:
        for outcome in outcomes:
            log.add(outcome)


GRID = ["sweep", "s.yaml", "--seeds", "7:8", "--grid", "links.loss=0,0.1", "--workers", "1", "--out", "runs/g"]


def prepared(*outcomes: SeedOutcome) -> list[Cell]:
    """The folder of :data:`GRID`, in which the first cells have these outcomes already."""
    axes = [parse_axis(GRID[5])]
    found = cells(Path("s.yaml"), 1, axes)
    Path("runs/g").mkdir(parents=True)
    begin_grid(Path("runs/g"), f"grid of {ScenarioTask.load(Path('s.yaml')).title}", axes)
    for cell, outcome in zip(found, outcomes, strict=False):
        write_log(Path("runs/g"), cell, outcome)
    return found


def test_a_grid_writes_its_files(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = prepared(GOOD, replace(GOOD, verdict="fail", reason="agreement: two blocks"))
    files = ["--json", "g.json", "--junit", "g.xml", "--summary", "g.md"]
    assert main([*GRID, *files]) == ExitCode.FAIL
    printed = capsys.readouterr().out
    assert "cell 2 of 2: links.loss=0.1" in printed
    assert printed.splitlines()[-1].endswith(": fail: 2 of 2 cells")
    page = json.loads(Path("g.json").read_text())
    assert page == json.loads(Path("runs/g/summary.json").read_text())
    assert [cell["settings"] for cell in page["cells"]] == [{"links.loss": 0}, {"links.loss": 0.1}]
    assert [cell["folder"] for cell in page["cells"]] == [cell.folder for cell in found]
    assert [cell["verdict"] for cell in page["cells"]] == ["pass", "fail"]
    assert page["cells"][0]["metrics"] == {"blocks_per_second": 4.0}
    assert "| 0.1 | fail | 0 | 1 | 0 | 4 |" in Path("g.md").read_text()
    assert len(ElementTree.parse("g.xml").getroot()) == 2
    entry = read_entry(Path("runs/g"))
    assert (entry.state, entry.note) == ("fail", "1 passed, 1 failed, 0 undecided")
    assert main([*GRID, "--quiet"]) == ExitCode.FAIL
    begins = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert begins == [["0.1", "fail"], ["seed", "7"], ["again", "stampede"], ["grid", "of"]]
    other = [*GRID[:5], "links.loss=0,0.2", *GRID[6:]]
    assert main(other) == ExitCode.BAD_INPUT


def test_a_grid_without_all_cells_is_no_pass_in_the_index(scenario: Path) -> None:
    prepared(GOOD, GOOD)
    assert main(GRID) == ExitCode.PASS
    assert read_entry(Path("runs/g")).state == "pass"
    page = json.loads(Path("runs/g/summary.json").read_text())
    Path("runs/g/summary.json").write_text(json.dumps({**page, "cells": page["cells"][:1]}))
    assert read_entry(Path("runs/g")).state == "inconclusive"
    Path("runs/g/summary.json").unlink()
    assert read_entry(Path("runs/g")).state == "unfinished"


@pytest.mark.slow
def test_an_interrupted_grid_goes_on_where_it_was(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepared(GOOD)
    assert main(GRID) == ExitCode.INCONCLUSIVE, "so little proves nothing"
    assert [line.partition(": ")[2] for line in capsys.readouterr().out.splitlines() if "at a time" in line] == [
        "1 seeds, 1 of them done before; up to 1 at a time",
        "1 seeds; up to 1 at a time",
    ]
