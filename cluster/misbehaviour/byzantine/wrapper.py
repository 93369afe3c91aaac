"""A validator wrapped in its behaviours, which drivers use instead of the bare one, and the evidence expected of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from cluster.misbehaviour.byzantine.base import Behaviour, BehaviourContext, consensus_content, forget_old, heard_in
from consensus.certificates import verify_certificate
from consensus.messages import Certificate, Message, Proposal, Vote, conflict, verify_vote, vote_of
from validator.chain.block import MAX_BLOCK_BYTES
from validator.node.assembly import Validator
from validator.node.events import Effect, Event, Send

MAX_VOTES_PER_VIEW = 64
"""Maximum number of distinct votes kept per view."""


class Accountability:
    """Counts the views in which the votes signed with one key prove misbehaviour. Two validators may share the key.

    The proofs are derived from the messages that leave the validator, whichever behaviours made them. A proof is
    expected for a view if one peer got two contradictory votes, both validly signed and close enough to the current
    view to be compared; or if a peer got a vote that contradicts the validator's vote in a valid certificate.
    """

    def __init__(self, context: BehaviourContext) -> None:
        self._context = context
        self._sent: dict[int, dict[Vote, set[int]]] = {}
        """The votes sent in each view, each with the peers that got it."""
        self._expected: dict[int, None] = {}

    def note_sent(self, send: Send, view: int) -> None:
        """Note a message sent while the validator is in ``view``."""
        message = consensus_content(send.payload)
        vote = None if message is None else vote_of(message)
        if isinstance(message, Certificate):
            self.note_certificate(message)
        if isinstance(message, Proposal) and len(message.body) > MAX_BLOCK_BYTES:
            return  # dropped unread, its vote too
        if vote is None or vote.view - view not in self._context.compared_views:
            return
        at = self._context
        if vote.signer != at.index or not verify_vote(vote, at.validators, at.namespace):
            return
        sent = self._sent.setdefault(vote.view, {})
        forget_old(self._sent)
        listeners = set(at.peers if send.recipient is None else [send.recipient])
        if any(listeners & others and conflict(vote, other) is not None for other, others in sent.items()):
            self._expect(vote.view)
        if vote in sent or len(sent) < MAX_VOTES_PER_VIEW:
            sent.setdefault(vote, set()).update(listeners)

    def note_certificate(self, certificate: Message) -> None:
        """Check a certificate, which will reach all peers, for a vote of the validator that contradicts a sent one."""
        if not isinstance(certificate, Certificate) or certificate.view in self._expected:
            return
        sent, at = self._sent.get(certificate.view, {}), self._context
        votes = [vote for vote in certificate.votes() if vote.signer == at.index]
        contradicts = any(conflict(vote, other) is not None for vote in votes for other in sent)
        if contradicts and verify_certificate(certificate, at.validators, at.namespace):
            self._expect(certificate.view)

    def _expect(self, view: int) -> None:
        if view not in self._expected:
            self._expected[view] = None
            forget_old(self._expected)
            self._context.score.expected_evidence += 1


class ByzantineValidator:
    """Hands events to the honest validator inside, and changes its effects.

    Behaviours form a chain: each may change the effects of the previous one. Each draws from a separate random source,
    so that adding one does not change the others.
    """

    def __init__(
        self,
        behaviours: Sequence[type[Behaviour]],
        context: BehaviourContext,
        accountability: Accountability | None = None,
    ) -> None:
        """``accountability`` is that of another validator with the same key, if there is one, so that both share it."""
        self.accountability = Accountability(context) if accountability is None else accountability
        seed = context.random.getrandbits(64)
        self._behaviours = [
            behaviour(replace(context, random=Random(f"{seed}/{behaviour.name}"))) for behaviour in behaviours
        ]
        for behaviour in behaviours:
            context.score.effects.setdefault(behaviour.name, 0)

    def reseed(self, seed: str) -> None:
        """Reseed the random source of every behaviour."""
        for behaviour in self._behaviours:
            behaviour.context.random.seed(f"{seed}/{behaviour.name}")

    def handle(self, validator: Validator, event: Event) -> list[Effect]:
        """Let the validator handle an event. Returns its effects as the behaviours changed them."""
        is_swallowed = any(behaviour.swallows(event) for behaviour in self._behaviours)
        effects = [] if is_swallowed else validator.node.handle(event)
        heard = heard_in(event)
        for behaviour in self._behaviours:
            effects = [altered for effect in effects for altered in behaviour.alter(effect)]
            effects += behaviour.react(event)
            if heard is not None:
                effects += behaviour.hear(heard)
        if heard is not None:
            self.accountability.note_certificate(heard.message)
        for effect in effects:
            if isinstance(effect, Send):
                self.accountability.note_sent(effect, validator.node.view)
        return effects
