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

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from consensus.interface import Finalized, Notarized, Nullified, Parent
from consensus.journal import encode_record
from consensus.keys import Signer, ValidatorSet
from consensus.leader import LeaderElection
from consensus.messages import NO_DIGEST, NO_PARENT, Certificate, Proposal, Vote, VoteKind
from consensus.types import GENESIS_VIEW, ConsensusError, Digest, ValidatorIndex, View
from consensus.voting import Ancestry, Round, VotingConfig, VotingEngine, to_request


@dataclass(frozen=True, slots=True)
class SimplexConfig(VotingConfig):
    """Timeouts and bounds of one engine. Validators may differ in them."""

    skip_views: int = 0
    """Views without a sign of a leader after which its views are nullified at once; 0: never."""

    def __post_init__(self) -> None:
        VotingConfig.__post_init__(self)
        if self.skip_views < 0:
            raise ConsensusError("skip_views must not be negative")


class Simplex(VotingEngine):
    """The engine of one validator or observer. The module states its rules, :mod:`consensus.interface` its use."""

    _gives_up: ClassVar[VoteKind] = VoteKind.NULLIFY
    _finality_lag: ClassVar[int] = 1

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
        *,
        abstain_through: View = GENESIS_VIEW,
    ) -> None:
        """Prepare an engine, replaying its journal; ``handle(Start())`` sets it going.

        ``me`` and ``signer`` are ``None`` for an observer, which never votes. ``namespace`` names the chain (and
        whatever else keeps votes apart). ``root`` is the final block from which everyone starts: a genesis digest, at
        view 0, or a parent with a view. A later starting point is a finalization in ``journal``. In views up to
        ``abstain_through`` the engine does not vote (*Lost journals*). Raises
        :class:`~consensus.journal.JournalError` for a journal that this validator cannot have written.
        """
        super().__init__(config, validators, me, signer, namespace, root, election, abstain_through)
        self._skip_views = config.skip_views
        self._last_heard: list[View] = [GENESIS_VIEW] * len(validators)
        self._replay(journal)

    # --- ancestry -----------------------------------------------------------------------------------------------

    def _best_parent(self, view: View) -> Ancestry:
        """The highest block below ``view`` known to be notarized or final, every view between being nullified."""
        missing: list[View] = []
        below = View(view - 1)
        while (parent := self._block_of(below)) is None:  # ends at the final view, if not before
            if below not in self._certificates[VoteKind.NULLIFY]:
                missing.append(below)
            below = View(below - 1)
        return Ancestry(missing=to_request(missing)) if missing else Ancestry(parent)

    def _ancestry_of(self, proposal: Proposal) -> Ancestry:
        """Whether our certificates justify that the proposal builds on its parent and skips what lies between."""
        if proposal.parent_view < self._final.view:
            return Ancestry()
        parent = self._block_of(proposal.parent_view)
        if parent is not None and parent.digest != proposal.parent_digest:
            return Ancestry()
        nullifications = self._certificates[VoteKind.NULLIFY]
        skipped = range(proposal.parent_view + 1, proposal.view)
        missing = [View(view) for view in skipped if view not in nullifications]
        if parent is None:
            missing.insert(0, proposal.parent_view)
        return Ancestry(missing=to_request(missing)) if missing else Ancestry(parent)

    # --- votes --------------------------------------------------------------------------------------------------

    def _on_vote(self, sender: ValidatorIndex, vote: Vote) -> None:
        super()._on_vote(sender, vote)
        if vote.kind == VoteKind.NULLIFY and vote.view == self._view:
            self._heed_leaders_nullify(self._current_round())

    def _keep(self, round_: Round, vote: Vote, checked: bool) -> None:
        super()._keep(round_, vote, checked)
        self._last_heard[vote.signer] = max(self._last_heard[vote.signer], min(vote.view, self._view))

    def _heed_leaders_nullify(self, round_: Round) -> None:
        if round_.view != self._view or VoteKind.NULLIFY in round_.own:
            return
        vote = round_.tally.kept(VoteKind.NULLIFY, round_.leader)
        if vote is not None and self._confirm(vote):
            self._nullify(round_)

    # --- own votes ----------------------------------------------------------------------------------------------

    def _give_up(self, round_: Round) -> None:
        self._nullify(round_)

    def _nullify(self, round_: Round) -> None:
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

    # --- certificates -------------------------------------------------------------------------------------------

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

    # --- views --------------------------------------------------------------------------------------------------

    def _act(self, round_: Round) -> None:
        self._heed_leaders_nullify(round_)
        if self._is_silent(round_.leader):
            self._nullify(round_)
        super()._act(round_)

    def _is_silent(self, leader: ValidatorIndex) -> bool:
        """Whether the leader was not heard in the last ``skip_views`` views while a quorum was."""
        since = self._view - self._skip_views
        committee = self._validators.committee(self._view)
        if self._skip_views == 0 or leader == self._me or self._last_heard[leader] >= since:
            return False
        if since < max(committee.first_view, self._began) - 1:
            return False  # who came with this epoch had no reason to say anything before, and we heard nobody
        heard = sum(self._last_heard[member] >= since for member in committee.members if member != self._me)
        return heard + self._may_vote(self._view) >= committee.quorum
