"""What voting protocols have in common, whatever their rules: votes, certificates, the journal, lost messages.

:class:`VotingEngine` keeps votes and makes certificates of them, journals before it sends, finds contradictions,
repeats what may have been lost, answers those who are behind, and keeps all of it bounded. It does not know when to
vote. A protocol derives from it and says so: on which block a leader builds, what justifies a proposal, how a view is
given up, what a certificate leads to, and to whom a vote is sent (:mod:`consensus.simplex`, :mod:`consensus.hotstuff`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from consensus.certificates import VoteTally, verify_certificate
from consensus.interface import (
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
    Persist,
    Propose,
    Received,
    Rejected,
    Report,
    SendTo,
    Start,
    StartTimer,
    TimerExpired,
    TimerKind,
    Verify,
    ViewEntered,
)
from consensus.journal import JournalError, Record, decode_record, encode_record
from consensus.keys import Signer, ValidatorSet
from consensus.leader import LeaderElection, RoundRobin
from consensus.messages import (
    MAX_BODY_BYTES,
    MAX_REQUESTED_VIEWS,
    MAX_VALIDATORS,
    AnyCertificate,
    Certificate,
    CertificateRequest,
    Message,
    MessageError,
    Proposal,
    Timeout,
    TimeoutCertificate,
    Vote,
    VoteKind,
    check,
    conflict,
    verify_vote,
    vote_signing_bytes,
)
from consensus.types import (
    DIGEST_BYTES,
    GENESIS_VIEW,
    ConsensusError,
    Digest,
    Token,
    ValidatorIndex,
    View,
)

MAX_ANSWERS_PER_PEER: Final = 256
"""Certificates sent to one peer between two ticks (a change of view, or the rebroadcast timer)."""
MAX_ANSWERED_PEERS: Final = 2 * MAX_VALIDATORS
"""Peers, observers included, that are answered between two ticks."""

# Why a message was dropped.
MALFORMED: Final = "malformed"
OVERSIZED: Final = "oversized"
UNKNOWN_SIGNER: Final = "unknown_signer"
NOT_THE_SIGNER: Final = "not_the_signer"
NOT_THE_LEADER: Final = "not_the_leader"
NOT_A_MEMBER: Final = "not_a_member"
OWN_KEY: Final = "own_key"
BAD_SIGNATURE: Final = "bad_signature"
BAD_CERTIFICATE: Final = "bad_certificate"
CONFLICT: Final = "conflict"
FOREIGN: Final = "foreign"
UNPROVED: Final = "unproved"
FUTURE: Final = "future"
FLOOD: Final = "flood"
DUPLICATE: Final = "duplicate"
STALE: Final = "stale"

HARMLESS_REASONS: Final = (DUPLICATE, STALE, FUTURE, UNPROVED, FLOOD)
"""Reasons that lost, repeated and late messages of honest peers also cause, and requests of one that is far behind; no
peer should be scored for them.
"""


@dataclass(frozen=True, slots=True)
class VotingConfig:
    """Timeouts and bounds of one engine. Validators may differ in them."""

    leader_timeout_ms: int = 2_000
    """From entering a view to its leader's proposal: two message delays and the time to build and execute a block."""
    advance_timeout_ms: int = 3_000
    """From entering a view to its certificate."""
    rebroadcast_ms: int = 1_000
    view_window: int = 16
    """Views ahead of the current one for which votes are kept."""
    proposal_window: int = 4
    """Views ahead of the current one for which a proposal, with its body, is kept."""
    retained_views: int = 64
    """Views behind the newest final one whose certificates are kept; views behind the current one whose votes are."""
    evidence_views: int = 8
    """Views behind the newest final one whose votes are kept, to find contradictions."""
    max_body_bytes: int = 1024 * 1024

    def __post_init__(self) -> None:
        positive = ("leader_timeout_ms", "advance_timeout_ms", "rebroadcast_ms", "view_window", "retained_views")
        for name in (*positive, "max_body_bytes"):
            if getattr(self, name) < 1:
                raise ConsensusError(f"{name} must be positive")
        for name in ("proposal_window", "evidence_views"):
            if getattr(self, name) < 0:
                raise ConsensusError(f"{name} must not be negative")
        if self.max_body_bytes > MAX_BODY_BYTES:
            raise ConsensusError(f"max_body_bytes must not exceed {MAX_BODY_BYTES}")


@dataclass(slots=True)
class Round:
    """What is known of one view beside its certificates."""

    view: View
    leader: ValidatorIndex
    tally: VoteTally
    own: dict[VoteKind, Vote]
    """Our votes, journaled or about to be. At most one of each kind, never one that gives up and one that finalizes."""
    proposal: Proposal | None = None
    """The leader's first; its body is let go when the view is left."""
    verifying: bool = False
    """``Verify`` was asked for ``proposal``."""
    building_on: Parent | None = None
    """``Propose`` was asked on this parent."""
    equivocated: bool = False
    """The leader contradicted itself."""
    requested: tuple[View, ...] = ()
    """Missing certificates that were requested last."""
    reported: set[tuple[type, ValidatorIndex]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An own vote on its way to the disk, and the message that carries it afterwards."""

    token: Token
    vote: Vote
    message: Message


class Sizes(NamedTuple):
    """How much an engine keeps."""

    rounds: int
    """Views of which it has votes or a proposal."""
    votes: int
    """In that one of them that has most."""
    proposals: int
    """With their bodies."""
    own: int
    """Views of which it keeps own votes."""
    certificates: int
    """Of that kind of which it has most."""


@dataclass(frozen=True, slots=True)
class Ancestry:
    """What our certificates say of a proposal's parent: ``parent`` if it is justified, else what is missing."""

    parent: Parent | None = None
    missing: tuple[View, ...] = ()

    @property
    def impossible(self) -> bool:
        """No certificate that is still to come can justify it."""
        return self.parent is None and not self.missing


class VotingEngine(ABC):
    """The engine of one validator or observer, but for the rules of its protocol."""

    _gives_up: ClassVar[VoteKind]
    """The kind of vote that gives a view up; nobody finalizes the same view."""
    _finality_lag: ClassVar[int]
    """Views behind the current one in which finalize votes may still be on their way."""

    def __init__(
        self,
        config: VotingConfig,
        validators: ValidatorSet,
        me: ValidatorIndex | None,
        signer: Signer | None,
        namespace: bytes,
        root: Parent | Digest,
        election: LeaderElection | None,
        abstain_through: View,
    ) -> None:
        """An engine without a past: protocols state the parameters, and replay their journals when all is set up."""
        _check_identity(validators, me, signer)
        self._config = config
        self._validators = validators
        self._me = me
        self._signer = signer
        self._namespace = namespace
        self._election: LeaderElection = election or RoundRobin(validators)
        self._abstain_through = abstain_through
        self._root = root if isinstance(root, Parent) else Parent(GENESIS_VIEW, root)
        if len(self._root.digest) != DIGEST_BYTES:
            raise ConsensusError("the root's digest has 32 bytes")

        self._view = View(self._root.view + 1)
        self._final = self._root
        self._rounds: dict[View, Round] = {}
        self._own: dict[View, dict[VoteKind, Vote]] = {}
        self._certificates: dict[VoteKind, dict[View, Certificate]] = {kind: {} for kind in VoteKind}
        self._began = GENESIS_VIEW
        """The view in which this life began."""
        self._answered: dict[ValidatorIndex, set[tuple[VoteKind, View]]] = {}
        self._forgers: set[ValidatorIndex] = set()
        """Peers whose certificates are not looked at before the next tick: one did not hold, and a bad one with all but
        one good signature costs as much as a good one."""
        self._attempt = 0

        self._token = Token(0)
        self._effects: list[Effect] = []
        self._records: list[bytes] = []
        self._body: bytes | None = None
        self._unsynced: list[Outgoing] = []

    def configure(self, config: VotingConfig) -> None:
        """Take other times and bounds from now on. Timers that run are not touched."""
        self._config = config

    # --- what a protocol says -----------------------------------------------------------------------------------

    @abstractmethod
    def _best_parent(self, view: View) -> Ancestry:
        """What the leader of ``view`` builds on, or what it lacks for that."""

    @abstractmethod
    def _ancestry_of(self, proposal: Proposal) -> Ancestry:
        """Whether our certificates justify the proposal's parent."""

    @abstractmethod
    def _give_up(self, round_: Round) -> None:
        """Cast the vote that gives up the view, if that is still allowed."""

    @abstractmethod
    def _accept(self, certificate: Certificate) -> None:
        """Act on a good certificate that is new, above the newest final view."""

    def _say(self, outgoing: Outgoing) -> None:
        """Send an own vote, which is durable by now."""
        self._effects.append(Broadcast(outgoing.message))

    def _skip_certificate(self, view: View) -> AnyCertificate | None:
        """What says that a quorum gave up ``view``."""
        return self._certificates[VoteKind.NULLIFY].get(view)

    def _keep(self, round_: Round, vote: Vote, checked: bool) -> None:
        """Put a peer's vote among the others."""
        round_.tally.add(vote, checked=checked)

    def _act(self, round_: Round) -> None:
        """Do what can be done as soon as the view begins."""
        self._try_to_propose(round_)
        self._try_to_verify(round_)

    # --- what others may ask --------------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """The current view."""
        return self._view

    @property
    def final_view(self) -> View:
        """The newest view that a finalization is known for."""
        return self._final.view

    @property
    def final(self) -> Parent:
        """The newest final block."""
        return self._final

    def leader(self, view: View) -> ValidatorIndex:
        """Who may propose in ``view``."""
        return self._election.leader(view)

    def certificate_for(self, view: View) -> AnyCertificate | None:
        """The finalization of ``view``, else its notarization, else what says that it was given up, while retained."""
        return next(iter(self._certificates_of(view)), None)

    @property
    def sizes(self) -> Sizes:
        """How much is kept now; ``docs/consensus.md`` names the bounds."""
        rounds = self._rounds.values()
        return Sizes(
            rounds=len(rounds),
            votes=max((len(round_.tally) for round_ in rounds), default=0),
            proposals=sum(round_.proposal is not None for round_ in rounds),
            own=len(self._own),
            certificates=max(map(len, self._certificates.values())),
        )

    def journal_snapshot(self) -> tuple[bytes, ...]:
        """The records that replace the whole journal: what is still needed to restart and never vote twice.

        The newest finalization, then view by view all certificates and own votes above it. Votes that are still on
        their way to the disk are among them: the bodies that were handed over with them must be durable before the
        snapshot is. Records that were handed over before may be appended behind it; standing twice does no harm.
        """
        finalization = self._certificates[VoteKind.FINALIZE].get(self._final.view)
        records: list[bytes] = [] if finalization is None else [encode_record(finalization)]
        for view in range(self._final.view + 1, self._view + 1):
            own = self._own.get(View(view), {})
            votes = [own[kind] for kind in VoteKind if kind in own]
            certificates: list[Record] = list(self._certificates_of(View(view)))
            before: list[Record] = [vote for vote in votes if vote.kind != VoteKind.FINALIZE]
            after = [vote for vote in votes if vote.kind == VoteKind.FINALIZE]
            records.extend(encode_record(record) for record in before + certificates + after)
        return tuple(records)

    # --- events ---------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> Sequence[Effect]:
        """Take one event; return the effects that follow, in order.

        All records of one event are one ``Persist``, the last effect.
        """
        match event:
            case Received(sender, message):
                self._on_message(sender, message)
            case Durable(token):
                self._on_durable(token)
            case TimerExpired(kind, view):
                self._on_timer(kind, view)
            case BlockProposed():
                self._on_block_proposed(event)
            case BlockVerified(view, digest, valid):
                self._on_block_verified(view, digest, valid)
            case Start():
                self._on_start()
        return self._flush()

    def _flush(self) -> Sequence[Effect]:
        if self._records:
            self._effects.append(Persist(self._token, tuple(self._records), self._body))
            self._token = Token(self._token + 1)
            self._records, self._body = [], None
        effects, self._effects = self._effects, []
        return effects

    def _on_start(self) -> None:
        finalization = self._certificates[VoteKind.FINALIZE].get(self._final.view)
        if finalization is not None:
            self._effects.append(Finalized(finalization))
        for view in range(self._final.view + 1, self._view):
            for certificate in self._certificates_of(View(view)):
                if isinstance(certificate, Certificate) and certificate.kind == VoteKind.NOTARIZE:
                    self._effects.append(Notarized(certificate))
                else:
                    self._effects.append(Nullified(certificate))
        self._began = self._view
        self._begin_view()
        for vote in [vote for round_ in self._rounds.values() for vote in round_.own.values()]:
            self._count(vote)
        if self._current_round().own:
            self._repeat()

    def _on_message(self, sender: ValidatorIndex, message: Message) -> None:
        match message:
            case Vote():
                self._on_vote(sender, message)
            case Proposal():
                self._on_proposal(sender, message)
            case Certificate():
                self._on_certificate(sender, message)
            case CertificateRequest():
                self._on_request(sender, message)
            case Timeout() | TimeoutCertificate():
                self._on_timeout(sender, message)

    def _on_timeout(self, sender: ValidatorIndex, message: Timeout | TimeoutCertificate) -> None:
        """A protocol whose views end otherwise has no use for it."""
        self._reject(sender, FOREIGN)

    def _on_timer(self, kind: TimerKind, view: View) -> None:
        if view != self._view:
            return
        round_ = self._current_round()
        match kind:
            case TimerKind.LEADER:
                if round_.proposal is None and VoteKind.NOTARIZE not in round_.own:
                    self._give_up(round_)
            case TimerKind.ADVANCE:
                self._give_up(round_)
            case TimerKind.REBROADCAST:
                self._renew_budgets()
                self._repeat()
                self._effects.append(StartTimer(TimerKind.REBROADCAST, view, self._config.rebroadcast_ms))

    def _on_durable(self, token: Token) -> None:
        synced = [outgoing for outgoing in self._unsynced if outgoing.token <= token]
        self._unsynced = [outgoing for outgoing in self._unsynced if outgoing.token > token]
        for outgoing in synced:
            if outgoing.vote.view <= self._final.view:
                continue
            self._say(outgoing)
            if self._add_own(outgoing.vote):
                self._count(outgoing.vote)

    # --- proposing and verifying ----------------------------------------------------------------------------------

    def _try_to_propose(self, round_: Round) -> None:
        """Ask for a block if we lead the view and did not do so before; request what keeps us from it."""
        if not self._is_to_propose(round_):
            return
        ancestry = self._best_parent(round_.view)
        if ancestry.parent is None:
            self._request(round_, ancestry.missing, self._peers_from(round_.leader + 1))
            return
        round_.building_on = ancestry.parent
        self._effects.append(Propose(round_.view, ancestry.parent))

    def _is_to_propose(self, round_: Round) -> bool:
        """Whether it is for us to propose in the view, and not done."""
        leads = self._me == round_.leader and self._may_vote(round_.view)
        return leads and round_.building_on is None and not round_.own

    def _on_block_proposed(self, block: BlockProposed) -> None:
        round_ = self._rounds.get(block.view)
        if round_ is None or block.view != self._view or round_.building_on != block.parent or round_.own:
            return
        if len(block.body) > self._config.max_body_bytes:
            raise ValueError(f"a proposed body of {len(block.body)} bytes exceeds {self._config.max_body_bytes}")
        vote = self._sign(VoteKind.NOTARIZE, block.view, block.parent.view, block.digest)
        proposal = Proposal(block.view, block.parent.view, block.parent.digest, block.digest, block.body, vote)
        round_.proposal = proposal
        self._cast(round_, vote, proposal, block.body)

    def _on_proposal(self, sender: ValidatorIndex, proposal: Proposal) -> None:
        reason = self._fault_of_proposal(sender, proposal)
        if reason is not None:
            self._reject(sender, reason)
            return
        if proposal.view < self._view:
            # Nobody votes for it any more, but what it says of its signer stays true.
            self._on_vote(sender, proposal.vote)
            return
        round_ = self._round(proposal.view)
        if not self._take_leaders_vote(round_, proposal):
            return
        round_.proposal = proposal
        if round_.view == self._view:
            self._try_to_verify(round_)

    def _fault_of_proposal(self, sender: ValidatorIndex, proposal: Proposal) -> str | None:
        if proposal.view <= self._round_floor():
            return STALE
        if proposal.view > self._view + self._config.proposal_window:
            return FUTURE
        if sender == self._me:
            return OWN_KEY
        if sender != self.leader(proposal.view) or proposal.vote.signer != sender:
            return NOT_THE_LEADER
        if len(proposal.body) > self._config.max_body_bytes:
            return OVERSIZED
        return None if is_well_formed(proposal) else MALFORMED

    def _take_leaders_vote(self, round_: Round, proposal: Proposal) -> bool:
        """Count the vote that the proposal carries; whether the proposal is the leader's first."""
        vote = proposal.vote
        kept = round_.tally.kept(VoteKind.NOTARIZE, vote.signer)
        if round_.proposal is not None and kept == vote:
            self._reject(vote.signer, DUPLICATE)
            return False
        if kept == vote:
            return self._confirm(vote)
        if not self._admit(round_, vote, checked=self._is_signed(vote)):
            return False
        self._count(vote)
        return round_.proposal is None and round_.view >= self._view

    def _try_to_verify(self, round_: Round) -> None:
        """Ask for the verification of the leader's proposal once its ancestry is justified; give up if it cannot be."""
        proposal = round_.proposal
        if proposal is None or not self._is_to_verify(round_):
            return
        ancestry = self._ancestry_of(proposal)
        if ancestry.impossible:
            self._give_up(round_)
        elif ancestry.parent is None:
            self._request(round_, ancestry.missing, (round_.leader,))
        else:
            round_.verifying = True
            parent, digest, body = ancestry.parent, proposal.digest, proposal.body
            self._effects.append(Verify(round_.view, parent, digest, body, proposal.vote))

    def _is_to_verify(self, round_: Round) -> bool:
        waits = round_.proposal is not None and not round_.verifying
        return waits and round_.leader != self._me and not round_.own

    def _on_block_verified(self, view: View, digest: Digest, valid: bool) -> None:
        """Vote for the proposal of the view, or give the view up."""
        round_ = self._rounds.get(view)
        if round_ is None or view != self._view or not round_.verifying:
            return
        proposal = round_.proposal
        if proposal is None or proposal.digest != digest:
            return
        if not valid:
            self._give_up(round_)
        elif self._may_vote(view) and not round_.own:
            vote = self._sign(VoteKind.NOTARIZE, view, proposal.parent_view, digest)
            self._cast(round_, vote, vote, proposal.body)

    def _block_of(self, view: View) -> Parent | None:
        """The block of ``view`` that may be built upon."""
        if view == self._final.view:
            return self._final
        notarization = self._certificates[VoteKind.NOTARIZE].get(view)
        return None if notarization is None else Parent(view, notarization.digest)

    # --- votes ----------------------------------------------------------------------------------------------------

    def _on_vote(self, sender: ValidatorIndex, vote: Vote) -> None:
        reason = self._fault_of_vote(sender, vote)
        if reason is not None:
            self._reject(sender, reason)
            if reason == STALE and vote.kind != VoteKind.FINALIZE:
                self._help(sender, vote.view)
            return
        round_ = self._round(vote.view)
        repeats = round_.tally.kept(vote.kind, vote.signer) == vote
        if repeats:
            self._reject(sender, DUPLICATE)
        elif self._admit(round_, vote):
            self._count(vote)
        if vote.kind != VoteKind.FINALIZE and (vote.view + 1 < self._view or (repeats and vote.view < self._view)):
            self._help(sender, vote.view)

    def _fault_of_vote(self, sender: ValidatorIndex, vote: Vote) -> str | None:
        if not 0 <= vote.signer < len(self._validators):
            return UNKNOWN_SIGNER
        if vote.signer != sender:
            return NOT_THE_SIGNER
        if sender == self._me:
            return OWN_KEY
        if not is_well_formed(vote):
            return MALFORMED
        if vote.kind not in (VoteKind.NOTARIZE, VoteKind.FINALIZE, self._gives_up):
            return FOREIGN
        if vote.signer not in self._validators.committee(vote.view):
            return NOT_A_MEMBER
        if vote.view > self._view + self._config.view_window:
            return FUTURE
        return STALE if vote.view <= self._round_floor() else None

    def _admit(self, round_: Round, vote: Vote, *, checked: bool | None = None) -> bool:
        """Keep a vote unless its signer has another of its kind; report contradictions. Whether it is to be counted.

        ``checked`` says what is known of the signature, ``None`` being nothing.
        """
        if checked is False:
            self._reject(vote.signer, BAD_SIGNATURE)
            return False
        kept = round_.tally.kept(vote.kind, vote.signer)
        if kept is not None and (kept.parent_view, kept.digest) == (vote.parent_view, vote.digest):
            if self._confirm(kept):
                self._reject(vote.signer, DUPLICATE)
                return False
        elif kept is not None:
            if not (checked or self._is_signed(vote)):
                self._reject(vote.signer, BAD_SIGNATURE)
                return False
            checked = True
            if self._confirm(kept):
                self._report(kept, vote)
                self._reject(vote.signer, CONFLICT)
                return False
        self._keep(round_, vote, bool(checked))
        rivals = self._rivals(vote)
        if rivals and self._confirm(vote):
            for rival in rivals:
                if self._confirm(rival):
                    self._report(rival, vote)
        certified = self._certified_rivals(vote)
        if certified and round_.tally.kept(vote.kind, vote.signer) is vote and self._confirm(vote):
            for rival in certified:
                self._report(rival, vote)
        return round_.tally.kept(vote.kind, vote.signer) is vote

    def _rivals(self, vote: Vote) -> list[Vote]:
        """Kept votes of the same signer that no honest validator casts beside ``vote``."""
        round_ = self._rounds.get(vote.view)
        if round_ is None:
            return []
        kept = round_.tally.votes_of(vote.signer)
        return [other for other in kept if other is not vote and conflict(vote, other) is not None]

    def _certified_rivals(self, vote: Vote) -> list[Vote]:
        """The same of those votes that certificates of its view are made of."""
        held = [certificates.get(vote.view) for certificates in self._certificates.values()]
        subject = (vote.parent_view, vote.digest)
        others = [each for each in held if each is not None and (each.parent_view, each.digest) != subject]
        skip = self._skip_certificate(vote.view)
        votes = [other for certificate in distinct(*others, skip) for other in certificate.votes()]
        return [other for other in votes if other.signer == vote.signer and conflict(vote, other) is not None]

    def _report(self, kept: Vote, other: Vote) -> None:
        """Report a contradiction, both signatures being checked; once per signer, view and kind of contradiction."""
        evidence = conflict(kept, other)
        if evidence is None:
            return
        round_ = self._rounds.get(evidence.first.view) or self._round(kept.view)
        if (type(evidence), kept.signer) in round_.reported:
            return
        round_.reported.add((type(evidence), kept.signer))
        if kept.kind == other.kind == VoteKind.NOTARIZE and kept.signer == round_.leader:
            round_.equivocated = True
        self._effects.append(Report(evidence))

    def _count(self, vote: Vote) -> None:
        """See whether ``vote``, which is kept, completes a certificate."""
        round_ = self._rounds.get(vote.view)
        if round_ is None or vote.view <= self._final.view or vote.view in self._certificates[vote.kind]:
            return
        certificate, forgers = round_.tally.assemble(vote)
        for forger in forgers:
            self._reject(forger, BAD_SIGNATURE)
        if certificate is not None:
            self._announce(certificate)
            self._accept(certificate)

    def _announce(self, certificate: AnyCertificate) -> None:
        """Whoever makes a certificate broadcasts it."""
        self._effects.append(Broadcast(certificate))

    # --- own votes ------------------------------------------------------------------------------------------------

    def _may_vote(self, view: View) -> bool:
        """Whether we are a member of the view's committee, and have forgotten no vote in it."""
        me = self._me
        return me is not None and view > self._abstain_through and me in self._validators.committee(view)

    def _sign(self, kind: VoteKind, view: View, parent_view: View, digest: Digest) -> Vote:
        assert self._me is not None
        assert self._signer is not None
        message = vote_signing_bytes(self._namespace, kind, view, parent_view, digest)
        return Vote(kind, view, parent_view, digest, self._me, self._signer.sign(message))

    def _cast(self, round_: Round, vote: Vote, message: Message, body: bytes | None = None) -> None:
        """From here on the vote is ours. It is sent, and counted, when it is durable."""
        round_.own[vote.kind] = vote
        self._own[round_.view] = round_.own
        self._records.append(encode_record(vote))
        if body is not None:
            self._body = body
        self._unsynced.append(Outgoing(self._token, vote, message))

    def _add_own(self, vote: Vote) -> bool:
        """Put a durable own vote among the others; not if its view is gone or another machine used our key."""
        round_ = self._rounds.get(vote.view)
        if round_ is None or round_.tally.kept(vote.kind, vote.signer) is not None:
            return False
        round_.tally.add(vote, checked=True)
        return True

    # --- certificates ---------------------------------------------------------------------------------------------

    def _on_certificate(self, sender: ValidatorIndex, certificate: Certificate) -> None:
        if certificate.view <= self._final.view:
            self._reject(sender, STALE)
        elif certificate.kind not in (VoteKind.NOTARIZE, VoteKind.FINALIZE, self._gives_up):
            self._reject(sender, FOREIGN)
        elif certificate.view in self._certificates[certificate.kind]:
            self._reject(sender, DUPLICATE)
        elif not is_well_formed(certificate):
            self._reject(sender, MALFORMED)
        elif self._believes(sender, lambda: self._is_certified(certificate)):
            self._compare_with_votes(certificate.votes())
            self._accept(certificate)

    def _compare_with_votes(self, votes: Iterable[Vote]) -> None:
        """Find signers of a (good) certificate, made of ``votes``, whose votes, kept here, contradict it."""
        for vote in votes:
            for rival in self._rivals(vote):
                if self._confirm(rival):
                    self._report(rival, vote)

    def _retry(self) -> None:
        """A new certificate may be the one that a proposal waits for."""
        round_ = self._current_round()
        self._try_to_propose(round_)
        self._try_to_verify(round_)

    # --- views ----------------------------------------------------------------------------------------------------

    def _enter(self, view: View) -> None:
        for left in self._rounds.values():
            if left.view < view:
                left.proposal = None
        self._view = view
        self._renew_budgets()
        self._attempt = 0
        self._prune()
        self._begin_view()

    def _begin_view(self) -> None:
        round_ = self._current_round()
        config = self._config
        self._effects.append(ViewEntered(round_.view, round_.leader))
        self._effects.append(StartTimer(TimerKind.LEADER, round_.view, config.leader_timeout_ms))
        self._effects.append(StartTimer(TimerKind.ADVANCE, round_.view, config.advance_timeout_ms))
        self._effects.append(StartTimer(TimerKind.REBROADCAST, round_.view, config.rebroadcast_ms))
        self._act(round_)

    def _current_round(self) -> Round:
        return self._round(self._view)

    def _round(self, view: View) -> Round:
        round_ = self._rounds.get(view)
        if round_ is None:
            tally = VoteTally(self._validators, self._namespace, view)
            round_ = self._rounds[view] = Round(view, self.leader(view), tally, self._own.get(view, {}))
        return round_

    def _round_floor(self) -> View:
        """Votes for this view and below are neither kept nor cast."""
        behind_final = self._final.view - self._config.evidence_views
        behind_current = self._view - 1 - self._config.retained_views
        return View(max(behind_final, behind_current, self._root.view))

    def _prune(self) -> None:
        floor = self._round_floor()
        for view in [view for view in self._rounds if view <= floor]:
            del self._rounds[view]
        for view in [view for view in self._own if view <= self._final.view]:
            del self._own[view]
        retained_from = self._final.view - self._config.retained_views
        for certificates in self._certificates.values():
            for view in [view for view in certificates if view < retained_from]:
                del certificates[view]

    # --- when messages are lost -----------------------------------------------------------------------------------

    def _repeat(self) -> None:
        """Say again, to everyone, what may have been lost."""
        round_ = self._current_round()
        self._attempt += 1
        said = self._said()
        for vote in said:
            self._effects.append(Broadcast(self._carrier(vote)))
        opening = self.certificate_for(View(self._view - 1))
        finalization = self._certificates[VoteKind.FINALIZE].get(self._final.view)
        for certificate in distinct(opening, finalization):
            self._effects.append(Broadcast(certificate))
        if not said:
            self._effects.append(Broadcast(CertificateRequest((self._view,))))
        self._repeat_request(round_)

    def _said(self) -> list[Vote]:
        """Our durable votes of this view, and our finalize votes of those before that may still lack a certificate."""
        own = list(self._current_round().own.values())
        for lag in range(1, self._finality_lag + 1):
            before = self._rounds.get(View(self._view - lag))
            if before is not None and VoteKind.FINALIZE in before.own and before.view > self._final.view:
                own.append(before.own[VoteKind.FINALIZE])
        unsynced = [outgoing.vote for outgoing in self._unsynced]
        return [vote for vote in own if vote not in unsynced]

    def _carrier(self, vote: Vote) -> Message:
        """The message that says ``vote``: our proposal while we have it and stand by it, else the bare vote."""
        round_ = self._round(vote.view)
        proposal = round_.proposal
        if proposal is not None and proposal.vote == vote and self._gives_up not in round_.own:
            return proposal
        return vote

    def _repeat_request(self, round_: Round) -> None:
        """Ask other peers for what is still missing."""
        round_.requested = ()
        peers = self._peers_from(round_.leader + 1 + self._attempt)
        if self._is_to_propose(round_):
            self._request(round_, self._best_parent(round_.view).missing, peers)
        elif round_.proposal is not None and self._is_to_verify(round_):
            self._request(round_, self._ancestry_of(round_.proposal).missing, peers)

    def _request(self, round_: Round, missing: tuple[View, ...], peers: Iterable[ValidatorIndex]) -> None:
        """Request certificates, unless the answer to the last request is still coming in."""
        if not missing or any(view in round_.requested for view in missing):
            return
        round_.requested = missing
        self._effects.extend(SendTo(peer, CertificateRequest(missing)) for peer in peers)

    def _peers_from(self, first: int) -> tuple[ValidatorIndex, ...]:
        """More peers than can be byzantine, in the order of their indices from ``first``, ourselves left out."""
        committee = self._validators.committee(self._view)
        start = bisect_left(committee.members, first % len(self._validators))
        ring = committee.members[start:] + committee.members[:start]
        return tuple([peer for peer in ring if peer != self._me][: committee.faults_withstood + 1])

    def _help(self, peer: ValidatorIndex, view: View) -> None:
        """Bring a peer level that is stuck in ``view``."""
        opening = self.certificate_for(View(self._view - 1))
        finalization = self._certificates[VoteKind.FINALIZE].get(self._final.view)
        self._answer(peer, distinct(*self._certificates_of(view), opening, finalization))

    def _on_request(self, sender: ValidatorIndex, request: CertificateRequest) -> None:
        if sender == self._me:
            self._reject(sender, OWN_KEY)
        elif not is_well_formed(request):
            self._reject(sender, MALFORMED)
        else:
            finalization = self._certificates[VoteKind.FINALIZE].get(self._final.view)
            held = [certificate for view in request.views for certificate in self._certificates_of(view)]
            opening = self.certificate_for(View(self._view - 1))
            overtaken = request.views[0] <= self._final.view
            self._answer(sender, distinct(*held, opening, finalization if overtaken else None))

    def _answer(self, peer: ValidatorIndex, certificates: Sequence[AnyCertificate]) -> None:
        """Send certificates, none twice to one peer between two ticks, and no more than so many."""
        if peer not in self._answered and len(self._answered) >= MAX_ANSWERED_PEERS:
            self._reject(peer, FLOOD)
            return
        answered = self._answered.setdefault(peer, set())
        for certificate in certificates:
            if (certificate.kind, certificate.view) in answered:
                continue
            if len(answered) >= MAX_ANSWERS_PER_PEER:
                self._reject(peer, FLOOD)
                return
            answered.add((certificate.kind, certificate.view))
            self._effects.append(SendTo(peer, certificate))

    def _certificates_of(self, view: View) -> list[AnyCertificate]:
        """The finalization of ``view``, or else its notarization and what says it was given up: both may exist."""
        finalization = self._certificates[VoteKind.FINALIZE].get(view)
        if finalization is not None:
            return [finalization]
        held = (self._certificates[VoteKind.NOTARIZE].get(view), self._skip_certificate(view))
        return [certificate for certificate in held if certificate is not None]

    # --- signatures -----------------------------------------------------------------------------------------------

    def _is_signed(self, vote: Vote) -> bool:
        return verify_vote(vote, self._validators, self._namespace)

    def _confirm(self, vote: Vote) -> bool:
        """Whether a kept vote is truly signed; a forged one is dropped."""
        if self._round(vote.view).tally.confirm(vote):
            return True
        self._reject(vote.signer, BAD_SIGNATURE)
        return False

    def _is_certified(self, certificate: Certificate) -> bool:
        round_ = self._rounds.get(certificate.view)
        tally = None if round_ is None else round_.tally
        return verify_certificate(certificate, self._validators, self._namespace, tally)

    def _believes(self, sender: ValidatorIndex, holds: Callable[[], bool]) -> bool:
        """Whether a certificate that a peer sent holds; after one that does not, no other of that peer is looked at
        before the next tick. Honest peers pass on none that they have not checked themselves."""
        if sender in self._forgers:
            self._reject(sender, FLOOD)
            return False
        if holds():
            return True
        self._forgers.add(sender)
        self._reject(sender, BAD_CERTIFICATE)
        return False

    def _renew_budgets(self) -> None:
        """A tick: what one peer may cost begins anew."""
        self._answered.clear()
        self._forgers.clear()

    def _reject(self, sender: ValidatorIndex, reason: str) -> None:
        self._effects.append(Rejected(sender, reason))

    # --- the journal ----------------------------------------------------------------------------------------------

    def _replay(self, journal: Iterable[bytes]) -> None:
        """Restore certificates and own votes, then drop what lies behind the newest finalization."""
        own: list[Vote] = []
        newest = self._root.view
        for encoded in journal:
            record = decode_record(encoded)
            if isinstance(record, Vote):
                own.append(record)
            elif record.view > self._root.view or self._is_of_the_root(record):
                self._restore_certificate(record)
                newest = max(newest, record.view)
        finalizations = self._certificates[VoteKind.FINALIZE]
        if finalizations:
            final = finalizations[max(finalizations)]
            self._final = Parent(final.view, final.digest)
        self._view = View(newest + 1)
        for vote in own:
            self._restore_vote(vote)
        self._prune()

    def _is_of_the_root(self, certificate: AnyCertificate) -> bool:
        """Whether it finalizes the root: it opened our first view, and others may need it to follow."""
        return (
            isinstance(certificate, Certificate)
            and certificate.kind == VoteKind.FINALIZE
            and (certificate.view, certificate.digest) == (self._root.view, self._root.digest)
        )

    def _restore_certificate(self, certificate: AnyCertificate) -> None:
        if not isinstance(certificate, Certificate):
            raise JournalError(f"the journal holds a {type(certificate).__name__}, which this protocol has not")
        self._certificates[certificate.kind][certificate.view] = certificate

    def _restore_vote(self, vote: Vote) -> None:
        if vote.signer != self._me:
            raise JournalError(f"the journal holds a vote of validator {vote.signer}, not ours")
        if vote.view <= self._root.view:
            return
        round_ = self._round(vote.view)
        if self._rivals(vote):
            raise JournalError(f"the journal holds contradictory votes of ours in view {vote.view}")
        if vote.kind not in round_.own:
            round_.own[vote.kind] = vote
            self._own[vote.view] = round_.own
            round_.tally.add(vote, checked=True)


def _check_identity(validators: ValidatorSet, me: ValidatorIndex | None, signer: Signer | None) -> None:
    if not 1 <= len(validators) <= MAX_VALIDATORS:
        raise ConsensusError(f"a validator set has between 1 and {MAX_VALIDATORS} members")
    if len(set(validators.public_keys)) != len(validators):
        raise ConsensusError("a validator set has no key twice")
    if me is None:
        return
    if not 0 <= me < len(validators):
        raise ConsensusError(f"validator {me} is not in a set of {len(validators)}")
    if signer is None or signer.public_key != validators.public_keys[me]:
        raise ConsensusError(f"the signer's key is not that of validator {me}")


def is_well_formed(message: Message) -> bool:
    """Whether a message's fields fit together."""
    try:
        check(message)
    except MessageError:
        return False
    return True


def to_request(missing: list[View]) -> tuple[View, ...]:
    """The highest missing views that fit in one request, ascending."""
    return tuple(sorted(missing)[-MAX_REQUESTED_VIEWS:])


def distinct(*certificates: AnyCertificate | None) -> list[AnyCertificate]:
    """Those that exist, each once."""
    kept: list[AnyCertificate] = []
    for certificate in certificates:
        if certificate is not None and certificate not in kept:
            kept.append(certificate)
    return kept
