"""``nullify-and-finalize``: votes in one view both to give it up and to finalize its block.

A vote to give up a view names no block: Simplex's nullify, or another protocol's timeout.
"""

from __future__ import annotations

from collections.abc import Iterator

from cluster.misbehaviour.byzantine.base import (
    Behaviour,
    BehaviourContext,
    Heard,
    forget_old,
    send_consensus,
)
from consensus.messages import NO_DIGEST, NO_PARENT, Message, Timeout, Vote, VoteKind, vote_of
from validator.node.events import Effect, Send


class NullifyAndFinalize(Behaviour):
    name = "nullify-and-finalize"
    description = "votes both to give up a view and to finalize its block"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._blocks: dict[int, Vote] = {}
        """The first notarize vote seen in each view, from any validator; keyed by view."""

    def hear(self, heard: Heard) -> list[Effect]:
        self._learn(vote_of(heard.message))
        return []

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        yield send
        vote = vote_of(message)
        self._learn(vote)
        if vote is None or not self.is_ours(vote):
            return
        if vote.kind == VoteKind.FINALIZE:
            yield send_consensus(send.recipient, self._giving_up(vote.view))
        elif vote.digest == NO_DIGEST and vote.view in self._blocks:
            block = self._blocks[vote.view]
            yield send_consensus(
                send.recipient, self.context.vote(VoteKind.FINALIZE, block.view, block.parent_view, block.digest)
            )
        else:
            return
        self.count_effect()

    def _giving_up(self, view: int) -> Message:
        """A vote to give up a view, as the protocol sends it; a timeout names the genesis, which needs no proof."""
        kind = self.context.gives_up_by
        vote = self.context.vote(kind, view, NO_PARENT, NO_DIGEST)
        return Timeout(vote, None) if kind == VoteKind.TIMEOUT else vote

    def _learn(self, vote: Vote | None) -> None:
        if vote is not None and vote.kind == VoteKind.NOTARIZE:
            self._blocks.setdefault(vote.view, vote)
            forget_old(self._blocks)
