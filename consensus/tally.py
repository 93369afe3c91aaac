"""The votes of each retained view.

:class:`VoteTally` makes certificates of the votes of one view. Signatures are the expensive part of consensus, so few
are verified, and late. The signatures of equal votes are verified when the votes would make a quorum, and then only
until a quorum is valid. A vote's signature is also verified when its signer casts a different vote, or the same vote
with another signature. A vote with an invalid signature is dropped; its signer is reported to the caller and may vote
again.

The first vote of each kind is kept per signer. A second one that differs is not counted: it is evidence
(:mod:`consensus.evidence`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from consensus.certificates import CertificateStore, Subject
from consensus.interface import (
    FOREIGN,
    FUTURE,
    MALFORMED,
    NOT_A_MEMBER,
    NOT_THE_LEADER,
    NOT_THE_SIGNER,
    OVERSIZED,
    OWN_KEY,
    STALE,
    UNKNOWN_SIGNER,
    Parent,
    VotingConfig,
)
from consensus.keys import ValidatorSet
from consensus.leader import Member
from consensus.messages import (
    FINALIZE,
    NOTARIZE,
    NULLIFY,
    TIMEOUT,
    Certificate,
    Message,
    Proposal,
    Vote,
    VoteKind,
    conflict,
    vote_signing_bytes,
)
from consensus.types import GENESIS_VIEW, ValidatorIndex, View

_SLOTS: Final = max(VoteKind) + 1
_NO_VOTES: Final[dict[ValidatorIndex, Vote]] = {}

CONTRADICTED: Final = {
    NOTARIZE: (NOTARIZE,),
    NULLIFY: (FINALIZE,),
    FINALIZE: (NULLIFY, FINALIZE, TIMEOUT),
    TIMEOUT: (FINALIZE, TIMEOUT),
}
"""The kinds of votes that a vote of each kind can contradict (:func:`consensus.messages.conflict`), ascending."""


class VoteTally:
    """The votes of one view: at most one of each kind per validator."""

    __slots__ = (
        "_checked",
        "_groups",
        "_kept",
        "_members",
        "_messages",
        "_namespace",
        "_quorum",
        "_validators",
        "view",
    )

    def __init__(self, validators: ValidatorSet, namespace: bytes, view: View) -> None:
        self.view = view
        committee = validators.committee(view)
        self._members, self._quorum = committee.member_set, committee.quorum
        self._validators = validators
        self._namespace = namespace
        self._kept: list[dict[ValidatorIndex, Vote]] = [{} for _ in range(_SLOTS)]
        self._groups: list[dict[Subject, dict[ValidatorIndex, Vote]]] = [{} for _ in range(_SLOTS)]
        self._checked: list[set[ValidatorIndex]] = [set() for _ in range(_SLOTS)]
        self._messages: dict[tuple[VoteKind, Subject], bytes] = {}
        """The signed bytes of equal votes, made when first needed."""

    def __len__(self) -> int:
        return sum(map(len, self._kept))

    def kept(self, kind: VoteKind, signer: ValidatorIndex) -> Vote | None:
        """The vote of this kind that is kept for ``signer``."""
        return self._kept[kind].get(signer)

    def votes_of(self, signer: ValidatorIndex) -> list[Vote]:
        """The votes that are kept for ``signer``, by kind."""
        return [kept[signer] for kept in self._kept if signer in kept]

    def has(self, kind: VoteKind) -> bool:
        """Whether any vote of this kind is kept."""
        return bool(self._kept[kind])

    def disagrees(self, kind: VoteKind, subject: Subject) -> bool:
        """Whether any vote is kept that could contradict a vote of this kind and subject by its signer."""
        for other in CONTRADICTED[kind]:
            if other != kind and self._kept[other]:
                return True
        groups = self._groups[kind]
        return len(groups) > 1 or (len(groups) == 1 and subject not in groups)

    def rivals(self, vote: Vote) -> list[Vote]:
        """The votes that are kept for the signer of ``vote`` and contradict it, by kind."""
        signer = vote.signer
        held = [kept[signer] for kind in CONTRADICTED[vote.kind] if signer in (kept := self._kept[kind])]
        return [other for other in held if other is not vote and conflict(vote, other) is not None]

    def add(self, vote: Vote, *, checked: bool = False) -> None:
        """Keep a vote, the first of its kind by its signer. ``checked``: whether its signature is known to be valid."""
        kind, signer = vote.kind, vote.signer
        self._kept[kind][signer] = vote
        groups, subject = self._groups[kind], (vote.parent_view, vote.digest)
        if subject in groups:
            groups[subject][signer] = vote
        else:
            groups[subject] = {signer: vote}
        if checked:
            self._checked[kind].add(signer)

    def add_usual(self, vote: Vote, is_certified: bool) -> bool:
        """Keep a notarize or finalize vote of a peer, if that has no consequence; else change nothing.

        Returns whether the vote is kept. It has a consequence if its signer has cast a vote of this kind, or has
        nullified the view; or if it completes a quorum, unless a certificate of its kind and view is known already.
        """
        kind, signer, kept = vote.kind, vote.signer, self._kept
        if signer in kept[kind] or signer in kept[NULLIFY] or signer not in self._members:
            return False
        groups, subject = self._groups[kind], (vote.parent_view, vote.digest)
        group = groups.get(subject, _NO_VOTES)
        if not is_certified and len(group) + 1 >= self._quorum:
            return False
        if group is _NO_VOTES:
            group = groups[subject] = {}
        kept[kind][signer] = group[signer] = vote
        return True

    def confirm(self, vote: Vote) -> bool:
        """Verify the signature of a kept vote, unless that was done before; drop the vote if it is invalid."""
        if vote.signer in self._checked[vote.kind]:
            return True
        message = self._message(vote.kind, (vote.parent_view, vote.digest))
        if self._validators.verify(vote.signer, message, vote.signature):
            self._checked[vote.kind].add(vote.signer)
            return True
        self._drop(vote)
        return False

    def assemble(self, vote: Vote) -> tuple[Certificate | None, tuple[ValidatorIndex, ...]]:
        """The certificate that ``vote`` completes, if any, and the signers whose votes were forged."""
        group = self._groups[vote.kind].get((vote.parent_view, vote.digest))
        if group is None:
            return None, ()
        signers, forgers = self._good_quorum(vote.kind, group)
        if not signers:
            return None, forgers
        signed = {signer: group[signer].signature for signer in signers}
        return Certificate.of(vote.kind, vote.view, vote.parent_view, vote.digest, signed), forgers

    def assemble_timeouts(self) -> tuple[tuple[Vote, ...], tuple[ValidatorIndex, ...]]:
        """A quorum of valid timeout votes with any high views, or none, and the signers whose votes were forged."""
        kept = self._kept[TIMEOUT]
        signers, forgers = self._good_quorum(TIMEOUT, kept)
        return tuple(kept[signer] for signer in signers), forgers

    def has_checked(self, kind: VoteKind, subject: Subject, signer: ValidatorIndex, signature: bytes) -> bool:
        """Whether this signature of ``signer``, on a vote of this kind and subject, was verified before."""
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
        """The ascending signers of a quorum of valid votes in ``group``, or none, and the signers of forged votes."""
        quorum = self._quorum
        if len(group) < quorum:
            return (), ()
        forgers: list[ValidatorIndex] = []
        checked = self._checked[kind]
        good = len(checked & group.keys())
        for candidate in [member for signer, member in group.items() if signer not in checked]:
            if good >= quorum or len(group) < quorum:
                break
            if self.confirm(candidate):
                good += 1
            else:
                forgers.append(candidate.signer)
        if good < quorum:
            return (), tuple(forgers)
        return tuple(sorted(checked & group.keys())[:quorum]), tuple(forgers)

    def _message(self, kind: VoteKind, subject: Subject) -> bytes:
        """The signed bytes of equal votes of this view, made once."""
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


@dataclass(slots=True)
class Round:
    """Everything known about one view except its certificates."""

    view: View
    leader: ValidatorIndex
    is_ours: bool
    """Whether we are the leader."""
    may_vote: bool
    tally: VoteTally
    own: dict[VoteKind, Vote]
    """Our votes, journaled or about to be: at most one of each kind, never one that gives up and one that finalizes."""
    proposal: Proposal | None = None
    """The leader's first proposal; it is dropped when the view is left."""
    verifying: bool = False
    """Whether ``Verify`` was emitted for ``proposal``."""
    building_on: Parent | None = None
    """The parent with which ``Propose`` was emitted."""
    equivocated: bool = False
    """Whether the leader voted for two blocks of the view."""
    requested: tuple[View, ...] = ()
    """The views whose missing certificates were requested last."""
    reported: set[tuple[type, ValidatorIndex]] = field(default_factory=set)

    @property
    def is_to_propose(self) -> bool:
        """Whether we are to propose in the view and have not asked for a block."""
        return self.is_ours and self.may_vote and self.building_on is None and not self.own

    @property
    def is_to_verify(self) -> bool:
        """Whether the leader's proposal came and its verification was not asked for."""
        return self.proposal is not None and not self.verifying and not self.is_ours and not self.own


class Rounds(dict[View, Round]):
    """The rounds by view; ``rounds[view]`` creates a missing round.

    Bounded by the windows of the configuration: votes for views outside them are refused.
    """

    def __init__(
        self,
        config: VotingConfig,
        member: Member,
        certificates: CertificateStore,
        own: Mapping[View, dict[VoteKind, Vote]],
    ) -> None:
        super().__init__()
        self.tally_class = VoteTally
        self.last_heard = [GENESIS_VIEW] * len(member.validators)
        """The newest view of each validator's votes so far; it may be ahead of the current view."""
        self._member = member
        self._certificates = certificates
        self._own = own
        self.configure(config)

    def configure(self, config: VotingConfig) -> None:
        """Use other bounds from now on. Rounds outside them are dropped later."""
        self.config = config
        self.open = self._open_views()
        """The views for which votes are kept."""

    def _open_views(self) -> range:
        return range(self.floor() + 1, self._certificates.view + self.config.view_window + 1)

    def __missing__(self, view: View) -> Round:
        member, leader = self._member, self._member.leader(view)
        tally = self.tally_class(member.validators, member.namespace, view)
        own = self._own.get(view, {})
        round_ = self[view] = Round(view, leader, leader == member.index, member.may_vote(view), tally, own)
        return round_

    def floor(self) -> View:
        """The highest view for which votes are neither kept nor cast any more; the same holds for all views below."""
        known, config = self._certificates, self.config
        behind_final = known.final.view - config.evidence_views
        behind_current = known.view - 1 - config.retained_views
        return View(max(behind_final, behind_current, known.root.view))

    def prune(self) -> None:
        """Drop the rounds at the floor and below. To be called when the current view or the final one has changed."""
        self.open = self._open_views()
        for view in [view for view in self if view < self.open.start]:
            del self[view]

    def hear(self, vote: Vote) -> None:
        """Note the view in which a vote's signer was heard, even if the vote is too far behind or ahead to be kept."""
        if vote.view > self.last_heard[vote.signer]:
            newest = View(self._certificates.view + self.config.view_window)
            self.last_heard[vote.signer] = max(min(vote.view, newest), self.last_heard[vote.signer])

    def take_vote(self, sender: int, vote: Vote) -> bool:
        """Count a peer's vote that has no effect, as the engine does with a message; other votes change nothing here.

        Returns whether the vote was counted. If not, it must be handled as a message. It may say so of votes without
        effects, too. The vote must be well-formed.

        A vote has no effect if it is the first of its kind by its signer in an open view, contradicts no vote and no
        certificate, completes no certificate, and does not show that its signer needs help.
        """
        kind, view, known = vote.kind, vote.view, self._certificates
        round_ = self.get(view)
        if round_ is None or view not in self.open or vote.signer != sender or sender == self._member.index:
            return False
        if kind == NOTARIZE:
            certificate = known.notarizations.get(view)
            is_usual = view + 1 >= known.view
        elif kind == FINALIZE:
            certificate = known.finalizations.get(view)
            is_usual = TIMEOUT not in known.by_kind and view not in known.skips
        else:
            return False
        if certificate is not None and (certificate.digest, certificate.parent_view) != (vote.digest, vote.parent_view):
            return False
        if not (is_usual and round_.tally.add_usual(vote, certificate is not None)):
            return False
        if self.last_heard[sender] < view:
            self.last_heard[sender] = view
        return True

    def fault_of_malformed(self, message: Message) -> str:
        """The reason to drop a message whose fields do not fit together."""
        is_signer_known = not isinstance(message, Vote) or 0 <= message.signer < len(self.last_heard)
        return MALFORMED if is_signer_known else UNKNOWN_SIGNER

    def fault_of_vote(self, sender: ValidatorIndex, vote: Vote) -> str | None:
        """The reason to drop a vote before its signature is verified; ``None`` if there is none."""
        signer, view = vote.signer, vote.view
        if not 0 <= signer < len(self.last_heard):
            return UNKNOWN_SIGNER
        if signer != sender:
            return NOT_THE_SIGNER
        if sender == self._member.index:
            return OWN_KEY
        if vote.kind not in self._certificates.by_kind:
            return FOREIGN
        if signer not in self._member.validators.committee(view):
            return NOT_A_MEMBER
        if view in self.open:
            return None
        return STALE if view < self.open.start else FUTURE

    def fault_of_proposal(self, sender: ValidatorIndex, proposal: Proposal) -> str | None:
        """The reason to drop a proposal before its signature is verified; ``None`` if there is none."""
        if proposal.view <= self.floor():
            return STALE
        if proposal.view > self._certificates.view + self.config.proposal_window:
            return FUTURE
        if sender == self._member.index:
            return OWN_KEY
        if sender != self._member.leader(proposal.view) or proposal.vote.signer != sender:
            return NOT_THE_LEADER
        if len(proposal.body) > self.config.max_body_bytes:
            return OVERSIZED
        return None
