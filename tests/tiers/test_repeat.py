"""Rounds of repeated tests: what failed once is named, a round is not run again, nothing busy is left."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from tests.tiers import repeat
from tests.tiers.test_retry import run, write_project


@pytest.mark.slow
def test_a_test_that_failed_in_one_round_is_in_the_table(tmp_path: Path) -> None:
    write_project(tmp_path)
    command = ("tests.tiers.repeat", "rounds", "--alone", "2", "--busy", "1", "--", "-k", "live_once or passes")
    done = run(tmp_path, *command)
    assert done.returncode == 1, done.stdout + done.stderr
    *_, failed = done.stdout.splitlines()
    assert failed == "| `test_project.py::test_live_once` | 1 of 2 | 0 of 1 |"
    assert "| `test_project.py` | 2 | 2, 0 | 1, 0 |" in done.stdout
    assert (tmp_path / "rounds" / "table.md").read_text() == done.stdout
    (tmp_path / "rounds" / "alone-1.json").write_text(json.dumps({}))
    again = run(tmp_path, *command)
    assert again.returncode == 0, "the other rounds are read, and not run"


@pytest.mark.slow
def test_a_round_that_ends_early_is_one_line(tmp_path: Path) -> None:
    write_project(tmp_path)
    done = run(tmp_path, "tests.tiers.repeat", "rounds", "--", "-k", "crashes")
    assert done.returncode == 1
    assert (
        done.stderr
        == f"{tmp_path / 'rounds' / 'alone-1.log'}: the round ended early; expected a session that runs all tests\n"
    )


def test_busy_processes_compute_and_end() -> None:
    with repeat.busy_processes(1):
        (process,) = [each for each in psutil.Process().children() if "while True: pass" in each.cmdline()]
        while process.cpu_times().user == 0.0:
            assert process.is_running()
    assert not process.is_running()
