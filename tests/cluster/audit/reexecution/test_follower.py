"""The process that executes a chain again while it grows: real processes, fed by a real store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate, chain, repeat
from pathlib import Path
from queue import SimpleQueue

import msgspec
import pytest

from cluster.audit.reexecution import MODULE
from cluster.audit.reexecution import reexecutor as module
from cluster.audit.reexecution.follower import Orders, follow
from cluster.audit.reexecution.reexecutor import NOTEWORTHY_S, Measured, Reexecution, Reexecutor
from cluster.common.checkout import ROOT
from cluster.record.archive import BlockRecord, Reexecuted
from cluster.record.chain_store import FileBlocks
from cluster.record.genesis_file import genesis_page
from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.watches.watched_simulation import simulate
from tests.hangs import HANGS_AFTER_S
from validator.chain.block import BlockReceipts
from validator.primitives.codec import decode, encode

HEIGHT = 24


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


def last_word(process: subprocess.Popen[bytes]) -> Reexecuted:
    assert process.stdout is not None
    return msgspec.json.decode(process.stdout.read().splitlines()[-1], type=Reexecuted)


def test_it_follows_a_growing_chain_to_its_end(
    record: RunRecord, store: FileBlocks, process: subprocess.Popen[bytes]
) -> None:
    blocks = list(record.validators[0].blocks)
    for begin in range(0, len(blocks), 5):
        feed(process, store, blocks[begin : begin + 5])
    say(process, "end")
    assert last_word(process) == Reexecuted(len(blocks), blocks[-1].computed_root.hex())
    assert process.wait(HANGS_AFTER_S) == 0


def test_it_stops_at_the_first_block_that_gives_something_else(
    record: RunRecord, store: FileBlocks, process: subprocess.Popen[bytes]
) -> None:
    blocks = list(record.validators[0].blocks)
    receipts = decode(blocks[9].receipts, BlockReceipts)
    blocks[9] = replace(blocks[9], receipts=encode(msgspec.structs.replace(receipts, p50_tip=b"\x01")))
    feed(process, store, blocks)
    found = last_word(process)
    assert (found.heights, found.reason) == (9, "execution gives other receipts")
    assert process.wait(HANGS_AFTER_S) == 0


def test_it_runs_where_a_processor_is_idle_until_the_testnet_is_at_rest() -> None:
    code = (
        "import os, threading; from cluster.audit.reexecution import follower as f; f._yield_to_others();"
        "print(os.sched_getscheduler(0));"
        "other = threading.Thread(target=f._yield_no_more); other.start(); other.join();"
        "print(os.sched_getscheduler(0))"
    )
    found = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=HANGS_AFTER_S).split()
    assert found[0] == str(os.SCHED_IDLE)
    if os.geteuid() == 0:  # others may go back only where their limits allow it
        assert found[1] == str(os.SCHED_OTHER)


def test_it_ends_with_the_driver(record: RunRecord, store: FileBlocks, process: subprocess.Popen[bytes]) -> None:
    feed(process, store, list(record.validators[0].blocks)[:5])
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(HANGS_AFTER_S) == 3


def test_it_keeps_few_blocks_whatever_the_length_of_the_chain(record: RunRecord) -> None:
    reexecutor = Reexecutor(record.genesis)
    reexecutor.executor._archive._segment_bytes = 1
    kept = []
    for block in record.validators[0].blocks:
        assert reexecutor.take(block) is None
        archive = reexecutor.executor.archive
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
    assert found is not None and (found.heights, found.reason) == (6, "another root")


def test_a_lower_height_than_before_is_reached_from_the_genesis(record: RunRecord) -> None:
    found = Reexecution(record.genesis, record.validators[0].blocks)
    assert found.first_mismatch() is None
    executor = found.executor_at(2)
    assert executor is not None and executor.final_header.height == 2
    above = found.at(4)
    assert above.mismatch is None and above.trace is not None and found.at(4) is above
    below = found.at(1)
    assert below.mismatch is None and below.trace is not None and below.trace.block != above.trace.block


# --- processor time ---------------------------------------------------------------------------------------------------


def clock_of(*seconds: float) -> Callable[[], float]:
    """A clock on which the first measurements take so long, and all others none."""
    moments: Iterator[float] = accumulate(chain.from_iterable((0.0, each) for each in chain(seconds, repeat(0.0))))
    return lambda: next(moments)


LONG, LONGER = NOTEWORTHY_S, 2 * NOTEWORTHY_S


@pytest.mark.parametrize(
    ("seconds", "slowest"),
    [
        ([LONG - 0.01] * 3, None),
        ([0.0, LONG, LONGER], Measured(2, LONG)),
        ([LONGER, LONG - 0.01, 0.0, 0.0], None),
        ([LONGER, LONGER, LONG, LONG, LONG, LONGER], Measured(1, LONGER)),
        ([LONG, LONG, LONGER, LONGER], Measured(2, LONGER)),
    ],
    ids=["short", "the better of two", "only once", "the longest stays", "a longer one"],
)
def test_a_block_that_takes_long_is_executed_twice_and_the_slowest_is_kept(
    record: RunRecord, seconds: list[float], slowest: Measured | None
) -> None:
    reexecutor = Reexecutor(record.genesis, clock_of(*seconds))
    for block in list(record.validators[0].blocks)[:4]:
        assert reexecutor.take(block) is None
    assert reexecutor.slowest == slowest


def test_what_it_measures_is_said_at_the_end(
    record: RunRecord, store: FileBlocks, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for block in record.validators[0].blocks:
        store.append(block)
    store.flush()
    orders: Orders = SimpleQueue()
    for order in (HEIGHT, None):
        orders.put(order)
    with store.path.open("rb") as file:
        follow(Reexecutor(record.genesis, clock_of(LONGER, LONG)), file, orders, lambda: 0.75)
    told = msgspec.json.decode(capfdbinary.readouterr().out.splitlines()[-1], type=Reexecuted)
    assert (told.slowest_height, told.slowest_s, told.full_block_s) == (1, LONG, 0.75)
