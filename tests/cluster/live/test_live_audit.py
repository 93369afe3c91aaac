"""A live run is judged while it goes on: what all validators do wrong is told by the books, and ends the run."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.record.folder import ENDPOINTS_FILE
from cluster.record.run import RunObserver, RunRequest
from cluster.scenario import Scenario
from cluster.watches.live.audited_testnet import live_testnet

pytestmark = [pytest.mark.live, pytest.mark.slow]

SCENARIO = Scenario.model_validate(
    {
        "name": "judged",
        "validators": {
            "count": 2,
            "hosts": 1,
            "nodes": [{"mutant": "fires-early"}] * 2,
            "allow_more_faults": True,
        },
        "load": {"users": [{"workload": "heartbeat", "count": 2, "interval_ms": 300}]},
        "stop": {"height": 1_000, "timeout_s": 120},
    }
)


def test_a_violation_is_told_and_ends_the_run(tmp_path: Path) -> None:
    notices: list[str] = []
    pages: list[dict[str, int]] = []

    def note(notice: str) -> None:
        notices.append(notice)
        if "violation" in notice:
            url = json.loads((tmp_path / ENDPOINTS_FILE).read_text())["testnet"]["url"]
            with urllib.request.urlopen(f"{url}/status") as answer:
                pages.append(json.loads(answer.read())["audit"])

    with live_testnet(
        RunRequest(SCENARIO, 1, "test", tmp_path, stop_on_fail=True), RunObserver(on_notice=note)
    ) as record:
        pass
    assert any("violation: timers: " in notice for notice in notices)
    assert pages
    assert record.interrupted
    assert 0 < max(found.tip for found in record.validators) < 1_000
    verdict = check_run(record)
    assert verdict.check("timers").verdict is Outcome.FAIL
    assert "receipts.fires[0]" in verdict.check("timers").detail
