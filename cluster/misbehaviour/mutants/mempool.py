"""Bugs in the mempool and on the way into it: what clients were promised is not kept."""

from __future__ import annotations

from typing import Any

from cluster.misbehaviour.mutants.base import ALL, Area, Detection, MutantTable, RunCounter
from validator.chain.transactions import transaction_hash
from validator.node.admission import Admission, Offer
from validator.node.assembly import Parts
from validator.node.events import Effect, Send
from validator.node.executor import Built
from validator.node.mempool import Departed, Departure, Mempool
from validator.node.node import Node

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
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self._admission = Selfish(self.mempool)

    return Parts(node=KeepsToItself)


@MUTANTS.parts(
    "forgets-proposed",
    "a leader forgets the transactions that it proposed, be the block final or not",
    Detection("bad-links", ALL, seeds=8),
)
def _forgets_proposed(counter: RunCounter) -> Parts:
    class ForgetsProposed(Node):
        def _on_built(self, built: Built) -> None:
            super()._on_built(built)
            for digest in map(transaction_hash, built.block.transactions):
                waiting = self.mempool._by_hash.get(digest)
                if waiting is not None:
                    counter.ran()
                    self.mempool._remove(waiting)

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
        def __init__(self, config: Any, identity: Any, *rest: Any) -> None:
            super().__init__(config, identity, *rest)
            self.mempool = DropsAffordable(identity.genesis)
            self._admission = Admission(self.mempool)

    return Parts(node=HasSuchAMempool)
