"""``equivocating-leader``: proposes two valid blocks in one view, each to one half of the peers.

The second block is built by the validator's own executor on the same parent, without transactions. If the first block
has none either, the two are equal and there is no equivocation. The leader supports both: a peer that got one block
hears nothing of the other from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cluster.misbehaviour.byzantine.base import (
    Behaviour,
    BehaviourContext,
    first_half,
    forget_old,
    send_consensus,
)
from consensus.messages import Message, Proposal, Vote, VoteKind
from consensus.types import Digest
from validator.node.events import Completed, Effect, Event, Run, Send, Started
from validator.node.executor.jobs import Build, Built


class EquivocatingLeader(Behaviour):
    name = "equivocating-leader"
    description = "as leader, proposes two valid blocks in one view, each to half of the others"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._building: set[int] = set()
        """Views whose second block is being built: the executor's next answer for the view is for the behaviour."""
        self._second: dict[int, Built] = {}
        self._equivocated: dict[int, Proposal] = {}
        """The first proposal of each view in which the leader made two, keyed by view."""

    def swallows(self, event: Event) -> bool:
        if isinstance(event, Started):
            self._building.clear()
        if not isinstance(event, Completed) or not isinstance(event.result, Built):
            return False
        if event.result.view not in self._building:
            return False
        self._building.remove(event.result.view)
        self._second[event.result.view] = event.result
        forget_old(self._second)
        return True

    def alter(self, effect: Effect) -> list[Effect]:
        if isinstance(effect, Run) and isinstance(effect.job, Build):
            self._building.add(effect.job.view)
            return [Run(replace(effect.job, candidates=())), effect]
        return super().alter(effect)

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        match message:
            case Proposal() if (second := self._second_of(message)) is not None:
                half = first_half(self.context.peers, message.view)
                for peer in self.context.peers:
                    if send.recipient in (None, peer):
                        yield send_consensus(peer, message if peer in half else second)
                self._note_equivocation(message)
            case Vote(kind=VoteKind.NOTARIZE) if self.is_ours(message) and message.view in self._equivocated:
                pass  # it would give the leader away to peers that have the other block
            case _:
                yield send

    def _second_of(self, proposal: Proposal) -> Proposal | None:
        built = self._second.get(proposal.view)
        if built is None or not self.is_ours(proposal.vote):
            return None
        if bytes(built.parent) != proposal.parent_digest or bytes(built.digest) == proposal.digest:
            return None
        vote = self.context.vote(VoteKind.NOTARIZE, proposal.view, proposal.parent_view, built.digest)
        subject = (proposal.view, proposal.parent_view, proposal.parent_digest, Digest(built.digest))
        return Proposal(*subject, built.body, vote)

    def _note_equivocation(self, proposal: Proposal) -> None:
        if proposal.view not in self._equivocated:
            self._equivocated[proposal.view] = proposal
            forget_old(self._equivocated)
            self.count_effect()
