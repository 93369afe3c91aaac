"""The part that voting protocols share: events, proposals, votes and certificates.

:class:`VotingEngine` does not know when to vote. A protocol derives from it and decides: on which block a leader
builds, what justifies a proposal, when a view is given up or a block finalized, and to whom a vote is sent
(:mod:`consensus.simplex`, :mod:`consensus.hotstuff`). Each of these holds a part of the state and keeps it bounded:

- :class:`~consensus.certificates.CertificateStore`: certificates, the current view and the newest final block;
- :class:`~consensus.tally.Rounds`: votes and proposals by view;
- :class:`~consensus.evidence.Accountability`: checks of peers' votes and certificates, and contradictions in them;
- :class:`~consensus.journal.VoteJournal`: own votes, and the records that are not durable yet;
- :class:`~consensus.retransmission.Retransmission`: certificates sent to peers, and repeated messages;
- :class:`~consensus.pacing.Pacing`: the factor of the timeouts, and when to repeat.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from consensus.certificates import CertificateStore
from consensus.evidence import Accountability
from consensus.interface import (
    BAD_SIGNATURE,
    DUPLICATE,
    FOREIGN,
    FUTURE,
    STALE,
    BlockProposed,
    BlockVerified,
    Broadcast,
    Durable,
    Effect,
    Event,
    Finalized,
    Notarized,
    Nullified,
    Parent,
    Propose,
    Received,
    Rejected,
    Start,
    StartTimer,
    TimerExpired,
    TimerKind,
    Verify,
    ViewEntered,
    VotingConfig,
)
from consensus.journal import JournalError, Outgoing, VoteJournal, recover
from consensus.keys import Signer, ValidatorSet
from consensus.leader import LeaderElection, Member, RoundRobin
from consensus.messages import (
    FINALIZE,
    MAX_REQUESTED_VIEWS,
    NOTARIZE,
    NULLIFY,
    TIMEOUT,
    AnyCertificate,
    Certificate,
    CertificateRequest,
    Message,
    Proposal,
    Timeout,
    TimeoutCertificate,
    Vote,
    VoteKind,
    is_well_formed,
)
from consensus.pacing import Pacing
from consensus.retransmission import Retransmission
from consensus.tally import Round, Rounds
from consensus.types import (
    DIGEST_BYTES,
    GENESIS_VIEW,
    ConsensusError,
    Digest,
    Token,
    ValidatorIndex,
    View,
)


class Sizes(NamedTuple):
    """Sizes of an engine's collections."""

    rounds: int
    """Number of views with votes or a proposal."""
    votes: int
    """Number of votes in the view with the most votes."""
    proposals: int
    """Number of proposals, which are kept with their bodies."""
    own: int
    """Number of views with votes of this validator."""
    certificates: int
    """Size of the largest certificate collection; announced certificates count as a collection."""


@dataclass(frozen=True, slots=True)
class Ancestry:
    """Whether our certificates justify a proposal's parent.

    ``parent`` is the parent if they do; else ``missing`` has the views whose certificates would justify it.
    """

    parent: Parent | None = None
    missing: tuple[View, ...] = ()

    @property
    def impossible(self) -> bool:
        """Whether no further certificate can justify the parent."""
        return self.parent is None and not self.missing


class VotingEngine(ABC):
    """Base class of the engines of all protocols. An engine runs consensus for one validator or observer."""

    _gives_up: ClassVar[VoteKind]
    """The kind of vote that gives a view up. An honest validator does not both give up and finalize a view."""
    _finality_lag: ClassVar[int]
    """Number of views behind the current one whose finalize votes may still be in transit."""

    def __init__(
        self,
        config: VotingConfig,
        validators: ValidatorSet,
        me: ValidatorIndex | None,
        signer: Signer | None,
        namespace: bytes,
        root: Parent | Digest,
        journal: Iterable[bytes] = (),
        election: LeaderElection | None = None,
        *,
        abstain_through: View = GENESIS_VIEW,
    ) -> None:
        """Prepare an engine and replay its journal; ``handle(Start())`` starts it.

        ``me`` and ``signer`` are ``None`` for an observer, which never votes. ``namespace`` names the chain (and
        whatever else keeps votes apart). ``root`` is the final block from which all validators start: a genesis digest,
        at view 0, or a parent with a view. A finalization in ``journal`` may give a later starting point.
        ``abstain_through`` is the newest view in which this validator may have cast votes that the journal does not
        hold. Raises :class:`~consensus.journal.JournalError` for a journal that this validator cannot have written.
        """
        member = Member(validators, me, signer, namespace, election or RoundRobin(validators), abstain_through)
        root = root if isinstance(root, Parent) else Parent(GENESIS_VIEW, root)
        if len(root.digest) != DIGEST_BYTES:
            raise ConsensusError("the root's digest has 32 bytes")
        self._config = config
        self._member = member
        self._effects: list[Effect] = []
        self._journal = VoteJournal()
        self.certificates = CertificateStore(root, self._gives_up)
        self._rounds = Rounds(config, member, self.certificates, self._journal.own)
        self.take_vote = self._rounds.take_vote
        """A shortcut of :meth:`handle` for votes without effects (:meth:`consensus.tally.Rounds.take_vote`)."""
        self._accountability = Accountability(member, self.certificates, self._rounds, self._effects)
        self._retransmission = Retransmission(
            member, self.certificates, self._rounds, self._journal, self._finality_lag, self._effects
        )
        self._pacing = Pacing(config.final_views)
        self._replay(journal)

    def configure(self, config: VotingConfig) -> None:
        """Use other times and bounds from now on. Running timers are not changed."""
        self._config = config
        self._rounds.configure(config)

    # --- what a protocol decides ------------------------------------------------------------------------------------

    @abstractmethod
    def _best_parent(self, view: View) -> Ancestry:
        """The block that the leader of ``view`` builds on, or the views whose certificates it lacks."""

    @abstractmethod
    def _ancestry_of(self, proposal: Proposal) -> Ancestry:
        """Whether our certificates justify the proposal's parent."""

    @abstractmethod
    def _give_up(self, round_: Round) -> None:
        """Cast the vote that gives the view up, if that is still allowed."""

    @abstractmethod
    def _finalize(self, notarization: Certificate) -> None:
        """Cast the vote to finalize the block, if that is allowed."""

    def _send(self, outgoing: Outgoing) -> None:
        """Send the message of a vote of ours that is durable. Unless overridden, it is broadcast."""
        self._effects.append(Broadcast(outgoing.message))

    def _on_timeout(self, sender: ValidatorIndex, message: Timeout | TimeoutCertificate) -> None:
        """Reject a peer's timeout message. Protocols whose views end by timeouts override this."""
        self._effects.append(Rejected(sender, FOREIGN))

    # --- what others may ask --------------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """The current view."""
        return self.certificates.view

    @property
    def final_view(self) -> View:
        """The newest view with a known finalization."""
        return self.certificates.final.view

    def leader(self, view: View) -> ValidatorIndex:
        """The validator that may propose in ``view``."""
        return self._member.leader(view)

    @property
    def sizes(self) -> Sizes:
        """Current sizes; ``docs/consensus.md`` names the bounds."""
        rounds = self._rounds.values()
        kinds = (*self.certificates.by_kind.values(), self._retransmission.announced)
        return Sizes(
            rounds=len(rounds),
            votes=max((len(round_.tally) for round_ in rounds), default=0),
            proposals=sum(round_.proposal is not None for round_ in rounds),
            own=len(self._journal.own),
            certificates=max(map(len, kinds)),
        )

    def journal_snapshot(self) -> tuple[bytes, ...]:
        """The records that replace the whole journal: those still needed to restart without voting twice.

        They include votes that are not durable yet: the bodies emitted with those must be durable before the snapshot
        is. Records emitted earlier may be appended after the snapshot; a duplicate record is harmless.
        """
        return self._journal.snapshot(self.certificates)

    # --- events ---------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> Sequence[Effect]:
        """Take one event; return the effects that follow, in order.

        All records of one event are one ``Persist``, the last effect.
        """
        match event:
            case Received() if event.is_checked or is_well_formed(event.message):
                self._on_message(event.sender, event.message)
            case Received():
                self._effects.append(Rejected(event.sender, self._rounds.fault_of_malformed(event.message)))
            case Durable():
                self._on_durable(event.token)
            case TimerExpired():
                self._on_timer(event.kind, event.view)
            case BlockProposed():
                self._on_block_proposed(event)
            case BlockVerified():
                self._on_block_verified(event.view, event.digest, event.valid)
            case Start():
                self._on_start()
        self._journal.pace(self._pacing.factor)
        persist = self._journal.flush()
        if persist is not None:
            self._effects.append(persist)
            for vote in self._journal.cast_with(persist.token):  # they count as ours from the end of the event on
                if vote.kind != FINALIZE:
                    self._pacing.voted(vote.kind == self._gives_up and vote.view == self.view)
        effects = self._effects[:]
        self._effects.clear()
        return effects

    def _on_start(self) -> None:
        known = self.certificates
        finalization = known.newest_finalization()
        if finalization is not None:
            self._effects.append(Finalized(finalization))
        for view in range(known.final.view + 1, known.view):
            for certificate in known.of_view(View(view)):
                if isinstance(certificate, Certificate) and certificate.kind == NOTARIZE:
                    self._effects.append(Notarized(certificate))
                else:
                    self._effects.append(Nullified(certificate))
        self._effects.append(allowance_timer(self._config))
        self._enter(known.view)
        self._proceed(self._rounds[known.view])
        for vote in [vote for round_ in self._rounds.values() for vote in round_.own.values()]:
            self._count(vote)
        round_ = self._rounds[known.view]
        if round_.own:
            self._retransmission.repeat(round_, ())

    def _on_message(self, sender: ValidatorIndex, message: Message) -> None:
        """Take a well-formed message."""
        match message:
            case Vote():
                self._on_vote(sender, message)
            case Proposal():
                self._on_proposal(sender, message)
            case Certificate():
                self._on_certificate(sender, message)
            case CertificateRequest():
                self._retransmission.answer(sender, message)
            case Timeout() | TimeoutCertificate():
                self._on_timeout(sender, message)

    def _on_timer(self, kind: TimerKind, view: View) -> None:
        if kind is TimerKind.ALLOWANCE:
            self._retransmission.tick()
            self._effects.append(allowance_timer(self._config))
        if view != self.certificates.view:
            return
        round_ = self._rounds[view]
        self._pacing.waited()
        match kind:
            case TimerKind.LEADER:
                if round_.proposal is None and NOTARIZE not in round_.own:
                    self._give_up(round_)
            case TimerKind.ADVANCE:
                self._give_up(round_)
            case TimerKind.REBROADCAST:
                tick_ms = self._config.rebroadcast_ms
                ticks = -(-self._pacing.factor * self._config.leader_timeout_ms // tick_ms)  # rounded up
                if self._pacing.repetition.tick(ticks):
                    missing: tuple[View, ...] = ()
                    if round_.is_to_propose:
                        missing = self._best_parent(view).missing
                    elif round_.proposal is not None and round_.is_to_verify:
                        missing = self._ancestry_of(round_.proposal).missing
                    self._retransmission.repeat(round_, missing)
                if self._pacing.repetition.ticks % ticks == 0:
                    self._retransmission.renew_proposals()
                self._effects.append(StartTimer(TimerKind.REBROADCAST, view, tick_ms))

    def _on_durable(self, token: Token) -> None:
        for outgoing in self._journal.synced(token):
            vote = outgoing.vote
            if vote.view <= self.certificates.final.view:
                continue
            self._send(outgoing)
            round_ = self._rounds.get(vote.view)
            # It is not counted if its round was dropped, or if another machine used our key.
            if round_ is not None and round_.tally.kept(vote.kind, vote.signer) is None:
                round_.tally.add(vote, checked=True)
                self._count(vote)

    # --- proposing and verifying ----------------------------------------------------------------------------------

    def _proceed(self, round_: Round) -> None:
        """Ask the driver to build our block or to verify the leader's, if its parent is justified.

        Else request the certificates that are missing. Give the view up if none can justify the leader's block.
        """
        if round_.is_to_propose:
            ancestry = self._best_parent(round_.view)
            if ancestry.parent is None:
                peers = self._member.peers_after(round_.leader, 0, round_.view)
                self._retransmission.request(round_, ancestry.missing, peers)
            else:
                round_.building_on = ancestry.parent
                self._effects.append(Propose(round_.view, ancestry.parent))
        elif (proposal := round_.proposal) is not None and round_.is_to_verify:
            ancestry = self._ancestry_of(proposal)
            if ancestry.impossible:
                self._give_up(round_)
            elif ancestry.parent is None:
                self._retransmission.request(round_, ancestry.missing, (round_.leader,))
            else:
                round_.verifying = True
                verify = Verify(round_.view, ancestry.parent, proposal.digest, proposal.body, proposal.vote)
                self._effects.append(verify)

    def _on_block_proposed(self, block: BlockProposed) -> None:
        round_ = self._rounds.get(block.view)
        if round_ is None or block.view != self.view or round_.building_on != block.parent or round_.own:
            return
        if len(block.body) > self._config.max_body_bytes:
            raise ValueError(f"a proposed body of {len(block.body)} bytes exceeds {self._config.max_body_bytes}")
        vote = self._member.sign(NOTARIZE, block.view, block.parent.view, block.digest)
        proposal = Proposal(block.view, block.parent.view, block.parent.digest, block.digest, block.body, vote)
        round_.proposal = proposal
        self._journal.cast(round_.own, vote, proposal, block.body)

    def _on_proposal(self, sender: ValidatorIndex, proposal: Proposal) -> None:
        reason = self._rounds.fault_of_proposal(sender, proposal)
        vote = proposal.vote
        if reason == STALE:
            self._on_vote(sender, vote)  # rejects it, and helps the peer
            return
        if reason is not None:
            self._effects.append(Rejected(sender, reason))
            return
        if proposal.view < self.view:
            # No validator votes for it any more, but its vote may be evidence against its signer.
            self._on_vote(sender, vote)
            return
        round_ = self._rounds[proposal.view]
        if round_.tally.kept(NOTARIZE, sender) == vote:
            if round_.proposal is not None:
                self._effects.append(Rejected(sender, DUPLICATE))
                return
            if not self._accountability.confirm(vote):
                return
        else:
            is_signed = self._accountability.is_signed(vote)
            if not self._accountability.admit(round_, vote, checked=is_signed):
                return
            self._count(vote)
            if round_.proposal is not None or round_.view < self.view:
                return
        round_.proposal = proposal
        if round_.view == self.view:
            self._proceed(round_)

    def _on_block_verified(self, view: View, digest: Digest, valid: bool) -> None:
        """Vote for the proposal of the view if its block is valid, else give the view up."""
        round_ = self._rounds.get(view)
        if round_ is None or view != self.view or not round_.verifying:
            return
        proposal = round_.proposal
        if proposal is None or proposal.digest != digest:
            return
        if not valid:
            self._give_up(round_)
        elif round_.may_vote and not round_.own:
            vote = self._member.sign(NOTARIZE, view, proposal.parent_view, digest)
            self._journal.cast(round_.own, vote, vote, proposal.body)

    # --- votes ----------------------------------------------------------------------------------------------------

    def _on_vote(self, sender: ValidatorIndex, vote: Vote) -> None:
        reason = self._rounds.fault_of_vote(sender, vote)
        if reason is not None:
            self._effects.append(Rejected(sender, reason))
            if reason in (STALE, FUTURE):
                self._rounds.hear(vote)
            if reason == STALE and vote.kind != FINALIZE:
                self._retransmission.help(sender, vote.view)
            return
        round_ = self._rounds[vote.view]
        repeats = round_.tally.kept(vote.kind, vote.signer) == vote
        if repeats:
            self._effects.append(Rejected(sender, DUPLICATE))
        elif self._accountability.admit(round_, vote):
            self._count(vote)
        view = self.certificates.view
        if vote.view < view and vote.kind != FINALIZE and (repeats or vote.view + 1 < view):
            self._retransmission.help(sender, vote.view)

    def _count(self, vote: Vote) -> None:
        """Make and accept the certificate that ``vote``, which is kept, completes; nothing if it completes none."""
        known = self.certificates
        round_ = self._rounds.get(vote.view)
        if round_ is None or vote.view <= known.final.view or vote.view in known.by_kind[vote.kind]:
            return
        certificate: AnyCertificate | None
        if vote.kind == TIMEOUT:
            votes, forgers = round_.tally.assemble_timeouts()
            certificate = known.timeout_certificate(votes) if votes else None
        else:
            certificate, forgers = round_.tally.assemble(vote)
        for forger in forgers:
            self._effects.append(Rejected(forger, BAD_SIGNATURE))
        if certificate is not None:
            self._retransmission.announce(certificate)
            self._accept(certificate)

    # --- certificates and views -------------------------------------------------------------------------------------

    def _on_certificate(self, sender: ValidatorIndex, certificate: Certificate) -> None:
        known = self.certificates
        if certificate.view <= known.final.view:
            self._effects.append(Rejected(sender, STALE))
        elif certificate.kind not in known.kinds:
            self._effects.append(Rejected(sender, FOREIGN))
        elif certificate.view in known.by_kind[certificate.kind]:
            self._effects.append(Rejected(sender, DUPLICATE))
        elif self._accountability.believes(sender, certificate):
            self._accept(certificate)

    def _accept(self, certificate: AnyCertificate) -> None:
        """Rules 5 to 7: act on a valid new certificate, and enter the next view if that is ahead."""
        self._learn(certificate)
        if certificate.view >= self.view:
            self._pacing.left(certificate.kind == self._gives_up, self._member.election.longest_row(self.view))
            if certificate.view == self.view and certificate.kind in (NOTARIZE, FINALIZE):
                self._pacing.repetition.made_block()
            self._enter(View(certificate.view + 1))
        else:
            self._prune()
        self._proceed(self._rounds[self.view])  # a proposal may wait for this certificate

    def _learn(self, certificate: AnyCertificate) -> None:
        """Keep and journal a valid certificate, and vote to finalize a block that it notarizes."""
        self.certificates.add(certificate)
        self._journal.append(certificate)
        if not isinstance(certificate, Certificate) or certificate.kind == NULLIFY:
            self._effects.append(Nullified(certificate))
        elif certificate.kind == NOTARIZE:
            self._effects.append(Notarized(certificate))
            self._finalize(certificate)
        else:
            self.certificates.finalize(certificate)
            self._pacing.finalized()
            self._effects.append(Finalized(certificate))

    def _enter(self, view: View) -> None:
        for left in self._rounds.values():
            if left.view < view:
                left.proposal = None
        self.certificates.view = view
        self._retransmission.enter_view()
        self._pacing.enter_view(view)
        self._prune()
        round_, config, factor = self._rounds[view], self._config, self._pacing.factor
        self._effects.append(ViewEntered(view, round_.leader))
        self._effects.append(StartTimer(TimerKind.LEADER, view, factor * config.leader_timeout_ms))
        self._effects.append(StartTimer(TimerKind.ADVANCE, view, factor * config.advance_timeout_ms))
        self._effects.append(StartTimer(TimerKind.REBROADCAST, view, config.rebroadcast_ms))

    def _prune(self) -> None:
        final_view = self.certificates.final.view
        self._rounds.prune()
        self._journal.prune(final_view)
        self._retransmission.prune()
        self.certificates.prune(View(final_view - self._config.retained_views))

    # --- restart ----------------------------------------------------------------------------------------------------

    def _replay(self, journal: Iterable[bytes]) -> None:
        """Restore certificates, pace and own votes, then drop everything behind the newest finalization."""
        recovered = recover(journal, self.certificates)
        self._pacing.factor = self._journal.factor = recovered.factor
        for vote in recovered.votes:
            if vote.signer != self._member.index:
                raise JournalError(f"the journal holds a vote of validator {vote.signer}, not ours")
            if vote.view <= self.certificates.root.view:
                continue
            round_ = self._rounds[vote.view]
            if self._accountability.rivals(vote):
                raise JournalError(f"the journal holds contradictory votes of ours in view {vote.view}")
            if vote.kind not in round_.own:
                round_.own[vote.kind] = vote
                self._journal.own[vote.view] = round_.own
                round_.tally.add(vote, checked=True)
        self._prune()


def allowance_timer(config: VotingConfig) -> StartTimer:
    """The effect that starts the timer of the next allowance tick."""
    return StartTimer(TimerKind.ALLOWANCE, GENESIS_VIEW, config.rebroadcast_ms)


def to_request(missing: list[View]) -> tuple[View, ...]:
    """The highest missing views that fit in one request, ascending."""
    return tuple(sorted(missing)[-MAX_REQUESTED_VIEWS:])
