"""Transactions that wait for a block: checked, bounded, ordered.

A transaction enters once its shape, chain and signature are right; whether it is admissible is for the block builder,
who sees the state it would run on and says
whom it had to refuse. Per sender, transactions wait in the order of their nonces; what is offered for a
block takes senders by the tip of their next transaction, ties by arrival. Everything is bounded: when the pool is
full, it refuses.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Final, NamedTuple

from validator.transactions import TransactionError, parse, transaction_hash
from validator.transition import PreparedTransaction
from validator.types import Address, Hash

MAX_TRANSACTIONS: Final = 20_000
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_PER_SENDER: Final = 256
MAX_BLOCKS_REFUSED: Final = 16
"""For so many final blocks a refused sender comes after the others."""
MAX_BLOCKS_WAITING: Final = 512
"""After so many final blocks a transaction that no block could take is dropped."""


class Refused(Exception):
    """The mempool did not take a transaction; one line says why."""


class _Arrival(NamedTuple):
    number: int
    height: int
    """Newest final height when it came."""


class Mempool:
    """The pool of one validator."""

    def __init__(self, chain_id: str) -> None:
        self._chain_id = chain_id
        self._by_hash: dict[Hash, PreparedTransaction] = {}
        self._by_sender: dict[Address, dict[int, PreparedTransaction]] = {}
        self._arrival: dict[Hash, _Arrival] = {}
        """In order of arrival."""
        self._arrivals = 0
        self._height = 0
        self._refused: dict[Address, int] = {}
        """Senders whose next transaction a builder refused, with the newest final height then."""
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._by_hash)

    def __contains__(self, digest: Hash) -> bool:
        return digest in self._by_hash

    def get(self, digest: Hash) -> PreparedTransaction | None:
        return self._by_hash.get(digest)

    def add(self, wire: bytes) -> PreparedTransaction:
        """Check and take a transaction. Raises :class:`Refused`."""
        digest = transaction_hash(wire)
        if digest in self._by_hash:
            raise Refused("already known")
        if len(self._by_hash) >= MAX_TRANSACTIONS or self._bytes + len(wire) > MAX_BYTES:
            raise Refused("the mempool is full")
        try:
            prepared = PreparedTransaction(digest, wire, parse(wire, self._chain_id))
        except TransactionError as error:
            raise Refused(str(error)) from None
        queue = self._by_sender.setdefault(prepared.transaction.sender, {})
        nonce = prepared.transaction.nonce
        if nonce in queue:
            raise Refused(f"another transaction with nonce {nonce} of this sender waits")
        if len(queue) >= MAX_PER_SENDER:
            raise Refused(f"the sender has {MAX_PER_SENDER} transactions waiting")
        queue[nonce] = self._by_hash[digest] = prepared
        self._arrival[digest] = _Arrival(self._arrivals, self._height)
        self._arrivals += 1
        self._bytes += len(wire)
        return prepared

    def settle(self, digests: Iterable[Hash], nonces: Mapping[Address, int], height: int) -> None:
        """Forget what became final at ``height``, what of the same senders can never run any more, and what is too old.

        ``nonces`` are the senders' nonces in the new final state.
        """
        self._height = height
        for digest in digests:
            self._remove(digest)
        for sender in sorted(nonces):
            stale = [tx.hash for nonce, tx in self._by_sender.get(sender, {}).items() if nonce < nonces[sender]]
            for digest in stale:
                self._remove(digest)
        for digest in self._expired():
            self._remove(digest)
        for sender in nonces:
            self._refused.pop(sender, None)
        oldest = height - MAX_BLOCKS_REFUSED
        self._refused = {sender: since for sender, since in self._refused.items() if since >= oldest}

    def refuse(self, senders: Iterable[Address]) -> None:
        """A builder could run nothing of these senders: they come after all others for a while."""
        for sender in senders:
            self._refused[sender] = self._height

    def candidates(self, most: int) -> tuple[PreparedTransaction, ...]:
        """Up to ``most`` transactions to try, each sender's in the order of nonces, refused senders last."""
        queues = {sender: sorted(queue.items()) for sender, queue in self._by_sender.items()}
        heads = [self._rank(queue[0][1], sender) for sender, queue in queues.items()]
        heapq.heapify(heads)
        positions = dict.fromkeys(queues, 0)
        taken: list[PreparedTransaction] = []
        while heads and len(taken) < most:
            *_, sender = heapq.heappop(heads)
            queue, position = queues[sender], positions[sender]
            taken.append(queue[position][1])
            positions[sender] = position = position + 1
            if position < len(queue):
                heapq.heappush(heads, self._rank(queue[position][1], sender))
        return tuple(taken)

    def _expired(self) -> list[Hash]:
        oldest = self._height - MAX_BLOCKS_WAITING
        return [digest for digest, _ in takewhile(lambda item: item[1].height < oldest, self._arrival.items())]

    def _rank(self, prepared: PreparedTransaction, sender: Address) -> tuple[bool, int, int, Address]:
        return (
            sender in self._refused,
            -prepared.transaction.max_priority_fee_per_cycle,
            self._arrival[prepared.hash].number,
            sender,
        )

    def _remove(self, digest: Hash) -> None:
        prepared = self._by_hash.pop(digest, None)
        if prepared is None:
            return
        del self._arrival[digest]
        self._bytes -= len(prepared.wire)
        queue = self._by_sender[prepared.transaction.sender]
        del queue[prepared.transaction.nonce]
        if not queue:
            del self._by_sender[prepared.transaction.sender]
