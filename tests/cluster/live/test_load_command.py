"""``stampede load`` against a live testnet that drives no load of its own."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.live.scenarios import PAIR
from tests.cluster.live.test_attach import stampede, start

pytestmark = [pytest.mark.live, pytest.mark.slow]

USERS = [{"workload": "transfer", "count": 4, "interval_ms": 200}]


def load(driver: str, folder: Path, *options: str) -> dict[str, Any]:
    page = folder / "load.json"
    done = stampede("load", *options, "--target", driver, "--json", str(page))
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(page.read_text(encoding="utf-8"))
    return found


def test_a_load_from_outside_reaches_finality(tmp_path: Path, temporary: Path) -> None:
    folder = tmp_path / "run"
    plan = {**PAIR, "load": {"users": USERS, "external": True}, "success": {"fires": 0}}
    driver = start(temporary, folder, plan, command="up")
    try:
        assert driver.wait_for("height 3"), driver.said
        url = json.loads((folder / "endpoints.json").read_text(encoding="utf-8"))["testnet"]["url"]
        page = load(url, tmp_path, str(folder.with_suffix(".yaml")), "--for", "6s")
        (each,) = page["workloads"].values()
        assert each["sent"] > 20 and each["never_final"] == 0 and 0 < each["latency_p99_ms"] < 60_000
        assert page["failures"] == 0 and page["final_per_s"] > 1
        spread = load(url, tmp_path, "--workload", "transfer", "--users", "4", "--workers", "2", "--for", "6s")
        assert spread["workloads"]["transfer"]["final"] == spread["workloads"]["transfer"]["measured"] > 5
    finally:
        driver.process.send_signal(signal.SIGINT)
        assert driver.end() == 0, driver.said
    assert "verdict  pass" in "".join(driver.said)
