"""Bugs in the mempool and on the way into it: what clients were promised is not kept."""

from __future__ import annotations

from typing import Any

from cluster.misbehaviour.mutants.base import ALL, Area, Detection, MutantTable, Mutated
from validator.chain.transactions import transaction_hash
from validator.node.blocks.proposals import Proposals
from validator.node.events import Effect, Send
from validator.node.executor.jobs import Built
from validator.node.pool.mempool import Departed, Departure, Mempool
from validator.node.pool.offers import Offer, Offers

MUTANTS = MutantTable(Area.NODE, "promises")


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
