"""One driver a run, and none once it is dead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.common.errors import BadInput
from cluster.live.processes import driver_lock
from cluster.record.folder import takes_lock

ROOT = Path(__file__).parents[4]
DRIVER = """
import sys
from pathlib import Path
from cluster.live.processes import driver_lock
with driver_lock.driving(Path(sys.argv[1])):
    print("driving", flush=True)
    sys.stdin.read()
"""


def test_a_run_has_one_driver_until_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_lock, "PATIENCE_S", 0.0)
    assert not driver_lock.is_driven(tmp_path)
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    driver = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert driver.stdout is not None
    assert driver.stdout.readline() == "driving\n"
    assert driver_lock.is_driven(tmp_path)
    with pytest.raises(BadInput, match=f"its driver is alive: process {driver.pid} on "), driver_lock.driving(tmp_path):
        pytest.fail("two drivers")
    driver.kill()
    driver.communicate()
    assert not driver_lock.is_driven(tmp_path)
    with driver_lock.driving(tmp_path):
        assert driver_lock.is_driven(tmp_path)
    assert not (tmp_path / driver_lock.LOCK_FILE).exists()


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver before ended in good order after its file had been opened."""
    path = tmp_path / driver_lock.LOCK_FILE

    def ends_first(file: int) -> bool:
        monkeypatch.setattr(driver_lock, "takes_lock", takes_lock)
        path.unlink()
        return takes_lock(file)

    monkeypatch.setattr(driver_lock, "takes_lock", ends_first)
    monkeypatch.setattr(driver_lock, "PATIENCE_S", 0.0)
    with driver_lock.driving(tmp_path):
        assert path.exists() and driver_lock.is_driven(tmp_path)
        with pytest.raises(BadInput, match="its driver is alive"), driver_lock.driving(tmp_path):
            pytest.fail("two drivers")


def test_the_file_of_somebody_else_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / driver_lock.LOCK_FILE
    with driver_lock.driving(tmp_path):
        path.unlink()
        path.touch()
    assert path.exists()


def test_a_driver_counts_whatever_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_lock, "BEAT_S", 0.001)
    path = tmp_path / driver_lock.LOCK_FILE
    with driver_lock.driving(tmp_path):
        while driver_lock._read(path).get("count", 0) < 3:
            os.sched_yield()
        assert path.stat().st_size == driver_lock.PAGE_BYTES + 1


@pytest.mark.parametrize("lives", [True, False])
def test_a_driver_of_another_machine_lives_while_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    """Its lock is not seen here, and its clock is an hour behind."""
    path = tmp_path / driver_lock.LOCK_FILE
    page = {"pid": 7, "started": 9, "machine": "elsewhere", "namespace": "its", "count": 1, "at_s": time.time() - 3_600}
    path.write_text(json.dumps(page))
    now_s = [0.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds
        if lives and now_s[0] > driver_lock.FRESH_S - 1:
            path.write_text(json.dumps(page | {"count": 2}))

    monkeypatch.setattr(driver_lock, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep, time=time.time))
    if lives:
        with (
            pytest.raises(BadInput, match="its driver is alive: process 7 on elsewhere"),
            driver_lock.driving(tmp_path),
        ):
            pytest.fail("two drivers")
        return
    with pytest.raises(BadInput, match="refused"), driver_lock.driving(tmp_path) as at_s:
        refuse(at_s == page["at_s"] and now_s[0] >= driver_lock.FRESH_S)
    assert driver_lock._read(path) == page, "whoever comes next has to know it, too"


def refuse(is_right: bool) -> None:
    assert is_right
    raise BadInput("refused")
