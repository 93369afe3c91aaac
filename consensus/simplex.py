"""Simplex: a chain of blocks that a quorum of validators agrees on, two message delays a block, three to finality.

Of ``n`` validators up to ``f = (n - 1) // 3`` may be byzantine; a quorum is ``n - f``. Time is cut into views. A view
has one leader, and ends for a validator when it holds a certificate for it: a quorum of equal votes.

The rules
=========

View 0 (or the root given at the start) is final, its block is known to all. On entering view ``v``:

1. **Start three timers**: leader, advance and rebroadcast.
2. **The leader proposes** a block on the block of the highest view ``p`` that it knows to be notarized or final, if
   it holds a nullification for every view between ``p`` and ``v``. What is missing it requests from peers, and
   proposes when it has come. The leader's proposal carries its notarize vote, and a leader proposes once in a view.
3. **Notarize** the first proposal of the leader for ``v``, once, if its parent is notarized or final, every view
   between parent and ``v`` is nullified, and the block executes to its header. Missing certificates are requested
   from the leader. A validator that voted to nullify ``v`` does not notarize in ``v``.
4. **Nullify** ``v``, once: when the leader timer expires and no proposal came; when the advance timer expires; when
   the block is invalid, or its parent can never be justified; when the leader itself votes to nullify; at once if the
   leader has been silent for ``skip_views`` views in which a quorum was heard. A validator that notarized in ``v`` may
   nullify ``v``.

A quorum of equal votes is a certificate. Whoever assembles one broadcasts it:

5. **Notarization** of a block in view ``v``: vote to **finalize** it, unless this validator voted to nullify ``v``,
   knows a nullification of ``v``, or saw the leader of ``v`` equivocate. Enter ``v + 1`` if that is ahead.
6. **Nullification** of ``v``: enter ``v + 1`` if that is ahead.
7. **Finalization** of a block in view ``v``, which may come while the validator is in any view: the block and its
   ancestors are final. Enter ``v + 1`` if that is ahead.

A certificate is worth the same whoever sends it, and however far ahead it is. Finalize votes of a view are counted
long after the view was left; no later view has to succeed for it.

**Safety.** No honest validator both nullifies and finalizes a view, so a view cannot have both a finalization and a
nullification: their quorums share an honest validator. No honest validator notarizes twice in a view, so no view has
two notarized blocks. A later block's ancestry must pass through a finalised view: skipping it takes its nullification,
and within it there is but one block.

**Latency.** The proposal takes one delay, the votes a second: the next leader proposes on a notarization and does not
wait for finality. Finalize votes take a third.

Durability and restarts
=======================

A vote is journaled before it is sent or counted: :class:`~consensus.interface.Persist`, and the vote follows
:class:`~consensus.interface.Durable`. A notarize vote is persisted with the block's body, so that a notarized block
lies on the disks of a quorum. Certificates are journaled in the order in which they were learned, before the votes of
the views that they opened; nothing waits for them.

A journaled vote counts as cast, whether or not it was sent. So a validator that restarts has cast at least the votes
that anyone saw, and never casts a second one beside them; a leader that journaled a proposal does not propose again
in that view (the body is not resent: the view is notarized by those who got it, or nullified on timeout). It resumes
in the view after its newest certificate and repeats its votes there. ``Start`` repeats ``Finalized`` for the newest
finalization and ``Notarized`` and ``Nullified`` for what stands above it, so that a driver that lagged behind its
journal catches up by the usual path. That an equivocation was seen is forgotten; no safety argument needs it.

Lost journals
-------------

A validator whose journal is lost (a new disk, say) may have voted in any view that it ever entered, so it must not vote
in those. Which they are, its peers know: where it entered view ``v``, a quorum had voted in ``v - 1`` or in a later
view, ``n - 2f - 1`` honest others among them, and they have not gone back since (they keep certificates). Of
``2f + 1`` peers that tell their current view, each proving it by the certificate that opened it, at least one is such
a voter. So the highest of these views, and one more, is what to abstain through: ``abstain_through``. There the engine
only listens. A validator that abstains counts among the ``f`` faulty ones until the others are past that view.

When messages are lost
======================

8. **Rebroadcast.** While a view lasts, every ``rebroadcast_ms`` a validator repeats its votes of the view (a leader
   its whole proposal, while it has it), its finalize vote of the view before, the certificate that opened the view,
   and the newest finalization. It also repeats its open request for certificates, to other peers each time. A
   validator with no vote in the view, or an observer, asks for the certificates of the view.
9. **Help.** A notarize or nullify vote for a view already left that repeats an earlier vote, or that is two or more
   views behind, comes from a peer that is stuck: answer with the certificates of that view, with the one that opened
   our view, and with the newest finalization. One jump brings the peer level.
10. **Requests** are answered from retained certificates. No certificate goes to the same peer twice before our view
    changes or our rebroadcast timer expires, and no more than ``MAX_ANSWERS_PER_PEER`` of them.

A certificate of a view exists only if a quorum voted in it, and its honest members entered that view by a certificate
of the view before, which their journals hold. So whatever certificate is missing, more than ``f`` honest validators
have it.

Hostile input
=============

A vote counts only if it comes from its signer (peers prove their keys when they connect), so nobody can take
another's slot with a forged vote; a proposal only from the leader of its view. Votes are kept for the views from
``evidence_views`` behind the newest final view (and at most ``retained_views`` behind the current one) to
``view_window`` ahead, proposals for ``proposal_window`` ahead; one vote of each kind per signer and view, the first.
A second that differs, or a nullify and a finalize vote of one signer, are reported as evidence once both signatures
are checked; the signers of a certificate are compared with the votes kept for the same purpose. Certificates are kept
for ``retained_views`` behind the newest final view, and from there on all of them: each took a quorum, and each may
be needed to justify a skip. Whatever is dropped is named by a :class:`~consensus.interface.Rejected`;
:data:`HARMLESS_REASONS` are those that honest peers cause.

Deviations from the paper
=========================

The model is Simplex Consensus (Chan and Pass, 2023) in the shape that Commonware's implementation gave it.

- Votes for the paper's dummy block are nullify votes, with certificates of their own.
- A proposal does not carry the certificates of its ancestry; missing ones are requested.
- The leader timer nullifies early when no proposal came at all; the leader's own nullify and a failed verification
  act as expired timers; silent leaders may be skipped.
- A validator that voted to nullify does not notarize later in the view. The paper lets it; its vote could only help a
  block that this validator will not finalize.
- Certificates are broadcast by those who assemble them, not relayed by everyone who receives them; rules 8 to 10 make
  up for it.
- Timeouts are constant: the network's delay bound is configured, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

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
    NO_DIGEST,
    NO_PARENT,
    Certificate,
    CertificateRequest,
    Message,
    MessageError,
    Proposal,
    Vote,
    VoteKind,
    check,
    check_vote,
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
OWN_KEY: Final = "own_key"
BAD_SIGNATURE: Final = "bad_signature"
BAD_CERTIFICATE: Final = "bad_certificate"
CONFLICT: Final = "conflict"
FUTURE: Final = "future"
FLOOD: Final = "flood"
DUPLICATE: Final = "duplicate"
STALE: Final = "stale"

HARMLESS_REASONS: Final = (DUPLICATE, STALE, FUTURE)
"""Reasons that lost, repeated and late messages of honest peers also cause; no peer should be scored for them."""


@dataclass(frozen=True, slots=True)
class SimplexConfig:
    """Timeouts and bounds of one engine. Validators may differ in them."""

    leader_timeout_ms: int = 2_000
    """From entering a view to its leader's proposal: two message delays and the time to build and execute a block."""
    advance_timeout_ms: int = 3_000
    """From entering a view to its certificate."""
    rebroadcast_ms: int = 5_000
    view_window: int = 16
    """Views ahead of the current one for which votes are kept."""
    proposal_window: int = 4
    """Views ahead of the current one for which a proposal, with its body, is kept."""
    retained_views: int = 64
    """Views behind the newest final one whose certificates are kept; views behind the current one whose votes are."""
    evidence_views: int = 8
    """Views behind the newest final one whose votes are kept, to find contradictions."""
    skip_views: int = 0
    """Views without a sign of a leader after which its views are nullified at once; 0: never."""
    max_body_bytes: int = 1024 * 1024

    def __post_init__(self) -> None:
        positive = ("leader_timeout_ms", "advance_timeout_ms", "rebroadcast_ms", "view_window", "retained_views")
        for name in (*positive, "max_body_bytes"):
            if getattr(self, name) < 1:
                raise ConsensusError(f"{name} must be positive")
        for name in ("proposal_window", "evidence_views", "skip_views"):
            if getattr(self, name) < 0:
                raise ConsensusError(f"{name} must not be negative")
        if self.max_body_bytes > MAX_BODY_BYTES:
            raise ConsensusError(f"max_body_bytes must not exceed {MAX_BODY_BYTES}")


@dataclass(slots=True)
class _Round:
    """What is known of one view beside its certificates."""

    view: View
    leader: ValidatorIndex
    tally: VoteTally
    own: dict[VoteKind, Vote]
    """Our votes, journaled or about to be. At most one of each kind, never nullify and finalize."""
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
class _Outgoing:
    """An own vote on its way to the disk, and the message that carries it afterwards."""

    token: Token
    vote: Vote
    message: Message


@dataclass(frozen=True, slots=True)
class _Ancestry:
    """What our certificates say of a proposal's parent: ``parent`` if it is justified, else what is missing."""

    parent: Parent | None = None
    missing: tuple[View, ...] = ()

    @property
    def impossible(self) -> bool:
        """No certificate that is still to come can justify it."""
        return self.parent is None and not self.missing


class Simplex:
    """The engine of one validator or observer. The module states its rules, :mod:`consensus.interface` its use."""

    def __init__(
        self,
        config: SimplexConfig,
        validators: ValidatorSet,
        me: ValidatorIndex | None,
        signer: Signer | None,
        namespace: bytes,
        root: Parent | Digest,
        journal: Iterable[bytes] = (),
        election: LeaderElection | None = None,
        abstain_through: View = GENESIS_VIEW,
    ) -> None:
        """Prepare an engine, replaying its journal; ``handle(Start())`` sets it going.

        ``me`` and ``signer`` are ``None`` for an observer, which never votes. ``namespace`` names the chain (and
        whatever else keeps votes apart). ``root`` is the final block from which everyone starts: a genesis digest, at
        view 0, or a parent with a view. A later starting point is a finalization in ``journal``. In views up to
        ``abstain_through`` the engine does not vote (*Lost journals*). Raises
        :class:`~consensus.journal.JournalError` for a journal that this validator cannot have written.
        """
        _check_identity(validators, me, signer)
        self._config = config
        self._validators = validators
        self._me = me
        self._signer = signer
        self._namespace = namespace
        self._election: LeaderElection = election or RoundRobin(len(validators))
        self._abstain_through = abstain_through
        self._root = root if isinstance(root, Parent) else Parent(GENESIS_VIEW, root)
        if len(self._root.digest) != DIGEST_BYTES:
            raise ConsensusError("the root's digest has 32 bytes")

        self._view = View(self._root.view + 1)
        self._final = self._root
        self._rounds: dict[View, _Round] = {}
        self._own: dict[View, dict[VoteKind, Vote]] = {}
        self._certificates: dict[VoteKind, dict[View, Certificate]] = {kind: {} for kind in VoteKind}
        self._last_heard: list[View] = [GENESIS_VIEW] * len(validators)
        self._answered: dict[ValidatorIndex, set[tuple[VoteKind, View]]] = {}
        self._attempt = 0

        self._token = Token(0)
        self._effects: list[Effect] = []
        self._records: list[bytes] = []
        self._body: bytes | None = None
        self._unsynced: list[_Outgoing] = []
        self._replay(journal)

    # --- what others may ask ------------------------------------------------------------------------------------

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

    def certificate_for(self, view: View) -> Certificate | None:
        """The finalization of ``view``, else its notarization, else its nullification, while it is retained."""
        for kind in (VoteKind.FINALIZE, VoteKind.NOTARIZE, VoteKind.NULLIFY):
            certificate = self._certificates[kind].get(view)
            if certificate is not None:
                return certificate
        return None

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

    # --- events -------------------------------------------------------------------------------------------------

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
                is_notarization = certificate.kind == VoteKind.NOTARIZE
                self._effects.append(Notarized(certificate) if is_notarization else Nullified(certificate))
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

    def _on_timer(self, kind: TimerKind, view: View) -> None:
        if view != self._view:
            return
        round_ = self._current_round()
        match kind:
            case TimerKind.LEADER:
                if round_.proposal is None and VoteKind.NOTARIZE not in round_.own:
                    self._nullify(round_)
            case TimerKind.ADVANCE:
                self._nullify(round_)
            case TimerKind.REBROADCAST:
                self._answered.clear()
                self._repeat()
                self._effects.append(StartTimer(TimerKind.REBROADCAST, view, self._config.rebroadcast_ms))

    def _on_durable(self, token: Token) -> None:
        synced = [outgoing for outgoing in self._unsynced if outgoing.token <= token]
        self._unsynced = [outgoing for outgoing in self._unsynced if outgoing.token > token]
        for outgoing in synced:
            if outgoing.vote.view <= self._final.view:
                continue
            self._effects.append(Broadcast(outgoing.message))
            if self._add_own(outgoing.vote):
                self._count(outgoing.vote)

    # --- proposing and verifying --------------------------------------------------------------------------------

    def _try_to_propose(self, round_: _Round) -> None:
        """Ask for a block if we lead the view and did not do so before; request what keeps us from it."""
        if not self._is_to_propose(round_):
            return
        ancestry = self._best_parent(round_.view)
        if ancestry.parent is None:
            self._request(round_, ancestry.missing, self._peers_from(round_.leader + 1))
            return
        round_.building_on = ancestry.parent
        self._effects.append(Propose(round_.view, ancestry.parent))

    def _is_to_propose(self, round_: _Round) -> bool:
        return (
            self._me == round_.leader and self._may_vote(round_.view) and round_.building_on is None and not round_.own
        )

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
        round_ = self._round(proposal.view)
        if not self._take_leaders_vote(round_, proposal):
            return
        round_.proposal = proposal
        if round_.view == self._view:
            self._try_to_verify(round_)

    def _fault_of_proposal(self, sender: ValidatorIndex, proposal: Proposal) -> str | None:
        if proposal.view < self._view:
            return STALE
        if proposal.view > self._view + self._config.proposal_window:
            return FUTURE
        if sender == self._me:
            return OWN_KEY
        if sender != self.leader(proposal.view) or proposal.vote.signer != sender:
            return NOT_THE_LEADER
        if len(proposal.body) > self._config.max_body_bytes:
            return OVERSIZED
        return None if _is_well_formed(proposal) else MALFORMED

    def _take_leaders_vote(self, round_: _Round, proposal: Proposal) -> bool:
        """Count the vote that the proposal carries; whether the proposal is the leader's first."""
        vote = proposal.vote
        kept = round_.tally.kept(VoteKind.NOTARIZE, vote.signer)
        if round_.proposal is not None and kept == vote:
            self._reject(vote.signer, DUPLICATE)
            return False
        if kept == vote:
            return self._confirm(round_, vote)
        if not self._admit(round_, vote, checked=self._is_signed(vote)):
            return False
        self._count(vote)
        return round_.proposal is None and round_.view >= self._view

    def _try_to_verify(self, round_: _Round) -> None:
        """Ask for the verification of the leader's proposal once its ancestry is justified; nullify if it cannot be."""
        proposal = round_.proposal
        if proposal is None or not self._is_to_verify(round_):
            return
        ancestry = self._ancestry_of(proposal)
        if ancestry.impossible:
            self._nullify(round_)
        elif ancestry.parent is None:
            self._request(round_, ancestry.missing, (round_.leader,))
        else:
            round_.verifying = True
            parent, digest, body = ancestry.parent, proposal.digest, proposal.body
            self._effects.append(Verify(round_.view, parent, digest, body, round_.leader))

    def _is_to_verify(self, round_: _Round) -> bool:
        waits = round_.proposal is not None and not round_.verifying
        return waits and round_.leader != self._me and not round_.own

    def _on_block_verified(self, view: View, digest: Digest, valid: bool) -> None:
        round_ = self._rounds.get(view)
        if round_ is None or view != self._view or not round_.verifying:
            return
        proposal = round_.proposal
        if proposal is None or proposal.digest != digest:
            return
        if not valid:
            self._nullify(round_)
        elif self._may_vote(view) and not round_.own:
            vote = self._sign(VoteKind.NOTARIZE, view, proposal.parent_view, digest)
            self._cast(round_, vote, vote, proposal.body)

    # --- ancestry -----------------------------------------------------------------------------------------------

    def _best_parent(self, view: View) -> _Ancestry:
        """The highest block below ``view`` known to be notarized or final, every view between being nullified."""
        missing: list[View] = []
        below = View(view - 1)
        while (parent := self._block_of(below)) is None:  # ends at the final view, if not before
            if below not in self._certificates[VoteKind.NULLIFY]:
                missing.append(below)
            below = View(below - 1)
        return _Ancestry(missing=_to_request(missing)) if missing else _Ancestry(parent)

    def _ancestry_of(self, proposal: Proposal) -> _Ancestry:
        """Whether our certificates justify that the proposal builds on its parent and skips what lies between."""
        if proposal.parent_view < self._final.view:
            return _Ancestry()
        parent = self._block_of(proposal.parent_view)
        if parent is not None and parent.digest != proposal.parent_digest:
            return _Ancestry()
        nullifications = self._certificates[VoteKind.NULLIFY]
        skipped = range(proposal.parent_view + 1, proposal.view)
        missing = [View(view) for view in skipped if view not in nullifications]
        if parent is None:
            missing.insert(0, proposal.parent_view)
        return _Ancestry(missing=_to_request(missing)) if missing else _Ancestry(parent)

    def _block_of(self, view: View) -> Parent | None:
        """The block of ``view`` that may be built upon."""
        if view == self._final.view:
            return self._final
        notarization = self._certificates[VoteKind.NOTARIZE].get(view)
        return None if notarization is None else Parent(view, notarization.digest)

    # --- votes --------------------------------------------------------------------------------------------------

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
            if vote.kind == VoteKind.NULLIFY:
                self._heed_leaders_nullify(round_)
        if vote.kind != VoteKind.FINALIZE and (vote.view + 1 < self._view or (repeats and vote.view < self._view)):
            self._help(sender, vote.view)

    def _fault_of_vote(self, sender: ValidatorIndex, vote: Vote) -> str | None:
        if not 0 <= vote.signer < len(self._validators):
            return UNKNOWN_SIGNER
        if vote.signer != sender:
            return NOT_THE_SIGNER
        if sender == self._me:
            return OWN_KEY
        if not _is_well_formed(vote):
            return MALFORMED
        if vote.view > self._view + self._config.view_window:
            return FUTURE
        return STALE if vote.view <= self._round_floor() else None

    def _admit(self, round_: _Round, vote: Vote, *, checked: bool | None = None) -> bool:
        """Keep a vote unless its signer has another of its kind; report contradictions. Whether it is to be counted.

        ``checked`` says what is known of the signature, ``None`` being nothing.
        """
        if checked is False:
            self._reject(vote.signer, BAD_SIGNATURE)
            return False
        kept = round_.tally.kept(vote.kind, vote.signer)
        if kept is not None:
            if (kept.parent_view, kept.digest) == (vote.parent_view, vote.digest):
                self._reject(vote.signer, DUPLICATE)
                return False
            if not (checked or self._is_signed(vote)):
                self._reject(vote.signer, BAD_SIGNATURE)
                return False
            checked = True
            if self._confirm(round_, kept):
                self._report(round_, kept, vote)
                self._reject(vote.signer, CONFLICT)
                return False
        round_.tally.add(vote, checked=bool(checked))
        self._last_heard[vote.signer] = max(self._last_heard[vote.signer], min(vote.view, self._view))
        self._compare_with_opposite(round_, vote)
        return round_.tally.kept(vote.kind, vote.signer) is vote

    def _compare_with_opposite(self, round_: _Round, vote: Vote) -> None:
        """Nobody may both nullify and finalize a view."""
        opposite = _OPPOSITE.get(vote.kind)
        other = None if opposite is None else round_.tally.kept(opposite, vote.signer)
        if other is not None and self._confirm(round_, vote) and self._confirm(round_, other):
            self._report(round_, other, vote)

    def _report(self, round_: _Round, one: Vote, other: Vote) -> None:
        """Report a contradiction, both signatures being checked; once per signer, view and kind of contradiction."""
        evidence = conflict(one, other)
        if evidence is None or (type(evidence), one.signer) in round_.reported:
            return
        round_.reported.add((type(evidence), one.signer))
        if one.kind == other.kind == VoteKind.NOTARIZE and one.signer == round_.leader:
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
            self._effects.append(Broadcast(certificate))
            self._accept(certificate)

    def _heed_leaders_nullify(self, round_: _Round) -> None:
        if round_.view != self._view or VoteKind.NULLIFY in round_.own:
            return
        vote = round_.tally.kept(VoteKind.NULLIFY, round_.leader)
        if vote is not None and self._confirm(round_, vote):
            self._nullify(round_)

    # --- own votes ----------------------------------------------------------------------------------------------

    def _nullify(self, round_: _Round) -> None:
        if not self._may_vote(round_.view) or VoteKind.NULLIFY in round_.own or VoteKind.FINALIZE in round_.own:
            return
        vote = self._sign(VoteKind.NULLIFY, round_.view, NO_PARENT, NO_DIGEST)
        self._cast(round_, vote, vote)

    def _finalize(self, notarization: Certificate) -> None:
        view = notarization.view
        if not self._may_vote(view) or view <= max(self._final.view, self._round_floor()):
            return
        if view in self._certificates[VoteKind.NULLIFY]:
            return
        round_ = self._round(view)
        if round_.equivocated or VoteKind.NULLIFY in round_.own or VoteKind.FINALIZE in round_.own:
            return
        vote = self._sign(VoteKind.FINALIZE, view, notarization.parent_view, notarization.digest)
        self._cast(round_, vote, vote)

    def _may_vote(self, view: View) -> bool:
        """Observers never do, and nobody where a vote may have been forgotten."""
        return self._me is not None and view > self._abstain_through

    def _sign(self, kind: VoteKind, view: View, parent_view: View, digest: Digest) -> Vote:
        assert self._me is not None
        assert self._signer is not None
        message = vote_signing_bytes(self._namespace, kind, view, parent_view, digest)
        return Vote(kind, view, parent_view, digest, self._me, self._signer.sign(message))

    def _cast(self, round_: _Round, vote: Vote, message: Message, body: bytes | None = None) -> None:
        """From here on the vote is ours. It is sent, and counted, when it is durable."""
        round_.own[vote.kind] = vote
        self._own[round_.view] = round_.own
        self._records.append(encode_record(vote))
        if body is not None:
            self._body = body
        self._unsynced.append(_Outgoing(self._token, vote, message))

    def _add_own(self, vote: Vote) -> bool:
        """Put a durable own vote among the others; not if its view is gone or another machine used our key."""
        round_ = self._rounds.get(vote.view)
        if round_ is None or round_.tally.kept(vote.kind, vote.signer) is not None:
            return False
        round_.tally.add(vote, checked=True)
        return True

    # --- certificates -------------------------------------------------------------------------------------------

    def _on_certificate(self, sender: ValidatorIndex, certificate: Certificate) -> None:
        if certificate.view <= self._final.view:
            self._reject(sender, STALE)
        elif certificate.view in self._certificates[certificate.kind]:
            self._reject(sender, DUPLICATE)
        elif not _is_well_formed(certificate):
            self._reject(sender, MALFORMED)
        elif not self._is_certified(certificate):
            self._reject(sender, BAD_CERTIFICATE)
        else:
            self._compare_with_votes(certificate)
            self._accept(certificate)

    def _compare_with_votes(self, certificate: Certificate) -> None:
        """Find signers of a (good) certificate whose votes, kept here, contradict it."""
        round_ = self._rounds.get(certificate.view)
        if round_ is None:
            return
        kinds = [certificate.kind] + ([_OPPOSITE[certificate.kind]] if certificate.kind in _OPPOSITE else [])
        subject = (certificate.parent_view, certificate.digest)
        for signer, signature in certificate.signatures:
            for kind in kinds:
                kept = round_.tally.kept(kind, signer)
                if kept is None or (kept.kind == certificate.kind and (kept.parent_view, kept.digest) == subject):
                    continue
                if self._confirm(round_, kept):
                    vote = Vote(certificate.kind, certificate.view, *subject, signer, signature)
                    self._report(round_, kept, vote)

    def _accept(self, certificate: Certificate) -> None:
        """Act on a good certificate that is new, above the newest final view."""
        self._certificates[certificate.kind][certificate.view] = certificate
        self._records.append(encode_record(certificate))
        match certificate.kind:
            case VoteKind.NOTARIZE:
                self._effects.append(Notarized(certificate))
                self._finalize(certificate)
            case VoteKind.NULLIFY:
                self._effects.append(Nullified(certificate))
            case VoteKind.FINALIZE:
                self._final = Parent(certificate.view, certificate.digest)
                self._certificates[VoteKind.NOTARIZE].pop(certificate.view, None)
                self._effects.append(Finalized(certificate))
        if certificate.view >= self._view:
            self._enter(View(certificate.view + 1))
        elif certificate.kind == VoteKind.FINALIZE:
            self._prune()
        self._retry()

    def _retry(self) -> None:
        """A new certificate may be the one that a proposal waits for."""
        round_ = self._current_round()
        self._try_to_propose(round_)
        self._try_to_verify(round_)

    # --- views --------------------------------------------------------------------------------------------------

    def _enter(self, view: View) -> None:
        for left in self._rounds.values():
            if left.view < view:
                left.proposal = None
        self._view = view
        self._answered.clear()
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
        self._heed_leaders_nullify(round_)
        if self._is_silent(round_.leader):
            self._nullify(round_)
        self._try_to_propose(round_)
        self._try_to_verify(round_)

    def _is_silent(self, leader: ValidatorIndex) -> bool:
        """Whether the leader was not heard in the last ``skip_views`` views while a quorum was."""
        since = self._view - self._config.skip_views
        if self._config.skip_views == 0 or leader == self._me or self._last_heard[leader] >= since:
            return False
        heard = sum(last >= since for index, last in enumerate(self._last_heard) if index != self._me)
        return heard + (self._me is not None) >= self._validators.quorum

    def _current_round(self) -> _Round:
        return self._round(self._view)

    def _round(self, view: View) -> _Round:
        round_ = self._rounds.get(view)
        if round_ is None:
            tally = VoteTally(self._validators, self._namespace, view)
            round_ = self._rounds[view] = _Round(view, self.leader(view), tally, self._own.get(view, {}))
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

    # --- when messages are lost ---------------------------------------------------------------------------------

    def _repeat(self) -> None:
        """Rule 8."""
        round_ = self._current_round()
        self._attempt += 1
        unsynced = [outgoing.vote for outgoing in self._unsynced]
        before = self._rounds.get(View(self._view - 1))
        own = list(round_.own.values())
        if before is not None and VoteKind.FINALIZE in before.own and before.view > self._final.view:
            own.append(before.own[VoteKind.FINALIZE])
        said = [vote for vote in own if vote not in unsynced]
        for vote in said:
            self._effects.append(Broadcast(self._carrier(round_, vote)))
        opening = self.certificate_for(View(self._view - 1))
        finalization = self._certificates[VoteKind.FINALIZE].get(self._final.view)
        for certificate in _distinct(opening, finalization):
            self._effects.append(Broadcast(certificate))
        if not said:
            self._effects.append(Broadcast(CertificateRequest((self._view,))))
        self._repeat_request(round_)

    def _carrier(self, round_: _Round, vote: Vote) -> Message:
        """The message that says ``vote``: our proposal while we have it and stand by it, else the bare vote."""
        proposal = round_.proposal
        if proposal is not None and proposal.vote == vote and VoteKind.NULLIFY not in round_.own:
            return proposal
        return vote

    def _repeat_request(self, round_: _Round) -> None:
        """Ask other peers for what is still missing."""
        round_.requested = ()
        peers = self._peers_from(round_.leader + 1 + self._attempt)
        if self._is_to_propose(round_):
            self._request(round_, self._best_parent(round_.view).missing, peers)
        elif round_.proposal is not None and self._is_to_verify(round_):
            self._request(round_, self._ancestry_of(round_.proposal).missing, peers)

    def _request(self, round_: _Round, missing: tuple[View, ...], peers: Iterable[ValidatorIndex]) -> None:
        """Request certificates, unless the answer to the last request is still coming in."""
        if not missing or any(view in round_.requested for view in missing):
            return
        round_.requested = missing
        self._effects.extend(SendTo(peer, CertificateRequest(missing)) for peer in peers)

    def _peers_from(self, first: int) -> tuple[ValidatorIndex, ...]:
        """More peers than can be byzantine, in the order of their indices from ``first``, ourselves left out."""
        count = len(self._validators)
        ring = [ValidatorIndex((first + step) % count) for step in range(count)]
        return tuple([peer for peer in ring if peer != self._me][: self._validators.faults_withstood + 1])

    def _help(self, peer: ValidatorIndex, view: View) -> None:
        """Rule 9."""
        opening = self.certificate_for(View(self._view - 1))
        finalization = self._certificates[VoteKind.FINALIZE].get(self._final.view)
        self._answer(peer, _distinct(*self._certificates_of(view), opening, finalization))

    def _on_request(self, sender: ValidatorIndex, request: CertificateRequest) -> None:
        if sender == self._me:
            self._reject(sender, OWN_KEY)
        elif not _is_well_formed(request):
            self._reject(sender, MALFORMED)
        else:
            finalization = self._certificates[VoteKind.FINALIZE].get(self._final.view)
            held = [certificate for view in request.views for certificate in self._certificates_of(view)]
            opening = self.certificate_for(View(self._view - 1))
            overtaken = request.views[0] <= self._final.view
            self._answer(sender, _distinct(*held, opening, finalization if overtaken else None))

    def _answer(self, peer: ValidatorIndex, certificates: Sequence[Certificate]) -> None:
        """Rule 10."""
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

    def _certificates_of(self, view: View) -> list[Certificate]:
        """The finalization of ``view``, or else its notarization and its nullification, which may both exist."""
        finalization = self._certificates[VoteKind.FINALIZE].get(view)
        if finalization is not None:
            return [finalization]
        held = (self._certificates[kind].get(view) for kind in (VoteKind.NOTARIZE, VoteKind.NULLIFY))
        return [certificate for certificate in held if certificate is not None]

    # --- signatures ---------------------------------------------------------------------------------------------

    def _is_signed(self, vote: Vote) -> bool:
        return verify_vote(vote, self._validators, self._namespace)

    def _confirm(self, round_: _Round, vote: Vote) -> bool:
        """Whether a kept vote is truly signed; a forged one is dropped."""
        if round_.tally.confirm(vote):
            return True
        self._reject(vote.signer, BAD_SIGNATURE)
        return False

    def _is_certified(self, certificate: Certificate) -> bool:
        round_ = self._rounds.get(certificate.view)
        tally = None if round_ is None else round_.tally
        return verify_certificate(certificate, self._validators, self._namespace, tally)

    def _reject(self, sender: ValidatorIndex, reason: str) -> None:
        self._effects.append(Rejected(sender, reason))

    # --- the journal --------------------------------------------------------------------------------------------

    def _replay(self, journal: Iterable[bytes]) -> None:
        """Restore certificates and own votes, then drop what lies behind the newest finalization."""
        own: list[Vote] = []
        newest = self._root.view
        for encoded in journal:
            record = decode_record(encoded)
            if isinstance(record, Vote):
                own.append(record)
            elif record.view > self._root.view:
                self._certificates[record.kind][record.view] = record
                newest = max(newest, record.view)
        finalizations = self._certificates[VoteKind.FINALIZE]
        if finalizations:
            final = finalizations[max(finalizations)]
            self._final = Parent(final.view, final.digest)
        self._view = View(newest + 1)
        for vote in own:
            self._restore_vote(vote)
        self._prune()

    def _restore_vote(self, vote: Vote) -> None:
        if vote.signer != self._me:
            raise JournalError(f"the journal holds a vote of validator {vote.signer}, not ours")
        if vote.view <= self._root.view:
            return
        round_ = self._round(vote.view)
        kept = round_.own.get(vote.kind)
        opposite = _OPPOSITE.get(vote.kind)
        if (kept is not None and conflict(kept, vote) is not None) or opposite in round_.own:
            raise JournalError(f"the journal holds contradictory votes of ours in view {vote.view}")
        if kept is None:
            round_.own[vote.kind] = vote
            self._own[vote.view] = round_.own
            round_.tally.add(vote, checked=True)


_OPPOSITE: Final = {VoteKind.NULLIFY: VoteKind.FINALIZE, VoteKind.FINALIZE: VoteKind.NULLIFY}


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


def _is_well_formed(message: Message) -> bool:
    try:
        check_vote(message) if isinstance(message, Vote) else check(message)
    except MessageError:
        return False
    return True


def _to_request(missing: list[View]) -> tuple[View, ...]:
    """The highest missing views that fit in one request, ascending."""
    return tuple(sorted(missing)[-MAX_REQUESTED_VIEWS:])


def _distinct(*certificates: Certificate | None) -> list[Certificate]:
    """Those that exist, each once."""
    kept: list[Certificate] = []
    for certificate in certificates:
        if certificate is not None and certificate not in kept:
            kept.append(certificate)
    return kept
