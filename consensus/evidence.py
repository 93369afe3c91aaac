"""Accountability: detection of contradictions in peers' votes and certificates.

A contradiction is two votes of one signer that no honest validator casts together
(:func:`consensus.messages.conflict`). Both signatures are verified before it is reported: a forged vote proves nothing.
"""

from __future__ import annotations

from typing import Final

from consensus.certificates import CertificateStore, verify_certificate, verify_timeout_certificate
from consensus.interface import BAD_CERTIFICATE, BAD_SIGNATURE, CONFLICT, DUPLICATE, FLOOD, Effect, Rejected, Report
from consensus.leader import Member
from consensus.messages import (
    FINALIZE,
    MAX_VALIDATORS,
    NOTARIZE,
    TIMEOUT,
    AnyCertificate,
    Certificate,
    Vote,
    conflict,
    verify_vote,
)
from consensus.tally import Round, Rounds
from consensus.types import ValidatorIndex, View

MAX_FORGERS: Final = 2 * MAX_VALIDATORS
"""Number of peers (with observers) remembered for an invalid certificate. Beyond it, the oldest entry is dropped."""

_CONTRADICTED_ACROSS_VIEWS: Final = {FINALIZE: TIMEOUT, TIMEOUT: FINALIZE}


class Accountability:
    """Adds votes to their rounds, verifies certificates, and reports validators that contradict themselves."""

    def __init__(self, member: Member, certificates: CertificateStore, rounds: Rounds, effects: list[Effect]) -> None:
        self._member = member
        self._certificates = certificates
        self._rounds = rounds
        self._effects = effects
        self._has_timeouts = TIMEOUT in certificates.kinds
        self._forgers: dict[ValidatorIndex, View] = {}
        """Peers that sent an invalid certificate, with our view at that time; the newest last."""

    def admit(self, round_: Round, vote: Vote, *, checked: bool | None = None) -> bool:
        """Keep a peer's vote, and report votes of its signer that contradict it. Returns whether the vote was kept.

        It is not kept if its signature is invalid, or if the signer has a kept vote of this kind and view with a valid
        signature. ``checked``: whether the signature of ``vote`` is valid; ``None`` if that is unknown.
        """
        if checked is False:
            self._reject(vote.signer, BAD_SIGNATURE)
            return False
        kept = round_.tally.kept(vote.kind, vote.signer)
        if kept is not None and (kept.parent_view, kept.digest) == (vote.parent_view, vote.digest):
            if self.confirm(kept):
                self._reject(vote.signer, DUPLICATE)
                return False
        elif kept is not None:
            if not (checked or self.is_signed(vote)):
                self._reject(vote.signer, BAD_SIGNATURE)
                return False
            checked = True
            if self.confirm(kept):
                self._report(kept, vote)
                self._reject(vote.signer, CONFLICT)
                return False
        round_.tally.add(vote, checked=bool(checked))
        self._rounds.hear(vote)
        rivals = self.rivals(vote) if vote.kind != NOTARIZE else []  # two notarize votes are never kept
        certified = self._certified_rivals(vote)
        return not (rivals or certified) or self._stands(round_, vote, rivals, certified)

    def _stands(self, round_: Round, vote: Vote, rivals: list[Vote], certified: list[Vote]) -> bool:
        """Whether a kept vote is still kept after it was reported that it contradicts ``rivals`` and ``certified``.

        ``rivals`` are kept, and as little verified as the vote; ``certified`` are of certificates.
        """
        if rivals and self.confirm(vote):
            for rival in rivals:
                if self.confirm(rival):
                    self._report(rival, vote)
        if certified and round_.tally.kept(vote.kind, vote.signer) is vote and self.confirm(vote):
            for rival in certified:
                self._report(rival, vote)
        return round_.tally.kept(vote.kind, vote.signer) is vote

    def is_signed(self, vote: Vote) -> bool:
        """Whether the vote's signature is valid."""
        return verify_vote(vote, self._member.validators, self._member.namespace)

    def confirm(self, vote: Vote) -> bool:
        """Whether a kept vote's signature is valid; a forged vote is dropped."""
        if self._rounds[vote.view].tally.confirm(vote):
            return True
        self._reject(vote.signer, BAD_SIGNATURE)
        return False

    def rivals(self, vote: Vote) -> list[Vote]:
        """Kept votes of the same signer that contradict ``vote``."""
        round_ = self._rounds.get(vote.view)
        kept = [] if round_ is None else round_.tally.rivals(vote)
        opposite = _CONTRADICTED_ACROSS_VIEWS.get(vote.kind) if self._has_timeouts else None
        if opposite is not None:
            across = [each.tally.kept(opposite, vote.signer) for each in self._rounds.values() if each is not round_]
            kept += [other for other in across if other is not None and conflict(vote, other) is not None]
        return kept

    def _certified_rivals(self, vote: Vote) -> list[Vote]:
        """Votes of the same signer, in certificates of the same view, that contradict ``vote``."""
        known, view = self._certificates, vote.view
        if vote.kind == NOTARIZE:
            of_block, skip = known.notarizations.get(view), None
        else:
            of_block, skip = known.finalizations.get(view), known.skips.get(view)
        if of_block is not None and of_block.digest == vote.digest and of_block.parent_view == vote.parent_view:
            of_block = None
        if of_block is None and skip is None:
            return []
        votes = [other for certificate in (of_block, skip) if certificate is not None for other in certificate.votes()]
        return [other for other in votes if other.signer == vote.signer and conflict(vote, other) is not None]

    def believes(self, sender: ValidatorIndex, certificate: AnyCertificate) -> bool:
        """Whether a peer's certificate is valid. If so, report its signers whose kept votes contradict it.

        After an invalid certificate, the peer's certificates are ignored for ``distrusted_views``. A certificate with a
        single bad signature costs as much to verify as a valid one, and honest peers pass on only those that they have
        verified.
        """
        forged_in = self._forgers.get(sender)
        if forged_in is not None and self._certificates.view < forged_in + self._rounds.config.distrusted_views:
            self._reject(sender, FLOOD)
            return False
        if not self.holds(certificate):
            self._distrust(sender)
            self._reject(sender, BAD_CERTIFICATE)
            return False
        self.compare(certificate)
        return True

    def _distrust(self, forger: ValidatorIndex) -> None:
        """Remember a peer that sent an invalid certificate."""
        self._forgers.pop(forger, None)
        if len(self._forgers) >= MAX_FORGERS:
            del self._forgers[next(iter(self._forgers))]
        self._forgers[forger] = self._certificates.view

    def holds(self, certificate: AnyCertificate) -> bool:
        """Whether the certificate is valid. Signatures that were verified in its round are not verified again."""
        round_ = self._rounds.get(certificate.view)
        tally = None if round_ is None else round_.tally
        validators, namespace = self._member.validators, self._member.namespace
        if isinstance(certificate, Certificate):
            return verify_certificate(certificate, validators, namespace, tally)
        return verify_timeout_certificate(certificate, validators, namespace, self._certificates.final.view, tally)

    def compare(self, certificate: AnyCertificate) -> None:
        """Report each signer whose kept votes contradict its vote in a valid certificate."""
        if not self._may_be_contradicted(certificate):
            return
        for vote in certificate.votes():
            for rival in self.rivals(vote):
                if self.confirm(rival):
                    self._report(rival, vote)

    def _may_be_contradicted(self, certificate: AnyCertificate) -> bool:
        """Whether any kept vote could contradict a vote of the certificate. The signers are not compared."""
        if not isinstance(certificate, Certificate):
            return True
        kind, round_ = certificate.kind, self._rounds.get(certificate.view)
        if round_ is not None and round_.tally.disagrees(kind, (certificate.parent_view, certificate.digest)):
            return True
        if kind != FINALIZE or not self._has_timeouts:
            return False
        return any(each.tally.has(TIMEOUT) for each in self._rounds.values())

    def _report(self, kept: Vote, other: Vote) -> None:
        """Report two contradictory votes with valid signatures; once per signer, view and kind of contradiction."""
        evidence = conflict(kept, other)
        if evidence is None:
            return
        round_ = self._rounds.get(evidence.first.view) or self._rounds[kept.view]
        if (type(evidence), kept.signer) in round_.reported:
            return
        round_.reported.add((type(evidence), kept.signer))
        if kept.kind == other.kind == NOTARIZE and kept.signer == round_.leader:
            round_.equivocated = True
        self._effects.append(Report(evidence))

    def _reject(self, sender: ValidatorIndex, reason: str) -> None:
        self._effects.append(Rejected(sender, reason))
