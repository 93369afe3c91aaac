"""``stampede calibrate`` on a live testnet, from the measurements of its hosts to a profile that a scenario names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from cluster.common.errors import ExitCode
from cluster.scenario.files import load_scenario
from cluster.scenario.overrides import parse_setting
from tests.cluster.live.test_attach import stampede

pytestmark = [pytest.mark.live, pytest.mark.slow]

PLAN = {
    "name": "calibrated",
    "validators": 2,
    "consensus": {"block_interval_ms": 100},
    "load": {"users": [{"workload": "heartbeat", "count": 4, "interval_ms": 500}]},
    "stop": {"height": 25, "drain_blocks": 2, "timeout_s": 300},
    "success": {"heights_compared": 20, "transactions": 4, "fires": 4, "stall_ms": 30_000},
}


def test_a_profile_is_fitted_to_a_live_run(tmp_path: Path) -> None:
    scenario, saved, page_file = (tmp_path / name for name in ("plan.yaml", "profile.yaml", "page.json"))
    scenario.write_text(yaml.safe_dump(PLAN), encoding="utf-8")
    files = ["--save", str(saved), "--json", str(page_file), "--out", str(tmp_path / "out")]
    done = stampede("calibrate", str(scenario), "--runs", "1", "--within", "1000", *files)
    assert done.returncode in (ExitCode.PASS, ExitCode.FAIL), done.stdout + done.stderr  # a busy machine is far off
    page = json.loads(page_file.read_text(encoding="utf-8"))
    (found,) = page["scenarios"]
    assert found["runs_not_passed"][1] == 0
    assert {"finality_latency_p50_ms", "finality_latency_p95_ms", "fires_per_second"} <= found["metrics"].keys()
    profile = load_scenario(scenario, [parse_setting(f"profile={saved}")]).profile
    assert profile is not None
    assert profile.model_dump() == page["profile"]
    middle = len(profile.link_us) // 2
    assert 0 < profile.message_us[middle] < profile.sync_us[-1]
    assert 100 < profile.execute.typical_us(1, 4) < 1_000_000
    assert profile.warm_up_us[0] > profile.execute.typical_us(1, 4)
    assert profile.start_us == [0, 0]  # no kill
    assert (tmp_path / "out" / "calibrated-1" / "result.json").exists()
