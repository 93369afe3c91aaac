"""Drivers that are killed in the middle of a live run: another one takes it over, or nothing is left of it."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from cluster.live.handover import checkpoint
from cluster.live.processes import processes
from cluster.record.archive import ARCHIVE_MAGIC, items_of
from cluster.record.archived_run import read_run
from cluster.record.folder import STORE_FILE
from tests.cluster.live.scenarios import PAIR, SCENARIO
from tests.cluster.live.soak_handover import Driver
from tests.cluster.live.test_live_run import FAULTS
from tests.hangs import HANGS_AFTER_S

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
STAMPEDE = [sys.executable, "-m", "cluster.commands.cli.main"]


def stampede(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*STAMPEDE, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False
    )


def kept_blocks(folder: Path) -> int:
    """The blocks in a driver's file that outlive the driver."""
    with suppress(FileNotFoundError), (folder / STORE_FILE).open("rb") as file:
        file.seek(len(ARCHIVE_MAGIC))
        return sum(1 for _ in items_of(file))
    return 0


def start(temporary: Path, folder: Path, scenario: dict[str, Any], *options: str, command: str = "run") -> Driver:
    """A run of a scenario."""
    file = folder.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(scenario), encoding="utf-8")
    return Driver(temporary, "", command, str(file), "--out", str(folder), *options)


def wait_for_blocks(driver: Driver, folder: Path, count: int) -> None:
    """Until a checkpoint came after the driver's file had so many blocks. A line comes every few seconds."""
    had_them_s = math.inf
    while driver.wait_for(""):
        if kept_blocks(folder) >= count:
            had_them_s = min(had_them_s, time.time())
            if checkpoint.read(folder).clock.written_epoch_s > had_them_s:
                return
    pytest.fail(f"it ended before it had {count} blocks")


@pytest.fixture
def folder(tmp_path: Path, temporary: Path) -> Iterator[Path]:
    """The run's folder. Afterwards nothing is left of the run, nor of its Ray, whatever became of the test."""
    folder = tmp_path / "run"
    yield folder
    processes.end_all(lambda: processes.using(folder) | processes.using(temporary), 0.0)
    assert not processes.using(folder) | processes.using(temporary)


def result_of(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return result


def checks_of(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in result["checks"]}


def test_a_run_whose_driver_was_killed_is_taken_over_and_gets_its_verdict(folder: Path, temporary: Path) -> None:
    driver = start(temporary, folder, {**PAIR, "validators": 2, "faults": FAULTS}, "--attachable", "200")
    assert driver.wait_for("kill of validator-1 begins"), driver.said
    refused = stampede("attach", str(folder))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"its driver is alive: process {driver.process.pid} on " in refused.stderr
    driver.kill()

    attached = stampede("attach", str(folder))
    assert attached.returncode == 0, attached.stdout + attached.stderr
    assert "no driver from height " in attached.stdout
    result = result_of(folder)
    (absence,) = result["absences"]
    assert absence["until_ms"] > absence["from_ms"] and absence["text"].startswith("no driver from height ")
    checks = checks_of(result)
    assert absence["text"] in checks["no_problems"]["detail"]
    assert "took effect" in checks["faults"]["detail"]
    assert len(read_run(folder).blocks) >= SCENARIO["stop"]["height"], "the archive is whole, from height 1 on"
    left = {path.name for path in folder.iterdir()}
    assert not left & {"driver.lock", "driver.checkpoint", "driver.checkpoint.before", "sightings.part", "blocks.part"}
    driver.end()
    assert "its testnet goes on for 200 s; stampede attach" in "".join(driver.said), "and its watchdog has left"
    assert not processes.using(folder)

    ended = stampede("attach", str(folder))
    assert ended.returncode == 2
    assert ended.stderr == f"stampede: {folder}: that run has ended, with the verdict pass\n"


@pytest.mark.soak
def test_an_upgrade_goes_on_with_another_driver(folder: Path, temporary: Path) -> None:
    """Other moments are those of ``make soak-handover``."""
    upgrade = {"kind": "upgrade", "version": "2", "at_height": 8}
    changes = {"validators": {"count": 2}, "faults": [upgrade], "stop": {"height": 60, "timeout_s": 300}}
    driver = start(temporary, folder, {**SCENARIO, **changes}, "--attachable", "200")
    driver.kill_at("upgrade of all begins", 0.0)
    attached = stampede("attach", str(folder))
    assert attached.returncode == 0, attached.stdout + attached.stderr
    driver.end()
    assert not processes.using(folder)


def test_if_nobody_comes_nothing_is_left_but_what_is_known(folder: Path, temporary: Path) -> None:
    driver = start(temporary, folder, {**PAIR, "stop": {"height": 900, "timeout_s": 600}}, "--attachable", "10")
    wait_for_blocks(driver, folder, 5)
    driver.kill()
    driver.end()
    assert "processes of the run were ended" in "".join(driver.said)
    assert not processes.using(folder)
    assert result_of(folder)["nobody_came"]

    other = folder.with_name("other")
    shutil.copytree(folder, other)
    judged = stampede("judge", str(other))
    assert judged.returncode == 3, judged.stdout + judged.stderr
    assert "the driver died at height" in checks_of(result_of(other))["no_problems"]["detail"]
    assert len(read_run(other).blocks) >= 5

    attached = stampede("attach", str(folder))
    assert attached.returncode == 3, attached.stdout + attached.stderr
    result = result_of(folder)
    assert result["verdict"] == "inconclusive" and "nobody_came" not in result
    problems = checks_of(result)["no_problems"]["detail"]
    assert "and its testnet is gone: " in problems and "interrupted" in problems
    assert len(read_run(folder).blocks) >= 5, "those that it had"


def test_a_run_without_a_checkpoint_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", str(tmp_path)]) == ExitCode.BAD_INPUT
    assert "has no checkpoint; expected a run that was started with" in capsys.readouterr().err
    assert main(["attach", str(tmp_path / "nothing")]) == ExitCode.BAD_INPUT
    assert "no such folder; expected the folder of a live run" in capsys.readouterr().err
