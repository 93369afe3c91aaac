"""Behaviours that send certificates which are made of honest votes but have one flaw.

A certificate is sent once per view and kind, as soon as enough votes were received. So it is sent before an honest
validator can have the true one: a liar need not execute the block, nor wait for its disk.

- ``short-certificate``: one signature short of a quorum.
- ``double-signer``: as many signatures as a quorum has, one of them a second signature of the liar, in the name of a
  member that did not sign.
- ``outsider``: the liar votes in views whose committee it is not in, and puts its signature in a member's place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from cluster.misbehaviour.byzantine.base import (
    Behaviour,
    BehaviourContext,
    Heard,
    forget_old,
    send_consensus,
)
from cluster.misbehaviour.byzantine.overheard import Overheard, timeout_certificate
from consensus.messages import AnyCertificate, Certificate, Message, Vote, VoteKind
from consensus.types import Signature, ValidatorIndex
from validator.node.events import Effect, Send

Signatures = list[tuple[ValidatorIndex, Signature]]


class FalseCertificate(Behaviour):
    """The base class of the variants: it decides when to send a false certificate, and builds it from signatures."""

    kinds: ClassVar[tuple[VoteKind, ...]] = (VoteKind.NOTARIZE, VoteKind.NULLIFY, VoteKind.TIMEOUT)
    """Kinds of votes of which the behaviour makes false certificates. After one such certificate, other validators
    ignore its certificates for the rest of their view."""

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._overheard = Overheard(context)
        self._lied: dict[int, set[VoteKind]] = {}

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        self._overheard.learn(message)
        yield send

    def hear(self, heard: Heard) -> list[Effect]:
        vote = self._overheard.learn(heard.message)
        return [] if vote is None else list(self._answer(vote))

    def _answer(self, vote: Vote) -> Iterator[Effect]:
        """The messages with which the behaviour answers a peer's valid and new vote."""
        if vote.kind not in self.kinds or vote.kind in self._lied.get(vote.view, ()):
            return
        peers = list(self._overheard.signatures(vote).items())
        if vote.kind == VoteKind.TIMEOUT:
            peers = [(signer, signature) for signer, _, signature in self._overheard.timeouts(vote.view)]
        signatures = self._signatures(vote, peers)
        if signatures:
            self._lied.setdefault(vote.view, set()).add(vote.kind)
            forget_old(self._lied)
            self.count_effect()
            yield send_consensus(None, self._certificate(vote, signatures))

    def _signatures(self, vote: Vote, peers: Signatures) -> Signatures:
        """The signatures of the false certificate, made from those of peers; empty if they are too few or unusable."""
        raise NotImplementedError

    def _own(self, vote: Vote) -> tuple[ValidatorIndex, Signature]:
        """The liar's index and its signature of the same vote."""
        ours = self.context.vote(vote.kind, vote.view, vote.parent_view, vote.digest)
        return ours.signer, ours.signature

    def _is_member(self, vote: Vote) -> bool:
        return self.context.index in self.context.validators.committee(vote.view)

    def _quorum(self, vote: Vote) -> int:
        return self.context.validators.committee(vote.view).quorum

    def _certificate(self, vote: Vote, signatures: Signatures) -> AnyCertificate:
        if vote.kind != VoteKind.TIMEOUT:
            return Certificate.of(vote.kind, vote.view, vote.parent_view, vote.digest, dict(signatures))
        named = {signer: high_view for signer, high_view, _ in self._overheard.timeouts(vote.view)}
        timeouts = [(signer, named.get(signer, vote.parent_view), signature) for signer, signature in signatures]
        highest = max(high_view for _, high_view, _ in timeouts)
        return timeout_certificate(vote.view, self._overheard.certificate(highest), timeouts)


class ShortCertificate(FalseCertificate):
    name = "short-certificate"
    description = "certificates that are one signature short of a quorum"

    def _signatures(self, vote: Vote, peers: Signatures) -> Signatures:
        others = self._quorum(vote) - 2
        if not self._is_member(vote) or len(peers) < others or others < 0:
            return []
        return [*peers[:others], self._own(vote)]


class DoubleSigner(ShortCertificate):
    name = "double-signer"
    description = "certificates with its own signature in another's place, too, and so as many as a quorum has"

    def _signatures(self, vote: Vote, peers: Signatures) -> Signatures:
        short = super()._signatures(vote, peers)
        signers = {signer for signer, _ in short}
        others = [member for member in self.context.validators.committee(vote.view).members if member not in signers]
        return [*short, (others[0], self._own(vote)[1])] if short and others else []


class Outsider(FalseCertificate):
    name = "outsider"
    description = "votes where it is not in the committee, and signs certificates there in a member's place"
    kinds = (VoteKind.NOTARIZE, VoteKind.FINALIZE, VoteKind.NULLIFY, VoteKind.TIMEOUT)

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._voted: dict[int, set[VoteKind]] = {}

    def _answer(self, vote: Vote) -> Iterator[Effect]:
        if self._is_member(vote):
            return
        if vote.kind in (VoteKind.NOTARIZE, VoteKind.FINALIZE) and vote.kind not in self._voted.get(vote.view, ()):
            self._voted.setdefault(vote.view, set()).add(vote.kind)
            forget_old(self._voted)
            self.count_effect()
            yield send_consensus(None, self.context.vote(vote.kind, vote.view, vote.parent_view, vote.digest))
        yield from super()._answer(vote)

    def _signatures(self, vote: Vote, peers: Signatures) -> Signatures:
        others = self._quorum(vote) - 1
        return [*peers[:others], self._own(vote)] if len(peers) >= others else []
