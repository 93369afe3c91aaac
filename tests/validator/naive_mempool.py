"""What the mempool must answer, by looking at everything each time."""

from __future__ import annotations

from dataclasses import dataclass, field

from validator.chain.genesis import Genesis
from validator.chain.records import Account
from validator.chain.transactions import Transaction
from validator.node.pool.limits import DEFAULT_LIMITS, PoolLimits
from validator.primitives.types import Address, Hash
from validator.transition.transition import PreparedTransaction

Place = tuple[bool, bool, int, int]
NOWHERE: Place = (False, False, -1, 0)


@dataclass(frozen=True)
class Row:
    """A transaction that waits."""

    prepared: PreparedTransaction
    number: int
    height: int

    @property
    def transaction(self) -> Transaction:
        return self.prepared.transaction

    @property
    def sender(self) -> Address:
        return self.prepared.transaction.sender

    @property
    def nonce(self) -> int:
        return self.prepared.transaction.nonce


@dataclass
class NaiveMempool:
    """Rows in the order of arrival, and all accounts that there are."""

    genesis: Genesis
    accounts: dict[Address, Account]
    limits: PoolLimits = DEFAULT_LIMITS
    basefees: tuple[int, int] = (1_000_000, 1_000_000)
    height: int = 0
    arrivals: int = 0
    rows: list[Row] = field(default_factory=list)
    refused: dict[Address, int] = field(default_factory=dict)

    def hashes(self) -> list[Hash]:
        return [row.prepared.hash for row in self.rows]

    def add(self, prepared: PreparedTransaction) -> str | list[tuple[Hash, str]]:
        """Why it is refused, or what leaves for it."""
        transaction, account = prepared.transaction, self.accounts[prepared.transaction.sender]
        same = [row for row in self.rows if (row.sender, row.nonce) == (transaction.sender, transaction.nonce)]
        others = [row for row in self.rows if row not in same]
        if prepared.hash in self.hashes():
            return "already_known"
        if transaction.nonce < account.nonce:
            return "stale_nonce"
        if transaction.nonce - account.nonce >= self.limits.max_nonces:
            return "nonce_too_high"
        limits = (transaction.max_fee_per_cycle, transaction.max_fee_per_cell)
        least = self.genesis.parameters.min_basefee
        if any(fee < least or fee < basefee // 2 for fee, basefee in zip(limits, self.basefees, strict=True)):
            return "fee_too_low"
        if any(not replaces(transaction, row.transaction) for row in same):
            return "replacement_underpriced"
        own = [row.prepared for row in others if row.sender == transaction.sender] + [prepared]
        if sum(len(one.wire) for one in own) > self.limits.max_sender_bytes:
            return "sender_limit"
        if sum(most_it_takes(one.transaction) for one in own) > account.balance:
            return "unaffordable"
        new = Row(prepared, self.arrivals, self.height)
        leaving = self._leaving(new, others)
        if leaving is None:
            return "mempool_full"
        self.rows = [row for row in others if row not in leaving] + [new]
        self.arrivals += 1
        return [(row.prepared.hash, "evicted") for row in leaving] + [(row.prepared.hash, "replaced") for row in same]

    def _leaving(self, new: Row, others: list[Row]) -> list[Row] | None:
        """Which of the others have to leave for a new one, the worst first."""
        left, leaving = list(others), list[Row]()
        while len(left) >= self.limits.max_transactions or size_of([*left, new]) > self.limits.max_bytes:
            last = [row for row in left if not any(r.sender == row.sender and r.nonce > row.nonce for r in left)]
            runnable = sum(self.place(row, self.rows) != NOWHERE for row in leaving)
            if not last or runnable == self.limits.max_evictions:
                return None
            worst = min(last, key=lambda row: (self.place(row, self.rows), -row.number))
            if self.place(worst, self.rows) >= self.place(new, [*others, new]):
                return None
            left.remove(worst)
            leaving.append(worst)
        return leaving

    def place(self, row: Row, rows: list[Row]) -> Place:
        first = self.accounts[row.sender].nonce
        before = {r.nonce: self.tip(r.transaction) for r in rows if r.sender == row.sender and r.nonce <= row.nonce}
        tips = [before.get(nonce, -1) for nonce in range(first, row.nonce + 1)]
        is_near = row.nonce < first + self.limits.near_nonces
        return NOWHERE if min(tips) < 0 else (True, is_near, min(tips), first - row.nonce)

    def tip(self, transaction: Transaction) -> int:
        cycle, cell = self.basefees
        if transaction.max_fee_per_cycle < cycle or transaction.max_fee_per_cell < cell:
            return -1
        return min(transaction.max_priority_fee_per_cycle, transaction.max_fee_per_cycle - cycle)

    def settle(
        self, height: int, basefees: tuple[int, int], final: list[Hash], changed: dict[Address, Account]
    ) -> list[tuple[Hash, str]]:
        self.height, self.basefees = height, basefees
        self.accounts.update(changed)
        self.rows = [row for row in self.rows if row.prepared.hash not in final]
        departed: list[tuple[Hash, str]] = []
        for address in changed:
            self.refused.pop(address, None)
            own = sorted((row for row in self.rows if row.sender == address), key=lambda row: row.nonce)
            departed += [(r.prepared.hash, "stale_nonce") for r in own if r.nonce < changed[address].nonce]
            own = [row for row in own if row.nonce >= changed[address].nonce]
            while sum(most_it_takes(row.transaction) for row in own) > changed[address].balance:
                departed.append((own.pop().prepared.hash, "unaffordable"))
            gone = {digest for digest, _ in departed}
            self.rows = [row for row in self.rows if row.prepared.hash not in gone]
        old = [row for row in self.rows if height - row.height > self.limits.max_blocks_waiting]
        self.rows = [row for row in self.rows if row not in old]
        return departed + [(row.prepared.hash, "expired") for row in old]

    def refuse(self, sender: Address) -> None:
        if any(row.sender == sender for row in self.rows):
            self.refused[sender] = self.height

    def candidates(self, most: int) -> list[Hash]:
        """One at a time: of every sender's next one, that which comes first."""
        left, taken = list(self.rows), list[Hash]()
        while left and len(taken) < most:
            heads = [row for row in left if not any(r.sender == row.sender and r.nonce < row.nonce for r in left)]
            first = min(heads, key=lambda row: (self._comes_last(row), -self.tip(row.transaction), row.number))
            left.remove(first)
            taken.append(first.prepared.hash)
        return taken

    def _comes_last(self, row: Row) -> bool:
        if row.sender in self.refused and self.height <= self.refused[row.sender] + self.limits.max_blocks_refused:
            return True
        return self.place(row, self.rows) == NOWHERE


def replaces(transaction: Transaction, former: Transaction) -> bool:
    pairs = (
        (transaction.max_fee_per_cycle, former.max_fee_per_cycle),
        (transaction.max_priority_fee_per_cycle, former.max_priority_fee_per_cycle),
    )
    is_bumped = all(new > old and 10 * new >= 11 * old for new, old in pairs)
    return is_bumped and transaction.max_fee_per_cell >= former.max_fee_per_cell


def most_it_takes(transaction: Transaction) -> int:
    cycles = transaction.gas_limit * transaction.max_fee_per_cycle
    return transaction.value + cycles + transaction.cells_limit * transaction.max_fee_per_cell


def size_of(rows: list[Row]) -> int:
    return sum(len(row.prepared.wire) for row in rows)
