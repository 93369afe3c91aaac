"""A chain in one process: the real transition, its fees and its timer phase.

A :class:`PlayedBlock` lists the *executions* of a block in order: transactions, bids, fires, callbacks, messages. Each
has data from its receipt and a record of the program that ran.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from cluster.disks.memory import MemoryDisk
from cluster.local_chain.watching import ProgramRun, WatchingVm
from validator.chain.block import Effects, Event, QueryReceipt, TransactionReceipt
from validator.chain.genesis import Genesis
from validator.chain.records import (
    GLOBALS,
    LONG_PUBLISHED,
    LONG_STORAGE,
    PUBLISHED,
    STORAGE,
    TIMER,
    Globals,
    Timer,
    decode_record,
    long_storage_entry,
)
from validator.chain.transactions import Action, Call, Deploy, Transaction, Transfer, unsigned_hash
from validator.primitives.errors import HandlerFailure
from validator.primitives.types import ADDRESS_BYTES, PRICE_LIMIT, Address, Height
from validator.pvm.language.api import GAS_BID
from validator.pvm.runtime.machine import Vm
from validator.pvm.runtime.operations import Value
from validator.pvm.runtime.values import decode_value
from validator.scheduler.index import SchedulerIndex
from validator.state import LogStateStore, StateStore, View
from validator.state.working_set import World
from validator.transition.genesis_block import genesis_batch
from validator.transition.transition import BlockContext, Outcome, PreparedTransaction, Transition

CHAIN_ID: Final = "local"
DEVELOPER: Final = Address(b"\xde" * ADDRESS_BYTES)
"""Address of the developer: the account that deploys programs and calls them."""
PROPOSER: Final = Address(b"\xcc" * ADDRESS_BYTES)
"""Address of the account that receives the tips."""
FUNDS: Final = 10**36
"""Balance of the developer in the genesis."""


class Execution(NamedTuple):
    """One execution in a block, with data from its receipt: of a transaction, bid, fire, callback or message."""

    kind: str
    """``deploy``, ``call``, ``transfer``, ``bid``, ``fire``, ``callback`` or ``message``."""
    actor: Address
    handler: str
    """Name of the handler; empty for a deployment."""
    error: str
    """Name of the error; empty if the execution succeeded."""
    cycles: int
    cells: int
    fee: int
    """The fee that is paid at this execution. A message's fee is paid when the message is sent."""
    effects: Effects
    program: ProgramRun | None
    """The record of the program that ran; ``None`` if none did."""


class PlayedBlock(NamedTuple):
    """A block that the local chain has processed: its executions, events and waiting timers."""

    height: int
    executions: list[Execution]
    events: list[Event]
    """Events of the protocol; those of programs are in the effects of their executions."""
    waiting: Counter[str]
    """Number of due timers that were carried over to the next block, for each reason."""

    @property
    def is_quiet(self) -> bool:
        return not self.executions and not self.events


class BareChain:
    """A chain that begins with the genesis state, without consensus and signatures."""

    explains: bool = True
    """Whether outcomes explain why each remaining timer was carried."""

    def __init__(self, genesis: Genesis, vm: Vm, store: StateStore | None = None) -> None:
        """``store`` is an empty one; ``None``: in memory."""
        self.genesis = genesis
        self._vm = vm
        self._store: StateStore = LogStateStore.open(MemoryDisk()) if store is None else store
        self._store.commit(self._store.final.derive(Height(0), genesis_batch(genesis)))
        self.index = SchedulerIndex.rebuild(genesis, self._store.final)

    @property
    def view(self) -> View:
        """The state after the last block."""
        return self._store.final

    @property
    def globals(self) -> Globals:
        data = self.view.get(GLOBALS)
        assert data is not None, "the genesis state holds the chain's counters"
        found: Globals = decode_record(GLOBALS, data)
        return found

    def begin(self, proposer: Address, transition: type[Transition] = Transition) -> Transition:
        """The state transition for the next block. ``transition`` is its class."""
        context = BlockContext(Height(self.view.height + 1), proposer, self.genesis, self.explains)
        return transition(self.view, self.index, context, self._vm)

    def commit(self, outcome: Outcome) -> None:
        """Make the next block final."""
        self._store.commit(outcome.view)
        self.index.advance(outcome.changes)
        self.index.settle(self.view.height)

    def timers(self) -> list[Timer]:
        """Live timers in the order of their trigger heights."""
        timers: list[Timer] = [decode_record(key, value) for key, value in self.view.scan(TIMER)]
        return sorted(timers, key=lambda timer: (timer.trigger_height, timer.sequence))

    def values(self, plain: bytes, hashed: bytes, actor: bytes = b"") -> Iterator[tuple[bytes, bytes, bytes]]:
        """Actor, name and value of each state entry below the key prefixes ``plain`` and ``hashed``.

        With ``actor``, only the entries of that actor.
        """
        for prefix in (plain, hashed):
            for key, value in self.view.scan(prefix + actor):
                owner, name = key[1 : 1 + ADDRESS_BYTES], key[1 + ADDRESS_BYTES :]
                yield owner, *(long_storage_entry(value) if prefix == hashed else (name, value))


class LocalChain(BareChain):
    """A chain in memory whose genesis has one validator, and large funds for a developer. It records the runs of
    programs."""

    def __init__(self, vm: Vm, genesis: Genesis | None = None) -> None:
        self._watching = WatchingVm(vm)
        super().__init__(
            Genesis(CHAIN_ID, (bytes(32),), accounts={DEVELOPER: FUNDS}) if genesis is None else genesis, self._watching
        )

    @property
    def world(self) -> World:
        """The state after the last block."""
        return World(self.view)

    def transaction(
        self,
        action: Action,
        gas_limit: int,
        cells_limit: int,
        value: int = 0,
        timer_allowance: int = 0,
        sender: Address = DEVELOPER,
        before: int = 0,
    ) -> Transaction:
        """The next transaction of a sender who has ``before`` others in the block, at the current basefees."""
        return Transaction(
            sender=sender,
            nonce=self.world.account(sender).nonce + before,
            gas_limit=gas_limit,
            cells_limit=cells_limit,
            max_fee_per_cycle=PRICE_LIMIT - 1,
            max_priority_fee_per_cycle=0,
            max_fee_per_cell=PRICE_LIMIT - 1,
            action=action,
            value=value,
            timer_allowance=timer_allowance,
        )

    def block(self, *transactions: Transaction) -> PlayedBlock:
        """Process the next block, with these transactions in this order.

        Raises :class:`~validator.transition.transition.NotAdmitted`; then there is no block.
        """
        prepared = [PreparedTransaction(unsigned_hash(each), b"", each) for each in transactions]
        outcome = self.begin(PROPOSER).apply(prepared)
        self.commit(outcome)
        return _played(outcome, transactions, self._watching.take())

    def storage(self, actor: Address) -> dict[str, bytes]:
        """An actor's stored values (encoded), keyed by name, in the order of the names' bytes."""
        return {name.decode(): value for _, name, value in sorted(self.values(STORAGE, LONG_STORAGE, actor))}

    def published(self, actor: Address) -> dict[str, bytes]:
        """An actor's published values (encoded), keyed by name, in the order of the names' bytes."""
        return {name.decode(): value for _, name, value in sorted(self.values(PUBLISHED, LONG_PUBLISHED, actor))}


# --- from receipts to executions --------------------------------------------------------------------------------------


def _played(outcome: Outcome, transactions: Sequence[Transaction], runs: list[ProgramRun]) -> PlayedBlock:
    executions = list(_executions(outcome, transactions, runs))
    of_programs = {id(event) for execution in executions for event in execution.effects.events}
    events = [event for event in outcome.events if id(event) not in of_programs]
    return PlayedBlock(outcome.receipts.height, executions, events, Counter(outcome.carried.values()))


def _executions(outcome: Outcome, transactions: Sequence[Transaction], runs: list[ProgramRun]) -> Iterator[Execution]:
    """The executions of a block: each receipt with the record of its program's run.

    Programs run phase by phase, so the records are split by phase to find those of a receipt.
    """
    receipts = outcome.receipts
    called = deque(run for run in runs if run.in_transaction)
    asked = deque(run for run in runs if run.handler == GAS_BID)
    others = deque(run for run in runs if not run.in_transaction and run.handler != GAS_BID)
    for transaction, receipt in zip(transactions, receipts.transactions, strict=True):
        is_run = bool(called) and _is_run_of(called[0], transaction.action)
        yield _of_transaction(transaction, receipt, called.popleft() if is_run else None)
    for query in receipts.queries:
        yield _of_query(query, None if query.outcome == "unpaid" else asked.popleft())
    for fire in receipts.fires:
        run, fee = others.popleft(), int.from_bytes(fire.burned) + int.from_bytes(fire.tip)
        yield Execution("fire", run.actor, run.handler, fire.error, fire.cycles, fire.cells, fee, fire.effects, run)
    while len(others) > len(receipts.messages):  # callbacks of jobs, as far as they are visible from outside
        run = others.popleft()
        yield Execution("callback", run.actor, run.handler, run.error, run.cycles, 0, 0, Effects(), run)
    for message in receipts.messages:
        run, use = others.popleft(), (message.cycles, message.cells)
        yield Execution("message", run.actor, run.handler, message.error, *use, 0, message.effects, run)


def _is_run_of(run: ProgramRun, action: Action) -> bool:
    return isinstance(action, Call) and (run.actor, run.handler) == (action.to, action.handler)


def _of_transaction(transaction: Transaction, receipt: TransactionReceipt, run: ProgramRun | None) -> Execution:
    fee = int.from_bytes(receipt.burned) + int.from_bytes(receipt.tip)
    used = (receipt.error, receipt.cycles, receipt.cells, fee, receipt.effects, run)
    match transaction.action:
        case Call(to=to, handler=handler):
            return Execution("call", Address(to), handler, *used)
        case Deploy():
            return Execution("deploy", Address(receipt.created), "", *used)
        case Transfer(to=to):
            return Execution("transfer", Address(to), "", *used)
    raise AssertionError("no other kind of transaction is sent")


def _of_query(query: QueryReceipt, run: ProgramRun | None) -> Execution:
    error = "" if query.outcome == "ok" else (run.error if run is not None else query.outcome)
    asked, fee = Address(query.agent or query.actor), int.from_bytes(query.burned)
    return Execution("bid", asked, GAS_BID, error, query.cycles, 0, fee, Effects(), run)


def decoded(encoded: bytes) -> Value:
    """Decode a value (from storage or a payload); returns the bytes themselves if they cannot be decoded."""
    try:
        return decode_value(encoded)
    except HandlerFailure:
        return encoded
