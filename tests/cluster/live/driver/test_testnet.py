"""A testnet's load is stopped and started again by request, and goes on counting; a killed driver leaves a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.checks.run import judge_run
from cluster.common.errors import BadInput
from cluster.common.interrupts import Interrupts
from cluster.live.driver.load_nodes import LoadNodes
from cluster.live.driver.load_process import LoadProcess
from cluster.live.driver.testnet import Testnet, _result_of_a_killed_driver
from cluster.live.web.addresses import ON_THE_LOOPBACK
from cluster.record.folder import complete_folder, read_result
from cluster.report.results import result_of
from loadgen.runplan import Statistics
from tests.cluster.records import make_record

COUNTS = Statistics(requests=9)
BEGAN_MS = 1_000


class Load(LoadProcess):
    """A load without a process."""

    def __init__(self, is_ready: bool = True) -> None:
        self.was_told_to_stop = False
        self.began_epoch_ms = BEGAN_MS
        self.code: int | None = None
        self.urls: Mapping[int, str] = {}
        self._reason = ""
        self._is_ready = is_ready

    @property
    def is_ready(self) -> bool:
        return self._is_ready

    @property
    def exit_code(self) -> int | None:
        return self.code

    @property
    def ended_early(self) -> bool:
        return self.code is not None and not self.was_told_to_stop

    def stop(self) -> None:
        self.was_told_to_stop = True

    def finished(self, checkpoint: Callable[[], None]) -> Statistics:
        return COUNTS

    def go(self, urls: Mapping[int, str]) -> None:
        self.urls = urls


@pytest.fixture
def started() -> list[tuple[Any, ...]]:
    return []


@pytest.fixture
def testnet(tmp_path: Path, started: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> Testnet:
    record = make_record(backend="live")
    section: Any = SimpleNamespace(external={3: None}, late={2: 9})
    record.scenario = SimpleNamespace(validators=section)  # type: ignore[assignment]
    found = Testnet(record, tmp_path, Interrupts(), ON_THE_LOOPBACK, lambda line: started.append((line,)))
    addresses = [SimpleNamespace(index=index, url=f"http://{index}") for index in range(4)]
    found.hosts = SimpleNamespace(addresses=addresses)  # type: ignore[assignment]

    def start_again(*arguments: Any) -> None:
        started.append(arguments)
        found.load = Load(is_ready=False)

    monkeypatch.setattr(found, "_start_load", start_again)
    found.load = Load()
    return found


def load_of(testnet: Testnet) -> Load:
    assert isinstance(testnet.load, Load)
    return testnet.load


def test_a_load_is_stopped_once_and_started_again_where_it_was(testnet: Testnet, started: list[Any]) -> None:
    first = load_of(testnet)
    assert testnet.load_stage == "running"
    assert testnet.set_load(False, 60) == {"load": "stopped"} and first.was_told_to_stop
    assert testnet.set_load(False, 60) == {"load": "stopped"} and started == [("the load stops, as requested",)]
    with pytest.raises(BadInput, match="has not ended yet"):
        testnet.set_load(True, 60)
    first.code = 0
    assert testnet.set_load(True, 60) == {"load": "starting"}
    assert started[1:] == [(60, COUNTS, BEGAN_MS), ("the load is started again, as requested",)]
    assert load_of(testnet).urls == {0: "http://0", 1: "http://1"}, "neither to an external one nor to a late one"
    assert testnet.set_load(True, 60) == {"load": "starting"} and len(started) == 3, "it runs already"


def test_a_load_that_ended_by_itself_may_be_started_again(testnet: Testnet, started: list[Any]) -> None:
    load_of(testnet).code = 1
    assert testnet.load_stage == "ended"
    assert testnet.set_load(True, 60) == {"load": "starting"} and started[0] == (60, COUNTS, BEGAN_MS)


@pytest.mark.parametrize("code", [None, 1])
def test_a_load_that_ended_right_before_the_last_height_ended_early(testnet: Testnet, code: int | None) -> None:
    load_of(testnet).code = code
    testnet.stop_load(9)
    assert load_of(testnet).was_told_to_stop
    assert ["ended early" in problem for problem in testnet._record.own_problems] == [True] * (code is not None)


def test_what_cannot_be_done_is_refused(testnet: Testnet, started: list[Any]) -> None:
    nodes = LoadNodes.__new__(LoadNodes)
    nodes.was_told_to_stop, nodes._workers, nodes._good_codes = True, [], (None,)
    testnet.load = nodes
    with pytest.raises(BadInput, match="on several nodes"):
        testnet.set_load(True, 60)
    testnet.load = None
    assert testnet.load_stage == "none"
    for is_on in (False, True):
        with pytest.raises(BadInput, match="no load"):
            testnet.set_load(is_on, 60)
    assert started == []


def test_the_result_of_a_killed_driver_says_what_ran_and_when(tmp_path: Path) -> None:
    record, now = make_record(backend="live"), datetime.now(UTC).replace(microsecond=0)
    complete_folder(tmp_path, _result_of_a_killed_driver(record))
    found, judged = read_result(tmp_path), result_of(judge_run(record), now)
    names = ("scenario", "backend", "seed", "commit", "version", "scenario_hash")
    assert {name: found[name] for name in names} == {name: judged[name] for name in names}
    assert datetime.fromisoformat(found["date"]) >= now and found["verdict"] == "inconclusive"
