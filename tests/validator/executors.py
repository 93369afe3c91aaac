"""An executor with signed transactions at hand: blocks are built, executed and made final by its jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from cluster.disks.memory import MemoryDisk
from tests.validator.chains import ACTOR, CHAIN_ID, KEYS, USERS, index_contents, make_genesis, schedule, script
from validator.chain.block import Block, transactions_root
from validator.chain.genesis import Genesis
from validator.chain.transactions import Action, Call, Transaction, parse, sign, transaction_hash
from validator.node.executor.executor import Executor, execution_error
from validator.node.executor.jobs import Build, Built, Finalize, Finalized, FinalizedInvalid
from validator.primitives.types import Hash
from validator.scheduler.index import SchedulerIndex
from validator.state import View
from validator.transition.transition import Outcome, PreparedTransaction


def wire(nonce: int, *operations: Any, user: int = 0, action: Action | None = None, **fields: Any) -> bytes:
    """A signed call of a script."""
    given: dict[str, Any] = {
        "gas_limit": 200_000,
        "cells_limit": 20_000,
        "max_fee_per_cycle": 10**9,
        "max_priority_fee_per_cycle": 2,
        "max_fee_per_cell": 10**9,
    }
    body = Call(ACTOR, "run", script(*operations)) if action is None else action
    return sign(KEYS[user], CHAIN_ID, Transaction(USERS[user], nonce, action=body, **{**given, **fields}))


def prepared(*wires: bytes) -> tuple[PreparedTransaction, ...]:
    return tuple(PreparedTransaction(transaction_hash(item), item, parse(item, CHAIN_ID)) for item in wires)


def with_transactions(block: Block, *wires: bytes, **header: Any) -> Block:
    """The block with other transactions, its root over them being right."""
    root = transactions_root([transaction_hash(item) for item in wires])
    changed = msgspec.structs.replace(block.header, **{"transactions_root": root, **header})
    return Block(changed, wires)


@dataclass
class Author:
    """An executor, and the blocks that it built."""

    genesis: Genesis = field(default_factory=make_genesis)
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    built: list[Built] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.executor = Executor(self.disk, self.genesis)

    def build(self, parent: Hash | None = None, *wires: bytes, proposer: int = 0) -> Built:
        """Build on a parent, by default the last final block."""
        on = self.executor.final_digest if parent is None else parent
        result = self.executor.run(Build(len(self.built) + 1, on, proposer, prepared(*wires)))
        assert isinstance(result, Built)
        self.built.append(result)
        return result

    def execute(self, block: Block) -> str | None:
        """Why a block is invalid; ``None`` where it is valid."""
        return execution_error(self.executor, block)

    def finalize(self, digest: Hash, certificate: bytes = b"") -> Finalized | FinalizedInvalid:
        result = self.executor.run(Finalize(digest, certificate))
        assert isinstance(result, Finalized | FinalizedInvalid)
        return result

    def view_of(self, digest: Hash) -> View:
        if digest == self.executor.final_digest:
            return self.executor.final_view
        return self.outcome_of(digest).view

    def outcome_of(self, digest: Hash) -> Outcome:
        executed = self.executor._branches.executed(digest)
        assert executed is not None and isinstance(executed.outcome, Outcome)
        return executed.outcome

    def require_index(self, digest: Hash) -> None:
        """The index, moved to a block, is what a rebuild from that block's state gives."""
        self.executor._branches.move_index(digest)
        assert index_contents(self.executor.index) == index_contents(
            SchedulerIndex.rebuild(self.genesis, self.view_of(digest))
        )


def chain_of(count: int, genesis: Genesis | None = None) -> list[Built]:
    """A line of blocks with transactions, timers, fires and expiries, all final."""
    author = Author() if genesis is None else Author(genesis)
    for height in range(1, count + 1):
        operations = [
            schedule(1, ["set", f"k{height}", "v"]),
            schedule(2, save_as="s"),
            schedule(40, expires_at=5 * 10**4),
        ]
        author.finalize(author.build(None, wire(height - 1, *operations)).digest)
    return author.built
