"""A live run's chain is executed again beside it: what the validators agree on and this code does not is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.audit.books import keep_books
from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.live.processes import processes
from cluster.record.run import RunObserver, RunRecord, RunRequest
from cluster.scenario import Scenario
from cluster.watches.live import reexecution_process
from cluster.watches.live.audited_testnet import live_testnet

pytestmark = [pytest.mark.live, pytest.mark.slow]


def run(folder: Path, mutant: str | None, height: int) -> tuple[RunRecord, list[str]]:
    nodes = [{} if mutant is None else {"mutant": mutant}] * 2
    scenario = Scenario.model_validate(
        {
            "name": "executed-again",
            "validators": {"count": 2, "hosts": 1, "nodes": nodes, "allow_more_faults": True},
            "load": {"users": [{"workload": "heartbeat", "count": 2, "interval_ms": 300}]},
            "stop": {"height": height, "timeout_s": 240},
            "success": {"transactions": 1, "fires": 1, "heights_compared": 15, "stall_ms": 120_000},
        }
    )
    notices: list[str] = []
    with live_testnet(
        RunRequest(scenario, 1, "test", folder, stop_on_fail=True), RunObserver(on_notice=notices.append)
    ) as record:
        pass
    assert processes.with_argument(str(folder)) == set(), "it ends with the run"
    return record, notices


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reexecution_process, "BEGIN_AFTER_S", 0.0)


def test_a_state_that_all_validators_have_wrong_is_told_during_the_run(tmp_path: Path) -> None:
    record, notices = run(tmp_path, "root-without-active-bits", 1_000)
    told = [notice for notice in notices if "violation: state_roots: " in notice]
    assert told, "the specification or the second execution sees it first"
    assert record.interrupted
    check = check_run(record).check("state_roots")
    assert check.verdict is Outcome.FAIL
    assert "two executions of block 1 differ" in check.detail


def test_a_sound_chain_is_executed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record, _ = run(tmp_path, None, 20)
    tip = max(found.tip for found in record.validators)
    assert record.problems == []
    assert record.reexecuted is not None
    assert (record.reexecuted.heights, record.reexecuted.reason) == (tip, "")
    at_tip = next(found for found in record.validators if found.tip == tip)
    assert record.reexecuted.root == at_tip.blocks[-1].computed_root.hex()
    check = check_run(record).check("state_roots")
    assert check.verdict is Outcome.PASS, check.detail
    assert f"{tip:,} heights executed again in another process gave the same" in check.detail
    monkeypatch.setattr("cluster.audit.reexecution.reexecutor.Reexecutor.take", lambda *_: pytest.fail("executed"))
    assert keep_books(record).reexecution.first_mismatch() is None
