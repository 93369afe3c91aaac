"""Bugs in the mempool and on the way into it: promises to clients, or assumptions of peers, are broken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kits.mutation.bugs.table import ALL, Area, Detection, MutantTable, Mutated
from validator.chain.block import Header
from validator.chain.messages import TransactionsMessage, encode_message
from validator.chain.records import Account
from validator.chain.transactions import Transaction, transaction_hash
from validator.node.blocks.proposals import Proposals
from validator.node.events import Effect, Send
from validator.node.executor.jobs import Built
from validator.node.mempool import NOWHERE, Departed, Departure, Mempool, Place
from validator.node.offers import Offer, Offers, batches
from validator.primitives.types import Address, Hash

MUTANTS = MutantTable(Area.NODE, "promises")
_WATCHED: Final = ("safety", "mempool")
"""The catching check of mutants that break no promise: a second mempool, which runs alongside each validator's."""


@MUTANTS.part("keeps-to-itself", Detection("calm", ALL))
class Selfish(Mutated, Offers):
    """a client's transaction is not passed on to the other validators"""

    def _judge_one(self, offer: Offer, accounts: Any) -> list[Effect]:
        effects = super()._judge_one(offer, accounts)
        kept: list[Effect] = [effect for effect in effects if not isinstance(effect, Send)]
        self.counter.runs += len(effects) - len(kept)
        return kept


@MUTANTS.part("forgets-proposed", Detection("bad-links", ALL, seeds=8))
class Forgets(Mutated, Proposals):
    """a leader forgets the transactions that it proposed, be the block final or not"""

    def built(self, built: Built) -> None:
        super().built(built)
        for digest in map(transaction_hash, built.block.transactions):
            waiting = self.mempool._by_hash.get(digest)
            if waiting is not None:
                self.counter.ran()
                self.mempool._remove(waiting)


@MUTANTS.part("drops-affordable", Detection("bad-links", ALL, seeds=8))
class DropsAffordable(Mutated, Mempool):
    """when an account changes, the last of its transactions is dropped as unaffordable"""

    def _recheck(self, sender: Any) -> list[Departed]:
        departed = super()._recheck(sender)
        if sender.queue:
            self.counter.ran()
            departed.append(self._drop(sender.last, Departure.UNAFFORDABLE))
        return departed


@MUTANTS.part("never-expires", Detection("small-pools", ALL), *_WATCHED)
class NeverExpires(Mutated, Mempool):
    """a transaction that no block takes waits for ever"""

    def _expired(self) -> list[Any]:
        self.counter.runs += len(super()._expired())
        return []


@MUTANTS.part("stays-refused", Detection("small-pools", ALL, seeds=8), *_WATCHED)
class StaysRefused(Mutated, Mempool):
    """a sender that a builder refused comes last, though its account changed since"""

    def settle(self, header: Header, digests: Iterable[Hash], accounts: Mapping[Address, Account]) -> list[Departed]:
        former = {address: self._senders[address] for address in accounts if address in self._senders}
        refused = [(sender, sender.refused_through) for sender in former.values()]
        departed = super().settle(header, digests, accounts)
        for sender, through in refused:
            if sender.queue and through >= self._height:
                self.counter.ran()
                sender.refused_through = through
        return departed


@MUTANTS.part("offers-by-arrival", Detection("small-pools", ALL), *_WATCHED)
class OffersByArrival(Mutated, Mempool):
    """senders take turns by the arrival of their next transaction, whatever they pay"""

    def _turn(self, *given: Any) -> tuple[bool, int, int, Address]:
        comes_last, _, number, address = super()._turn(*given)
        self.counter.ran()
        return comes_last, 0, number, address


@MUTANTS.part("evicts-for-far-nonces", Detection("small-pools", ALL, seeds=8), *_WATCHED)
class EvictsForFarNonces(Mutated, Mempool):
    """a sender pushes others out of a full pool with any number of transactions, not with its first ones alone"""

    def _place(self, transaction: Transaction, sender: Any) -> Place:
        place = super()._place(transaction, sender)
        if place == NOWHERE:
            return place
        self.counter.runs += not place.is_near
        return place._replace(is_near=True)


@MUTANTS.part("passes-gossip-on", Detection("calm"), *_WATCHED)
class PassesGossipOn(Mutated, Offers):
    """what a peer passed on is passed on once more, to all peers"""

    def _judge_one(self, offer: Offer, accounts: Any) -> list[Effect]:
        effects = super()._judge_one(offer, accounts)
        if offer.peer is None:
            return effects
        taken = [one.wire for one in offer.prepared if one.hash in self._mempool]
        self.counter.runs += len(taken)
        return [*(Send(None, encode_message(TransactionsMessage(batch))) for batch in batches(taken)), *effects]
