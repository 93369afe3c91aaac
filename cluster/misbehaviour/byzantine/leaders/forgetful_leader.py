"""``forgetful-leader``: builds on the newest final block, ignoring the notarized blocks above it.

It breaks no rule provably: the parent of its block is final, and if every view since has a nullification, Simplex lets
a leader skip all of them. So a whole branch of notarized blocks is abandoned for one block, and all validators have to
go back. In HotStuff a timeout certificate names the block that must not be skipped, and the proposal is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cluster.misbehaviour.byzantine.base import Behaviour, BehaviourContext, forget_old, send_consensus
from consensus.messages import Message, Proposal, Vote, VoteKind
from consensus.types import Digest, View
from validator.node.events import BlockFinal, Completed, Effect, Event, Run, Send, Started
from validator.node.executor.jobs import Build, Built, Finalize
from validator.primitives.types import Hash


class ForgetfulLeader(Behaviour):
    name = "forgetful-leader"
    description = "as leader, builds on the newest final block and skips all notarized ones above it"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._final: Hash | None = None
        """The newest block that the executor was told to make final, and so makes final before its next job."""
        self._view: tuple[Hash, View] | None = None
        """The newest final block, and its view."""
        self._building: dict[int, Hash] = {}
        """The parent of each block that is being built for the behaviour, keyed by view."""
        self._own: dict[int, tuple[View, Built]] = {}
        """The block built for the behaviour, with its parent's view; keyed by view."""

    def swallows(self, event: Event) -> bool:
        if isinstance(event, Started):
            self._final = None
            self._building.clear()
        if not isinstance(event, Completed) or not isinstance(event.result, Built):
            return False
        built = event.result
        if self._building.get(built.view) != built.parent:
            return False
        del self._building[built.view]
        if self._view is not None and self._view[0] == built.parent:
            self._own[built.view] = self._view[1], built
            forget_old(self._own)
        return True

    def alter(self, effect: Effect) -> list[Effect]:
        match effect:
            case BlockFinal(digest=digest, view=view):
                self._view = digest, View(view)
            case Run(job=Finalize(digest=digest)):
                self._final = digest
            case Run(job=Build() as job) if self._final not in (None, job.parent):
                assert self._final is not None
                self._building[job.view] = self._final
                return [Run(replace(job, parent=self._final, candidates=())), effect]
            case _:
                pass
        return super().alter(effect)

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        match message:
            case Proposal() if self.is_ours(message.vote) and message.view in self._own:
                yield send_consensus(send.recipient, self._forgetful(message))
                self.count_effect()
            case Vote(kind=VoteKind.NOTARIZE) if self.is_ours(message) and message.view in self._own:
                pass  # for the block that it did not propose
            case _:
                yield send

    def _forgetful(self, proposal: Proposal) -> Proposal:
        parent_view, built = self._own[proposal.view]
        vote = self.context.vote(VoteKind.NOTARIZE, proposal.view, parent_view, built.digest)
        return Proposal(proposal.view, parent_view, Digest(built.parent), Digest(built.digest), built.body, vote)
