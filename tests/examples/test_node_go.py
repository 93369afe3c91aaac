"""The node in Go to start from: it answers conformance cases, and executes the blocks of validators."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cluster.checks.run import judge_run
from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from cluster.common.outcome import Outcome
from cluster.disks.memory import MemoryDisk
from cluster.live.processes import processes
from cluster.record.run import RunRecord, RunRequest
from cluster.scenario import Scenario
from cluster.scenario.executor_process import foreign_executor
from cluster.watches.live.audited_testnet import run_live
from cluster.watches.watched_simulation import simulate
from tests.hangs import HANGS_AFTER_S
from tests.tools import GO, needs
from tests.validator.chains import BOB
from tests.validator.executors import Author, wire, with_transactions
from validator.chain.transactions import Transfer
from validator.transition.trace import StepKind

SOURCE = Path(__file__).parents[2] / "examples" / "node-go"
SEEDS = "0:3"

pytestmark = [pytest.mark.slow, needs(GO)]


def go(*words: str, folder: Path = SOURCE) -> str:
    """Run the tool for Go, without a network."""
    env = os.environ | {"GOFLAGS": "", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    found = subprocess.run(
        [str(GO), *words], cwd=folder, check=True, env=env, timeout=HANGS_AFTER_S, text=True, capture_output=True
    )
    return found.stdout + found.stderr


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    built = tmp_path_factory.mktemp("go") / "node-go"
    go("build", "-o", str(built), ".")
    return str(built)


@pytest.fixture(scope="module")
def command(program: str) -> str:
    return f"{program} executor"


def test_it_is_formatted_and_vetted() -> None:
    go("vet", ".")
    gofmt = Path(str(GO)).resolve().with_name("gofmt")
    assert subprocess.run([gofmt, "-l", SOURCE], check=True, capture_output=True, timeout=HANGS_AFTER_S).stdout == b""


# --- conformance ------------------------------------------------------------------------------------------------------


def conform(program: str, out: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the results of a sweep with a program."""
    words = ["conform", "--tool", f"{program} t8n --serve", "--serve", "--no-shrink", "--workers", "2"]
    results = out / "results.json"
    code = main([*words, "--out", str(out / "failures"), "--json", str(results), *options])
    return code, json.loads(results.read_text())


def test_it_passes_what_it_answers(program: str, tmp_path: Path) -> None:
    code, results = conform(program, tmp_path, "--seeds", SEEDS)
    assert code == ExitCode.PASS and not results["failed"], results["failures"]
    whole = [name for name, family in results["families"].items() if not family["unsupported"]]
    page = (SOURCE / "README.md").read_text(encoding="utf-8")
    (claim,) = re.findall(r"It answers (\d+) families of conformance cases whole", page)
    assert len(whole) >= int(claim)


def test_its_files_give_what_its_lines_give(program: str, tmp_path: Path) -> None:
    words = ["conform", "--tool", f"{program} t8n", "--family", "heartbeats", "--seeds", "0:2", "--workers", "1"]
    assert main([*words, "--out", str(tmp_path)]) == ExitCode.PASS


@pytest.mark.parametrize(
    ("file", "line", "planted", "family"),
    [
        ("block.go", "const cycleSlope = 8", "const cycleSlope = 7", "cycle-basefee"),
        ("tree.go", "noPosition  = ^uint64(0)", "noPosition  = uint64(0)", "accounts"),
        ("phase.go", "min(2*w.recent[timer.actor]", "min(3*w.recent[timer.actor]", "fairness-weights"),
    ],
)
def test_one_wrong_number_is_found(file: str, line: str, planted: str, family: str, tmp_path: Path) -> None:
    folder = tmp_path / "node-go"
    shutil.copytree(SOURCE, folder)
    text = (folder / file).read_text(encoding="utf-8")
    assert text.count(line) == 1
    (folder / file).write_text(text.replace(line, planted), encoding="utf-8")
    go("build", "-o", "planted", ".", folder=folder)
    code, results = conform(str(folder / "planted"), tmp_path, "--family", family, "--seeds", "0:5")
    assert code == ExitCode.FAIL and results["failed"]


# --- as an executor ---------------------------------------------------------------------------------------------------


def run(executor: str | None, policy: str, *workloads: str) -> RunRecord:
    fields: dict[str, Any] = {
        "name": "with-node-go",
        "validators": [{"executor": executor}, {"executor": executor}, {}, {}],
        "chain": {"policy": policy},
        "consensus": {"block_interval_ms": 100, "signatures": "keyed-hash"},
        "load": {"users": [{"workload": workload, "count": 4, "interval_ms": 200} for workload in workloads]},
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
    workloads = ("transfer", "heartbeat", "churn")
    own, foreign = (run(executor, policy, *workloads) for executor in (None, command))
    assert own.digest == foreign.digest
    assert foreign.problems == own.problems and foreign.validators[1].tip >= 30


def author_with(command: str, disk: MemoryDisk) -> Author:
    """An author whose transition a command performs."""
    author = Author(disk=disk)
    author.executor.close()
    author.executor = foreign_executor(command)(disk, author.genesis)
    return author


def test_it_tells_the_steps_of_a_block(command: str) -> None:
    own, foreign = Author(), author_with(command, MemoryDisk())
    sends = [wire(nonce, action=Transfer(BOB), value=9 * (1 - nonce)) for nonce in range(2)]
    block = own.build(None, *sends).block
    expected, told = (author.executor.trace(block).steps for author in (own, foreign))
    assert told == expected
    assert [step.kind.value for step in told] == [
        "start", "transaction", "transaction", "transaction tips", "prices and counters",
    ]  # fmt: skip
    assert all(step.receipts for step in told if step.kind is StepKind.TRANSACTION)
    refused = with_transactions(block, sends[0], sends[0])
    traces = [author.executor.trace(refused) for author in (own, foreign)]
    assert traces[0] == traces[1] and traces[0].refusal == "BadNonce" and len(traces[0].steps) == 3
    foreign.executor.close()


def test_what_it_cannot_do_stops_its_validator_with_a_line(command: str) -> None:
    problems = run(command, "gba_auction", "heartbeat").problems
    assert any("it cannot go on: policies other than cip1 and fifo" in problem for problem in problems), problems


@pytest.mark.live
def test_it_joins_a_live_testnet(command: str, tmp_path: Path) -> None:
    """One of its validators is killed, and the other one is needed for a quorum meanwhile."""
    workloads = ("heartbeat", "churn", "transfer")
    fields = {
        "name": "live-with-node-go",
        "validators": [{}, {"executor": command}, {"executor": command}, {}],
        "load": {"users": [{"workload": workload, "count": 2, "interval_ms": 300} for workload in workloads]},
        "faults": [{"kind": "kill", "target": "validator-1", "at_height": 8}],
        "stop": {"height": 40, "timeout_s": 240},
        "success": {"transactions": 5, "fires": 5, "heights_compared": 30, "stall_ms": 120_000},
    }
    record = run_live(RunRequest(Scenario.model_validate(fields), 1, "test", tmp_path / "run"))
    assert processes.with_argument(command.split()[0]) == set()
    judged = judge_run(record)
    assert judged.verdict.outcome is Outcome.PASS, judged.verdict
    assert record.problems == [] and record.validators[1].tip >= 40 and record.validators[2].tip >= 40
