"""Certificates: the store of an engine's verified certificates, and functions that verify certificates.

:class:`CertificateStore` also keeps the current view and the newest final block, which follow from its certificates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from consensus.interface import Parent
from consensus.keys import Committee, ValidatorSet
from consensus.messages import (
    NO_DIGEST,
    AnyCertificate,
    Certificate,
    MessageError,
    TimeoutCertificate,
    Vote,
    VoteKind,
    decode,
    vote_signing_bytes,
)
from consensus.types import GENESIS_VIEW, Digest, ValidatorIndex, View

Subject = tuple[View, Digest]
"""The fields in which votes of one kind and view can differ: parent view and digest."""


class CheckedSignatures(Protocol):
    """The verified signatures of one view (:class:`consensus.tally.VoteTally`)."""

    def has_checked(self, kind: VoteKind, subject: Subject, signer: ValidatorIndex, signature: bytes) -> bool:
        """Whether this signature of ``signer``, on a vote of this kind and subject, was verified before."""


class CertificateStore:
    """Verified certificates by view, the current view and the newest final block.

    A view has either a finalization, or up to two certificates: a notarization and a skip certificate. By a skip
    certificate a quorum gave the view up; it is a nullification in Simplex and a timeout certificate in HotStuff.
    """

    def __init__(self, root: Parent, skip_kind: VoteKind) -> None:
        self.root = root
        self.final = root
        self.view = View(root.view + 1)
        self.notarizations: dict[View, Certificate] = {}
        self.finalizations: dict[View, Certificate] = {}
        self.skips: dict[View, AnyCertificate] = {}
        self.by_kind: dict[VoteKind, Mapping[View, AnyCertificate]] = {
            VoteKind.NOTARIZE: self.notarizations,
            skip_kind: self.skips,
            VoteKind.FINALIZE: self.finalizations,
        }
        self.kinds = tuple(self.by_kind)

    def add(self, certificate: AnyCertificate) -> None:
        """Keep a certificate. Of two timeout certificates of a view, keep the one with the lower high view."""
        view = certificate.view
        if isinstance(certificate, TimeoutCertificate):
            held = self.skips.get(view)
            if not isinstance(held, TimeoutCertificate) or certificate.high_view < held.high_view:
                self.skips[view] = certificate
        elif certificate.kind == VoteKind.NOTARIZE:
            self.notarizations[view] = certificate
        elif certificate.kind == VoteKind.FINALIZE:
            self.finalizations[view] = certificate
        else:
            self.skips[view] = certificate

    def finalize(self, finalization: Certificate) -> None:
        """Make the block of a finalization the newest final block. The finalization must have been added before."""
        self.final = Parent(finalization.view, finalization.digest)
        self.notarizations.pop(finalization.view, None)

    def prune(self, retained_from: View) -> None:
        """Drop the certificates of views below ``retained_from``."""
        held: tuple[dict[View, Certificate] | dict[View, AnyCertificate], ...]
        held = (self.notarizations, self.finalizations, self.skips)
        for certificates in held:
            for view in [view for view in certificates if view < retained_from]:
                del certificates[view]

    def block(self, view: View) -> Parent | None:
        """The certified block of ``view``, which may be built upon. Of the final views, only the newest has one."""
        if view == self.final.view:
            return self.final
        notarization = self.notarizations.get(view)
        return None if notarization is None else Parent(view, notarization.digest)

    def of_block(self, view: View) -> Certificate | None:
        """The finalization of ``view``, else its notarization; ``None`` if neither is retained."""
        return self.finalizations.get(view) or self.notarizations.get(view)

    def of_view(self, view: View) -> list[AnyCertificate]:
        """The finalization of ``view``; without one, its notarization and its skip certificate, if they exist."""
        finalization = self.finalizations.get(view)
        if finalization is not None:
            return [finalization]
        held = (self.notarizations.get(view), self.skips.get(view))
        return [certificate for certificate in held if certificate is not None]

    def best_of(self, view: View) -> AnyCertificate | None:
        """The finalization of ``view``, else its notarization, else its skip certificate, if retained."""
        return next(iter(self.of_view(view)), None)

    def opening(self) -> AnyCertificate | None:
        """A certificate that ended the previous view and so opened the current one; ``None`` if none is retained."""
        return self.best_of(View(self.view - 1))

    def newest_finalization(self) -> Certificate | None:
        """The finalization of the newest final block; a root may have none."""
        return self.finalizations.get(self.final.view)

    def timeout_certificate(self, votes: Sequence[Vote]) -> TimeoutCertificate:
        """Build a timeout certificate of a quorum of verified timeout votes.

        It includes the certificate of the block of the highest view that the votes name.
        """
        high = self.of_block(max(vote.parent_view for vote in votes))
        signed = {vote.signer: (vote.parent_view, vote.signature) for vote in votes}
        return TimeoutCertificate.of(votes[0].view, high, signed)


def verify_certificate(
    certificate: Certificate, validators: ValidatorSet, namespace: bytes, checked: CheckedSignatures | None = None
) -> bool:
    """Whether ``certificate`` has valid signatures of a quorum of distinct validators, and no invalid one.

    Signatures that ``checked`` (of the same view) has verified before are not verified again.
    """
    signed = certificate.signed
    if not _is_quorum(signed, validators.committee(certificate.view)):
        return False
    kind, subject = certificate.kind, (certificate.parent_view, certificate.digest)
    message = vote_signing_bytes(namespace, kind, certificate.view, *subject)
    return all(
        (checked is not None and checked.has_checked(kind, subject, signer, signature))
        or validators.verify(signer, message, signature)
        for signer, signature in signed.items()
    )


def verify_timeout_certificate(
    certificate: TimeoutCertificate,
    validators: ValidatorSet,
    namespace: bytes,
    final_view: View,
    checked: CheckedSignatures | None = None,
) -> bool:
    """Whether a timeout certificate has valid votes of a quorum, and the block of its high view is certified.

    A certificate without ``high`` is valid only if its high view is at most ``final_view``, the caller's newest final
    view. Signatures that ``checked`` (of the same view) has verified before are not verified again.
    """
    signed = certificate.signed
    if not _is_quorum(signed, validators.committee(certificate.view)):
        return False
    high, highest = certificate.high, certificate.high_view
    if high is None and highest > final_view:
        return False
    if high is not None and (high.kind not in _OF_BLOCKS or high.view != highest):
        return False
    votes_are_good = all(
        (checked is not None and checked.has_checked(VoteKind.TIMEOUT, (high_view, NO_DIGEST), signer, signature))
        or validators.verify(
            signer, vote_signing_bytes(namespace, VoteKind.TIMEOUT, certificate.view, high_view, NO_DIGEST), signature
        )
        for signer, (high_view, signature) in signed.items()
    )
    return votes_are_good and (high is None or verify_certificate(high, validators, namespace))


def verify_signed(certificate: AnyCertificate, validators: ValidatorSet, namespace: bytes) -> bool:
    """Whether a certificate of either type has valid signatures of a quorum, and no invalid one.

    The high view of a timeout certificate without ``high`` is accepted as final: the caller may not know the final
    views.
    """
    if isinstance(certificate, Certificate):
        return verify_certificate(certificate, validators, namespace)
    known_final = certificate.high_view if certificate.high is None else GENESIS_VIEW
    return verify_timeout_certificate(certificate, validators, namespace, known_final)


def verify_finalization(encoded: bytes, digest: Digest, validators: ValidatorSet, namespace: bytes) -> bool:
    """Whether ``encoded`` is a valid finalization of the block with this digest."""
    try:
        certificate = decode(encoded)
    except MessageError:
        return False
    return (
        isinstance(certificate, Certificate)
        and certificate.kind == VoteKind.FINALIZE
        and certificate.digest == digest
        and verify_certificate(certificate, validators, namespace)
    )


_OF_BLOCKS: Final = (VoteKind.NOTARIZE, VoteKind.FINALIZE)


def _is_quorum(signers: Collection[ValidatorIndex], committee: Committee) -> bool:
    """Whether all signers are members of the committee, and enough for a quorum."""
    return committee.quorum <= len(signers) and all(signer in committee for signer in signers)
