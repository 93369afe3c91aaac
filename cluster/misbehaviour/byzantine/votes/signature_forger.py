"""``signature-forger``: votes in others' names, votes with bad signatures, and certificates that no validator signed.

Its forgeries are sent before the honest validator's messages, so that they are the first of their kind.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cluster.misbehaviour.byzantine.base import Behaviour, send_consensus, with_vote
from consensus.messages import MAX_VIEW, Certificate, Message, Vote, VoteKind, vote_of
from consensus.types import ValidatorIndex, View
from validator.node.events import Effect, Send

VIEWS_AHEAD = 3
"""Maximum number of views by which a forged certificate's view is ahead of the vote's view."""


class SignatureForger(Behaviour):
    name = "signature-forger"
    description = "votes in others' names and with bad signatures, and forges certificates"

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        vote = vote_of(message)
        if vote is not None and self.is_ours(vote):
            at, random = self.context, self.context.random
            peer = ValidatorIndex(random.choice(at.peers))
            in_anothers_name = msgspec.structs.replace(vote, signer=peer, signature=at.random_signature())
            badly_signed = msgspec.structs.replace(vote, signature=at.random_signature())
            for forged in (with_vote(message, badly_signed), in_anothers_name, self._certificate(vote)):
                yield send_consensus(send.recipient, forged)
                self.count_effect()
        yield send

    def _certificate(self, vote: Vote) -> Certificate:
        at, random = self.context, self.context.random
        view = View(min(vote.view + random.randrange(VIEWS_AHEAD + 1), MAX_VIEW))
        kind = random.choice((VoteKind.NOTARIZE, VoteKind.FINALIZE))
        signatures = at.forged_signatures(view)
        return Certificate.of(kind, view, View(view - 1), at.random_digest(), signatures)
