"""Chains for benchmarks: a genesis with many actors, a state full of timers, blocks through the ordinary entry point.

The set-up alone takes a short cut: its blocks schedule timers without transactions. Else they are blocks like any
other, and so is every block that is measured: transition, state commit with fsync, index.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import islice
from statistics import median
from typing import Self

from reporting import folder

from cluster.disks.directory import DirectoryDisk
from cluster.local_chain.bare_chain import BareChain
from validator.chain.genesis import Genesis, GenesisActor, GenesisAgent, Policy
from validator.chain.transactions import Call, Transaction
from validator.execution.timer_calls import SchedulingTerms, schedule
from validator.policies.bias_auction import BiasAuctionPhase
from validator.policies.fifo import FifoPhase
from validator.primitives.params import Parameters
from validator.primitives.types import Address, Hash
from validator.pvm.runtime.host import ScheduleRequest
from validator.pvm.runtime.machine import PythonVm
from validator.state import LogStateStore
from validator.state.engines.packed import PackedEngine
from validator.state.working_set import World
from validator.transition.transition import Outcome, PreparedTransaction

VALIDATOR = bytes(32)
PROPOSER = Address(b"\x22" * 20)
DEPLOYER = Address(b"\x11" * 20)
RICH = 10**30
SCHEDULED_PER_BLOCK = 2_000


def actor_address(number: int, kind: int = 0) -> Address:
    """The address of a benchmark actor."""
    return Address(bytes((0xAC, kind)) + number.to_bytes(18, "big"))


def actors(
    count: int,
    kind: int = 0,
    balance: int = RICH,
    agent: GenesisAgent | None = None,
    code: str = "builtin:script",
) -> dict[Address, GenesisActor]:
    """Actors of one kind."""
    return {actor_address(i, kind): GenesisActor(code, DEPLOYER, balance, agent) for i in range(count)}


class BenchmarkChain(BareChain):
    """One chain on a real disk, in a folder that is removed at the end of a ``with`` statement."""

    explains = False

    def __init__(
        self,
        parameters: Parameters,
        actors: dict[Address, GenesisActor],
        accounts: dict[Address, int] | None = None,
        policy: Policy = Policy.CIP1,
    ) -> None:
        with ExitStack() as held:
            disk = held.enter_context(closing(DirectoryDisk(held.enter_context(folder()))))
            store = held.enter_context(closing(LogStateStore.open(disk, engine=PackedEngine())))
            genesis = Genesis("benchmark", (VALIDATOR,), policy, parameters, accounts or {}, actors)
            super().__init__(genesis, PythonVm(), store)
            self._held = held.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._held.close()

    @property
    def next_height(self) -> int:
        return self.view.height + 1

    def fill(self, count: int, timers: Callable[[int], Iterable[tuple[Address, ScheduleRequest]]]) -> None:
        """Schedule timers in blocks without transactions, whatever prices and caps say.

        ``timers`` gets the height of the first block after these, and makes ``count`` requests with their actors.
        """
        rules = BiasAuctionPhase.rules if self.genesis.locks_bids else FifoPhase.rules
        blocks = -(-count // SCHEDULED_PER_BLOCK)
        first, before = self.next_height + blocks, self.globals.next_sequence
        requests = iter(timers(first))
        for _ in range(blocks):
            terms = SchedulingTerms(self.next_height, 0, 0, self.genesis.parameters, rules)
            with self.block_without_transactions() as world:
                for actor, request in islice(requests, SCHEDULED_PER_BLOCK):
                    schedule(world, actor, request, terms, None)
        assert self.globals.next_sequence == before + count, f"{count} timers were said"
        assert next(requests, None) is None, f"{count} timers were said"

    @contextmanager
    def block_without_transactions(self) -> Iterator[World]:
        """Process the next block and make it final. The body changes its state in place of transactions."""
        transition = self.begin(PROPOSER)
        transition.start()
        yield transition.world
        self.commit(transition.finish())

    def block(self, transactions: Iterable[PreparedTransaction] = ()) -> Outcome:
        """Process the next block and make it final."""
        outcome = self.begin(PROPOSER).apply(list(transactions))
        self.commit(outcome)
        return outcome

    def selection(self, most: int) -> float:
        """Seconds of processor time that the next block takes to find the first ``most`` timers in its order."""
        transition = self.begin(PROPOSER)
        transition.freeze()
        phase = transition.timer_phase()
        began = time.process_time()
        found = sum(1 for _ in islice(phase.candidates(), most))
        seconds = time.process_time() - began
        self.index.abandon()
        assert found == most, f"{found} timers"
        return seconds

    def timed_block(self, transactions: Iterable[PreparedTransaction] = ()) -> tuple[float, Outcome]:
        """Seconds that the next block takes, and its outcome."""
        began = time.perf_counter()
        outcome = self.block(transactions)
        return time.perf_counter() - began, outcome


def call(
    sender: Address, nonce: int, to: Address, payload: bytes, gas_limit: int = 50_000, cells_limit: int = 5_000
) -> PreparedTransaction:
    """A call of an actor that needs no signature: the transition knows none."""
    transaction = Transaction(
        sender=sender,
        nonce=nonce,
        gas_limit=gas_limit,
        cells_limit=cells_limit,
        max_fee_per_cycle=10**12,
        max_priority_fee_per_cycle=1,
        max_fee_per_cell=10**12,
        action=Call(to, "run", payload),
    )
    return PreparedTransaction(Hash(sender + nonce.to_bytes(12, "big")), b"", transaction)


def interleaved(rounds: int, *measures: Callable[[], float]) -> list[float]:
    """Each measure's median over rounds in which all take their turn, so that a noisy machine hits all alike."""
    taken: list[list[float]] = [[] for _ in measures]
    for _ in range(rounds):
        for values, measure in zip(taken, measures, strict=True):
            values.append(measure())
    return [median(values) for values in taken]
