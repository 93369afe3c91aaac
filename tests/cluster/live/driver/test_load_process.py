"""The load generator as the driver sees it: the endpoints that it gets, in order, also of validators that move."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.live.driver.load_process import (
    ENDPOINTS_FILE,
    LOG_FILE,
    STATS_FILE,
    LoadProcess,
    plan_load,
)
from cluster.live.handover.left import LeftLoad
from cluster.scenario import Scenario
from loadgen.runplan import Statistics
from tests.loadgen.fake_validator import FakeChain, FakePages, ServerThread
from tests.loadgen.own_workloads import acting, group
from tests.loadgen.test_run import wait_for

SCENARIO = {"name": "loaded", "load": {"users": [{"workload": "heartbeat", "count": 1, "interval_ms": 100}]}}


@pytest.fixture
def load(tmp_path: Path) -> Iterator[LoadProcess]:
    found = LoadProcess(plan_load(Scenario.model_validate(SCENARIO), 1, "chain", tmp_path, 60), tmp_path)
    yield found
    found.finish(lambda: None)


def endpoints(folder: Path) -> list[str]:
    found: list[str] = json.loads((folder / ENDPOINTS_FILE).read_text())
    return found


def test_a_validator_that_moves_keeps_its_place_and_one_that_joins_gets_none(load: LoadProcess, tmp_path: Path) -> None:
    load.go({0: "http://a:1", 1: "http://b:1"})
    assert endpoints(tmp_path) == ["http://a:1", "http://b:1"]
    load.go({0: "http://c:2", 1: "http://b:1", 2: "http://d:1"})
    assert endpoints(tmp_path) == ["http://c:2", "http://b:1"]
    load.go({1: "http://b:1"})
    assert endpoints(tmp_path) == ["http://c:2", "http://b:1"], "nothing is known of the other one"


PLANTED = {
    "home/.locust.conf": "tags = nightly\n",
    "locust.conf": "worker = true\n",
    "pyproject.toml": '[tool.locust]\ntags = "nightly"\n',
    "msgspec.py": "raise SystemExit('the module of the working directory')\n",
}
"""Files of a user's, each of which would keep Locust from sending anything."""
VARIABLES = {"LOCUST_TAGS": "nightly", "GEVENT_LOOP": "none.Such", "PYTHONPROFILEIMPORTTIME": "1"}


@pytest.mark.slow
@pytest.mark.parametrize("planted", [*PLANTED, *VARIABLES])
def test_what_is_for_locust_in_the_users_folder_home_and_environment_is_kept_out(
    planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, folder, chain = tmp_path / "user", tmp_path / "run", FakeChain()
    (user / "home").mkdir(parents=True)
    folder.mkdir()
    if planted in PLANTED:
        (user / planted).write_text(PLANTED[planted], encoding="utf-8")
    else:
        monkeypatch.setenv(planted, VARIABLES[planted])
    monkeypatch.chdir(user)
    monkeypatch.setenv("HOME", str(user / "home"))
    found = LoadProcess(plan_load(Scenario.model_validate(SCENARIO), 1, "fake", folder, 60), folder)
    try:
        with ServerThread(FakePages(chain, 0)) as server:
            found.go({0: server.url})
            wait_for(found._child, lambda: bool(chain.taken))
    finally:
        found.finish(lambda: None)
    assert (found.exit_code, "import time" in (folder / LOG_FILE).read_text()) == (0, False)


SHAPE = """
from locust import LoadTestShape, User, constant, task

class Waiter(User):
    wait_time = constant(0.1)

    @task
    def wait_a_moment(self):
        pass

class Short(LoadTestShape):
    def tick(self):
        return (1, 1) if self.get_run_time() < 1 else None
"""


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_load_whose_shape_is_over_has_not_ended_early(tmp_path: Path, processes: int) -> None:
    load = {"processes": processes, "locust": [{"name": "short", "source": SHAPE}]}
    scenario = Scenario.model_validate({"name": "shaped", "load": load})
    found = LoadProcess(plan_load(scenario, 1, "chain", tmp_path, 60), tmp_path)
    try:
        wait_for(found._child, lambda: found.is_ready or found.ended_early)
        assert not found.ended_early
        found.go({0: "http://127.0.0.1:1"})
        wait_for(found._child, lambda: found.exit_code is not None)
        assert (found.exit_code, found.ended_early) == (0, False), (tmp_path / LOG_FILE).read_text()
    finally:
        found.finish(lambda: None)


@pytest.mark.slow
def test_a_workload_that_raises_an_exception_is_the_reason_of_an_early_end(tmp_path: Path) -> None:
    scenario = Scenario.model_validate({"name": "broken", "load": {"users": [group(acting("return [1 / 0]"))]}})
    chain = FakeChain()
    found = LoadProcess(plan_load(scenario, 1, "chain", tmp_path, 60), tmp_path)
    try:
        with ServerThread(FakePages(chain, 0)) as server:
            found.go({0: server.url})
            wait_for(found._child, lambda: found.ended_early)
        assert found.exit_code == 1 and found.reason == ": file own.py, line 14: ZeroDivisionError: division by zero"
    finally:
        assert found.finish(lambda: None).lost == (found.reason.removeprefix(": "),)


def test_an_id_that_another_process_has_by_now_is_not_the_loads(load: LoadProcess) -> None:
    """It was reaped, and the system gave its id away."""
    process = load.process
    assert process is not None and load._child is not None
    assert process.pid == load._child.pid
    load.finish(lambda: None)
    load._child.pid = os.getpid()
    assert load.process is None


@pytest.mark.parametrize("is_whole", [True, False])
def test_an_adopted_load_that_failed_did_not_end_well(load: LoadProcess, tmp_path: Path, is_whole: bool) -> None:
    """Its statistics are there all the same."""
    adopted = LoadProcess.adopt(tmp_path, LeftLoad(load.process, is_over=False))
    assert adopted is not None and adopted.exit_code is None
    load.finish(lambda: None)
    Statistics(is_whole=is_whole).write(tmp_path / STATS_FILE)
    assert adopted.exit_code == int(not is_whole)


@pytest.mark.parametrize("was_told_to_stop", [True, False])
def test_a_load_that_was_told_to_stop_before_its_driver_died_has_not_ended_early(
    load: LoadProcess, tmp_path: Path, was_told_to_stop: bool
) -> None:
    left = LeftLoad(load.process, is_over=was_told_to_stop)
    adopted = LoadProcess.adopt(tmp_path, left)
    assert adopted is not None and not adopted.ended_early
    load.finish(lambda: None)
    assert adopted.ended_early is not was_told_to_stop
    assert LoadProcess.adopt(tmp_path, left) is None
