"""Valid signatures of other validators that one validator received. Behaviours make false certificates of them.

Votes are kept by view, kind, parent view and digest; certificates of blocks by view. All are verified, so that a
certificate made of them is wrong in exactly one respect. The views that were heard of first are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator

from cluster.misbehaviour.byzantine.base import BehaviourContext, forget_first
from consensus.certificates import verify_certificate
from consensus.messages import NO_DIGEST, Certificate, Message, TimeoutCertificate, Vote, VoteKind, verify_vote, vote_of
from consensus.types import Digest, Signature, ValidatorIndex, View

Subject = tuple[VoteKind, View, Digest]
"""The fields in which votes of one view can differ: kind, parent view and digest."""
TimeoutSignature = tuple[ValidatorIndex, View, Signature]
"""A timeout vote as in a timeout certificate: its signer, the high view that it names, and its signature."""


class Overheard:
    """The signatures that one validator received. Its own votes are not included: it can sign anything."""

    def __init__(self, context: BehaviourContext) -> None:
        self._context = context
        self._votes: dict[View, dict[Subject, dict[ValidatorIndex, Signature]]] = {}
        self._certified: dict[View, Certificate] = {}

    def learn(self, message: Message) -> Vote | None:
        """Keep the valid vote and certificates of a message. Returns the peer's vote in it, if it is valid and new."""
        for certificate in _block_certificates(message):
            self._keep_certificate(certificate)
        vote, at = vote_of(message), self._context
        if vote is None or vote.signer == at.index or vote.signer not in at.validators.committee(vote.view):
            return None
        if vote.signer in self.signatures(vote) or not verify_vote(vote, at.validators, at.namespace):
            return None
        subject = (vote.kind, vote.parent_view, vote.digest)
        self._votes.setdefault(vote.view, {}).setdefault(subject, {})[vote.signer] = vote.signature
        forget_first(self._votes)
        return vote

    def signatures(self, vote: Vote) -> dict[ValidatorIndex, Signature]:
        """Members of the view's committee whose vote equals ``vote`` but for the signer, ascending, with their
        signatures."""
        found = self._votes.get(vote.view, {}).get((vote.kind, vote.parent_view, vote.digest), {})
        return dict(sorted(found.items()))

    def timeouts(self, view: View) -> list[TimeoutSignature]:
        """The timeout votes of a view that were received, one per peer, ordered by peer."""
        found: dict[ValidatorIndex, TimeoutSignature] = {}
        for (kind, high_view, _), signatures in self._votes.get(view, {}).items():
            if kind == VoteKind.TIMEOUT:
                for signer, signature in signatures.items():
                    found.setdefault(signer, (signer, high_view, signature))
        return [found[signer] for signer in sorted(found)]

    def certificate(self, view: View) -> Certificate | None:
        """The certificate of a view's block; ``None`` if none was received."""
        return self._certified.get(view)

    def certificate_below(self, view: View) -> Certificate | None:
        """The certificate of the block of the highest known view below ``view``; ``None`` if there is none."""
        below = max((known for known in self._certified if known < view), default=None)
        return None if below is None else self._certified[below]

    def _keep_certificate(self, certificate: Certificate) -> None:
        at = self._context
        is_new = certificate.view not in self._certified and certificate.digest != NO_DIGEST
        if is_new and verify_certificate(certificate, at.validators, at.namespace):
            self._certified[certificate.view] = certificate
            forget_first(self._certified)


def _block_certificates(message: Message) -> Iterator[Certificate]:
    """The message itself if it is a certificate, and the block certificate in its field ``high``."""
    if isinstance(message, Certificate):
        yield message
    carried = getattr(message, "high", None)
    if isinstance(carried, Certificate):
        yield carried


def timeout_certificate(view: View, high: Certificate | None, signatures: list[TimeoutSignature]) -> TimeoutCertificate:
    """Build a timeout certificate of a view from these timeout votes and the certificate ``high``."""
    signed = {signer: (high_view, signature) for signer, high_view, signature in signatures}
    return TimeoutCertificate.of(view, high, signed)
