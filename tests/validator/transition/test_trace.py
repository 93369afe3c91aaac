"""Traces: their steps add up to what the block did, and tracing leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cluster.audit.reexecution.bisect import first_difference, net_writes
from cluster.disks.memory import MemoryDisk
from cluster.record.archive import BlockRecord
from cluster.record.run import RunRecord
from cluster.scenario.files import change_scenario, load_scenario
from cluster.scenario.overrides import Change
from cluster.watches.watched_simulation import simulate
from tests.validator.chains import index_contents, schedule
from tests.validator.executors import Author, wire, with_transactions
from validator.chain.block import Block, BlockReceipts, header_hash
from validator.chain.records import account_key
from validator.chain.transactions import address_of
from validator.node.executor.executor import Executor, execution_error
from validator.node.executor.jobs import Finalize, FinalizedInvalid
from validator.primitives.codec import decode, encode
from validator.transition import trace as tracing
from validator.transition.trace import LongValue, StepKind, steps_apart, writes_of
from validator.transition.transition import PreparedTransaction, Transition

ACTORS = Path(__file__).resolve().parents[3] / "scenarios" / "python-actors.yaml"


@pytest.fixture(scope="module")
def run() -> RunRecord:
    """A run with queries, callbacks, messages, jobs."""
    changes = [Change("stop.height", 30), Change("consensus.signatures", "keyed-hash")]
    return simulate(change_scenario(load_scenario(ACTORS), changes, "the test"), 1)


def blocks_of(run: RunRecord) -> Iterator[tuple[Executor, Block, BlockRecord]]:
    """Each final block, and an executor that stands at its parent."""
    executor = Executor(MemoryDisk(), run.genesis)
    for record in run.validators[0].blocks:
        block = decode(record.block, Block)
        yield executor, block, record
        assert execution_error(executor, block) is None
        executor.run(Finalize(header_hash(block.header), b""))


def test_steps_add_up_to_the_block(run: RunRecord) -> None:
    kinds: set[str] = set()
    for executor, block, record in blocks_of(run):
        before = index_contents(executor.index)
        trace = executor.trace(block)
        assert index_contents(executor.index) == before, "the index stands where it stood"
        assert execution_error(executor, block) is None
        executed = executor._branches.executed(header_hash(block.header))
        assert executed is not None
        outcome = executed.outcome
        assert net_writes(trace) == list(writes_of(outcome.changes))
        receipts = decode(record.receipts, BlockReceipts)
        lists = (receipts.transactions, receipts.queries, receipts.fires, receipts.destroyed)
        every = [encode(receipt) for items in (*lists, receipts.callbacks, receipts.messages) for receipt in items]
        assert sorted(each for step in trace.steps for each in step.receipts) == sorted(every)
        assert (trace.figure("state_root"), trace.refusal) == (block.header.state_root.hex(), "")
        kinds.update(step.kind for step in trace.steps)
    busy = {StepKind.TRANSACTION, StepKind.FIRE, StepKind.QUERY, StepKind.CALLBACK, StepKind.MESSAGE, StepKind.PRICES}
    assert busy <= kinds


def test_steps_are_numbered_by_kind_and_in_the_order_of_the_protocol(run: RunRecord) -> None:
    order = list(tracing.SPEC_STEPS.values())
    assert order == sorted(order)
    assert set(tracing.SPEC_STEPS) == set(StepKind)
    for executor, block, _ in blocks_of(run):
        steps = executor.trace(block).steps
        places = [tracing.SPEC_STEPS[step.kind] for step in steps]
        assert places == sorted(places)
        fires = [step.number for step in steps if step.kind is StepKind.FIRE]
        assert fires == list(range(len(fires)))


class Generous(Transition):
    """The second transaction of a block gives the proposer something."""

    def execute(self, prepared: PreparedTransaction) -> None:
        Transition.execute(self, prepared)
        if len(self.receipts) == 2:
            self.world.credit(self.context.proposer, 1)


def test_a_bug_shows_in_the_step_that_it_is_in() -> None:
    sound, mutated = Author(), Author()
    mutated.executor._transition = Generous
    block = sound.build(None, wire(0, schedule(1)), wire(0, user=1), wire(1)).block
    right, wrong = Author().executor.trace(block), mutated.executor.trace(block)
    assert [right.steps[place].number for place in steps_apart(wrong.steps, right.steps)][:1] == [1]
    found = first_difference(wrong.steps, right.steps)
    assert found is not None and found.theirs is not None
    assert (found.theirs.kind, found.theirs.number) == (StepKind.TRANSACTION, 1)
    assert [difference.key for difference in found.keys] == [account_key(address_of(sound.genesis.validators[0]))]


def test_a_divergence_comes_with_its_trace() -> None:
    built = Author().build(None, wire(0, schedule(1)), wire(0, user=1))
    wrong = msgspec.structs.replace(built.block.header, state_root=bytes(32))
    author = Author()
    assert author.execute(Block(wrong, built.block.transactions)) is not None
    result = author.finalize(header_hash(wrong))
    assert isinstance(result, FinalizedInvalid)
    assert result.trace.repeats
    assert result.trace.block == header_hash(wrong)
    assert result.trace.figure("state_root") == built.block.header.state_root.hex()
    assert [step.subject for step in result.trace.steps if step.kind is StepKind.TRANSACTION] == [
        receipt.transaction_hash for receipt in decode(result.receipts, BlockReceipts).transactions
    ]


def test_what_is_refused_is_the_last_step() -> None:
    author = Author()
    built = author.build(None, wire(0), wire(0, user=1))
    twice = (built.block.transactions[0], built.block.transactions[0], built.block.transactions[1])
    trace = author.executor.trace(with_transactions(built.block, *twice))
    assert trace.refusal == "BadNonce"
    assert [step.kind for step in trace.steps] == [StepKind.START, StepKind.TRANSACTION, StepKind.TRANSACTION]
    assert trace.figures == ()


def test_long_values_and_full_traces_keep_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    author = Author()
    built = author.build(None, wire(0, ["set", "key", "x" * 2_000]), wire(0, user=1))
    whole = author.executor.trace(built.block)
    assert any(isinstance(write.after, LongValue) for step in whole.steps for write in step.writes)
    monkeypatch.setattr(tracing, "MAX_TRACE_BYTES", 0)
    cut = author.executor.trace(built.block)
    assert all(step.is_shortened and not step.writes for step in cut.steps)
    assert [step.digest for step in cut.steps] == [step.digest for step in whole.steps]
