"""Offers to the mempool: an offered transaction waits until its sender's account is known.

The mempool judges by the final state, and only the executor knows that. So an offer is checked at once against the
rules that need no state. If the account of one of its senders is unknown, the offer then waits for ``ReadAccounts``.
There is one read at a time, for all offers that wait when it begins: many offers cause a slow executor no more work.
The mempool updates the accounts that it knows from block to block (``Finalized.accounts``), so a sender is read once.

Offers of clients (``Submit``, answered by ``Reply``) and of peers are judged in the order of arrival, by the same
rules. Accepted transactions of a client are gossiped to all peers; those of a peer are not.

The waiting room is bounded. All peers together use at most half of it, and each peer a quarter: a peer that gossips
endlessly cannot make this validator refuse its clients or the other peers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from validator.chain.messages import MAX_GOSSIPED_TRANSACTIONS, MAX_MESSAGE_BYTES, TransactionsMessage, encode_message
from validator.chain.records import Account
from validator.chain.transactions import transaction_hash
from validator.node.events import Effect, Reply, Run, Send, SubmitResult, TransactionDropped, TransactionRefused
from validator.node.executor.jobs import AccountsRead, Finalized, ReadAccounts
from validator.node.mempool import Departed, Mempool, Refusal, Refused
from validator.primitives.types import Address, Hash
from validator.transition.transition import PreparedTransaction

MAX_OFFERED_TRANSACTIONS: Final = 8_192
"""Capacity of the waiting room, in transactions."""
MAX_OFFERED_BYTES: Final = 32 * 1024 * 1024
PEERS_SHARE: Final = 2
"""Divisor of the waiting room's capacity, for the part that all peers together may use."""
PEER_SHARE: Final = 4
"""Divisor of the waiting room's capacity, for the part that one peer may use."""
MAX_GOSSIPED_BYTES: Final = MAX_MESSAGE_BYTES // 2
"""Maximum number of transaction bytes in one gossip message."""

BAD_TRANSACTIONS: Final = frozenset((Refusal.MALFORMED, Refusal.WRONG_CHAIN, Refusal.BAD_SIGNATURE))
"""Refusals of transactions that no honest peer gossips, since it would have refused them itself."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Transactions that came together, from a client (with a request number) or a peer."""

    request: int | None
    peer: int | None
    items: Sequence[PreparedTransaction | SubmitResult]
    """The offer's transactions in order: results of those already refused, and those that are still to be judged."""

    @property
    def prepared(self) -> list[PreparedTransaction]:
        return [item for item in self.items if isinstance(item, PreparedTransaction)]

    @property
    def size(self) -> int:
        """Size of the transactions that are still to be judged, in bytes."""
        return sum(len(one.wire) for one in self.prepared)


class Offers:
    """Offers to one validator's mempool. Each method returns the effects that follow."""

    def __init__(self, mempool: Mempool) -> None:
        self._mempool = mempool
        self._offers: list[Offer] = []
        """Offers that wait for the next read."""
        self._being_read: list[Offer] = []
        """Offers whose senders' accounts are being read."""
        self._transactions_held: Counter[int | None] = Counter()
        """Number of transactions that wait or whose senders are being read, by peer; of clients under ``None``."""
        self._bytes_held: Counter[int | None] = Counter()

    def submit(self, request: int, wires: Sequence[bytes]) -> list[Effect]:
        """Take transactions from a client."""
        return self._offer(Offer(request, None, self._checked(wires)))

    def gossip(self, peer: int, wires: Sequence[bytes]) -> tuple[list[Effect], bool]:
        """Take transactions from a peer. Also returns whether an honest peer may have sent all of them."""
        items = self._checked(wires)
        is_honest = not any(isinstance(item, SubmitResult) and item.reason in BAD_TRANSACTIONS for item in items)
        return self._offer(Offer(None, peer, items)), is_honest

    def accounts_read(self, result: AccountsRead) -> list[Effect]:
        """Judge the offers whose senders' accounts were read, then go on with those that wait."""
        self._mempool.note_final(result.header)
        offers, self._being_read = self._being_read, []
        return self._judge(offers, result.accounts) + self._judge_or_read()

    def settle(self, final: Finalized) -> list[Effect]:
        """Update the mempool for a final block."""
        return _departures(self._mempool.settle(final.header, final.transactions, final.accounts))

    def close(self, reason: Refusal, line: str) -> list[Effect]:
        """Refuse all waiting transactions. ``line`` is the error for clients."""
        offers = [*self._being_read, *self._offers]
        self._being_read, self._offers = [], []
        self._transactions_held.clear()
        self._bytes_held.clear()
        return [effect for offer in offers for effect in _refuse_all(offer, Refused(reason, line))]

    def _checked(self, wires: Sequence[bytes]) -> list[PreparedTransaction | SubmitResult]:
        items: list[PreparedTransaction | SubmitResult] = []
        for wire in wires:
            try:
                items.append(self._mempool.check(wire))
            except Refused as refusal:
                items.append(_refusal(transaction_hash(wire), refusal))
        return items

    def _offer(self, offer: Offer) -> list[Effect]:
        count, size = len(offer.prepared), offer.size
        has_room = _has_room(self._transactions_held, offer.peer, count, MAX_OFFERED_TRANSACTIONS)
        if not count or not has_room or not _has_room(self._bytes_held, offer.peer, size, MAX_OFFERED_BYTES):
            return _refuse_all(offer, Refused(Refusal.BUSY, "too many transactions wait for admission; try again"))
        self._transactions_held[offer.peer] += count
        self._bytes_held[offer.peer] += size
        self._offers.append(offer)
        return self._judge_or_read()

    def _judge_or_read(self) -> list[Effect]:
        """Judge the waiting offers, or read their senders' accounts, unless a read is under way."""
        if self._being_read or not self._offers:
            return []
        offers, self._offers = self._offers, []
        senders = dict.fromkeys(one.transaction.sender for offer in offers for one in offer.prepared)
        known = {sender: self._mempool.account_of(sender) for sender in senders}
        accounts = {sender: account for sender, account in known.items() if account is not None}
        if len(accounts) == len(senders):
            return self._judge(offers, accounts)
        self._being_read = offers
        return [Run(ReadAccounts(tuple(senders)))]

    def _judge(self, offers: Sequence[Offer], accounts: Mapping[Address, Account]) -> list[Effect]:
        effects: list[Effect] = []
        for offer in offers:
            self._transactions_held[offer.peer] -= len(offer.prepared)
            self._bytes_held[offer.peer] -= offer.size
            effects += self._judge_one(offer, accounts)
        return effects

    def _judge_one(self, offer: Offer, accounts: Mapping[Address, Account]) -> list[Effect]:
        """Add an offer's transactions to the mempool. Gossip a client's accepted ones, answer, and report refusals."""
        results: list[SubmitResult] = []
        taken: list[bytes] = []
        departed: list[Departed] = []
        for item in offer.items:
            if isinstance(item, SubmitResult):
                results.append(item)
                continue
            try:
                departed += self._mempool.add(item, accounts[item.transaction.sender])
            except Refused as refusal:
                results.append(_refusal(item.hash, refusal))
            else:
                taken.append(item.wire)
                results.append(SubmitResult(item.hash, None))
        onward = batches(taken) if offer.peer is None else ()
        gossip: list[Effect] = [Send(None, encode_message(TransactionsMessage(batch))) for batch in onward]
        return gossip + _departures(departed) + _answer(offer, results)


def _has_room(held: Counter[int | None], peer: int | None, more: int, room: int) -> bool:
    """Whether ``more`` transactions from a peer, or from a client (``None``), may wait."""
    total = held.total() + more
    if peer is None:
        return total <= room
    return total <= room and total - held[None] <= room // PEERS_SHARE and held[peer] + more <= room // PEER_SHARE


def _refusal(digest: Hash, refusal: Refused) -> SubmitResult:
    return SubmitResult(digest, str(refusal), refusal.reason.value)


def _refuse_all(offer: Offer, refusal: Refused) -> list[Effect]:
    """Answer an offer whose transactions are all refused."""
    return _answer(
        offer, [item if isinstance(item, SubmitResult) else _refusal(item.hash, refusal) for item in offer.items]
    )


def _answer(offer: Offer, results: Sequence[SubmitResult]) -> list[Effect]:
    """Report refusals to observers, and each transaction's result to the client."""
    effects: list[Effect] = [
        TransactionRefused(result.transaction_hash, result.reason, offer.peer)
        for result in results
        if result.reason is not None
    ]
    if offer.request is not None:
        effects.append(Reply(offer.request, tuple(results)))
    return effects


def _departures(departed: Sequence[Departed]) -> list[Effect]:
    return [TransactionDropped(digest, reason.value) for digest, reason in departed]


def batches(transactions: Sequence[bytes]) -> Iterator[tuple[bytes, ...]]:
    """Transactions in batches for gossip messages, bounded in number and in bytes."""
    batch: list[bytes] = []
    size = 0
    for wire in transactions:
        if batch and (len(batch) == MAX_GOSSIPED_TRANSACTIONS or size + len(wire) > MAX_GOSSIPED_BYTES):
            yield tuple(batch)
            batch, size = [], 0
        batch.append(wire)
        size += len(wire)
    if batch:
        yield tuple(batch)
