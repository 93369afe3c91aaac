"""The process that executes a run's blocks again, as the audit drives it: a real process, fed by the run's store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from cluster.record.chain_store import FileBlocks
from cluster.record.folder import STORE_FILE
from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.watches.live import reexecution_process as module
from cluster.watches.live.reexecution_process import ReexecutionProcess
from cluster.watches.watched_simulation import simulate
from tests.hangs import HANGS_AFTER_S
from validator.chain.block import BlockReceipts
from validator.primitives.codec import decode, encode

WRONG_AT = 10


@pytest.fixture(scope="module")
def simulated() -> RunRecord:
    return simulate(Scenario.model_validate({"name": "short", "stop": {"height": 16}}), 1)


@pytest.fixture
def record(simulated: RunRecord, tmp_path: Path) -> RunRecord:
    return replace(simulated, store=FileBlocks(tmp_path / STORE_FILE), problems=[])


@pytest.fixture
def reexecution(record: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReexecutionProcess]:
    monkeypatch.setattr(module, "BEGIN_AFTER_S", 0.0)
    found = ReexecutionProcess(record, tmp_path)
    yield found
    found.close()


def nothing() -> None:
    """Nobody interrupts."""


def test_it_executes_what_the_store_has_and_enters_the_result(
    record: RunRecord, reexecution: ReexecutionProcess
) -> None:
    assert reexecution.look() == "", "there is no block yet"
    assert reexecution._process is None
    assert reexecution.judge_core_seconds == 0.0
    began_s = time.process_time()
    for block in record.validators[0].blocks:
        record.store.append(block)
        assert reexecution.look() == ""
    deadline_s = time.monotonic() + HANGS_AFTER_S
    while reexecution.judge_core_seconds < time.process_time() - began_s + 0.05:  # until the process has used as much
        assert time.monotonic() < deadline_s
    reexecution.finish(nothing)
    assert record.reexecuted is not None
    assert (record.reexecuted.heights, record.reexecuted.reason) == (len(record.store), "")
    assert reexecution.height == len(record.store)
    assert record.problems == []


@pytest.mark.slow
def test_a_difference_is_told_once(record: RunRecord, reexecution: ReexecutionProcess) -> None:
    for height, block in enumerate(record.validators[0].blocks, start=1):
        receipts = decode(block.receipts, BlockReceipts)
        changed = encode(msgspec.structs.replace(receipts, p50_tip=b"\x01")) if height == WRONG_AT else block.receipts
        record.store.append(replace(block, receipts=changed))
    reexecution.look()
    assert reexecution._process is not None
    reexecution._process.wait()
    assert reexecution.look() == f"height {WRONG_AT}: executed again during the run, execution gives other receipts"
    assert reexecution.look() == ""
    reexecution.finish(nothing)
    assert record.reexecuted is not None and record.reexecuted.heights == WRONG_AT - 1
    assert record.problems == [], "the check of state roots tells"


def test_a_process_that_ends_early_is_a_problem(record: RunRecord, reexecution: ReexecutionProcess) -> None:
    for block in record.validators[0].blocks:
        record.store.append(block)
    reexecution.look()
    assert reexecution._process is not None
    reexecution._process.kill()
    reexecution.finish(nothing)
    (problem,) = record.problems
    assert "re-execution during the run ended with exit code -9 at height 0 of" in problem


def test_a_young_run_has_none(
    record: RunRecord, reexecution: ReexecutionProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEGIN_AFTER_S", 20.0)
    record.store.append(record.validators[0].blocks[0])
    assert reexecution.look() == ""
    reexecution.finish(nothing)
    assert (reexecution._process, record.reexecuted) == (None, None)
    reexecution._first_block_s = time.monotonic() - 21
    reexecution.look()
    assert reexecution._process is not None


def test_an_interruption_ends_the_waiting(record: RunRecord, reexecution: ReexecutionProcess) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    record.store.append(record.validators[0].blocks[0])
    reexecution.look()
    with pytest.raises(KeyboardInterrupt):
        reexecution.finish(interrupt)
    process = reexecution._process
    reexecution.close()
    assert process is not None and process.returncode == -9
