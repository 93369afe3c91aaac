"""The load generator as the driver sees it: the endpoints that it gets, in order, also of validators that move."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.live.driver.load_process import ENDPOINTS_FILE, LoadProcess, plan_load
from cluster.scenario import Scenario

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
