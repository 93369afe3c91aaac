"""Why runs of Python actors failed: their errors in words, and the lines. Receipts have only the errors' names.

The blocks are executed once more, in one process and without a tree of the state, up to the last one in which an
actor's runs failed with an error for the first time. What is found decides nothing.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import Final

from cluster.audit.books import Books
from cluster.audit.figures import OTHER_ERRORS, BlockColumns, FailedRuns, RunKind
from cluster.local_chain.bare_chain import BareChain
from cluster.local_chain.watching import ProgramRun, WatchingVm
from cluster.record.archive import BlockRecord
from validator.chain.block import Block, transaction_hashes
from validator.chain.genesis import Genesis
from validator.chain.transactions import SCRIPT_CODE, address_of, parse
from validator.primitives.codec import decode, encode
from validator.primitives.types import ValidatorError
from validator.primitives.user_file import UserFileError
from validator.pvm.runtime.machine import PythonVm
from validator.state.treeless import TreelessStore
from validator.transition.transition import NotAdmitted, PreparedTransaction

MAX_BLOCKS: Final = 512
"""The most blocks that are executed, from height 1 on."""
MAX_RUNS: Final = 20_000
"""The most transactions, fires and messages in them."""


def note_reasons(books: Books) -> None:
    """Enter ``books.reasons``: those of failed runs whose first one is in a block that is executed again."""
    scripts = {address for address, actor in books.ledger.world.actors.items() if actor.code == SCRIPT_CODE}
    wanted: dict[int, list[FailedRuns]] = defaultdict(list)
    for each in books.ledger.outcomes.failures:
        if each.actor not in scripts and each.error != OTHER_ERRORS:
            wanted[each.first_height].append(each)
    last = max((height for height in wanted if height <= _executed(books.ledger.blocks)), default=0)
    if not last:
        return
    chain = _WatchedChain(books.record.genesis)
    with suppress(
        ValidatorError, UserFileError, NotAdmitted
    ):  # a policy of a user's file may execute the blocks otherwise today
        for height, record in enumerate(books.chain[:last], start=1):
            if (runs := chain.execute(record)) is None:
                return
            for failed in wanted.get(height, ()):
                run = next((run for run in runs if _is_one_of(run, failed)), None)
                if run is not None and (reason := _reason(run)):
                    books.reasons[failed.key] = reason


def _executed(blocks: BlockColumns) -> int:
    """The height up to which blocks are executed again."""
    runs = 0
    end = min(len(blocks), MAX_BLOCKS)
    for below in range(end):
        runs += blocks.transactions[below] + blocks.fires[below] + blocks.messages[below]
        if runs > MAX_RUNS:
            return below
    return end


def _is_one_of(run: ProgramRun, failed: FailedRuns) -> bool:
    found = run.actor, run.error, run.in_transaction
    return found == (failed.actor, failed.error, failed.kind is RunKind.TRANSACTION)


def _reason(run: ProgramRun) -> str:
    """The error in words, and the line at which it was raised; empty if both are unknown."""
    line = f"line {run.places[-1].line}, in {run.places[-1].method}" if run.places else ""
    return "; ".join(filter(None, [run.why, line]))


class _WatchedChain(BareChain):
    """Executes recorded blocks, and shows the programs' runs."""

    explains = False

    def __init__(self, genesis: Genesis) -> None:
        self._watching = WatchingVm(PythonVm())
        super().__init__(genesis, self._watching, TreelessStore())

    def execute(self, record: BlockRecord) -> list[ProgramRun] | None:
        """The runs of the next block; ``None`` if its receipts are not the recorded ones."""
        block = decode(record.block, Block)
        prepared = [
            PreparedTransaction(digest, wire, parse(wire, self.genesis.chain_id, is_signed=False))
            for digest, wire in zip(transaction_hashes(block), block.transactions, strict=True)
        ]
        outcome = self.begin(address_of(self.genesis.validators[block.header.proposer])).apply(prepared)
        self.commit(outcome)
        runs = self._watching.take()
        return runs if encode(outcome.receipts) == record.receipts else None
