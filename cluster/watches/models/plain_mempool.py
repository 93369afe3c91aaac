"""A simple mempool written from ``docs/protocol.md``, "Mempool". It scans all transactions at each operation."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from validator.chain.genesis import Genesis
from validator.chain.records import Account
from validator.chain.transactions import Call, Deploy, System, Transaction
from validator.node.limits import PoolLimits
from validator.primitives.types import Address, Hash
from validator.pvm.deployment import byte_cycles
from validator.transition.transition import PreparedTransaction

Place = tuple[bool, bool, int, int]
"""A row's rank among those that compete for room. Its items are: whether the row can run, whether its nonce is near
the account's, the least tip of the sender's rows up to it, and minus the distance between the two nonces."""
NOWHERE: Final[Place] = (False, False, -1, 0)
FLOOR_DIVISOR: Final = 2
"""A transaction's fee limit must be at least the basefee divided by this."""

Turn = tuple[bool, int, int, Hash]
"""A row's rank in the order for blocks, the least first: whether it comes last, minus its tip, its number, its hash."""
Gone = tuple[Hash, str]
"""A transaction that left, and the reason."""


class Row(NamedTuple):
    """A waiting transaction."""

    prepared: PreparedTransaction
    number: int
    """Its number in the order of arrival."""
    height: int
    """The newest final height when it arrived."""

    @property
    def transaction(self) -> Transaction:
        return self.prepared.transaction

    @property
    def hash(self) -> Hash:
        return self.prepared.hash

    @property
    def sender(self) -> Address:
        return self.prepared.transaction.sender

    @property
    def nonce(self) -> int:
        return self.prepared.transaction.nonce

    @property
    def size(self) -> int:
        return len(self.prepared.wire)


@dataclass(slots=True)
class Sender:
    """A sender's account and waiting transactions."""

    account: Account
    rows: dict[int, Row] = field(default_factory=dict)
    """Rows keyed by nonce."""
    last_until: int = -1
    """The height up to which the sender's transactions come after those of the other senders."""


@dataclass(slots=True)
class PlainMempool:
    """A mempool: its rows in the order of arrival, and its known senders.

    ``idle`` has the senders without a row; the sender that has had none for longest comes first.
    """

    genesis: Genesis
    limits: PoolLimits
    basefees: tuple[int, int] = field(init=False)
    """The basefees per cycle and per cell."""
    height: int = 0
    arrivals: int = 0
    rows: dict[Hash, Row] = field(default_factory=dict)
    senders: dict[Address, Sender] = field(default_factory=dict)
    idle: dict[Address, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.basefees = (self.genesis.parameters.initial_basefee,) * 2

    @property
    def size(self) -> int:
        """Bytes of all waiting transactions."""
        return sum(row.size for row in self.rows.values())

    # --- coming ---------------------------------------------------------------------------------------------------

    def add(self, prepared: PreparedTransaction, account: Account) -> str | list[Gone]:
        """Add a transaction. Returns the reason if it is rejected, otherwise the transactions that leave for it.

        ``account`` is used for an unknown sender.
        """
        transaction = prepared.transaction
        sender = self.senders.get(transaction.sender) or Sender(account)
        same = sender.rows.get(transaction.nonce)
        if reason := self._refusal(prepared, sender, same):
            return reason
        new = Row(prepared, self.arrivals, self.height)
        evicted = self._evicted(new, sender, same)
        if evicted is None:
            return "mempool_full"
        gone = [(row, "evicted") for row in evicted] + ([] if same is None else [(same, "replaced")])
        for row, _ in gone:
            self._remove(row)
        self.arrivals += 1
        self.rows[new.hash] = sender.rows[new.nonce] = new
        self.senders[new.sender] = sender
        self.idle.pop(new.sender, None)
        return [(row.hash, reason) for row, reason in gone]

    def _refusal(self, prepared: PreparedTransaction, sender: Sender, same: Row | None) -> str | None:
        transaction, first = prepared.transaction, sender.account.nonce
        if prepared.hash in self.rows:
            return "already_known"
        if transaction.nonce < first:
            return "stale_nonce"
        if transaction.nonce - first >= self.limits.max_nonces:
            return "nonce_too_high"
        fees = (transaction.max_fee_per_cycle, transaction.max_fee_per_cell)
        least = self.genesis.parameters.min_basefee
        if any(fee < max(least, basefee // FLOOR_DIVISOR) for fee, basefee in zip(fees, self.basefees, strict=True)):
            return "fee_too_low"
        if same is not None and not replaces(transaction, same.transaction):
            return "replacement_underpriced"
        others = [row for row in sender.rows.values() if row is not same]
        if sum(row.size for row in others) + len(prepared.wire) > self.limits.max_sender_bytes:
            return "sender_limit"
        takes = sum(most_it_takes(row.transaction) for row in others) + most_it_takes(transaction)
        return "unaffordable" if takes > sender.account.balance else None

    def _evicted(self, new: Row, sender: Sender, same: Row | None) -> list[Row] | None:
        """The rows that leave for a new one, the worst first; ``None`` if the new one is rejected."""
        count, size = len(self.rows) - (same is not None), self.size - (0 if same is None else same.size)
        evicted: list[Row] = []
        while count >= self.limits.max_transactions or size + new.size > self.limits.max_bytes:
            last = [row for other in self.senders.values() if (row := _last_of(other, [same, *evicted])) is not None]
            runnable = sum(self._place(row) != NOWHERE for row in evicted)
            if not last or runnable == self.limits.max_evictions:
                return None
            place, _, worst = min((self._place(row), -row.number, row) for row in last)
            if place >= self._place(new, sender):
                return None
            evicted.append(worst)
            count, size = count - 1, size - worst.size
        return evicted

    def _place(self, row: Row, sender: Sender | None = None) -> Place:
        """The rank of a row among those that compete for room; the highest stays."""
        sender = sender or self.senders[row.sender]
        first = sender.account.nonce
        before = [sender.rows.get(nonce) for nonce in range(first, row.nonce)]
        tips = [-1 if other is None else self._tip(other.transaction) for other in before]
        tip = min([*tips, self._tip(row.transaction)])
        return NOWHERE if tip < 0 else (True, row.nonce < first + self.limits.near_nonces, tip, first - row.nonce)

    def _tip(self, transaction: Transaction) -> int:
        cycle, cell = self.basefees
        if transaction.max_fee_per_cycle < cycle or transaction.max_fee_per_cell < cell:
            return -1
        return min(transaction.max_priority_fee_per_cycle, transaction.max_fee_per_cycle - cycle)

    # --- leaving ------------------------------------------------------------------------------------------------------

    def note_final(self, height: int, basefees: tuple[int, int]) -> None:
        """Set the newest final height and its basefees."""
        self.height, self.basefees = height, basefees

    def settle(self, digests: Iterable[Hash], accounts: Mapping[Address, Account]) -> list[Gone]:
        """Apply the newest final block's transactions and changed accounts."""
        for row in [self.rows[digest] for digest in digests if digest in self.rows]:
            self._remove(row)
        gone: list[Gone] = []
        for address, account in accounts.items():
            if (sender := self.senders.get(address)) is not None:
                sender.account, sender.last_until = account, -1
                gone += self._recheck(sender)
        old = [row for row in self.rows.values() if self.height - row.height > self.limits.max_blocks_waiting]
        return gone + [self._drop(row, "expired") for row in old]

    def _recheck(self, sender: Sender) -> list[Gone]:
        rows = [sender.rows[nonce] for nonce in sorted(sender.rows)]
        gone = [self._drop(row, "stale_nonce") for row in rows if row.nonce < sender.account.nonce]
        while sum(most_it_takes(row.transaction) for row in sender.rows.values()) > sender.account.balance:
            gone.append(self._drop(sender.rows[max(sender.rows)], "unaffordable"))
        return gone

    def _drop(self, row: Row, reason: str) -> Gone:
        self._remove(row)
        return row.hash, reason

    def _remove(self, row: Row) -> None:
        rows = self.senders[row.sender].rows
        del self.rows[row.hash], rows[row.nonce]
        if not rows:
            self.idle[row.sender] = None
            for address in list(self.idle)[: max(0, len(self.idle) - self.limits.max_idle_senders)]:
                del self.idle[address], self.senders[address]

    # --- going into blocks --------------------------------------------------------------------------------------------

    def refuse(self, senders: Iterable[Address]) -> None:
        """Put senders after all others for some blocks, since a builder could run none of their transactions."""
        for address in senders:
            if (sender := self.senders.get(address)) is not None and sender.rows:
                sender.last_until = self.height + self.limits.max_blocks_refused

    def has_forgiven(self) -> bool:
        """Whether a sender was refused long enough ago that it takes its turn with the others again."""
        return any(sender.rows and 0 <= sender.last_until < self.height for sender in self.senders.values())

    def candidates(self) -> list[Hash]:
        """All waiting transactions, in the order in which a builder tries them: repeatedly the
        best-ranked one among the senders' next ones."""
        heads = [self._turns(sender) for sender in self.senders.values() if sender.rows]
        heapq.heapify(heads)
        taken: list[Hash] = []
        while heads:
            (*_, digest), *later = heapq.heappop(heads)
            taken.append(digest)
            if later:
                heapq.heappush(heads, later)
        return taken

    def _turns(self, sender: Sender) -> list[Turn]:
        """The ranks of a sender's rows, by nonce; the least goes first. No two have the same number."""
        comes_last, expected, turns = self.height <= sender.last_until, sender.account.nonce, list[Turn]()
        for nonce in sorted(sender.rows):
            row = sender.rows[nonce]
            tip = self._tip(row.transaction)
            comes_last |= nonce != expected or tip < 0
            turns.append((comes_last, -tip, row.number, row.hash))
            expected = nonce + 1
        return turns


def _last_of(sender: Sender, but: Sequence[Row | None]) -> Row | None:
    """A sender's row with the highest nonce, apart from the rows in ``but``; ``None`` if there is no other."""
    rows = [row for row in sender.rows.values() if all(row is not other for other in but)]
    return max(rows, key=lambda row: row.nonce, default=None)


def replaces(transaction: Transaction, former: Transaction) -> bool:
    """Whether a transaction pays enough to replace one with the same nonce."""
    pairs = (
        (transaction.max_fee_per_cycle, former.max_fee_per_cycle),
        (transaction.max_priority_fee_per_cycle, former.max_priority_fee_per_cycle),
    )
    is_bumped = all(new > old and 10 * new >= 11 * old for new, old in pairs)
    return is_bumped and transaction.max_fee_per_cell >= former.max_fee_per_cell


def most_it_takes(transaction: Transaction) -> int:
    """The most that a transaction can cost its sender."""
    cycles = transaction.gas_limit * transaction.max_fee_per_cycle
    return transaction.value + cycles + transaction.cells_limit * transaction.max_fee_per_cell


def fault_of(transaction: Transaction, genesis: Genesis) -> str | None:
    """The reason to reject a transaction whatever the state is; ``None`` if there is none."""
    p, action = genesis.parameters, transaction.action
    is_system = isinstance(action, System)
    if is_system and transaction.sender not in genesis.system_deployers:
        return "not_system_deployer"
    payload = action.payload if isinstance(action, Call) else action.code if isinstance(action, Deploy) else b""
    code_cycles = byte_cycles(action.code) if isinstance(action, Deploy) else 0
    if transaction.gas_limit < p.tx_base_cycles + code_cycles:
        return "gas_too_low"
    if transaction.gas_limit > (p.lane_system_cycles if is_system else p.lane_user_cycles):
        return "gas_too_high"
    if transaction.cells_limit < len(payload):
        return "cells_too_low"
    return "cells_too_high" if transaction.cells_limit > p.lane_user_cells else None
