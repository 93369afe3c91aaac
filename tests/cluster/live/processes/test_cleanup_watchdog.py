"""A watchdog of a run that another driver may take over: the lock alone does not say that one came."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.live.processes import driver_lock

WAIT_S = 60.0
ROOT = Path(__file__).parents[4]
DRIVER = """
import os, signal, sys
from pathlib import Path
from cluster.live.processes import cleanup_watchdog, driver_lock
folder = Path(sys.argv[1])
with driver_lock.driving(folder):
    watchdog = cleanup_watchdog.CleanupWatchdog(folder, {"verdict": "inconclusive"})
    watchdog.wait_for_another(0.0)
    if sys.argv[2] == "inherited" and os.fork() == 0:
        watchdog._pipe.close()
        sys.stdin.read()  # until the test has seen the end
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("lock", ["released", "inherited"])
def test_a_lock_that_outlives_its_driver_is_not_another_driver(tmp_path: Path, lock: str) -> None:
    command = [sys.executable, "-c", DRIVER, str(tmp_path), lock]
    driver = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert driver.stderr is not None
    assert driver.stderr.readline().startswith("stampede: the driver was killed: its testnet goes on for 0 s; ")
    if lock == "inherited":
        assert driver_lock.is_driven(tmp_path)
    assert driver.stderr.readline().endswith(f"processes of the run were ended; see {tmp_path}/result.json\n")
    assert json.loads((tmp_path / "result.json").read_text())["nobody_came"]
    driver.communicate(timeout=WAIT_S)


def test_a_run_that_another_driver_has_is_left_to_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DRIVER, str(tmp_path), "released"]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    first.wait(WAIT_S)
    with driver_lock.driving(tmp_path):
        _, complaints = first.communicate(timeout=WAIT_S)  # ends with the watchdog, which shares it
        assert complaints.count("\n") == 1 and "its testnet goes on for 0 s" in complaints
    assert not (tmp_path / "result.json").exists()
