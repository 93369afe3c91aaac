"""``wrong-epoch``: signs its votes for another namespace, like a validator in another epoch of the chain."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.misbehaviour.byzantine.base import Behaviour, send_consensus, with_vote
from consensus.messages import Message, vote_of
from validator.node.events import Effect, Send

EPOCH_SUFFIX = b"/epoch-1"


class WrongEpoch(Behaviour):
    name = "wrong-epoch"
    description = "signs everything for another epoch's namespace"

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        vote = vote_of(message)
        if vote is None or not self.is_ours(vote):
            yield send
            return
        namespace = self.context.namespace + EPOCH_SUFFIX
        signed = self.context.vote(vote.kind, vote.view, vote.parent_view, vote.digest, namespace)
        yield send_consensus(send.recipient, with_vote(message, signed))
        self.count_effect()
