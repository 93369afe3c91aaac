"""A second executor, in another language, which was written from ``docs/executor.md``: it serves plain transfers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cluster.disks.memory import MemoryDisk
from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.scenario.executor_process import foreign_executor
from cluster.watches.watched_simulation import simulate
from tests.hangs import HANGS_AFTER_S
from tests.tools import GO, needs
from tests.validator.chains import BOB
from tests.validator.executors import Author, wire, with_transactions
from validator.chain.transactions import Transfer
from validator.transition.trace import StepKind

SOURCE = Path(__file__).parent / "transfers" / "main.go"

pytestmark = [pytest.mark.slow, needs(GO)]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> str:
    program = tmp_path_factory.mktemp("go") / "transfers"
    env = os.environ | {"GO111MODULE": "off", "GOTOOLCHAIN": "local"}
    subprocess.run([str(GO), "build", "-o", str(program), str(SOURCE)], check=True, env=env, timeout=HANGS_AFTER_S)
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
    problems = run(command, "cip1", "heartbeat").problems
    assert any("it cannot go on: the transaction is no transfer, but " in problem for problem in problems), problems
