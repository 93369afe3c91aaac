"""Votes of one view, gathered into certificates, and certificates checked.

Signatures are the expensive part of consensus, so they are checked late and few: a vote's signature is looked at only
when the votes for the same thing, taken at their word, would make a quorum, and then only until a quorum is good; or
when its signer is heard to say something else, or the same with another signature. A vote with a bad signature is
dropped; its signer is told to the caller and may vote again.

One vote of each kind is kept per signer, the first. A second one that differs is not counted: it is for the caller to
make evidence of.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

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
"""What votes of one kind and view can differ in: parent view and digest."""

_SLOTS: Final = max(VoteKind) + 1


class VoteTally:
    """The votes of one view. Bounded by one vote of each kind a validator."""

    __slots__ = ("_checked", "_groups", "_kept", "_messages", "_namespace", "_validators", "view")

    def __init__(self, validators: ValidatorSet, namespace: bytes, view: View) -> None:
        self.view = view
        self._validators = validators
        self._namespace = namespace
        self._kept: tuple[dict[ValidatorIndex, Vote], ...] = tuple({} for _ in range(_SLOTS))
        self._groups: tuple[dict[Subject, dict[ValidatorIndex, Vote]], ...] = tuple({} for _ in range(_SLOTS))
        self._checked: tuple[set[ValidatorIndex], ...] = tuple(set() for _ in range(_SLOTS))
        self._messages: dict[tuple[VoteKind, Subject], bytes] = {}
        """What the signatures of equal votes cover; of what was asked for here."""

    def __len__(self) -> int:
        return sum(len(kept) for kept in self._kept)

    def kept(self, kind: VoteKind, signer: ValidatorIndex) -> Vote | None:
        """The vote of this kind that counts for ``signer``."""
        return self._kept[kind].get(signer)

    def votes_of(self, signer: ValidatorIndex) -> list[Vote]:
        """The votes that count for ``signer``, by kind."""
        return [kept[signer] for kept in self._kept if signer in kept]

    def add(self, vote: Vote, *, checked: bool = False) -> None:
        """Count ``vote``, its signer having no other of its kind. ``checked``: its signature is known to be good."""
        self._kept[vote.kind][vote.signer] = vote
        subject = (vote.parent_view, vote.digest)
        self._groups[vote.kind].setdefault(subject, {})[vote.signer] = vote
        if checked:
            self._checked[vote.kind].add(vote.signer)

    def confirm(self, vote: Vote) -> bool:
        """Check the signature of a vote that is kept, unless that was done before; drop the vote if it is bad."""
        if vote.signer in self._checked[vote.kind]:
            return True
        message = self._message(vote.kind, (vote.parent_view, vote.digest))
        if self._validators.verify(vote.signer, message, vote.signature):
            self._checked[vote.kind].add(vote.signer)
            return True
        self._drop(vote)
        return False

    def assemble(self, vote: Vote) -> tuple[Certificate | None, tuple[ValidatorIndex, ...]]:
        """The certificate that ``vote`` completes, if there is one, and the signers whose votes were found forged."""
        group = self._groups[vote.kind].get((vote.parent_view, vote.digest), {})
        signers, forgers = self._good_quorum(vote.kind, group)
        if not signers:
            return None, forgers
        signatures = tuple((signer, group[signer].signature) for signer in signers)
        return Certificate(vote.kind, vote.view, vote.parent_view, vote.digest, signatures), forgers

    def assemble_timeouts(self) -> tuple[tuple[Vote, ...], tuple[ValidatorIndex, ...]]:
        """A quorum of good timeout votes, whatever their high views, or none, and the signers found forged."""
        kept = self._kept[VoteKind.TIMEOUT]
        signers, forgers = self._good_quorum(VoteKind.TIMEOUT, kept)
        return tuple(kept[signer] for signer in signers), forgers

    def has_checked(self, kind: VoteKind, subject: Subject, signer: ValidatorIndex, signature: bytes) -> bool:
        """Whether exactly this vote was found good before."""
        kept = self._kept[kind].get(signer)
        return (
            kept is not None
            and signer in self._checked[kind]
            and kept.signature == signature
            and (kept.parent_view, kept.digest) == subject
        )

    def _good_quorum(
        self, kind: VoteKind, group: dict[ValidatorIndex, Vote]
    ) -> tuple[tuple[ValidatorIndex, ...], tuple[ValidatorIndex, ...]]:
        """The ascending signers of a quorum of good votes in ``group``, or none, and the signers found forged."""
        quorum = self._validators.committee(self.view).quorum
        if len(group) < quorum:
            return (), ()
        forgers: list[ValidatorIndex] = []
        checked = self._checked[kind]
        good = sum(signer in checked for signer in group)
        for candidate in [member for signer, member in group.items() if signer not in checked]:
            if good >= quorum or len(group) < quorum:
                break
            if self.confirm(candidate):
                good += 1
            else:
                forgers.append(candidate.signer)
        if good < quorum:
            return (), tuple(forgers)
        return tuple(sorted(signer for signer in group if signer in checked)[:quorum]), tuple(forgers)

    def _message(self, kind: VoteKind, subject: Subject) -> bytes:
        """What the votes of this view sign, made once for all that say the same; no more than there are votes."""
        message = self._messages.get((kind, subject))
        if message is None:
            message = vote_signing_bytes(self._namespace, kind, self.view, *subject)
            self._messages[kind, subject] = message
        return message

    def _drop(self, vote: Vote) -> None:
        del self._kept[vote.kind][vote.signer]
        subject = (vote.parent_view, vote.digest)
        group = self._groups[vote.kind][subject]
        del group[vote.signer]
        if not group:
            del self._groups[vote.kind][subject]
            self._messages.pop((vote.kind, subject), None)


def verify_certificate(
    certificate: Certificate, validators: ValidatorSet, namespace: bytes, tally: VoteTally | None = None
) -> bool:
    """Whether a quorum of distinct validators signed what ``certificate`` says, all its signatures being good.

    Signatures that ``tally`` (of the same view) has found good before are not checked again.
    """
    if not _is_quorum([signer for signer, _ in certificate.signatures], validators.committee(certificate.view)):
        return False
    kind, subject = certificate.kind, (certificate.parent_view, certificate.digest)
    message = vote_signing_bytes(namespace, kind, certificate.view, *subject)
    return all(
        (tally is not None and tally.has_checked(kind, subject, signer, signature))
        or validators.verify(signer, message, signature)
        for signer, signature in certificate.signatures
    )


def verify_timeout_certificate(
    certificate: TimeoutCertificate,
    validators: ValidatorSet,
    namespace: bytes,
    final_view: View,
    tally: VoteTally | None = None,
) -> bool:
    """Whether a quorum of distinct validators timed out, and the block of the highest of their high views is certified.

    A certificate without ``high`` is good for whoever knows that view to be final: ``final_view`` is the newest such.
    Signatures that ``tally`` (of the same view) has found good before are not checked again.
    """
    if not _is_quorum([signer for signer, _, _ in certificate.signatures], validators.committee(certificate.view)):
        return False
    high, highest = certificate.high, certificate.high_view
    if high is None and highest > final_view:
        return False
    if high is not None and (high.kind not in _OF_BLOCKS or high.view != highest):
        return False
    votes_are_good = all(
        (tally is not None and tally.has_checked(VoteKind.TIMEOUT, (high_view, NO_DIGEST), signer, signature))
        or validators.verify(
            signer, vote_signing_bytes(namespace, VoteKind.TIMEOUT, certificate.view, high_view, NO_DIGEST), signature
        )
        for signer, high_view, signature in certificate.signatures
    )
    return votes_are_good and (high is None or verify_certificate(high, validators, namespace))


def verify_signed(certificate: AnyCertificate, validators: ValidatorSet, namespace: bytes) -> bool:
    """Whether a quorum signed what a certificate of any kind says.

    The high view of a timeout certificate that certifies no block of it is taken at its word: for whoever cannot know
    what is final.
    """
    if isinstance(certificate, Certificate):
        return verify_certificate(certificate, validators, namespace)
    known_final = certificate.high_view if certificate.high is None else GENESIS_VIEW
    return verify_timeout_certificate(certificate, validators, namespace, known_final)


def verify_finalization(encoded: bytes, digest: Digest, validators: ValidatorSet, namespace: bytes) -> bool:
    """Whether ``encoded`` is a good finalization of the block with this digest."""
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


def _is_quorum(signers: Sequence[ValidatorIndex], committee: Committee) -> bool:
    """Whether these are a quorum of the committee, strictly ascending."""
    return (
        committee.quorum <= len(signers) <= len(committee)
        and all(left < right for left, right in pairwise(signers))
        and all(signer in committee for signer in signers)
    )
