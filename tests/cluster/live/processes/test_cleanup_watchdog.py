"""A watchdog of a run that another driver may take over: the lock alone does not say that one came."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cluster.live.processes import cleanup_watchdog, driver_lock, processes
from cluster.live.processes.cleanup_watchdog import CleanupWatchdog
from cluster.record.folder import CHECKPOINT_FILE, RESULT_FILE, WATCHDOG_FILE
from tests.hangs import HANGS_AFTER_S

ROOT = Path(__file__).parents[4]
DRIVER = """
import os, signal, sys
from pathlib import Path
from cluster.live.processes import cleanup_watchdog, driver_lock
folder = Path(sys.argv[1])
(folder / "driver.checkpoint").touch()
with driver_lock.driving(folder):
    watchdog = cleanup_watchdog.CleanupWatchdog(folder, {"verdict": "inconclusive"})
    watchdog.wait_for_another(0.0)
    if sys.argv[2] == "inherited" and os.fork() == 0:
        watchdog._pipe.close()
        sys.stdin.read()  # until the test has seen the end
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
"""

STARTS_LOAD = """
import os, signal, sys
from pathlib import Path
from cluster.live.driver.load_process import LoadProcess, plan_load
from cluster.live.processes.cleanup_watchdog import CleanupWatchdog
from cluster.scenario import Scenario
from tests.cluster.live.scenarios import SCENARIO
folder = Path(sys.argv[1])
watchdog = CleanupWatchdog(folder, {"verdict": "inconclusive"})
load = LoadProcess(plan_load(Scenario.model_validate(SCENARIO), 1, "chain", folder, 60), folder, outlives_us=True)
while sys.argv[2] == "ready" and not load.is_ready:
    os.sched_yield()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_watchdog_of_each_run_loads_no_part_of_a_validator() -> None:
    program = (
        "import sys, cluster.live.processes.cleanup_watchdog as _; print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"cluster", "json"} <= (loaded := set(done.stdout.split()))
    assert not loaded & {"validator", "consensus", "loadgen", "numba", "numpy", "pydantic", "ray"}


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
    driver.communicate(timeout=HANGS_AFTER_S)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["started", "ready"])
def test_a_load_ends_after_its_driver_was_killed(tmp_path: Path, moment: str) -> None:
    """The driver told nobody about it: it may be killed in the moment in which the load starts."""
    command = [sys.executable, "-c", STARTS_LOAD, str(tmp_path), moment]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    told = driver.communicate(timeout=HANGS_AFTER_S)[1]
    ended = int(told.removeprefix("stampede: the driver was killed: ").partition(" ")[0])
    assert ended >= {"started": 1, "ready": 2}[moment]
    assert not processes.with_argument(str(tmp_path))


class Clock:
    """The time of a watchdog, and what happens at which second."""

    def __init__(self, events: Mapping[int, Callable[[], object]]) -> None:
        self.now_s = 0
        self._events = dict(events)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += round(seconds)
        self._events.pop(self.now_s, lambda: None)()


DEAD = processes.own()._replace(started=1)
LEASE_S = 10


@pytest.fixture
def facts(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / CHECKPOINT_FILE).touch()
    return {"run": str(tmp_path), "result": {"verdict": "inconclusive"}, "lease_s": LEASE_S, "driver": DEAD}


def watch(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any], events: Mapping[int, Callable[[], object]]
) -> int | None:
    """Watch after the driver's death. Returns after how many seconds the watchdog cleaned up, if it did."""
    clock, run = Clock(events), Path(facts["run"])
    monkeypatch.setattr(cleanup_watchdog, "time", clock)
    cleanup_watchdog._end_watch(run, facts)
    return clock.now_s if (run / RESULT_FILE).exists() else None


@pytest.mark.parametrize("held_s", [0, 1, 30])
def test_a_driver_that_comes_and_goes_is_no_end_of_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any], held_s: int
) -> None:
    """It was refused, or killed before it had a watchdog of its own."""
    lock = ExitStack()
    comes = {3: lambda: lock.enter_context(driver_lock.driving(tmp_path)), 3 + held_s: lock.close} if held_s else {}
    assert watch(monkeypatch, facts, comes) == LEASE_S + cleanup_watchdog.SLACK_S + (held_s and 2 + held_s)


def test_a_watchdog_that_watches_everything_replaces_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any]
) -> None:
    another = CleanupWatchdog(tmp_path, {})
    another.watch_ray(tmp_path / "ray")
    file = tmp_path / WATCHDOG_FILE
    assert not file.exists()
    another.replace_others()
    while not file.exists():
        assert another._process.poll() is None
        os.sched_yield()
    assert watch(monkeypatch, facts, {}) is None
    another.dismiss()
    assert not file.exists(), "it watches nothing any more"


def test_a_run_with_its_verdict_needs_no_watchdog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any]
) -> None:
    assert watch(monkeypatch, facts, {2: (tmp_path / CHECKPOINT_FILE).unlink}) is None


def test_nobody_is_waited_for_if_there_is_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any]
) -> None:
    """The driver was killed before it wrote one, or after the verdict, while it kept the testnet."""
    (tmp_path / CHECKPOINT_FILE).unlink()
    (tmp_path / driver_lock.LOCK_FILE).touch()  # of the driver that was killed
    assert watch(monkeypatch, facts, {}) == 0
    assert not (tmp_path / driver_lock.LOCK_FILE).exists()
    assert "nobody_came" not in json.loads((tmp_path / RESULT_FILE).read_text())
