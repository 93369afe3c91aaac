"""``old-nullifications``: sends a peer that is cut off the certificates of views given up long ago, one by one.

As leader it sends no proposal, so that views are given up. It sends no certificate that would bring a peer up to date,
only those of abandoned views, in order, once a peer lacks :data:`AT_A_TIME` of them. A validator that counts these
views as failures of the network waits ever longer for each leader.
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
from consensus.messages import (
    AnyCertificate,
    Certificate,
    CertificateRequest,
    Message,
    Proposal,
    Timeout,
    TimeoutCertificate,
    VoteKind,
    vote_of,
)
from consensus.types import GENESIS_VIEW, View
from validator.node.events import Certified, Effect, Send

AT_A_TIME = 5
"""Minimum number of certificates sent at once: enough to double timeouts twice with four validators."""
BEHIND = 2
"""Minimum number of views by which a peer must be behind to count as cut off."""


class OldNullifications(Behaviour):
    name = "old-nullifications"
    description = "as leader, sends no proposal; gives peers that are behind old nullifications, one after the other"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._given_up: dict[int, AnyCertificate] = {}
        self._newest = GENESIS_VIEW
        self._views: dict[int, View] = {}
        """The view that each peer's last vote or request for certificates was about, keyed by peer."""

    def alter(self, effect: Effect) -> list[Effect]:
        if isinstance(effect, Certified):
            certificate = effect.certificate
            self._newest = max(self._newest, certificate.view)
            if certificate.kind in (VoteKind.NULLIFY, VoteKind.TIMEOUT):
                self._given_up[certificate.view] = certificate
                forget_old(self._given_up)
        return super().alter(effect)

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        if isinstance(message, Timeout) and send.recipient is None:
            # its certificate would bring peers up to date
            yield from (Send(peer, send.payload) for peer in self.context.peers if not self._is_behind(peer))
        elif not isinstance(message, Proposal | Certificate | TimeoutCertificate):
            yield send

    def hear(self, heard: Heard) -> Iterator[Effect]:
        vote, message = vote_of(heard.message), heard.message
        if vote is not None and vote.kind != VoteKind.FINALIZE:
            at = vote.view
        elif isinstance(message, CertificateRequest):
            at = message.views[0]
        else:
            return
        self._views[heard.sender] = at
        lacks = [certificate for view, certificate in sorted(self._given_up.items()) if view >= at]
        if self._is_behind(heard.sender) and len(lacks) >= AT_A_TIME:
            self.count_effect()
            yield from (send_consensus(heard.sender, certificate) for certificate in lacks)

    def _is_behind(self, peer: int) -> bool:
        return self._views.get(peer, self._newest) + BEHIND <= self._newest
