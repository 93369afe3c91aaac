"""Votes of one view, gathered into certificates, and certificates checked.

Signatures are the expensive part of consensus, so they are checked late and few: a vote's signature is looked at only
when the votes for the same thing, taken at their word, would make a quorum, and then only until a quorum is good. A
vote with a bad signature is dropped; its signer is told to the caller and may vote again.

One vote of each kind is kept per signer, the first. A second one that differs is not counted: it is for the caller to
make evidence of.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from consensus.keys import ValidatorSet
from consensus.messages import Certificate, Vote, VoteKind, verify_vote, vote_signing_bytes
from consensus.types import Digest, ValidatorIndex, View

Subject = tuple[View, Digest]
"""What votes of one kind and view can differ in: parent view and digest."""

_SLOTS: Final = max(VoteKind) + 1


class VoteTally:
    """The votes of one view. Bounded by three votes a validator."""

    __slots__ = ("_checked", "_groups", "_kept", "_namespace", "_validators", "view")

    def __init__(self, validators: ValidatorSet, namespace: bytes, view: View) -> None:
        self.view = view
        self._validators = validators
        self._namespace = namespace
        self._kept: tuple[dict[ValidatorIndex, Vote], ...] = tuple({} for _ in range(_SLOTS))
        self._groups: tuple[dict[Subject, dict[ValidatorIndex, Vote]], ...] = tuple({} for _ in range(_SLOTS))
        self._checked: tuple[set[ValidatorIndex], ...] = tuple(set() for _ in range(_SLOTS))

    def kept(self, kind: VoteKind, signer: ValidatorIndex) -> Vote | None:
        """The vote of this kind that counts for ``signer``."""
        return self._kept[kind].get(signer)

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
        if verify_vote(vote, self._validators, self._namespace):
            self._checked[vote.kind].add(vote.signer)
            return True
        self._drop(vote)
        return False

    def assemble(self, vote: Vote) -> tuple[Certificate | None, tuple[ValidatorIndex, ...]]:
        """The certificate that ``vote`` completes, if there is one, and the signers whose votes were found forged."""
        group = self._groups[vote.kind].get((vote.parent_view, vote.digest), {})
        quorum = self._validators.quorum
        forgers: list[ValidatorIndex] = []
        if len(group) < quorum:
            return None, ()
        checked = self._checked[vote.kind]
        good = sum(signer in checked for signer in group)
        for candidate in [member for signer, member in group.items() if signer not in checked]:
            if good >= quorum or len(group) < quorum:
                break
            if self.confirm(candidate):
                good += 1
            else:
                forgers.append(candidate.signer)
        if good < quorum:
            return None, tuple(forgers)
        return self._certificate(vote, group), tuple(forgers)

    def has_checked(self, kind: VoteKind, subject: Subject, signer: ValidatorIndex, signature: bytes) -> bool:
        """Whether exactly this vote was found good before."""
        kept = self._kept[kind].get(signer)
        return (
            kept is not None
            and signer in self._checked[kind]
            and kept.signature == signature
            and (kept.parent_view, kept.digest) == subject
        )

    def _certificate(self, vote: Vote, group: dict[ValidatorIndex, Vote]) -> Certificate:
        checked = self._checked[vote.kind]
        signers = sorted(signer for signer in group if signer in checked)[: self._validators.quorum]
        signatures = tuple((signer, group[signer].signature) for signer in signers)
        return Certificate(vote.kind, vote.view, vote.parent_view, vote.digest, signatures)

    def _drop(self, vote: Vote) -> None:
        del self._kept[vote.kind][vote.signer]
        subject = (vote.parent_view, vote.digest)
        group = self._groups[vote.kind][subject]
        del group[vote.signer]
        if not group:
            del self._groups[vote.kind][subject]


def verify_certificate(
    certificate: Certificate, validators: ValidatorSet, namespace: bytes, tally: VoteTally | None = None
) -> bool:
    """Whether a quorum of distinct validators signed what ``certificate`` says, all its signatures being good.

    Signatures that ``tally`` (of the same view) has found good before are not checked again.
    """
    signers = [signer for signer, _ in certificate.signatures]
    if not validators.quorum <= len(signers) <= len(validators):
        return False
    if any(left >= right for left, right in pairwise(signers)):
        return False
    if signers[0] < 0 or signers[-1] >= len(validators):
        return False
    kind, subject = certificate.kind, (certificate.parent_view, certificate.digest)
    message = vote_signing_bytes(namespace, kind, certificate.view, *subject)
    return all(
        (tally is not None and tally.has_checked(kind, subject, signer, signature))
        or validators.verify(signer, message, signature)
        for signer, signature in certificate.signatures
    )
