"""``conflicting-voter``: sends each peer a vote for the block that the peer votes for, and later one for another block.

It never sends the votes of the validator inside. Each peer that votes to notarize or finalize a block gets a vote for
that block, so that peers that disagree both count the voter on their side. Two views later these peers get its vote for
a block that does not exist. One such validator changes nothing; more than ``f`` together with an equivocating leader
finalize two blocks of one height.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cluster.misbehaviour.byzantine.base import Behaviour, BehaviourContext, Heard, forget_old, send_consensus
from consensus.messages import Message, Vote, VoteKind, vote_of
from validator.node.events import Effect, Send

TWO_FACED_KINDS = (VoteKind.NOTARIZE, VoteKind.FINALIZE)
VIEWS_UNTIL_CONTRADICTION = 2


@dataclass(slots=True)
class _Said:
    """The votes sent in a view, keyed by kind and peer; the value is the parent view in the vote."""

    sent: dict[tuple[VoteKind, int], int] = field(default_factory=dict)
    is_contradicted: bool = False


class ConflictingVoter(Behaviour):
    name = "conflicting-voter"
    description = "votes for two blocks of a view: for the one that its listener votes for, later for another"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._said: dict[int, _Said] = {}
        self._view = 0

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        if isinstance(message, Vote) and self.is_ours(message) and message.kind in TWO_FACED_KINDS:
            self._view = max(self._view, message.view)
            return
        yield send

    def hear(self, heard: Heard) -> list[Effect]:
        vote = vote_of(heard.message)
        if vote is None or vote.signer != heard.sender or vote.kind not in TWO_FACED_KINDS:
            return []
        return [*self._agree(heard.sender, vote), *self._contradict()]

    def _agree(self, peer: int, vote: Vote) -> Iterator[Effect]:
        said = self._said.setdefault(vote.view, _Said())
        forget_old(self._said)
        self._view = max(self._view, *self._said)
        if (vote.kind, peer) not in said.sent and not said.is_contradicted:
            said.sent[vote.kind, peer] = vote.parent_view
            yield send_consensus(peer, self.context.vote(vote.kind, vote.view, vote.parent_view, vote.digest))

    def _contradict(self) -> Iterator[Effect]:
        for view, said in self._said.items():
            if said.is_contradicted or view > self._view - VIEWS_UNTIL_CONTRADICTION:
                continue
            said.is_contradicted = True
            for (kind, peer), parent_view in said.sent.items():
                yield send_consensus(peer, self.context.vote(kind, view, parent_view, self.context.random_digest()))
            if said.sent:
                self.count_effect()
