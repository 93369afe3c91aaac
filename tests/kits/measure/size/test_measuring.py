"""A calibration of this machine, on real processes, sockets and files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from cluster.scenario import Scenario
from kits.measure.size import measuring
from kits.measure.size.measuring import LARGE, SMALL, Calibration, calibrate

pytestmark = pytest.mark.slow

IDLE = """
name: idle
consensus: {protocol: hotstuff}
load: {users: []}
success: {transactions: 0, fires: 0}
"""


@dataclass
class Measured:
    """A calibration for a scenario with load."""

    found: Calibration
    steps: list[str]
    """What was said meanwhile."""
    left: set[int]
    """The processes that it started and that are still there."""


@pytest.fixture(scope="module")
def measured() -> Measured:
    users = [{"workload": "heartbeat", "count": 4, "interval_ms": 200}]
    scenario = Scenario.model_validate({"name": "loaded", "load": {"users": users}})
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    steps: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "MEASURE_S", 0.5)
        patch.setattr(measuring, "ROUNDS", 2)
        found = calibrate(scenario, steps.append)
    after = {child.pid for child in psutil.Process().children(recursive=True)}
    return Measured(found, steps, after - before - _resource_tracker())


def test_a_testnet_of_both_sizes_and_the_load_are_measured(measured: Measured) -> None:
    found = measured.found
    assert len(measured.steps) == 3
    assert found.large.blocks == sum(each.large.blocks for each in found.rounds)
    assert found.small.seconds == sum(each.small.seconds for each in found.rounds) >= 2 * 0.5
    for testnet, count in ((found.small, SMALL), (found.large, LARGE)):
        assert testnet.validators == count
        assert testnet.blocks > 1
        assert 0.05 < testnet.core_seconds < testnet.seconds * found.cores * 1.1
        assert 0 <= testnet.others_core_seconds < testnet.seconds * found.cores * 1.1
        assert testnet.disk_bytes > testnet.blocks * count * 100
        assert testnet.bytes_sent > testnet.blocks * count * (count - 1) * 100
        assert testnet.host_memory_bytes > found.empty_host_bytes > 50_000_000
    assert found.load.transactions > 1
    assert found.load.fires > 1
    assert found.load.core_seconds > 0
    assert 1e-5 < found.verification_s < 1e-2
    assert measured.left == set()


def _resource_tracker() -> set[int]:
    """Python's own helper of spawned processes, which lives as long as this one."""
    children = psutil.Process().children(recursive=True)
    return {child.pid for child in children if "resource_tracker" in " ".join(child.cmdline())}


def test_the_command_says_whether_a_scenario_fits(
    measured: Measured, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Scenario] = []

    def known(scenario: Scenario, on_step: Callable[[str], None]) -> Calibration:
        asked.append(scenario)
        on_step("measured before")
        return measured.found

    monkeypatch.setattr(measuring, "calibrate", known)
    file = tmp_path / "idle.yaml"
    file.write_text(IDLE)
    assert main(["size", str(file)]) == ExitCode.PASS
    out = capsys.readouterr().out
    assert "fits here" in out
    assert re.search(r"[\d.]+ to [\d.]+; limited by", " ".join(out.split()))
    assert main(["size", str(file), "--set", "stop.timeout_s=1", "--json"]) == ExitCode.FAIL
    page = json.loads(capsys.readouterr().out)
    [problem] = page["estimate"]["problems"]
    assert problem.startswith("time: ")
    assert page["calibration"]["large"]["validators"] == LARGE
    assert [each.name for each in asked] == ["idle"] * 2


def test_a_scenario_for_the_simulator_alone_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sim.yaml"
    file.write_text(IDLE)
    assert main(["size", str(file), "--set", "consensus.signatures=keyed-hash"]) == ExitCode.BAD_INPUT
    assert "signs votes with ed25519 only" in capsys.readouterr().err
