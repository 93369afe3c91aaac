"""A second executor, in another language, which was written from ``docs/executor.md``: it serves plain transfers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.simulation.driver import simulate
from tests.hangs import HANGS_AFTER_S

GO = shutil.which("go")
SOURCE = Path(__file__).parent / "transfers" / "main.go"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(GO is None, reason="no Go toolchain is installed")]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> str:
    assert GO is not None
    program = tmp_path_factory.mktemp("go") / "transfers"
    env = os.environ | {"GO111MODULE": "off", "GOTOOLCHAIN": "local"}
    subprocess.run([GO, "build", "-o", str(program), str(SOURCE)], check=True, env=env, timeout=HANGS_AFTER_S)
    return str(program)


def run(executor: str | None, policy: str, workload: str = "transfer") -> RunRecord:
    fields: dict[str, Any] = {
        "name": "transfers",
        "validators": [{"executor": executor}, {"executor": executor}, {}, {}],
        "chain": {"policy": policy},
        "consensus": {"block_interval_ms": 100, "signatures": "keyed-hash"},
        "load": {"users": [{"workload": workload, "count": 4, "interval_ms": 200}]},
        "faults": [
            {"kind": "kill", "target": "validator-1", "at_height": 8, "down_ms": 1_000},
            {"kind": "wipe", "target": "validator-1", "at_height": 16, "down_ms": 1_000},
            {"kind": "partition", "groups": [["validator-0", "validator-1"], ["validator-2", "validator-3"]],
             "at_height": 22, "for_ms": 2_000},
        ],
        "stop": {"height": 30, "drain_blocks": 2, "timeout_s": 120},
        "success": {"transactions": 0, "fires": 0},
    }  # fmt: skip
    return simulate(Scenario.model_validate(fields), 3)


@pytest.mark.parametrize("policy", ["cip1", "fifo"])
def test_it_does_what_the_transition_does(command: str, policy: str) -> None:
    own, foreign = (run(executor, policy) for executor in (None, command))
    assert own.digest == foreign.digest
    assert foreign.problems == own.problems and foreign.validators[1].tip >= 30


def test_what_it_cannot_do_stops_its_validator_with_a_line(command: str) -> None:
    problems = run(command, "cip1", "heartbeat").problems
    assert any("it cannot go on: the transaction is no transfer, but " in problem for problem in problems), problems
