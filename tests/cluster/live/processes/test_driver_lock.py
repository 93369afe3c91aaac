"""One driver a run, and none once it is dead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cluster.common.errors import BadInput
from cluster.live.processes import driver_lock

WAIT_S = 30.0
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
