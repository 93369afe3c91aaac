"""Chains for benchmarks: a genesis with many actors, a state full of timers, blocks through the ordinary entry point.

Only the set-up takes short cuts: it schedules timers straight into a state, without transactions. Every block that is
measured is a whole one: transition, state commit with fsync, index.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import reporting  # noqa: F401 - before any package: it says where they are

from cluster.disks.directory import DirectoryDisk
from validator.chain.genesis import Genesis, GenesisActor, GenesisAgent, Policy
from validator.chain.records import OVERFLOW, TIMER
from validator.chain.transactions import Call, Transaction
from validator.execution.timer_calls import SchedulingTerms, schedule
from validator.policies.bias_auction import BiasAuctionPhase
from validator.policies.fifo import FifoPhase
from validator.primitives.params import Parameters
from validator.primitives.types import Address, Hash, Height
from validator.pvm.runtime.host import ScheduleRequest
from validator.pvm.runtime.machine import PythonVm
from validator.scheduler.index import SchedulerIndex
from validator.state import LogStateStore
from validator.state.engines.packed import PackedEngine
from validator.state.working_set import World, batch_of
from validator.transition.genesis_block import genesis_batch
from validator.transition.transition import BlockContext, Outcome, PreparedTransaction, Transition

VALIDATOR = bytes(32)
PROPOSER = Address(b"\x22" * 20)
DEPLOYER = Address(b"\x11" * 20)
RICH = 10**30
SCHEDULED_PER_STEP = 2_000


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


@dataclass(slots=True)
class BenchmarkChain:
    """One chain on a real disk."""

    parameters: Parameters
    actors: dict[Address, GenesisActor]
    accounts: dict[Address, int] = field(default_factory=dict)
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="stampede-benchmark-")))
    disk: DirectoryDisk = field(init=False)
    store: LogStateStore = field(init=False)
    index: SchedulerIndex = field(init=False)
    genesis: Genesis = field(init=False)
    vm: PythonVm = field(default_factory=PythonVm)
    policy: Policy = Policy.CIP1

    def __post_init__(self) -> None:
        self.genesis = Genesis("benchmark", (VALIDATOR,), self.policy, self.parameters, self.accounts, self.actors)
        self.disk = DirectoryDisk(self.folder)
        self.store = LogStateStore.open(self.disk, engine=PackedEngine())
        self.store.commit(self.store.final.derive(Height(0), genesis_batch(self.genesis)))
        self.index = SchedulerIndex.rebuild(self.genesis, self.store.final)

    def close(self) -> None:
        self.store.close()
        self.disk.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def fill(self, requests: Iterable[tuple[Address, ScheduleRequest]]) -> None:
        """Schedule timers into the present state, as if a block had done it, whatever prices and caps say."""
        world: World | None = None
        height = self.store.final.height
        rules = BiasAuctionPhase.rules if self.genesis.locks_bids else FifoPhase.rules
        terms = SchedulingTerms(height, 0, 0, self.parameters, rules)
        for number, (actor, request) in enumerate(requests):
            if number % SCHEDULED_PER_STEP == 0:
                self._keep(world)
                world = World(self.store.final)
            assert world is not None
            schedule(world, actor, request, terms, None)
        self._keep(world)

    def block(self, transactions: Iterable[PreparedTransaction] = ()) -> Outcome:
        """Process the next block and make it final."""
        height = Height(self.store.final.height + 1)
        context = BlockContext(height, PROPOSER, self.genesis)
        outcome = Transition(self.store.final, self.index, context, self.vm).apply(list(transactions))
        self.store.commit(outcome.view)
        self.index.advance(outcome.changes)
        self.index.settle(height)
        return outcome

    def selection(self, most: int) -> float:
        """Seconds that the next block takes to find the first ``most`` timers in its order."""
        context = BlockContext(Height(self.store.final.height + 1), PROPOSER, self.genesis)
        transition = Transition(self.store.final, self.index, context, self.vm)
        transition.freeze()
        phase = transition.timer_phase()
        began = time.perf_counter()
        found = sum(1 for _ in islice(phase.candidates(), most))
        seconds = time.perf_counter() - began
        self.index.abandon()
        assert found == most, f"{found} timers"
        return seconds

    def timed_block(self, transactions: Iterable[PreparedTransaction] = ()) -> tuple[float, Outcome]:
        """Seconds that the next block takes, and its outcome."""
        began = time.perf_counter()
        outcome = self.block(transactions)
        return time.perf_counter() - began, outcome

    def _keep(self, world: World | None) -> None:
        """Commit what was scheduled, the way a block does it."""
        if world is None:
            return
        timers = [(change.before, change.after) for change in world.changes_under(TIMER)]
        world.put(OVERFLOW, self.index.overflow_root_after(timers, {}))
        changes = world.changes()
        self.store.commit(self.store.final.derive(self.store.final.height, batch_of(changes)))
        self.index.advance(changes)


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


def median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def interleaved(rounds: int, *measures: Callable[[], float]) -> list[float]:
    """Each measure's median over rounds in which all take their turn, so that a noisy machine hits all alike."""
    taken: list[list[float]] = [[] for _ in measures]
    for _ in range(rounds):
        for values, measure in zip(taken, measures, strict=True):
            values.append(measure())
    return [median(values) for values in taken]
