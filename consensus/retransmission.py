"""Certificates sent to peers, and the repetition of messages that may have been lost. Rules of both protocols:

8. **Rebroadcast.** While a view lasts, a validator repeatedly broadcasts its votes of the view and its finalize votes
   of the ``finality_lag`` views before: every ``rebroadcast_ms``, or less often if blocks take longer
   (:class:`consensus.pacing.Repetition`). It repeats its open request, each time to peers one place further round the
   committee. If it has no vote in the view, it also asks a few of these peers for the certificates of the view, and the
   leader if no proposal came. A leader sends its proposal again only to members from which it has no vote of the view:
   with a repetition, or when they ask, and to each at most once per leader timeout.
9. **Help.** A vote for a view already left (finalize votes aside) that repeats an earlier vote, or that is two or more
   views behind, comes from a peer that is stuck: answer with the certificates of that view, the one that opened our
   view, and the newest finalization. The peer catches up in one jump.
10. **Requests** are answered from retained certificates. If a request names only views before ours, the certificate
    that opened our view is added: a peer that asks for our view is in it. If it names a view that is not above the
    final one, the newest finalization is added. No certificate is sent to the same peer twice between two ticks of the
    allowance timer, and all answers, also those of rule 9, are charged to the peer's allowance
    (:class:`consensus.allowance.Allowances`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from consensus.allowance import Allowances
from consensus.certificates import CertificateStore
from consensus.interface import FLOOD, OWN_KEY, Broadcast, Effect, Rejected, SendTo
from consensus.journal import VoteJournal
from consensus.leader import Member
from consensus.messages import (
    MAX_REQUESTED_VIEWS,
    MAX_VALIDATORS,
    SIGNATURE_BYTES,
    AnyCertificate,
    CertificateRequest,
    Message,
    Proposal,
    Timeout,
    Vote,
    VoteKind,
    encode,
)
from consensus.tally import Round, Rounds
from consensus.types import ValidatorIndex, View

BURST_CERTIFICATES: Final = MAX_REQUESTED_VIEWS
"""Number of certificates that a peer with a full allowance may be sent at once: the answer to the largest request."""
TICK_CERTIFICATES: Final = 8
"""Number of certificates that a tick adds to a peer's allowance: twice as many as a stuck peer needs to catch up."""
ASKED_AT_A_TIME: Final = 3
"""Number of peers that a validator without a vote in its view asks at a repetition. Each may answer with certificates
as long as a quorum of signatures; if all peers answered, slow views would cause a flood."""
MAX_ANSWERED_PEERS: Final = 2 * MAX_VALIDATORS
"""Number of peers (with observers) whose allowances may be below full at a time."""


class Retransmission:
    """Announces certificates, repeats own votes and open requests, and answers peers that lag behind."""

    def __init__(
        self,
        member: Member,
        certificates: CertificateStore,
        rounds: Rounds,
        journal: VoteJournal,
        finality_lag: int,
        effects: list[Effect],
    ) -> None:
        """``finality_lag``: number of views behind the current one whose finalize votes may still be in transit."""
        self._member = member
        self._certificates = certificates
        self._rounds = rounds
        self._journal = journal
        self._finality_lag = finality_lag
        self._effects = effects
        self._attempt = 0
        """Number of repetitions so far in this view."""
        self.announced: set[tuple[VoteKind, View]] = set()
        """Recent certificates that we made and broadcast."""
        size = certificate_bytes(len(member.validators))
        self._allowances = Allowances(BURST_CERTIFICATES * size, TICK_CERTIFICATES * size, MAX_ANSWERED_PEERS)
        self._answered: set[tuple[ValidatorIndex, VoteKind, View]] = set()
        """Certificates sent to peers since the last tick of the allowance timer."""
        self._reproposed: set[ValidatorIndex] = set()
        """Members that were sent our proposal again within the current leader timeout."""

    def enter_view(self) -> None:
        """Reset the counts of a view, since another one begins."""
        self._attempt = 0
        self._reproposed.clear()

    def tick(self) -> None:
        """Refill the peers' allowances, since the allowance timer expired. Each certificate may be sent again."""
        self._answered.clear()
        self._allowances.tick()

    def renew_proposals(self) -> None:
        """Let members be sent our proposal again, since a leader timeout passed."""
        self._reproposed.clear()

    def prune(self) -> None:
        """Forget announcements of views more than one behind the current one."""
        recent = self._certificates.view - 1
        self.announced = {(kind, view) for kind, view in self.announced if view >= recent}

    def announce(self, certificate: AnyCertificate) -> None:
        """Broadcast a certificate that we made, if :meth:`consensus.leader.Member.announces` says so for its view."""
        if self._member.announces(certificate.view):
            self._effects.append(Broadcast(certificate))
            self.announced.add((certificate.kind, certificate.view))

    def repeat(self, round_: Round, missing: tuple[View, ...]) -> None:
        """Rule 8: repeat messages that may be lost, and the request for certificates that are still ``missing``."""
        self._attempt += 1
        votes = self.open_votes()
        self._effects.extend(Broadcast(self.carrier(vote)) for vote in votes)
        for member in self._member.validators.committee(round_.view).members:
            self._propose_again(round_, member)
        peers = self._member.peers_after(round_.leader, self._attempt, round_.view)
        if all(vote.view != round_.view for vote in votes):
            request = CertificateRequest((round_.view,))
            asked = peers[:ASKED_AT_A_TIME]
            lacks_proposal = round_.may_vote and round_.proposal is None and not round_.is_ours
            if lacks_proposal and round_.leader not in asked:
                asked += (round_.leader,)
            self._effects.extend(SendTo(peer, request) for peer in asked)
        round_.requested = ()
        self.request(round_, missing, peers)

    def _propose_again(self, round_: Round, peer: ValidatorIndex) -> None:
        """Send our proposal of the view to a member that may lack it, unless it was sent again lately."""
        proposal = round_.proposal
        if proposal is None or not self._stands(round_, proposal):
            return
        is_asleep = peer != self._member.index and not round_.tally.votes_of(peer)
        if is_asleep and peer not in self._reproposed and peer in self._member.validators.committee(round_.view):
            self._reproposed.add(peer)
            self._effects.append(SendTo(peer, proposal))

    def _stands(self, round_: Round, proposal: Proposal) -> bool:
        """Whether the proposal is our own and durable, and we have not given its view up."""
        gave_up = VoteKind.NULLIFY in round_.own or VoteKind.TIMEOUT in round_.own
        return round_.is_ours and not gave_up and proposal.vote in self.open_votes()

    def open_votes(self) -> list[Vote]:
        """Our durable votes of this view, and our finalize votes of earlier views that may still lack a certificate."""
        known = self._certificates
        votes = list(self._rounds[known.view].own.values())
        for lag in range(1, self._finality_lag + 1):
            before = self._rounds.get(View(known.view - lag))
            if before is not None and VoteKind.FINALIZE in before.own and before.view > known.final.view:
                votes.append(before.own[VoteKind.FINALIZE])
        unsynced = [outgoing.vote for outgoing in self._journal.unsynced]
        return [vote for vote in votes if vote not in unsynced]

    def carrier(self, vote: Vote) -> Message:
        """The message that repeats ``vote``: a timeout vote is sent with the certificate of the block that it names."""
        if vote.kind == VoteKind.TIMEOUT:
            return Timeout(vote, self._certificates.of_block(vote.parent_view))
        return vote

    def request(self, round_: Round, missing: tuple[View, ...], peers: Iterable[ValidatorIndex]) -> None:
        """Request certificates, unless one of them was in the last request: its answer may still be in transit."""
        if not missing or any(view in round_.requested for view in missing):
            return
        round_.requested = missing
        self._effects.extend(SendTo(peer, CertificateRequest(missing)) for peer in peers)

    def help(self, peer: ValidatorIndex, view: View) -> None:
        """Rule 9: send a peer that is stuck in ``view`` the certificates with which it catches up."""
        known = self._certificates
        self._answer(peer, distinct(*known.of_view(view), known.opening(), known.newest_finalization()))

    def answer(self, sender: ValidatorIndex, request: CertificateRequest) -> None:
        """Rule 10: send the requested certificates that are retained."""
        if sender == self._member.index:
            self._effects.append(Rejected(sender, OWN_KEY))
        else:
            known = self._certificates
            held = [certificate for view in request.views for certificate in known.of_view(view)]
            overtaken = request.views[0] <= known.final.view
            finalization = known.newest_finalization() if overtaken else None
            opening = known.opening() if request.views[-1] < known.view else None
            self._answer(sender, distinct(*held, opening, finalization))
            if known.view in request.views:
                self._propose_again(self._rounds[known.view], sender)

    def _answer(self, peer: ValidatorIndex, certificates: Sequence[AnyCertificate]) -> None:
        """Send certificates within the peer's allowance, none twice between two ticks."""
        for certificate in certificates:
            name = peer, certificate.kind, certificate.view
            if name in self._answered:
                continue
            if not self._allowances.take(peer, len(encode(certificate))):
                self._effects.append(Rejected(peer, FLOOD))
                return
            self._answered.add(name)
            self._effects.append(SendTo(peer, certificate))


def certificate_bytes(validators: int) -> int:
    """Approximate bytes of a certificate signed by all validators. A timeout certificate may have twice as many."""
    return SIGNATURE_BYTES * (validators + 1)


def distinct(*certificates: AnyCertificate | None) -> list[AnyCertificate]:
    """The given certificates without ``None`` and duplicates."""
    kept: list[AnyCertificate] = []
    for certificate in certificates:
        if certificate is not None and certificate not in kept:
            kept.append(certificate)
    return kept
