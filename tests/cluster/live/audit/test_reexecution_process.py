"""The process beside a run, as the audit drives it: a real process, fed by the run's store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from cluster.live.audit import reexecution_process as module
from cluster.live.audit.reexecution_process import ReexecutionBeside
from cluster.record.chain_store import FileBlocks
from cluster.record.folder import STORE_FILE
from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.simulation.driver import simulate
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
def beside(record: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReexecutionBeside]:
    monkeypatch.setattr(module, "BEGIN_AFTER_S", 0.0)
    found = ReexecutionBeside(record, tmp_path)
    yield found
    found.close()


def nothing() -> None:
    """Nobody interrupts."""


def test_it_executes_what_the_store_has_and_enters_the_result(record: RunRecord, beside: ReexecutionBeside) -> None:
    assert beside.look() == "", "there is no block yet"
    assert beside._process is None
    assert beside.judge_core_seconds == 0.0
    began_s = time.process_time()
    for block in record.validators[0].blocks:
        record.store.append(block)
        assert beside.look() == ""
    deadline_s = time.monotonic() + HANGS_AFTER_S
    while beside.judge_core_seconds < time.process_time() - began_s + 0.05:  # until the process beside has used as much
        assert time.monotonic() < deadline_s
    beside.finish(nothing)
    assert record.reexecuted is not None
    assert (record.reexecuted.heights, record.reexecuted.reason) == (len(record.store), "")
    assert beside.height == len(record.store)
    assert record.problems == []


@pytest.mark.slow
def test_a_difference_is_told_once(record: RunRecord, beside: ReexecutionBeside) -> None:
    for height, block in enumerate(record.validators[0].blocks, start=1):
        receipts = decode(block.receipts, BlockReceipts)
        changed = encode(msgspec.structs.replace(receipts, p50_tip=b"\x01")) if height == WRONG_AT else block.receipts
        record.store.append(replace(block, receipts=changed))
    beside.look()
    assert beside._process is not None
    beside._process.wait()
    assert beside.look() == f"height {WRONG_AT}: executed again during the run, execution gives other receipts"
    assert beside.look() == ""
    beside.finish(nothing)
    assert record.reexecuted is not None and record.reexecuted.heights == WRONG_AT - 1
    assert record.problems == [], "the check of state roots tells"


def test_a_process_that_ends_early_is_a_problem(record: RunRecord, beside: ReexecutionBeside) -> None:
    for block in record.validators[0].blocks:
        record.store.append(block)
    beside.look()
    assert beside._process is not None
    beside._process.kill()
    beside.finish(nothing)
    (problem,) = record.problems
    assert "re-execution during the run ended with exit code -9 at height 0 of" in problem


def test_a_young_run_has_none(record: RunRecord, beside: ReexecutionBeside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEGIN_AFTER_S", 20.0)
    record.store.append(record.validators[0].blocks[0])
    assert beside.look() == ""
    beside.finish(nothing)
    assert (beside._process, record.reexecuted) == (None, None)
    beside._first_block_s = time.monotonic() - 21
    beside.look()
    assert beside._process is not None


def test_an_interruption_ends_the_waiting(record: RunRecord, beside: ReexecutionBeside) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    record.store.append(record.validators[0].blocks[0])
    beside.look()
    with pytest.raises(KeyboardInterrupt):
        beside.finish(interrupt)
    process = beside._process
    beside.close()
    assert process is not None and process.returncode == -9
