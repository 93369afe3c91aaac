"""Certificates are watched live: validators that take two votes for a quorum are told, and end the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.record.run import RunObserver, RunRecord, RunRequest
from cluster.scenario import Scenario
from cluster.watches.live.audited_testnet import live_testnet
from cluster.watches.safety_monitor import broken
from cluster.watches.watched_simulation import simulate

pytestmark = [pytest.mark.live, pytest.mark.slow]

SMALL_QUORUMS = {"mutant": "quorum-of-2f"}
SPLIT = Scenario.model_validate(
    {
        "name": "two-quorums",
        "description": "Two votes make a certificate, and a leader proposes two blocks.",
        "validators": {
            "count": 4,
            "nodes": [SMALL_QUORUMS, SMALL_QUORUMS, SMALL_QUORUMS, {"byzantine": "equivocating-leader"}],
            "allow_more_faults": True,
        },
        "load": {"users": [{"workload": "heartbeat", "count": 2, "interval_ms": 300}]},
        "stop": {"height": 500, "timeout_s": 120},
    }
)


def judge(record: RunRecord) -> tuple[Outcome, list[str]]:
    """The verdict of ``safety``, and the violations of the rule of certificates."""
    assert record.monitor is not None
    return check_run(record).check("safety").verdict, broken(record.monitor, "certificates")


def test_a_quorum_of_two_is_told_live_as_in_the_simulator(tmp_path: Path) -> None:
    simulated = simulate(SPLIT, 1, "test", stop_on_fail=True)
    verdict, small = judge(simulated)
    assert verdict is Outcome.FAIL
    assert small
    notices: list[str] = []
    with live_testnet(
        RunRequest(SPLIT, 1, "test", tmp_path, stop_on_fail=True), RunObserver(on_notice=notices.append)
    ) as record:
        pass
    assert any("violation: safety: " in notice and "certificates: " in notice for notice in notices)
    assert record.interrupted
    assert any("by --stop-on-fail: safety: " in problem for problem in record.problems)
    verdict, small = judge(record)
    assert verdict is Outcome.FAIL
    assert any("believes a bad" in violation for violation in small)
