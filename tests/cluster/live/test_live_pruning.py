"""Live validators prune their archives, once the auditor and their peers have the blocks; never before, unnoticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.audit.books import keep_books
from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.record.archive import BLOCKS_FILE
from cluster.record.chain_store import FileBlocks, ServedBlocks
from cluster.record.run import RunObserver, RunRecord, RunRequest
from cluster.report.results import finish_run
from cluster.report.tables import disks
from cluster.scenario import Scenario
from cluster.watches.live import live_audit
from cluster.watches.live.audited_testnet import run_live
from cluster.watches.live.live_audit import LiveAudit

pytestmark = [pytest.mark.live, pytest.mark.slow]

KEPT = 8
TARGET = 60


def scenario(**changes: Any) -> Scenario:
    fields: dict[str, Any] = {
        "name": "pruning-live",
        "validators": 2,
        "storage": {"segment_kib": 1, "retained_heights": KEPT, "keep_blocks": KEPT},
        "load": {"users": [{"workload": "heartbeat", "count": 2, "interval_ms": 300}]},
        "stop": {"height": TARGET, "timeout_s": 180},
        "success": {"transactions": 2, "fires": 2, "heights_compared": 20, "stall_ms": 60_000},
    }
    return Scenario.model_validate({**fields, **changes})


def first_blocks(record: RunRecord) -> list[int]:
    return [(found.status or {}).get("first_block", 0) for found in record.validators]


def test_archives_are_pruned_and_the_run_has_every_block(tmp_path: Path) -> None:
    kill = {"kind": "kill", "target": "validator-1", "at_height": 20, "down_ms": 1_500}
    record = run_live(RunRequest(scenario(faults=[kill]), 3, "test", tmp_path))
    assert min(first_blocks(record)) > TARGET // 3, "those that came back prune again"
    assert [found.first_height for found in record.validators] == [1] * 2
    verdict = finish_run(record, tmp_path)
    assert [(check.name, check.detail) for check in verdict.checks if check.verdict is not Outcome.PASS] == []
    blocks = ServedBlocks.all_of(FileBlocks.archived(tmp_path / BLOCKS_FILE))
    assert len(blocks) == max(found.tip for found in record.validators)
    assert all(blocks), "from height 1 on"
    found = disks(keep_books(record))
    assert 0 < max(parts["blocks"] for parts in found["used"].values()) <= 2 * found["blocks_bound"], "the audit lags"


def test_blocks_that_are_pruned_before_the_auditor_has_them_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: the driver permits everything at once, and the auditor comes seldom."""
    notices: list[str] = []
    monkeypatch.setattr(LiveAudit, "prunable_height", lambda *_: 10**9)
    monkeypatch.setattr(live_audit, "ROUND_S", 15.0)
    pair = scenario(validators={"count": 2, "hosts": 1})
    record = run_live(RunRequest(pair, 3, "test", tmp_path), RunObserver(on_notice=notices.append))
    told = [problem for problem in record.problems if "pruned blocks above height" in problem]
    assert told
    verdict = check_run(record)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.check("no_problems").verdict is Outcome.FAIL
