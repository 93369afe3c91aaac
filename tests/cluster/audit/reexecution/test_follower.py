"""The process that executes a chain again while it grows: real processes, fed by a real store."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from cluster.audit.reexecution import reexecutor as module
from cluster.audit.reexecution.follower import MODULE, Progress
from cluster.audit.reexecution.reexecutor import Reexecution, Reexecutor
from cluster.common.checkout import ROOT
from cluster.record.archive import BlockRecord, Reexecuted
from cluster.record.chain_store import FileBlocks
from cluster.record.genesis_file import genesis_page
from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.simulation.driver import simulate
from validator.chain.block import BlockReceipts
from validator.primitives.codec import decode, encode

HEIGHT = 24
WAIT_S = 120


@pytest.fixture(scope="module")
def record() -> RunRecord:
    """A short simulated chain."""
    users = [{"workload": "heartbeat", "count": 2}, {"workload": "transfer", "count": 2}]
    return simulate(Scenario.model_validate({"name": "short", "load": {"users": users}, "stop": {"height": HEIGHT}}), 1)


@pytest.fixture
def store(tmp_path: Path) -> FileBlocks:
    return FileBlocks(tmp_path / "blocks.part")


@pytest.fixture
def process(record: RunRecord, store: FileBlocks) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", MODULE, str(store.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as started:
        say(started, json.dumps(genesis_page(record.genesis)))
        yield started
        started.kill()


def say(process: subprocess.Popen[bytes], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line.encode() + b"\n")
    process.stdin.flush()


def feed(process: subprocess.Popen[bytes], store: FileBlocks, blocks: list[BlockRecord]) -> None:
    for block in blocks:
        store.append(block)
    store.flush()
    say(process, str(len(store)))


def last_word(process: subprocess.Popen[bytes]) -> Progress:
    assert process.stdout is not None
    return msgspec.json.decode(process.stdout.read().splitlines()[-1], type=Progress)


def test_it_follows_a_growing_chain_to_its_end(
    record: RunRecord, store: FileBlocks, process: subprocess.Popen[bytes]
) -> None:
    blocks = list(record.validators[0].blocks)
    for begin in range(0, len(blocks), 5):
        feed(process, store, blocks[begin : begin + 5])
    say(process, "end")
    assert last_word(process) == Progress(len(blocks), blocks[-1].computed_root.hex())
    assert process.wait(WAIT_S) == 0


def test_it_stops_at_the_first_block_that_gives_something_else(
    record: RunRecord, store: FileBlocks, process: subprocess.Popen[bytes]
) -> None:
    blocks = list(record.validators[0].blocks)
    receipts = decode(blocks[9].receipts, BlockReceipts)
    blocks[9] = replace(blocks[9], receipts=encode(msgspec.structs.replace(receipts, p50_tip=b"\x01")))
    feed(process, store, blocks)
    found = last_word(process)
    assert (found.height, found.reason) == (9, "execution gives other receipts")
    assert process.wait(WAIT_S) == 0


def test_it_ends_with_the_driver(record: RunRecord, store: FileBlocks, process: subprocess.Popen[bytes]) -> None:
    feed(process, store, list(record.validators[0].blocks)[:5])
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(WAIT_S) == 3


def test_it_keeps_few_blocks_whatever_the_length_of_the_chain(record: RunRecord) -> None:
    reexecutor = Reexecutor(record.genesis)
    reexecutor._executor._archive._segment_bytes = 1
    kept = []
    for block in record.validators[0].blocks:
        assert reexecutor.take(block) is None
        archive = reexecutor._executor.archive
        kept.append(archive.height - archive.first_height)
    assert len(kept) >= HEIGHT
    assert max(kept) <= module.STORAGE.keep_blocks + 2 if module.STORAGE.keep_blocks else False


def test_a_chain_that_was_executed_beside_is_not_executed_again(
    record: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = record.validators[0].blocks
    monkeypatch.setattr(Reexecutor, "take", lambda *_: pytest.fail("executed"))
    assert Reexecution(record.genesis, chain, Reexecuted(len(chain), "")).first_mismatch() is None
    found = Reexecution(record.genesis, chain, Reexecuted(6, "", "another root")).first_mismatch()
    assert found is not None and (found.height, found.reason) == (7, "another root")
