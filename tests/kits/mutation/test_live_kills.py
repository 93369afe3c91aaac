"""Planted bugs on the testnet itself that only proofs show: what validators serve at the end convicts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.audit.proofs import SERVED_FINALITY, SERVED_PROOFS, SERVED_RULES
from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.record.run import RunRequest
from cluster.scenario import Scenario
from cluster.watches.live.audited_testnet import run_live
from cluster.watches.safety_monitor import broken
from kits.mutation.bugs.table import ALL, Detection
from kits.mutation.detection_scenarios import scenario_of

pytestmark = [pytest.mark.live, pytest.mark.soak]

DETECTION = Detection("calm", ALL)


def signed(scenario: Scenario) -> Scenario:
    """With the signatures that a live run has."""
    return scenario.model_copy(update={"consensus": scenario.consensus.model_copy(update={"signatures": "ed25519"})})


@pytest.mark.parametrize(
    ("mutant", "rule"),
    [
        (None, ""),
        ("quorum-of-2f", SERVED_FINALITY),
        ("root-without-active-bits", SERVED_PROOFS),
        ("links-not-kept", SERVED_PROOFS),
    ],
)
def test_a_live_run_sees_what_proofs_show(mutant: str | None, rule: str, tmp_path: Path) -> None:
    record = run_live(RunRequest(signed(scenario_of(DETECTION, mutant)), 1, "test", tmp_path / "run"))
    safety, monitor = check_run(record).check("safety"), record.monitor
    assert monitor is not None
    assert all(monitor.counts[each] >= record.scenario.validators.count for each in SERVED_RULES), safety
    assert [each for each in SERVED_RULES if broken(monitor, each)] == ([rule] if rule else [])
    assert safety.verdict is (Outcome.FAIL if rule else Outcome.PASS)
