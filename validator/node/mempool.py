"""The mempool: transactions that wait for a block, each of which could run, judged by the final state.

Each validator decides for itself which transactions its mempool accepts: a block may hold transactions that it would
not have accepted. The rules below keep out transactions that can never run, and leave room for those that pay.

**Admission**, in this order; the first rule that fails gives the reason (:class:`Refusal`):

1. It is not waiting already. It is well-formed, for this chain and signed. A system instruction comes from a system
   deployer. ``gas_limit`` and ``cells_limit`` cover what is charged before the transaction does anything
   (:func:`_first_charge`), and lie within their lanes. Otherwise a block would carry the bytes of a payload without
   payment.
2. The nonce lies in the window of ``max_nonces`` from the account's nonce on. The window bounds how many transactions
   of one sender wait.
3. Both fee limits reach the floor: ``MIN_BASEFEE``, below which no basefee falls, and the newest final block's basefee
   divided by ``FEE_FLOOR_DIVISOR``, to which it falls in six blocks at the earliest.
4. If another transaction with this nonce waits, both fees per cycle are at least ``PRICE_BUMP_PERCENT`` higher, and
   the fee per cell is not lower.
5. The sender's transactions are at most ``max_sender_bytes`` long together.
6. The account's balance covers the most that all of the sender's waiting transactions can take together:
   ``value + gas_limit * max_fee_per_cycle + cells_limit * max_fee_per_cell`` each. That bound does not move with the
   basefees: what was affordable once stays so until the account changes.
7. The pool has room, or makes it.

State here is the last final state, not that of a block under way: it does not depend on the caller, and it is never
reverted.

**Eviction.** In a full pool a transaction has a *place*, compared from left to right: whether it could run in the next
block after those before it; whether it is less than ``near_nonces`` ahead of the account; the least tip per cycle that
it and those of its sender before it pay at the newest basefee; how few nonces it is ahead of the account. A newcomer is
accepted if the pool's worst transactions, which are evicted for it, have lesser places than its own; of equals the
youngest goes first. At most ``max_evictions`` of the evicted ones could have run. Those that could not do not count:
they may never pay, so they must not hold the room that a large transaction needs. Only the last transaction of a sender
is ever evicted, so that no queue gets gaps. To evict an honest transaction takes one that is funded and next in turn,
and that pays more, or as much with fewer of its sender's before it. No sender can evict with more than ``near_nonces``
transactions at a time, and at equal tips each sender's first transaction comes before any sender's second.

**Leaving.** Each accepted transaction that does not become final leaves for one reason (:class:`Departure`). When a
block becomes final, the mempool checks only the accounts that the block changed and the oldest arrivals.

**Offer.** Senders take turns by the tip that their next transaction pays, ties by arrival; each sender's transactions
go by nonce. Last come those that cannot run yet (an earlier nonce is missing, a basefee is too high) and those of
senders that a block builder had to refuse lately.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile
from typing import Final, NamedTuple

from validator.chain.block import Header
from validator.chain.genesis import Genesis
from validator.chain.records import Account
from validator.chain.transactions import (
    Action,
    Call,
    Deploy,
    System,
    Transaction,
    TransactionError,
    least_replacement_fee,
    parse,
    transaction_hash,
)
from validator.node.limits import DEFAULT_POOL_LIMITS, PoolLimits
from validator.primitives.params import Parameters
from validator.primitives.types import Address, Hash
from validator.pvm.deployment import byte_cycles
from validator.transition.transition import PreparedTransaction

FEE_FLOOR_DIVISOR: Final = 2
NOT_RUNNABLE: Final = -1
"""Value in place of a tip, for a transaction that the next block could not hold."""


class Refusal(StrEnum):
    """Why a transaction is refused. The words are part of the HTTP interface and must not change."""

    MALFORMED = "malformed"
    WRONG_CHAIN = "wrong_chain"
    BAD_SIGNATURE = "bad_signature"
    ALREADY_KNOWN = "already_known"
    NOT_SYSTEM_DEPLOYER = "not_system_deployer"
    GAS_TOO_LOW = "gas_too_low"
    GAS_TOO_HIGH = "gas_too_high"
    CELLS_TOO_LOW = "cells_too_low"
    CELLS_TOO_HIGH = "cells_too_high"
    STALE_NONCE = "stale_nonce"
    NONCE_TOO_HIGH = "nonce_too_high"
    FEE_TOO_LOW = "fee_too_low"
    REPLACEMENT_UNDERPRICED = "replacement_underpriced"
    SENDER_LIMIT = "sender_limit"
    UNAFFORDABLE = "unaffordable"
    MEMPOOL_FULL = "mempool_full"
    BUSY = "busy"
    """Too many transactions wait for their senders' accounts to be read (:mod:`validator.node.offers`)."""
    DIVERGED = "diverged"
    """The validator no longer participates."""


class Departure(StrEnum):
    """Why an accepted transaction left the mempool without becoming final."""

    STALE_NONCE = "stale_nonce"
    """Another transaction with its nonce is final."""
    UNAFFORDABLE = "unaffordable"
    """The sender's balance fell below the most that its waiting transactions may take."""
    REPLACED = "replaced"
    EVICTED = "evicted"
    EXPIRED = "expired"


class Refused(Exception):
    """The mempool refused a transaction. ``reason`` is the fixed word, the message one line."""

    def __init__(self, reason: Refusal, line: str) -> None:
        super().__init__(line)
        self.reason = reason


class Departed(NamedTuple):
    """A transaction that left the mempool without becoming final."""

    hash: Hash
    reason: Departure


class PoolSizes(NamedTuple):
    """Sizes of a mempool's collections."""

    transactions: int
    transaction_bytes: int
    idle_senders: int
    """Number of senders without waiting transactions whose accounts are remembered."""


class Place(NamedTuple):
    """The rank of a transaction among those that compete for room; the greatest is the best."""

    is_runnable: bool
    is_near: bool
    tip: int
    """Tip per cycle: the lowest of this transaction's and its sender's earlier ones'. :data:`NOT_RUNNABLE` if it cannot
    run."""
    minus_ahead: int
    """Minus the number of nonces from the account's nonce to the transaction's; 0 if it cannot run. So senders that pay
    the same share the room."""


NOWHERE: Final = Place(False, False, NOT_RUNNABLE, 0)
"""The place of every transaction that cannot run."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A transaction in the pool."""

    prepared: PreparedTransaction
    number: int
    """Position in the order of arrival."""
    height: int
    """Newest final height at arrival."""
    cost: int
    """The most that the transaction can take from its sender's balance."""

    @property
    def transaction(self) -> Transaction:
        return self.prepared.transaction

    @property
    def size(self) -> int:
        return len(self.prepared.wire)


@dataclass(slots=True)
class _Sender:
    """A sender, with its account and its waiting transactions."""

    account: Account
    """Account in the newest final state."""
    queue: dict[int, _Waiting] = field(default_factory=dict)
    """Transactions by nonce, in no order."""
    cost: int = 0
    size: int = 0
    refused_through: int = -1
    """The final height through which the sender comes after others, because a block builder refused it."""

    @property
    def last(self) -> _Waiting:
        return self.queue[max(self.queue)]


class _Worst(NamedTuple):
    """A sender's last transaction; sorts in the order of eviction."""

    place: Place
    minus_number: int
    """Minus the position in the order of arrival: of equal places, the youngest transaction is evicted first."""
    hash: Hash


class Mempool:
    """One validator's pool of transactions that wait for a block."""

    def __init__(self, genesis: Genesis, limits: PoolLimits = DEFAULT_POOL_LIMITS) -> None:
        self._genesis = genesis
        self._limits = limits
        self._height = 0
        initial = genesis.parameters.initial_basefee
        self._basefee_cycle, self._basefee_cell = initial, initial
        self._by_hash: dict[Hash, _Waiting] = {}
        """Transactions in order of arrival."""
        self._senders: dict[Address, _Sender] = {}
        self._idle: dict[Address, None] = {}
        """Senders without waiting transactions, idle for longest first."""
        self._arrivals = 0
        self._bytes = 0
        self._worst: list[_Worst] | None = None
        """A heap with each sender's last transaction and some outdated ones; made when first needed."""

    def __len__(self) -> int:
        return len(self._by_hash)

    def __contains__(self, digest: Hash) -> bool:
        return digest in self._by_hash

    @property
    def sizes(self) -> PoolSizes:
        """Current sizes."""
        return PoolSizes(len(self._by_hash), self._bytes, len(self._idle))

    def get(self, digest: Hash) -> PreparedTransaction | None:
        waiting = self._by_hash.get(digest)
        return None if waiting is None else waiting.prepared

    def account_of(self, address: Address) -> Account | None:
        """A sender's account in the newest final state, if it is remembered."""
        sender = self._senders.get(address)
        return None if sender is None else sender.account

    # --- admission ----------------------------------------------------------------------------------------------------

    def check(self, wire: bytes, is_signed: bool = True) -> PreparedTransaction:
        """Check a transaction against all rules that need no state. Raises :class:`Refused`.

        ``is_signed``: see :func:`~validator.chain.transactions.parse`.
        """
        digest = transaction_hash(wire)
        self._require_new(digest)
        try:
            transaction = parse(wire, self._genesis.chain_id, is_signed)
        except TransactionError as error:
            raise Refused(Refusal(error.reason), str(error)) from None
        if isinstance(transaction.action, System) and transaction.sender not in self._genesis.system_deployers:
            raise Refused(Refusal.NOT_SYSTEM_DEPLOYER, "only system deployers may send system instructions")
        self._require_in_lane(transaction)
        return PreparedTransaction(digest, wire, transaction)

    def add(self, prepared: PreparedTransaction, account: Account) -> list[Departed]:
        """Add a checked transaction; returns those evicted for it. Raises :class:`Refused`, and then changes nothing.

        ``account`` is the sender's account in the newest final state.
        """
        self._require_new(prepared.hash)
        transaction = prepared.transaction
        sender = self._senders.get(transaction.sender) or _Sender(account)
        self._require_in_window(transaction, account)
        self._require_fees(transaction)
        former = sender.queue.get(transaction.nonce)
        if former is not None:
            _require_bump(transaction, former.transaction)
        waiting = _Waiting(prepared, self._arrivals, self._height, _cost(transaction))
        _require_share(waiting, former, sender, self._limits.max_sender_bytes)
        leaving = self._room_for(waiting, former, sender)
        departed = [self._drop(one, Departure.EVICTED) for one in leaving]
        if former is not None:
            departed.append(self._drop(former, Departure.REPLACED))
        self._insert(waiting, sender)
        return departed

    def _require_new(self, digest: Hash) -> None:
        if digest in self._by_hash:
            raise Refused(Refusal.ALREADY_KNOWN, "already known")

    def _require_in_lane(self, transaction: Transaction) -> None:
        p = self._genesis.parameters
        lane = p.lane_system_cycles if isinstance(transaction.action, System) else p.lane_user_cycles
        gas, cells = transaction.gas_limit, transaction.cells_limit
        least_gas, least_cells = _first_charge(transaction.action, p)
        if gas < least_gas:
            raise Refused(Refusal.GAS_TOO_LOW, f"gas_limit: {gas}, expected at least {least_gas}")
        if gas > lane:
            raise Refused(Refusal.GAS_TOO_HIGH, f"gas_limit: {gas}, expected at most {lane}, its lane of a block")
        if cells < least_cells:
            raise Refused(
                Refusal.CELLS_TOO_LOW, f"cells_limit: {cells}, expected at least {least_cells}, its payload's bytes"
            )
        if cells > p.lane_user_cells:
            raise Refused(
                Refusal.CELLS_TOO_HIGH,
                f"cells_limit: {cells}, expected at most {p.lane_user_cells}, the lane of a block",
            )

    def _require_in_window(self, transaction: Transaction, account: Account) -> None:
        nonce, first, last = transaction.nonce, account.nonce, account.nonce + self._limits.max_nonces - 1
        if nonce < first:
            raise Refused(Refusal.STALE_NONCE, f"nonce: {nonce} is spent, the account is at {first}")
        if nonce > last:
            raise Refused(Refusal.NONCE_TOO_HIGH, f"nonce: {nonce}, expected {first} to {last} by the account's nonce")

    def _require_fees(self, transaction: Transaction) -> None:
        for name, fee, basefee in (
            ("max_fee_per_cycle", transaction.max_fee_per_cycle, self._basefee_cycle),
            ("max_fee_per_cell", transaction.max_fee_per_cell, self._basefee_cell),
        ):
            floor = max(self._genesis.parameters.min_basefee, basefee // FEE_FLOOR_DIVISOR)
            if fee < floor:
                raise Refused(
                    Refusal.FEE_TOO_LOW, f"{name}: {fee}, expected at least {floor} while the basefee is {basefee}"
                )

    def _room_for(self, waiting: _Waiting, former: _Waiting | None, sender: _Sender) -> list[_Waiting]:
        """The transactions to evict for a newcomer that replaces ``former``. Raises :class:`Refused`."""
        count = len(self._by_hash) + (former is None) - self._limits.max_transactions
        size = self._bytes + waiting.size - (0 if former is None else former.size) - self._limits.max_bytes
        if count <= 0 and size <= 0:
            return []
        leaving = self._worst_below(self._place(waiting.transaction, sender), count, size, former)
        if leaving is None:
            raise Refused(Refusal.MEMPOOL_FULL, "the mempool is full of transactions that pay as much or more")
        return leaving

    # --- eviction -----------------------------------------------------------------------------------------------------

    def _tip(self, transaction: Transaction) -> int:
        """A transaction's tip per cycle at the newest basefees; :data:`NOT_RUNNABLE` if a fee limit is below them."""
        over = transaction.max_fee_per_cycle - self._basefee_cycle
        if over < 0 or transaction.max_fee_per_cell < self._basefee_cell:
            return NOT_RUNNABLE
        return min(transaction.max_priority_fee_per_cycle, over)

    def _place(self, transaction: Transaction, sender: _Sender) -> Place:
        """The place of a sender's transaction, in the pool or new."""
        tip = self._tip(transaction)
        for nonce in range(sender.account.nonce, transaction.nonce):
            before = sender.queue.get(nonce)
            tip = NOT_RUNNABLE if before is None else min(tip, self._tip(before.transaction))
            if tip == NOT_RUNNABLE:
                break
        if tip == NOT_RUNNABLE:
            return NOWHERE
        ahead = transaction.nonce - sender.account.nonce
        return Place(True, ahead < self._limits.near_nonces, tip, -ahead)

    def _worst_below(self, place: Place, count: int, size: int, former: _Waiting | None) -> list[_Waiting] | None:
        """The worst transactions whose eviction frees this many transactions' places and this many bytes.

        ``None`` if not all of them are below ``place``, or if more than ``max_evictions`` of them could run. ``former``
        is not among them, since the newcomer replaces it.
        """
        heap = self._worst_first()
        found: list[_Waiting] = []
        runnable = 0
        popped: list[_Worst] = []
        replaced = None if former is None else former.prepared.hash
        gone = set() if replaced is None else {replaced}
        while (count > 0 or size > 0) and heap:
            worst = heapq.heappop(heap)
            if worst.hash == replaced:
                popped.append(worst)  # it leaves with this addition, or stays if the newcomer is refused
                continue
            waiting = self._by_hash.get(worst.hash)
            if waiting is None or not self._is_current(worst, waiting, gone):
                continue
            popped.append(worst)
            if worst.place >= place or runnable == self._limits.max_evictions:
                break
            found.append(waiting)
            runnable += worst.place.is_runnable
            gone.add(worst.hash)
            count, size = count - 1, size - waiting.size
            self._note_last(self._senders[waiting.transaction.sender], gone)
        for worst in popped:
            heapq.heappush(heap, worst)
        return found if count <= 0 and size <= 0 else None

    def _worst_first(self) -> list[_Worst]:
        """The heap of senders' last transactions. It is rebuilt if there is none, or if most of it is outdated."""
        if self._worst is None or len(self._worst) > 2 * (len(self._senders) + self._limits.max_nonces):
            self._worst = []
            for sender in self._senders.values():
                self._note_last(sender)
        return self._worst

    def _note_last(self, sender: _Sender, gone: Iterable[Hash] = ()) -> None:
        """Put a sender's last transaction, except those in ``gone``, into the heap, if there is one."""
        if self._worst is None:
            return
        last = _last_but(sender, gone)
        if last is not None:
            place = self._place(last.transaction, sender)
            heapq.heappush(self._worst, _Worst(place, -last.number, last.prepared.hash))

    def _is_current(self, worst: _Worst, waiting: _Waiting, gone: set[Hash]) -> bool:
        sender = self._senders[waiting.transaction.sender]
        return _last_but(sender, gone) is waiting and self._place(waiting.transaction, sender) == worst.place

    # --- leaving ------------------------------------------------------------------------------------------------------

    def note_final(self, header: Header) -> None:
        """Note the newest final block's header. A repeated call changes nothing."""
        if header.height == self._height:
            return
        self._height = header.height
        self._basefee_cycle = int.from_bytes(header.basefee_cycle, "big")
        self._basefee_cell = int.from_bytes(header.basefee_cell, "big")
        self._worst = None

    def settle(self, header: Header, digests: Iterable[Hash], accounts: Mapping[Address, Account]) -> list[Departed]:
        """Forget the transactions of a final block. Drop and return those that can no longer run or are too old.

        ``accounts`` are those that the block changed, after it.
        """
        self.note_final(header)
        for digest in digests:
            final = self._by_hash.get(digest)
            if final is not None:
                self._remove(final)
        departed: list[Departed] = []
        for address, account in accounts.items():
            sender = self._senders.get(address)
            if sender is not None:
                sender.account, sender.refused_through = account, -1
                departed += self._recheck(sender)
        return departed + [self._drop(waiting, Departure.EXPIRED) for waiting in self._expired()]

    def _recheck(self, sender: _Sender) -> list[Departed]:
        """Drop what a sender's changed account no longer allows: used nonces, then the last ones it cannot afford."""
        spent = sorted(nonce for nonce in sender.queue if nonce < sender.account.nonce)
        departed = [self._drop(sender.queue[nonce], Departure.STALE_NONCE) for nonce in spent]
        while sender.cost > sender.account.balance:
            departed.append(self._drop(sender.last, Departure.UNAFFORDABLE))
        return departed

    def _expired(self) -> list[_Waiting]:
        oldest = self._height - self._limits.max_blocks_waiting
        return list(takewhile(lambda waiting: waiting.height < oldest, self._by_hash.values()))

    # --- offer --------------------------------------------------------------------------------------------------------

    def refuse(self, senders: Iterable[Address]) -> None:
        """Put these senders after all others for a while, since a block builder could not run their transactions."""
        for address in senders:
            sender = self._senders.get(address)
            if sender is not None and sender.queue:
                sender.refused_through = self._height + self._limits.max_blocks_refused

    def candidates(self, most: int) -> tuple[PreparedTransaction, ...]:
        """Up to ``most`` transactions for a block, in the order in which a builder should try them.

        The module docstring (*Offer*) has the order. Each sender's transactions are in the order of nonces.
        """
        queues = {address: sorted(sender.queue) for address, sender in self._senders.items() if sender.queue}
        heads = [self._turn(address, queue[0]) for address, queue in queues.items()]
        heapq.heapify(heads)
        positions = dict.fromkeys(queues, 0)
        taken: list[PreparedTransaction] = []
        while heads and len(taken) < most:
            comes_last, _, _, address = heapq.heappop(heads)
            queue, position = queues[address], positions[address]
            taken.append(self._senders[address].queue[queue[position]].prepared)
            positions[address] = position = position + 1
            if position < len(queue):
                expected = queue[position - 1] + 1
                heapq.heappush(heads, self._turn(address, queue[position], expected, comes_last))
        return tuple(taken)

    def _turn(
        self, address: Address, nonce: int, expected: int | None = None, comes_last: bool = False
    ) -> tuple[bool, int, int, Address]:
        """The sort key of a sender's transaction among candidates. ``expected`` is the sender's next nonce."""
        sender = self._senders[address]
        waiting = sender.queue[nonce]
        tip = self._tip(waiting.transaction)
        is_next = nonce == (sender.account.nonce if expected is None else expected)
        is_refused = self._height <= sender.refused_through
        return (comes_last or is_refused or not is_next or tip == NOT_RUNNABLE, -tip, waiting.number, address)

    # --- books --------------------------------------------------------------------------------------------------------

    def _insert(self, waiting: _Waiting, sender: _Sender) -> None:
        address = waiting.transaction.sender
        self._senders[address] = sender
        self._idle.pop(address, None)
        sender.queue[waiting.transaction.nonce] = self._by_hash[waiting.prepared.hash] = waiting
        sender.cost += waiting.cost
        sender.size += waiting.size
        self._bytes += waiting.size
        self._arrivals += 1
        self._note_last(sender)

    def _drop(self, waiting: _Waiting, reason: Departure) -> Departed:
        self._remove(waiting)
        return Departed(waiting.prepared.hash, reason)

    def _remove(self, waiting: _Waiting) -> None:
        address = waiting.transaction.sender
        sender = self._senders[address]
        del self._by_hash[waiting.prepared.hash]
        del sender.queue[waiting.transaction.nonce]
        sender.cost -= waiting.cost
        sender.size -= waiting.size
        self._bytes -= waiting.size
        self._note_last(sender)
        if not sender.queue:
            self._idle[address] = None
            if len(self._idle) > self._limits.max_idle_senders:
                oldest = next(iter(self._idle))
                del self._idle[oldest], self._senders[oldest]


def _first_charge(action: Action, parameters: Parameters) -> tuple[int, int]:
    """Cycles and cells charged before the transaction does anything: with less it always fails (SPEC §2)."""
    match action:
        case Call(payload=payload):
            return parameters.tx_base_cycles, len(payload)
        case Deploy(code=code):
            return parameters.tx_base_cycles + byte_cycles(code), len(code)  # code is ASCII
        case _:
            return parameters.tx_base_cycles, 0


def _cost(transaction: Transaction) -> int:
    """The most that a transaction can take from its sender's balance."""
    cycles = transaction.gas_limit * transaction.max_fee_per_cycle
    return transaction.value + cycles + transaction.cells_limit * transaction.max_fee_per_cell


def _last_but(sender: _Sender, gone: Iterable[Hash]) -> _Waiting | None:
    """A sender's last transaction, except those in ``gone``."""
    for nonce in sorted(sender.queue, reverse=True):
        if sender.queue[nonce].prepared.hash not in gone:
            return sender.queue[nonce]
    return None


def _require_bump(transaction: Transaction, former: Transaction) -> None:
    """Require that a transaction may replace the one with its nonce. Raises :class:`Refused`."""
    for name in ("max_fee_per_cycle", "max_priority_fee_per_cycle", "max_fee_per_cell"):
        had: int = getattr(former, name)
        least = had if name == "max_fee_per_cell" else least_replacement_fee(had)
        offered: int = getattr(transaction, name)
        if offered < least:
            raise Refused(
                Refusal.REPLACEMENT_UNDERPRICED,
                f"{name}: {offered}, expected at least {least} to replace what waits with nonce {former.nonce}",
            )


def _require_share(waiting: _Waiting, former: _Waiting | None, sender: _Sender, most_bytes: int) -> None:
    """Require that a sender stays within its share of the pool and its balance. Raises :class:`Refused`."""
    size, cost = sender.size + waiting.size, sender.cost + waiting.cost
    if former is not None:
        size, cost = size - former.size, cost - former.cost
    if size > most_bytes:
        raise Refused(Refusal.SENDER_LIMIT, f"{size} bytes of this sender would wait, expected at most {most_bytes}")
    if cost > sender.account.balance:
        raise Refused(
            Refusal.UNAFFORDABLE,
            f"the sender's transactions may take {cost}, its account holds {sender.account.balance}",
        )
