"""Bugs in the mempool and on the way into it: what clients were promised is not kept."""

from __future__ import annotations

from typing import Any

from cluster.misbehaviour.mutants.base import ALL, Area, Detection, MutantTable, RunCounter
from validator.chain.transactions import transaction_hash
from validator.node.assembly import Parts
from validator.node.blocks.proposals import Proposals
from validator.node.events import Effect, Send
from validator.node.executor.jobs import Built
from validator.node.node import Node
from validator.node.pool.admission import Admission, Offer
from validator.node.pool.mempool import Departed, Departure, Mempool

MUTANTS = MutantTable(Area.NODE, "promises")


@MUTANTS.parts(
    "keeps-to-itself", "a client's transaction is not passed on to the other validators", Detection("calm", ALL)
)
def _keeps_to_itself(counter: RunCounter) -> Parts:
    class Selfish(Admission):
        def _judge_one(self, offer: Offer, accounts: Any) -> list[Effect]:
            effects = super()._judge_one(offer, accounts)
            kept: list[Effect] = [effect for effect in effects if not isinstance(effect, Send)]
            counter.runs += len(effects) - len(kept)
            return kept

    class KeepsToItself(Node):
        admission_class = Selfish

    return Parts(node=KeepsToItself)


@MUTANTS.parts(
    "forgets-proposed",
    "a leader forgets the transactions that it proposed, be the block final or not",
    Detection("bad-links", ALL, seeds=8),
)
def _forgets_proposed(counter: RunCounter) -> Parts:
    class Forgets(Proposals):
        def built(self, built: Built) -> None:
            super().built(built)
            for digest in map(transaction_hash, built.block.transactions):
                waiting = self.mempool._by_hash.get(digest)
                if waiting is not None:
                    counter.ran()
                    self.mempool._remove(waiting)

    class ForgetsProposed(Node):
        proposals_class = Forgets

    return Parts(node=ForgetsProposed)


@MUTANTS.parts(
    "drops-affordable",
    "when an account changes, the last of its transactions is dropped as unaffordable",
    Detection("bad-links", ALL, seeds=8),
)
def _drops_the_affordable(counter: RunCounter) -> Parts:
    class DropsAffordable(Mempool):
        def _recheck(self, sender: Any) -> list[Departed]:
            departed = super()._recheck(sender)
            if sender.queue:
                counter.ran()
                departed.append(self._drop(sender.last, Departure.UNAFFORDABLE))
            return departed

    class HasSuchAMempool(Node):
        mempool_class = DropsAffordable

    return Parts(node=HasSuchAMempool)
