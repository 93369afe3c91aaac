"""A validator of another party in a live testnet: it takes part, catches up, is judged, and its faults are found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey

from cluster.checks.kind import Judged
from cluster.checks.run import judge_run
from cluster.common.outcome import Outcome
from cluster.record.run import RunRecord, RunRequest
from cluster.scenario import Scenario
from cluster.watches.live.audited_testnet import run_live
from tests.hangs import HANGS_AFTER_S
from tests.ports import free_ports
from validator.chain.block import Block
from validator.primitives.codec import decode

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
PEER = Path(__file__).with_name("foreign_peer.py")
SEED = b"\x09" * 32
OUTSIDER = 3
HEIGHTS = 40
CUT_AT, HEALED_AT = 16, 22
"""The outsider has several turns before and after: it may miss its first ones, while its executor starts."""


def scenario_with(port: int, **fields: Any) -> Scenario:
    external = {"public_key": bytes(SigningKey(SEED).verify_key).hex(), "address": f"127.0.0.1:{port}"}
    given = {
        "name": "outsider",
        "validators": [{}, {}, {}, {"external": external}],
        "load": {"users": [{"workload": "transfer", "count": 2, "interval_ms": 300}]},
        "stop": {"height": HEIGHTS, "timeout_s": 240},
        "success": {"transactions": 5, "fires": 0, "heights_compared": 5, "stall_ms": 120_000, "recovery_ms": 120_000},
    }
    return Scenario.model_validate({**given, **fields})


@contextmanager
def foreign_peer(folder: Path, port: int, *fault: str) -> Iterator[Path]:
    """The peer runs inside of the block; yields its log."""
    log = folder.parent / "peer.log"
    command = [sys.executable, "-u", str(PEER), "--folder", str(folder), "--index", str(OUTSIDER), "--seed", SEED.hex()]
    command += ["--port", str(port), "--executor", f"{sys.executable} -m cluster.commands.cli.main executor", *fault]
    with log.open("wb") as output:
        child = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    try:
        yield log
    finally:
        child.terminate()
        child.wait(HANGS_AFTER_S)


def judged(scenario: Scenario, folder: Path, port: int, *fault: str) -> tuple[RunRecord, Judged, str]:
    with foreign_peer(folder, port, *fault) as log:
        record = run_live(RunRequest(scenario, 1, "test", folder))
    return record, judge_run(record), log.read_text(encoding="utf-8")


def test_it_takes_part_and_is_judged_like_all_others(tmp_path: Path) -> None:
    """It is cut off in both directions for some heights, catches up, and goes on to vote and propose."""
    port, folder = free_ports(), tmp_path / "run"
    cut = {"kind": "partition", "groups": [["validator-3"]], "at_height": CUT_AT, "until_height": HEALED_AT}
    record, found, log = judged(scenario_with(port, faults=[cut]), folder, port)
    assert found.verdict.outcome is Outcome.PASS, (found.verdict, log)
    assert record.problems == []
    outsider = record.validators[OUTSIDER]
    assert outsider.tip >= HEIGHTS and not outsider.serves_state
    headers = [decode(record.store.at(height).block, Block).header for height in range(1, len(record.store) + 1)]
    proposed = [header.height for header in headers if header.proposer == OUTSIDER]
    assert min(proposed) < CUT_AT and max(proposed) > HEALED_AT, "it proposed before and after it was cut off"
    (fault,) = record.faults
    assert fault.ended_ms is not None and fault.took_effect, fault.evidence
    assert "invalid" not in log and "dropped a message" not in log


@pytest.mark.parametrize(
    ("fault", "check", "words"),
    [
        ("wrong-root", "state_roots", "validator-3 at height 5: header root"),
        pytest.param("equivocate", "evidence", "ConflictingNotarize of validator-3", marks=pytest.mark.soak),
    ],
)
def test_a_fault_of_it_is_found(tmp_path: Path, fault: str, check: str, words: str) -> None:
    port, folder = free_ports(), tmp_path / "run"
    scenario = scenario_with(port, stop={"height": 12, "timeout_s": 240})
    _, found, log = judged(scenario, folder, port, "--fault", fault)
    failed = {each.name for each in found.verdict.checks if each.verdict is Outcome.FAIL}
    assert failed == {check}, (found.verdict, log)
    assert words in found.verdict.check(check).detail


def test_the_peer_imports_nothing_of_the_project() -> None:
    text = PEER.read_text(encoding="utf-8")
    imported = {line.split()[1].split(".")[0] for line in text.splitlines() if line.startswith(("import ", "from "))}
    own = {path.name for path in ROOT.iterdir() if path.is_dir()} | {"stampede", "stampede_command", "stampede_pytest"}
    assert imported & own == set()
