"""Blocks of a live testnet go on at the same rate while its validators' endpoints are attacked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.record.run import RunObserver, RunRequest, Sample
from cluster.scenario import Scenario
from cluster.watches.live.audited_testnet import run_live
from kits.market.dos.measures import Window, block_rate
from tests.cluster.live.scenarios import PAIR
from tests.cluster.live.web import hostile_process
from tests.hangs import HANGS_AFTER_S

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT = Path(__file__).parents[4]
SAME: Final = 0.75
"""The share of the block rate that must stay."""
QUIET, HOSTILE, PAUSED = Window(16, 40), Window(46, 75), Window(81, 100)
PAUSE = {"kind": "pause", "target": "validator-1", "at_height": PAUSED.first + 1, "for_ms": 14_000}
"""The planted fault: a validator that stands still, as one would that is busy with its clients. It lasts for so long
that it is seen although other work made the machine half as fast while the rate without it was measured."""
CONSENSUS = {**PAIR["consensus"], "block_interval_ms": 400, "leader_timeout_ms": 1_500, "advance_timeout_ms": 2_500}
"""So slow that the blocks' rate is that of the interval, and not that of the machine's other work."""
PLAN: dict[str, Any] = {
    **PAIR,
    "validators": 2,
    "consensus": CONSENSUS,
    "faults": [PAUSE],
    "stop": {"height": PAUSED.last, "drain_blocks": 3, "timeout_s": 300},
}


class HostileClient:
    """Has the process begin and end by the run's height. It is ready before the run: on a busy machine that lasts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        command = [sys.executable, "-m", hostile_process.__name__]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT)
        assert self._process.stdout is not None and self._process.stdout.readline().strip() == hostile_process.READY
        self._has_begun = False
        self.statuses: dict[str, int] = {}

    def look(self, sample: Sample) -> None:
        height = max(each or 0 for each in sample.heights)
        if not self._has_begun and QUIET.last <= height < HOSTILE.first:
            self._begin()
        elif self._has_begun and height >= HOSTILE.last:
            self._process.terminate()  # and wait for it later: the driver goes on, and the next fault is due soon

    def _begin(self) -> None:
        endpoints = json.loads((self._folder / "endpoints.json").read_text(encoding="utf-8"))
        ports = [validator["url"].rpartition(":")[2] for validator in endpoints["validators"]]
        assert self._process.stdin is not None
        self._process.stdin.write(f"{' '.join(ports)}\n")
        self._process.stdin.flush()
        self._has_begun = True

    def end(self) -> None:
        self._process.terminate()
        self.statuses = json.loads(self._process.communicate(timeout=HANGS_AFTER_S)[0])


def test_blocks_go_on_under_hostile_requests(tmp_path: Path) -> None:
    client = HostileClient(tmp_path)
    try:
        record = run_live(RunRequest(Scenario.model_validate(PLAN), 1, "test", tmp_path), RunObserver(client.look))
    finally:
        client.end()
    rates = [block_rate(record.first_finalizations, window) for window in (QUIET, HOSTILE, PAUSED)]
    quiet, hostile, paused = (rate or 0.0 for rate in rates)
    seen = f"{quiet:.2f} blocks/s without, {hostile:.2f} under {client.statuses}, {paused:.2f} with the fault"
    answers = sum(count for status, count in client.statuses.items() if status.isdecimal())
    assert answers > 1_000 and client.statuses.get("500", 0) == 0, seen
    assert hostile >= SAME * quiet, seen
    assert paused < SAME * quiet, seen
    verdict = check_run(record)
    wrong = [f"{check.name}: {check.detail}" for check in verdict.checks if check.verdict is not Outcome.PASS]
    assert verdict.outcome is Outcome.PASS, wrong
