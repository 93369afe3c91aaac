"""An exception that was not expected ends a command without a verdict, and what is known by then is kept."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from cluster.checks.kinds.agreement import Chain
from cluster.commands.cli.main import main
from cluster.commands.console import crashes
from cluster.commands.explain import commands as explain
from cluster.commands.sweeps import runner
from cluster.common.errors import BadInput, Crash, ExitCode, crash_reason
from cluster.record.chain_store import FileBlocks
from cluster.report import results
from cluster.simulation import recorder
from cluster.simulation.course import Course
from cluster.watches.watched_simulation import WatchedSimulation

SCENARIO: dict[str, Any] = {
    "name": "small",
    "load": {"users": [{"workload": "heartbeat", "count": 2, "interval_ms": 300}]},
    "stop": {"height": 12, "drain_blocks": 2},
    "success": {"heights_compared": 5, "transactions": 1, "fires": 1},
}
CRASHES_AT = 6
FAILING_CHECK = "chain"


@pytest.fixture(autouse=True)
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(yaml.safe_dump(SCENARIO), encoding="utf-8")


def plant(*_: object, **__: object) -> NoReturn:
    raise KeyError("planted")


def run(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """Run the scenario into the folder ``out``, which crashes. Returns the result in the folder."""
    assert main(["run", "small.yaml", "--backend", "sim", "--out", "out", *options]) == ExitCode.CRASH
    assert capsys.readouterr().err.startswith("stampede: crashed, without a verdict: KeyError: 'planted' (test_crashes")
    found: dict[str, Any] = json.loads(Path("out/result.json").read_text(encoding="utf-8"))
    return found


def detail_of(result: dict[str, Any], name: str) -> str:
    return str(next(check["detail"] for check in result["checks"] if check["name"] == name))


def test_a_crash_of_the_driver_keeps_and_judges_what_it_collected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reach = Course._reach

    def crash(self: Course, height: int) -> None:
        reach(self, height)
        if height == CRASHES_AT:
            plant()

    monkeypatch.setattr(Course, "_reach", crash)
    result = run(capsys, "--json", "mine.json")
    assert (result["verdict"], result["seed"]) == ("inconclusive", 1)
    assert detail_of(result, "no_problems").startswith("interrupted; the driver crashed: KeyError: 'planted' (test_cra")
    assert len(FileBlocks.archived(Path("out/blocks.bin"))) >= CRASHES_AT - 1
    assert {"scenario.yaml", "genesis.json", "report.html", "junit.xml"} <= {
        path.name for path in Path("out").iterdir()
    }
    assert Path("out/traceback.txt").read_text(encoding="utf-8").count("KeyError: 'planted'") == 1
    assert not Path("mine.json").exists(), "there is no verdict to tell"


def test_a_crash_before_the_first_block_leaves_a_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(WatchedSimulation, "begin", plant)
    monkeypatch.setattr(recorder.Recorder, "collect", plant)
    result = run(capsys)
    assert result["verdict"] == "inconclusive"
    assert detail_of(result, "no_problems").startswith("the harness crashed: KeyError: 'planted'")
    assert len(FileBlocks.archived(Path("out/blocks.bin"))) == 0


@pytest.mark.parametrize("is_crashed_before", [False, True])
def test_a_crash_of_a_check_leaves_the_blocks_unjudged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_crashed_before: bool
) -> None:
    monkeypatch.setattr(Chain, "judge", plant)
    if is_crashed_before:
        monkeypatch.setattr(Course, "standings", plant)
    result = run(capsys)
    assert (result["verdict"], result["metrics"]) == ("inconclusive", {})
    assert [check["name"] for check in result["checks"]] == ["no_problems"]
    assert {"scenario.yaml", "genesis.json", "blocks.bin"} <= {path.name for path in Path("out").iterdir()}
    told = Path("out/traceback.txt").read_text(encoding="utf-8")
    assert ("What was known could not be written:" in told) == is_crashed_before
    assert len(FileBlocks.archived(Path("out/blocks.bin"))) >= (0 if is_crashed_before else 12)
    assert not Path("out/report.html").exists()


def test_a_crash_of_the_reports_writer_leaves_the_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "render_report", plant)
    assert run(capsys)["verdict"] == "pass", "it was judged"
    assert "render_report" in Path("out/traceback.txt").read_text(encoding="utf-8")
    assert not Path("out/report.html").exists()


def test_an_expected_failure_is_no_crash(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(self: WatchedSimulation) -> None:
        raise BadInput("planted: expected otherwise")

    monkeypatch.setattr(WatchedSimulation, "begin", refuse)
    assert main(["run", "small.yaml", "--backend", "sim", "--out", "out"]) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err == "stampede: planted: expected otherwise\n"
    assert not Path("out").exists()


def test_a_command_without_a_folder_shows_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(explain.Validate, "run", plant)
    assert main(["validate", "small.yaml"]) == ExitCode.CRASH
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert last.startswith("stampede: crashed, without a verdict: KeyError: 'planted' (test_crashes.py:")
    assert last.endswith("; a bug of Stampede's, whose traceback is above")


def test_a_traceback_that_finds_no_room_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(crashes, "write_atomically", no_room)
    with pytest.raises(Crash, match=r"traceback is above$"), crashes.crash_kept(tmp_path):
        plant()
    assert "KeyError: 'planted'" in capsys.readouterr().err


def test_a_crash_of_a_sweeps_own_code_leaves_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "SweepLog", plant)
    assert main(["sweep", "small.yaml", "--seeds", "1:2", "--out", "out"]) == ExitCode.CRASH
    assert "plant" in Path("out/traceback.txt").read_text(encoding="utf-8")
    assert "traceback is in out/traceback.txt\n" in capsys.readouterr().err


def test_a_crash_of_the_second_run_is_no_difference(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The process that runs it ends before its first event."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert main(["run", "small.yaml", "--backend", "sim", "--check-determinism", "--out", "out"]) == ExitCode.CRASH
    assert capsys.readouterr().err == "stampede: the second run crashed, with exit code 1: see above\n"


def test_what_has_no_text_has_its_type_and_place() -> None:
    def fail() -> NoReturn:
        raise MemoryError

    with pytest.raises(MemoryError) as raised:
        fail()
    assert crash_reason(raised.value) == f"MemoryError (test_crashes.py:{raised.traceback[-1].lineno + 1})"
