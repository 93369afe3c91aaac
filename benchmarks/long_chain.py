"""A chain of any length for benchmarks of the judge. Another process executes its blocks, one after the other.

In each block one call schedules timers for the block after the next, and those that are due fire.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from multiprocessing import get_context
from multiprocessing.connection import Connection

import reporting  # noqa: F401 - before any package: it says where they are
from nacl.signing import SigningKey
from reporting import folder

from cluster.disks.directory import DirectoryDisk
from cluster.record.archive import BlockRecord
from loadgen.workloads.script import schedule
from validator.chain.genesis import Genesis, GenesisActor
from validator.chain.transactions import Call, Transaction, address_of, parse, sign, transaction_hash
from validator.node.executor.executor import Executor
from validator.node.executor.jobs import Build, Built, Finalize
from validator.primitives.params import Parameters
from validator.primitives.types import Address
from validator.transition.transition import PreparedTransaction

CHAIN_ID = "long-1"
FUNDS = 10**30
PRICE = 1_000_000
AHEAD = 2
LIMITS = {"gas_limit": 1_000_000, "cells_limit": 100_000}
TIP = 2
HEIGHTS_PER_FAILED_VIEW = 97
USER = SigningKey(bytes([7]) * 32)


def view_of(height: int) -> int:
    """In which view a height's block is proposed: some views fail."""
    return height + height // HEIGHTS_PER_FAILED_VIEW


class LongChain:
    """Makes the blocks of a chain one after the other."""

    def __init__(self, validators: int, timers_per_block: int, actors: int = 16) -> None:
        keys = tuple(bytes(SigningKey(bytes([1]) * 31 + bytes([i])).verify_key) for i in range(validators))
        self._actors = [Address(bytes([0xAC, number]) * 10) for number in range(actors)]
        self._payload = json.dumps([schedule(AHEAD, [])] * timers_per_block, separators=(",", ":")).encode()
        user = address_of(bytes(USER.verify_key))
        self.genesis = Genesis(
            chain_id=CHAIN_ID,
            validators=keys,
            parameters=Parameters.from_names({"MIN_BASEFEE": PRICE, "MAX_BASEFEE": PRICE}),
            accounts={user: FUNDS},
            actors={actor: GenesisActor("builtin:script", user, FUNDS) for actor in self._actors},
        )

    def blocks(self, heights: int) -> Iterator[BlockRecord]:
        """The blocks from height 1 on."""
        context = get_context("spawn")
        taken, given = context.Pipe(duplex=False)
        maker = context.Process(target=self.make, args=(given, heights), daemon=True)
        maker.start()
        given.close()
        with taken:
            for _ in range(heights):
                yield taken.recv()
        maker.join()

    def make(self, given: Connection, heights: int) -> None:
        """Execute the blocks, and send each."""
        with folder() as path, closing(DirectoryDisk(path)) as disk, given:
            executor = Executor(disk, self.genesis)
            for height in range(1, heights + 1):
                proposer = height % len(self.genesis.validators)
                parent = executor.final_digest
                built = executor.run(Build(view_of(height), parent, proposer, (self._call(height),)))
                assert isinstance(built, Built)
                assert built.block.transactions, f"the call of height {height} does not fit"
                executor.run(Finalize(built.digest, b""))
                given.send(BlockRecord(*executor.pages.blocks(height, 1)[0]))

    def _call(self, height: int) -> PreparedTransaction:
        action = Call(self._actors[height % len(self._actors)], "run", self._payload)
        fees = {"max_fee_per_cycle": 2 * PRICE, "max_priority_fee_per_cycle": TIP, "max_fee_per_cell": 2 * PRICE}
        sender = address_of(bytes(USER.verify_key))
        wire = sign(USER, CHAIN_ID, Transaction(sender, height - 1, action=action, **LIMITS, **fees))
        return PreparedTransaction(transaction_hash(wire), wire, parse(wire, CHAIN_ID, is_signed=False))
