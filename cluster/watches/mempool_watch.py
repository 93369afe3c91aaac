"""The watch of mempools: it compares what each accepts, rejects, drops, passes on and offers to a builder with a model.

Each validator has a model, written from ``docs/protocol.md``, "Mempool", that sees the same events: transactions of
clients and peers, account reads, final blocks, senders that a builder refused. After each event the model predicts
which transactions are rejected or leave, and why, in which order; the replies to clients; which transactions go on to
all peers; whether accounts are read; the order in which a builder gets the waiting transactions; and how much is kept.
The validator's effects must match. A builder gets nothing for a view that is more than ``max_held_blocks`` after that
of the newest block that the validator committed.

A model ends with the validator's life, with the first difference, and when more than :data:`MOST_ROWS` transactions
wait: scanning them all each time would take too long.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from operator import add
from typing import Any, Final, NamedTuple

from cluster.audit.safety.rule_log import Look
from cluster.record.rules import Mechanism, SafetyRule
from cluster.scenario import Scenario
from cluster.simulation.machine import Machine
from cluster.watches.watch import Broadcast, Read, Watch, broadcast_of, subject_of
from validator.chain.block import Header
from validator.chain.genesis import Genesis
from validator.chain.messages import TransactionsMessage
from validator.chain.records import Account
from validator.chain.transactions import Call, Deploy, System, Transaction, TransactionError, parse, transaction_hash
from validator.node.events import (
    Completed,
    Diverged,
    Effect,
    Event,
    Message,
    Reply,
    Run,
    Submit,
    TransactionDropped,
    TransactionRefused,
)
from validator.node.executor.jobs import AccountsRead, Build, Built, Finalized, JobResult, ReadAccounts
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


FOLLOWED: Final = frozenset({Submit, TransactionsMessage})
"""The subjects of events that bring transactions."""
MOST_ROWS: Final = 300
MOST_GOSSIPED: Final = 1_024
"""Maximum number of transactions in one message of a peer; a message with more is dropped."""
ROOM: Final = 8_192
"""Maximum number of transactions that wait until their senders' accounts are read. Those from all peers together may
fill half of it, those from one peer a quarter."""
ROOM_BYTES: Final = 32 * 1024 * 1024
REMEMBERED_TRANSACTIONS: Final = 1 << 10
"""Number of transactions that were judged without the state and are remembered. Each comes to all validators."""
SHOWN_BYTES: Final = 8
"""Number of bytes of a hash or a transaction that a violation shows."""

Judged = PreparedTransaction | tuple[Hash, str]
"""A transaction that is still to be judged, or a hash with the reason for its rejection."""


class Outcome(NamedTuple):
    """What one event changes in a mempool, and the effects that show it."""

    refused: list[tuple[Hash, str, int | None]]
    """Each rejected transaction's hash, reason, and peer; the peer is ``None`` for a client's transaction."""
    dropped: list[Gone]
    replies: list[tuple[int, list[str | None]]]
    """For each client's request, its number and each transaction's reason for rejection; ``None`` if accepted."""
    sent: list[bytes]
    """Transactions sent to all peers."""
    read: list[tuple[Address, ...]]
    """Accounts that the mempool asks the executor to read, a tuple per request."""

    @classmethod
    def of(cls, effects: Sequence[Effect], sent: Sequence[bytes]) -> Outcome:
        """Collect the outcome from a validator's effects; ``sent`` has the transactions that it broadcasts."""
        if not sent and SHOWN.isdisjoint(map(type, effects)):
            return NO_OUTCOME
        outcome = cls([], [], [], list(sent), [])
        for effect in effects:
            match effect:
                case TransactionRefused(digest, reason, peer):
                    outcome.refused.append((digest, reason, peer))
                case TransactionDropped(digest, reason):
                    outcome.dropped.append((digest, reason))
                case Reply(request, results):
                    outcome.replies.append((request, [result.reason for result in results]))
                case Run(ReadAccounts(addresses)):
                    outcome.read.append(addresses)
        return outcome


SHOWN: Final = frozenset({Reply, Run, TransactionDropped, TransactionRefused})
"""Effects that may show what a mempool does."""
NO_OUTCOME: Final = Outcome([], [], [], [], [])
"""The outcome of most events, in which a mempool does nothing. Its lists stay empty."""


@dataclass(slots=True)
class _Offer:
    """Transactions that came together, in one request of a client or in one message of a peer."""

    request: int | None
    peer: int | None
    items: list[Judged]

    @property
    def waiting(self) -> list[PreparedTransaction]:
        return [item for item in self.items if isinstance(item, PreparedTransaction)]

    @property
    def size(self) -> int:
        return sum(len(one.wire) for one in self.waiting)


@dataclass(slots=True)
class _Model:
    """One validator's mempool, with the queue in front of it, since the validator's start."""

    pool: PlainMempool
    judge: Callable[[bytes], Judged]
    """Judges a transaction whatever the state is."""
    final_view: int = 0
    """The view of the newest final block that the validator committed."""
    offers: list[_Offer] = field(default_factory=list)
    being_read: list[_Offer] = field(default_factory=list)
    is_followed: bool = True

    def follow(self, event: Event) -> Outcome:
        """Apply an event to the model. Returns the outcome that the validator's mempool must have."""
        if type(event) is Completed:
            return self._follow_result(event.result)
        if subject_of(event) not in FOLLOWED:
            return NO_OUTCOME
        outcome = Outcome([], [], [], [], [])
        match event:
            case Submit(request, transactions):
                self._offer(_Offer(request, None, self._checked(transactions)), outcome)
            case Message(sender, _, TransactionsMessage(transactions)) if len(transactions) <= MOST_GOSSIPED:
                self._offer(_Offer(None, sender, self._checked(transactions)), outcome)
        return outcome

    def _follow_result(self, result: JobResult) -> Outcome:
        match result:
            case Finalized(header=header, transactions=digests, accounts=accounts):
                self._note_final(header)
                if dropped := self.pool.settle(digests, accounts):
                    return Outcome([], dropped, [], [], [])
            case Built(refused=senders):
                self.pool.refuse(senders)
            case AccountsRead(header, accounts):
                outcome = Outcome([], [], [], [], [])
                self._note_final(header)
                read, self.being_read = self.being_read, []
                self._judge(read, accounts, outcome)
                self._read_or_judge(outcome)
                return outcome
        return NO_OUTCOME

    def close(self) -> Outcome:
        """End the model of a validator that diverged. Returns the outcome: a rejection of each transaction still to be
        judged."""
        outcome = Outcome([], [], [], [], [])
        for offer in [*self.being_read, *self.offers]:
            self._answer(offer, [_reason(item, "diverged") for item in offer.items], outcome)
        self.is_followed = False
        return outcome

    def _note_final(self, header: Header) -> None:
        self.final_view = header.view
        if header.height != self.pool.height:
            cycle, cell = (int.from_bytes(fee, "big") for fee in (header.basefee_cycle, header.basefee_cell))
            self.pool.note_final(header.height, (cycle, cell))

    def _checked(self, wires: Iterable[bytes]) -> list[Judged]:
        return [self._check(wire) for wire in wires]

    def _check(self, wire: bytes) -> Judged:
        judged = self.judge(wire)
        digest = judged.hash if isinstance(judged, PreparedTransaction) else judged[0]
        return (digest, "already_known") if digest in self.pool.rows else judged

    def _offer(self, offer: _Offer, outcome: Outcome) -> None:
        if not offer.waiting or not self._has_room(offer):
            self._answer(offer, [_reason(item, "busy") for item in offer.items], outcome)
            return
        self.offers.append(offer)
        self._read_or_judge(outcome)

    def _has_room(self, offer: _Offer) -> bool:
        held = [*self.being_read, *self.offers, offer]
        for room, amount in ((ROOM, lambda one: len(one.waiting)), (ROOM_BYTES, lambda one: one.size)):
            by_peer: Counter[int | None] = Counter()
            for one in held:
                by_peer[one.peer] += amount(one)
            of_peers = by_peer.total() - by_peer[None]
            if by_peer.total() > room:
                return False
            if offer.peer is not None and (of_peers > room // 2 or by_peer[offer.peer] > room // 4):
                return False
        return True

    def _read_or_judge(self, outcome: Outcome) -> None:
        if self.being_read or not self.offers:
            return
        offers, self.offers = self.offers, []
        senders = tuple(dict.fromkeys(one.transaction.sender for offer in offers for one in offer.waiting))
        if all(sender in self.pool.senders for sender in senders):
            self._judge(offers, {sender: self.pool.senders[sender].account for sender in senders}, outcome)
        else:
            self.being_read = offers
            outcome.read.append(senders)

    def _judge(self, offers: Sequence[_Offer], accounts: Mapping[Address, Account], outcome: Outcome) -> None:
        for offer in offers:
            reasons: list[str | None] = []
            for item in offer.items:
                if not isinstance(item, PreparedTransaction):
                    reasons.append(item[1])
                    continue
                answer = self.pool.add(item, accounts[item.transaction.sender])
                reasons.append(answer if isinstance(answer, str) else None)
                if not isinstance(answer, str):
                    outcome.dropped.extend(answer)
                    if offer.peer is None:
                        outcome.sent.append(item.wire)
            self._answer(offer, reasons, outcome)

    @staticmethod
    def _answer(offer: _Offer, reasons: Sequence[str | None], outcome: Outcome) -> None:
        hashes = [item.hash if isinstance(item, PreparedTransaction) else item[0] for item in offer.items]
        judged = zip(hashes, reasons, strict=True)
        outcome.refused.extend((digest, reason, offer.peer) for digest, reason in judged if reason is not None)
        if offer.request is not None:
            outcome.replies.append((offer.request, list(reasons)))


def _reason(item: Judged, why: str) -> str:
    """The reason to reject a transaction with its whole offer: ``why``, unless it was rejected for another before."""
    return why if isinstance(item, PreparedTransaction) else item[1]


def _judged(wire: bytes, genesis: Genesis) -> Judged:
    """A client's or a peer's transaction, judged without the state."""
    digest = transaction_hash(wire)
    try:
        transaction = parse(wire, genesis.chain_id)
    except TransactionError as error:
        return digest, error.reason
    reason = fault_of(transaction, genesis)
    return PreparedTransaction(digest, wire, transaction) if reason is None else (digest, reason)


class MempoolWatch(Watch):
    """Compares in one run the mempools of honest validators with their models."""

    SUBJECTS = FOLLOWED | {Completed}
    JUDGED = frozenset({Broadcast, Build, Diverged, ReadAccounts, Reply, TransactionDropped, TransactionRefused})

    def __init__(self, names: Sequence[str], look: Look, scenario: Scenario, genesis: Genesis, read: Read) -> None:
        super().__init__(names, look)
        self._max_held_blocks = scenario.limits.max_held_blocks
        self._genesis = genesis
        self._limits = scenario.limits.pool()
        self._read = read
        self._judge = lru_cache(REMEMBERED_TRANSACTIONS)(partial(_judged, genesis=genesis))
        self._models = [self._model(0) for _ in names]

    def _model(self, final_view: int) -> _Model:
        return _Model(PlainMempool(self._genesis, self._limits), self._judge, final_view)

    def begins(self, machine: Machine) -> None:
        """Begin an empty model: mempools are not durable."""
        assert machine.validator is not None, "it has started"
        self._models[machine.index] = self._model(machine.validator.executor.final_header.view)

    def judge(self, machine: Machine, event: Event, effects: Sequence[Effect]) -> None:
        """Compare a validator with its model after an event: its effects, its broadcasts, and its mempool's size."""
        index, model = machine.index, self._models[machine.index]
        if not model.is_followed:
            return
        broadcast = broadcast_of(effects, self._read)
        sent = [wire for each in broadcast if type(each) is TransactionsMessage for wire in each.transactions]
        expected, outcome = model.follow(event), Outcome.of(effects, sent)
        types = set(map(type, effects))
        if Diverged in types:
            expected = Outcome(*map(add, expected, model.close()))
        is_concerned = expected is not outcome and (any(expected) or any(outcome))
        if is_concerned:
            holds = outcome == expected
            self._tell(index, holds, "" if holds else _difference(outcome, expected))
        if type(event) is Completed and type(event.result) is Built and event.result.refused:
            self.reached.add(Mechanism.POOL_SENDER_REFUSED)
        if Run in types:
            for effect in effects:
                if type(effect) is Run and type(effect.job) is Build:
                    self._look_at_offer(index, model, effect.job)
        pool = model.pool
        if is_concerned or type(event) is Completed:
            assert machine.validator is not None, "it has handled an event"
            found, kept = machine.validator.node.mempool.sizes, (len(pool.rows), pool.size, len(pool.idle))
            holds = found == kept
            self._tell(index, holds, "" if holds else f"keeps {tuple(found)}, expected {kept}")
        model.is_followed &= len(pool.rows) <= MOST_ROWS

    def _look_at_offer(self, index: int, model: _Model, job: Build) -> None:
        """Check the transactions that a builder gets, and their order."""
        if model.pool.has_forgiven():
            self.reached.add(Mechanism.POOL_SENDER_FORGIVEN)
        offered = [one.hash for one in job.candidates]
        has_room = job.view - model.final_view <= self._max_held_blocks
        due = model.pool.candidates()
        if due and not has_room:
            self.reached.add(Mechanism.PROPOSED_WITHOUT_ROOM)
            due = []
        self._tell(index, offered == due, "offers a builder what waits in another order, or not when it is due")

    def _tell(self, index: int, holds: bool, what: str) -> None:
        self._look(SafetyRule.MEMPOOL, holds, "" if holds else f"{self._names[index]}: {what}")
        self._models[index].is_followed &= holds


def _difference(outcome: Outcome, expected: Outcome) -> str:
    """The first field that differs, in words."""
    for name in Outcome._fields:
        found, due = getattr(outcome, name), getattr(expected, name)
        if found != due:
            return f"{name}: {_words(found)}, expected {_words(due)}"
    return ""


def _words(found: Sequence[Any]) -> str:
    """The number of items, and the first one."""
    return f"{len(found)} ({_word(found[0]) if found else 'none'})"


def _word(one: Any) -> str:
    """A value as text; of bytes, the first :data:`SHOWN_BYTES` as hex."""
    if isinstance(one, bytes):
        return one[:SHOWN_BYTES].hex()
    return " ".join(map(_word, one)) if isinstance(one, tuple | list) else str(one)
