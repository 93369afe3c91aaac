"""What may reach a validator, given all that was said.

Whatever was sent may reach any validator at any time, and may be lost: messages are repeated, and peers pass on the
certificates that they hold. So the offers follow from the set of what was said alone: the proposals, and each
certificate that a quorum of the votes makes.

A byzantine validator says everything it can. As a leader it proposes two blocks on each certified block, and on the
genesis; it casts every vote for every block of its view; its timeouts name no block. It hands out any certificate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from consensus.interface import Parent
from consensus.messages import (
    NO_DIGEST,
    NO_PARENT,
    Certificate,
    Proposal,
    Timeout,
    TimeoutCertificate,
    Vote,
    VoteKind,
)
from consensus.types import FIRST_VIEW, GENESIS_VIEW, View
from kits.explore.replica import digest_of
from kits.explore.scope import GENESIS, NO_ONE, Facts, Scope, What

BLOCKS: Final = (b"a", b"b")
"""The variants of a byzantine leader's blocks on one parent."""
KEPT: Final = 100_000
"""Number of offers that are kept; others are made again."""


@dataclass(frozen=True, slots=True)
class Offers:
    """What may reach a validator."""

    proposals: tuple[tuple[What, Proposal], ...]
    certificates: Mapping[What, tuple[Vote, ...]]
    """The votes of each certificate except those to time out; a quorum of them at least."""
    timeouts: Mapping[View, tuple[Timeout, ...]]
    """For each view that a quorum timed out of: the timeouts, one a validator, the lowest high view first."""
    votes: Mapping[What, tuple[Vote, ...]]
    """All votes except those to time out, by the certificate that a quorum of them makes."""
    highs: Mapping[View, tuple[View, ...]]
    """For each view the high views that its timeouts name, up to a quorum of the lowest, ascending."""
    given_up: int
    """The number of votes of honest validators that give a view up."""
    number: int
    """Equal numbers: the same may reach a validator, up to the signers of certificates."""
    open: int
    """Equal numbers: the same, and as many votes of each kind, view and block lack to a quorum."""


class Offering:
    """The offers of one exploration."""

    def __init__(self, scope: Scope, facts: Facts) -> None:
        self._scope = scope
        self._facts = facts
        self._known: dict[int, Offers] = {}
        self._speeches: dict[int, int] = {}
        self._numbers: dict[object, int] = {}

    def of(self, said: int) -> Offers:
        """The offers that follow from the mask of all that honest validators said.

        Certificates follow from the votes, so it does not matter which of them were said.
        """
        said &= ~self._facts.certificates
        offers = self._known.get(said)
        if offers is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            offers = self._known[said] = self._offers(said)
        return offers

    def _offers(self, said: int) -> Offers:
        offers = self._collect(said)
        if self._scope.byzantine is None:
            return offers
        while True:
            more = said | self._speech_mask(offers)
            if more == said:
                return offers
            said = more
            offers = self._collect(said)

    def _collect(self, said: int) -> Offers:
        facts, quorum = self._facts, self._scope.quorum
        votes: dict[What, list[Vote]] = {}
        timeouts: dict[View, list[Vote]] = {}
        proposals = []
        for number in facts.numbers(said):
            what, message = facts.all[number], facts.messages[number]
            if isinstance(message, Proposal):
                proposals.append((what, message))
            elif not what.is_certificate:
                vote = message.vote if isinstance(message, Timeout) else message
                assert isinstance(vote, Vote)
                if vote.kind == VoteKind.TIMEOUT:
                    timeouts.setdefault(vote.view, []).append(vote)
                else:
                    votes.setdefault(what._replace(signer=NO_ONE), []).append(vote)
        certificates = {what: tuple(cast) for what, cast in votes.items() if len(cast) >= quorum}
        lacking = frozenset((what, len(cast)) for what, cast in votes.items() if len(cast) < quorum)
        offered, highs = {}, {}
        for view, cast in timeouts.items():
            cast.sort(key=lambda vote: vote.parent_view)
            highs[view] = tuple(vote.parent_view for vote in cast[:quorum])
            if len(cast) >= quorum:
                offered[view] = tuple(Timeout(vote, self._high(vote.parent_view, certificates)) for vote in cast)
        ended = tuple((view, highest[-1]) for view, highest in sorted(highs.items()) if len(highest) == quorum)
        number = self._number((frozenset(what for what, _ in proposals), frozenset(certificates), ended))
        open_number = self._number((number, lacking, frozenset(highs.items())))
        known = {what: tuple(cast) for what, cast in votes.items()}
        nullified = (cast for what, cast in votes.items() if what.kind == VoteKind.NULLIFY)
        giving_up = (vote for cast in (*nullified, *timeouts.values()) for vote in cast)
        given_up = sum(vote.signer != self._scope.byzantine for vote in giving_up)
        return Offers(tuple(proposals), certificates, offered, known, highs, given_up, number, open_number)

    def _number(self, key: object) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _high(self, view: View, certificates: Mapping[What, tuple[Vote, ...]]) -> Certificate | None:
        """The notarization of a view's block."""
        for what, votes in certificates.items():
            if what.kind == VoteKind.NOTARIZE and what.view == view:
                return certificate_of(votes[: self._scope.quorum])
        return None

    # --- the byzantine validator -------------------------------------------------------------------------------------

    def _speech_mask(self, offers: Offers) -> int:
        """The mask of what the byzantine validator can say."""
        mask = self._speeches.get(offers.number)
        if mask is None:
            mask = 0
            for message in self._speech(offers):
                mask |= self._facts.mask(message)
            self._speeches[offers.number] = mask
        return mask

    def _speech(self, offers: Offers) -> Iterator[Vote | Proposal]:
        """What the byzantine validator can say."""
        scope, me = self._scope, self._scope.byzantine
        assert me is not None
        certified = [Parent(GENESIS_VIEW, GENESIS)]
        certified += [Parent(what.view, what.digest) for what in offers.certificates if what.kind == VoteKind.NOTARIZE]
        for number in range(FIRST_VIEW, scope.views + 1):
            view = View(number)
            if scope.leader(view) == me:
                for parent in certified:
                    if parent.view < view:
                        yield from self._proposals(view, parent)
            skip = VoteKind.TIMEOUT if scope.is_hotstuff else VoteKind.NULLIFY
            yield scope.sign(me, skip, view, NO_PARENT, NO_DIGEST)
        for what, _ in offers.proposals:
            for kind in (VoteKind.NOTARIZE, VoteKind.FINALIZE):
                yield scope.sign(me, kind, what.view, what.parent_view, what.digest)

    def _proposals(self, view: View, parent: Parent) -> Iterator[Proposal]:
        scope, me = self._scope, self._scope.byzantine
        assert me is not None
        for variant in BLOCKS:
            body = b"%d %d %s " % (view, parent.view, variant) + parent.digest
            digest = digest_of(body)
            vote = scope.sign(me, VoteKind.NOTARIZE, view, parent.view, digest)
            yield Proposal(view, parent.view, parent.digest, digest, body, vote)


def certificate_of(votes: tuple[Vote, ...]) -> Certificate:
    """The certificate of equal votes."""
    vote = votes[0]
    signed = {each.signer: each.signature for each in votes}
    return Certificate.of(vote.kind, vote.view, vote.parent_view, vote.digest, signed)


def timeout_certificate_of(timeouts: tuple[Timeout, ...]) -> TimeoutCertificate:
    """The certificate of timeouts of one view."""
    highest = max(timeouts, key=lambda timeout: timeout.vote.parent_view)
    signed = {each.vote.signer: (each.vote.parent_view, each.vote.signature) for each in timeouts}
    return TimeoutCertificate.of(highest.vote.view, highest.high, signed)
