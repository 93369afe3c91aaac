"""``stampede export`` of each kind of folder, and what it refuses."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from arro3.io import read_parquet

from cluster.commands.cli.main import main
from cluster.commands.inspect import export
from cluster.commands.sweeps.log import SweepLog
from cluster.commands.sweeps.outcome import judge
from cluster.common.errors import BadInput, ExitCode
from cluster.record.folder import GRID_FILE, RUN, claimed, read_result, replace_at_claim, run_folder
from cluster.report.results import finish_run
from cluster.tables.columns import Source, Table, integer
from cluster.tables.runs import TABLES
from stampede import Run, RunOutcome, read_run, simulate
from tests.cluster.commands.inspect.test_judge import left, nobody_came
from tests.cluster.records import make_record
from tests.cluster.tables.test_runs import SIMULATED

NAMES: Final = [table.name for table in TABLES]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_run_has_five_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish_run(make_record(), tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert main(["export", str(tmp_path / "run")]) == ExitCode.PASS
    tables = tmp_path / "run" / "tables"
    assert sorted(path.name for path in tables.iterdir()) == sorted(
        ["schema.json", *(f"{name}.{suffix}" for name in NAMES for suffix in ("csv", "parquet"))]
    )
    result = read_result(tmp_path / "run")
    assert sum(row["outcome"] == "fired" for row in rows(tables / "timers.csv")) == result["metrics"]["fires"]
    assert len(rows(tables / "blocks.csv")) == result["metrics"]["heights"] == 12
    for name in NAMES:
        assert read_parquet(tables / f"{name}.parquet").read_all().num_rows == len(rows(tables / f"{name}.csv"))
    assert "     12 rows  " in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()} == before


def test_a_run_with_tables_can_be_exported_and_replaced_again(tmp_path: Path) -> None:
    finish_run(make_record(), tmp_path)
    for _ in range(2):
        assert main(["export", str(tmp_path)]) == ExitCode.PASS
    replace_at_claim(tmp_path, RUN)
    with run_folder(tmp_path, "again"):
        assert list(tmp_path.iterdir()) == []


def test_another_folder_and_one_format(tmp_path: Path) -> None:
    finish_run(make_record(), tmp_path / "run")
    to = tmp_path / "new" / "tables"
    assert main(["export", str(tmp_path / "run"), "--to", str(to), "--format", "csv"]) == ExitCode.PASS
    assert {path.suffix for path in to.iterdir()} == {".csv", ".json"} and not (tmp_path / "run" / "tables").exists()


def test_a_live_run_whose_driver_died_has_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left(tmp_path)
    assert main(["export", str(tmp_path)]) == ExitCode.BAD_INPUT
    assert "its testnet may still be up" in capsys.readouterr().err
    nobody_came(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert main(["export", str(tmp_path), "--format", "csv"]) == ExitCode.PASS
    assert len(rows(tmp_path / "tables" / "validators.csv")) == 4
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_a_folder_that_another_process_writes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish_run(make_record(), tmp_path / "run")
    with claimed(tmp_path / "theirs"):
        assert main(["export", str(tmp_path / "run"), "--to", str(tmp_path / "theirs")]) == ExitCode.BAD_INPUT
        assert list((tmp_path / "theirs").iterdir()) == []
    assert "theirs: another process" in capsys.readouterr().err


# --- sweeps -----------------------------------------------------------------------------------------------------------


def sweep(folder: Path, *seeds: int) -> None:
    log = SweepLog(folder, "a task")
    for seed in seeds:
        record = make_record()
        record.seed = seed
        log.add(judge(record, 0.1)[0])
    log.close()


def test_a_sweep_has_seeds_and_metrics(tmp_path: Path) -> None:
    sweep(tmp_path, 2, 1)
    with (tmp_path / "seeds.jsonl").open("a") as file:
        file.write('{"seed": 3, "verd')  # cut off
    assert main(["export", str(tmp_path)]) == ExitCode.PASS
    found = rows(tmp_path / "tables" / "seeds.csv")
    assert [(row["cell"], row["seed"], row["verdict"]) for row in found] == [
        ("", "1", found[0]["verdict"]),
        ("", "2", found[1]["verdict"]),
    ]
    metrics = {(row["seed"], row["metric"]): float(row["value"]) for row in rows(tmp_path / "tables" / "metrics.csv")}
    assert metrics["1", "heights"] == metrics["2", "heights"] == 12 and metrics["1", "fires"] == float(
        found[0]["fires"]
    )


def test_a_grid_has_those_of_all_cells(tmp_path: Path) -> None:
    for cell in ("cell-10-b", "cell-2-a"):
        (tmp_path / cell).mkdir()
        sweep(tmp_path / cell, 1)
    (tmp_path / GRID_FILE).write_text("{}")
    assert main(["export", str(tmp_path)]) == ExitCode.PASS
    assert [row["cell"] for row in rows(tmp_path / "tables" / "seeds.csv")] == ["cell-2-a", "cell-10-b"]


# --- what is refused --------------------------------------------------------------------------------------------------


def test_another_folder_is_refused_with_what_is_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path)]) == ExitCode.BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{tmp_path}: has no tables; expected the folder of a run (record.bin" in line
    assert "a sweep (seeds.jsonl or grid.json)" in line
    assert main(["export", str(tmp_path / "none")]) == ExitCode.BAD_INPUT
    assert "no such folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["record.bin", "seeds.jsonl"])
def test_a_damaged_file_gets_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_bytes(b"x\ny\n")
    assert main(["export", str(tmp_path)]) == ExitCode.BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("stampede: ") and (name in line or "blocks.bin" in line)


# --- packages ---------------------------------------------------------------------------------------------------------

OWN: Final = Table("own", "A table.", (integer("n", "", "a number"),))
FITTING: Final = Source("a thing", ("thing.txt",), (OWN,), lambda folder: [(OWN, {"n": 3})])


@pytest.mark.parametrize(
    ("offered", "problem"),
    [
        (FITTING, None),
        (FITTING._replace(files=("thing.txt", "seeds.jsonl")), "folders with seeds.jsonl have tables already"),
        (len, "expected a Source"),
    ],
)
def test_a_package_offers_tables(
    offered: Any,
    problem: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def load_all(group: str, add: Callable[[Any], None]) -> None:
        assert group == "stampede.tables"
        add(offered)

    monkeypatch.setattr(export, "load_all", load_all)
    (tmp_path / "thing.txt").touch()
    if problem is None:
        assert main(["export", str(tmp_path)]) == ExitCode.PASS
        assert rows(tmp_path / "tables" / "own.csv") == [{"n": "3"}]
    else:
        with pytest.raises(ValueError, match=problem):
            export.sources()


# --- from Python ------------------------------------------------------------------------------------------------------


def test_from_python_a_run_and_its_folder_have_the_same_tables(tmp_path: Path) -> None:
    outcome = simulate({**SIMULATED}, seed=1, out=tmp_path / "run")
    again = read_run(tmp_path / "run")
    assert isinstance(outcome, RunOutcome) and type(again) is Run
    for name in NAMES:
        first, second = (getattr(run, name)() for run in (outcome, again))
        assert first.num_rows == second.num_rows and first.schema == second.schema
        assert first is getattr(outcome, name)()  # made once
        for column in first.schema.names:
            assert first[column].to_pylist() == second[column].to_pylist()
    assert list(outcome.timers()["outcome"].to_pylist()).count("fired") == outcome.metrics["fires"]
    assert outcome.timers().num_rows == outcome.metrics["timers_scheduled"]
    with pytest.raises(BadInput, match="has no record of a run"):
        read_run(tmp_path / "none")
