"""HotStuff in two phases: votes go to one collector, two message delays a block, five to finality.

Of ``n`` validators up to ``f = (n - 1) // 3`` may be byzantine; a quorum is ``n - f``. Time is cut into views. A view
has one leader, who proposes one block. A block is *certified* when a quorum voted to notarize it, and final when a
quorum voted to finalize it, which each does on seeing the certificate. In the good case nobody but leaders speaks to
all: every vote goes to the leader who needs it next.

The variant is HotStuff-2 (Malkhi and Nayak, 2023), with the timeouts of Jolteon (Gelashvili and others, 2022):

- HotStuff-2, because its second phase is a vote on the certificate of the first, made before the next leader is known
  to be any good. A quorum of these votes is a certificate of its own: whoever knows the validator set can check on it
  alone that a block is final, as on Simplex's finalization, and whoever stores or believes finalizations need not know
  which protocol made them. In a chained HotStuff a block is final by the certificates of itself and of a child in the
  next view; its proof is two certificates and a header, and what each view signs is less by one vote.
- Jolteon's timeouts, because they are responsive: after a failed view the leader proposes as soon as it holds a quorum
  of timeouts, and these prove that its parent is good enough. HotStuff-2's leader waits a delay bound instead, for the
  highest certificate of validators that it may not have heard of.

The rules
=========

View 0 (or the root given at the start) is final, its block is known to all. A validator's *high block* is the one of
the highest view of which it knows a notarization or a finalization. On entering view ``v``:

1. **Start three timers**: leader, advance and rebroadcast.
2. **The leader proposes** at once, and once, a block on its high block, of view ``p``. The certificates that justify
   this go to everyone ahead of the proposal: that of the parent and, if ``p < v - 1``, a timeout certificate of
   ``v - 1``. It has them, since it entered ``v`` by one of them. The proposal carries the leader's notarize vote.
3. **Notarize** the first proposal of the leader for ``v``, once, if the block executes to its header, its parent is the
   certified block of ``p``, and either ``p = v - 1`` or a timeout certificate of ``v - 1`` is known whose high view is
   not above ``p``. The vote goes to the leader of ``v + 1``. A validator that timed out in ``v`` does not notarize.
4. **Time out** of ``v``, once: when the leader timer expires and no proposal came; when the advance timer expires; when
   the block is invalid or can never be justified. The timeout vote names the view of the validator's high block, and
   carries the certificate of that block; it is broadcast. With it go the validator's notarize vote of ``v`` and its
   finalize votes of ``v - 1`` and ``v - 2``, whose collectors may have failed.

Whoever holds a quorum of equal votes, or of timeout votes of one view, makes a certificate of it and broadcasts it:

5. **Notarization** of a block in view ``v``: vote to **finalize** it, unless this validator has timed out in ``v`` or
   in any later view. The vote goes to the leader of ``v + 2``. Enter ``v + 1`` if that is ahead.
6. **Timeout certificate** of ``v``: enter ``v + 1`` if that is ahead. Its *high view* is the highest that its timeouts
   name, and it carries the certificate of the block of that view.
7. **Finalization** of a block in view ``v``: the block and its ancestors are final. Enter ``v + 1`` if that is ahead.

A certificate is worth the same whoever sends it, and however far ahead it is. Of two timeout certificates of the view
before the current one, the one with the lower high view permits more, and is kept.

**Safety.** The lock is the high block, and it is kept in timeouts: whoever finalizes view ``v`` names ``v`` or a later
view in every timeout of ``v`` or later, and whoever timed out there before does not finalize ``v`` any more. So if
``v`` is final, each timeout certificate of ``v`` or later has a high view of ``v`` or later, since its quorum shares an
honest validator with the one that finalized ``v``. A certified block of a view above ``v`` has therefore a certified
parent in ``v`` or above: the view directly before, or one not below that high view. No view has two certified blocks;
by induction over views all certified blocks above ``v`` descend from the one of ``v``. A timeout certificate overrides
the lock of who voted to finalize a block that is not final, and never of one that is.

**Latency**, with all honest, link delay δ and nothing else taking time: the proposal takes one delay, the votes to the
next leader a second, and with these it proposes: 2δ a block. Its certificate takes the third delay to everyone, the
finalize votes a fourth, to the leader of ``v + 2``, and the finalization a fifth: final after 4δ for that leader and 5δ
for all others. These are the figures of Jolteon and of HotStuff-2 when pipelined. From ``n = 4`` they are exact;
smaller sets are faster, since collectors are part of every quorum. After a view that failed, a leader proposes one
delay after the timeouts of a quorum were sent.

Durability and restarts
=======================

A vote is journaled before it is sent or counted: :class:`~consensus.interface.Persist`, and the vote follows
:class:`~consensus.interface.Durable`. A notarize vote is persisted with the block's body, so that a certified block
lies on the disks of a quorum. Certificates are journaled in the order in which they were learned, hence before the
votes that rest on them: with a finalize vote the lock comes back from the journal, and no timeout falls below it.

A journaled vote counts as cast, whether or not it was sent. A validator resumes in the view after its newest
certificate and repeats its votes there; its high block is the highest that the journal certifies. A leader that
journaled a proposal does not propose again in that view.

A validator that lost its journal is given ``abstain_through``, a view at or above all that it may have voted in. It
does not vote or propose in views up to it; nor does it time out in any view before it knows a certified block of that
view or a later one, for it may have voted to finalize what it has forgotten, and a timeout below that would break the
safety argument. Until then it counts among the ``f``.

When messages are lost
======================

8. **Rebroadcast.** While a view lasts, every ``rebroadcast_ms`` a validator broadcasts its votes of the view (a leader
   its whole proposal, while it has it), its finalize votes of the two views before, the certificate that opened the
   view, and the newest finalization. It also repeats its open request for certificates, to other peers each time. A
   validator with no vote in the view, or an observer, asks for the certificates of the view.
9. **Help.** A notarize or timeout vote for a view already left that repeats an earlier vote, or that is two or more
   views behind, comes from a peer that is stuck: answer with the certificates of that view, with the one that opened
   our view, and with the newest finalization. One jump brings the peer level.
10. **Requests** are answered from retained certificates. No certificate goes to the same peer twice before our view
    changes or our rebroadcast timer expires, and only so many of them.

Hostile input
=============

As for Simplex: a vote counts only from its signer, a proposal only from its leader; one vote of each kind is kept per
signer and view, within windows around the current and the newest final view; signatures are checked when votes would
make a quorum. The certificate that a timeout carries is checked when it names a block that is not known to be
certified, and a timeout is kept only if its high block is: so every timeout certificate made here can show the
certificate of its high view. One that names a final block needs none. Evidence is two votes of a kind and view that
differ, and a finalize vote beside a timeout vote, of the same view or a later one, that names a lower view.

Deviations from the papers
==========================

- Both phases are votes of their own, so that finality has its own certificate; the papers' pipelined forms let the
  notarize vote for a child stand for the second vote on its parent.
- Certificates travel as messages of their own ahead of a proposal, not inside it. Who lacks one asks the leader.
- HotStuff-2's leader waits for the delay bound after a failed view; here Jolteon's rule takes its place.
- A validator that times out broadcasts its open votes, so that a failed collector does not cost the block before it.
- Timeouts are plain signatures with their high views; there are no threshold signatures, so certificates are linear
  in ``n``. Timeouts are constant, and certificates are broadcast by those who make them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from consensus.certificates import verify_timeout_certificate
from consensus.interface import Broadcast, Finalized, Notarized, Nullified, Parent, SendTo
from consensus.journal import encode_record
from consensus.keys import Signer, ValidatorSet
from consensus.leader import LeaderElection
from consensus.messages import (
    NO_DIGEST,
    AnyCertificate,
    Certificate,
    Message,
    Proposal,
    Timeout,
    TimeoutCertificate,
    Vote,
    VoteKind,
    conflict,
)
from consensus.types import GENESIS_VIEW, Digest, ValidatorIndex, View
from consensus.voting import (
    BAD_SIGNATURE,
    DUPLICATE,
    MALFORMED,
    STALE,
    UNPROVED,
    Ancestry,
    Outgoing,
    Round,
    Sizes,
    VotingConfig,
    VotingEngine,
    distinct,
    is_well_formed,
)

_CONTRADICTED_ACROSS_VIEWS = {VoteKind.FINALIZE: VoteKind.TIMEOUT, VoteKind.TIMEOUT: VoteKind.FINALIZE}


class HotStuff(VotingEngine):
    """The engine of one validator or observer. The module states its rules, :mod:`consensus.interface` its use."""

    _gives_up: ClassVar[VoteKind] = VoteKind.TIMEOUT
    _finality_lag: ClassVar[int] = 2

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
        """Prepare an engine, replaying its journal; ``handle(Start())`` sets it going.

        ``me`` and ``signer`` are ``None`` for an observer, which never votes. ``namespace`` names the chain (and
        whatever else keeps votes apart). ``root`` is the final block from which everyone starts: a genesis digest, at
        view 0, or a parent with a view. A later starting point is a finalization in ``journal``. ``abstain_through``
        is the last view in which votes may have been cast that the journal does not hold. Raises
        :class:`~consensus.journal.JournalError` for a journal that this validator cannot have written.
        """
        super().__init__(config, validators, me, signer, namespace, root, election, abstain_through)
        self._timeouts: dict[View, TimeoutCertificate] = {}
        self._announced: set[tuple[VoteKind, View]] = set()
        """Certificates of late views that we broadcast when we made them."""
        self._replay(journal)
        notarizations = self._certificates[VoteKind.NOTARIZE]
        self._high = self._block_of(max((*notarizations, self._final.view))) or self._final
        """The block of the highest view that is known to be certified: what we build on, and what our timeouts name."""
        timed_out = (view for view, own in self._own.items() if VoteKind.TIMEOUT in own)
        self._timed_out = max(timed_out, default=self._root.view)
        """The newest view in which we timed out."""

    @property
    def sizes(self) -> Sizes:
        """Timeout certificates and those that were announced count as kinds of their own."""
        kept = super().sizes
        return kept._replace(certificates=max(kept.certificates, len(self._timeouts), len(self._announced)))

    # --- proposing and verifying ------------------------------------------------------------------------------------

    def _best_parent(self, view: View) -> Ancestry:
        """Our high block: what opened the view justifies building on it."""
        return Ancestry(self._high)

    def _ancestry_of(self, proposal: Proposal) -> Ancestry:
        """Whether the parent is certified and no final block can lie between it and the proposal."""
        before, parent_view = View(proposal.view - 1), proposal.parent_view
        if parent_view < self._final.view:
            return Ancestry()
        parent = self._block_of(parent_view)
        if parent is not None and parent.digest != proposal.parent_digest:
            return Ancestry()
        missing = [] if parent is not None else [parent_view]
        timeouts = self._timeouts.get(before)
        if parent_view < before and (timeouts is None or timeouts.high_view > parent_view):
            missing.append(before)
        return Ancestry(missing=tuple(missing)) if missing else Ancestry(parent)

    # --- own votes --------------------------------------------------------------------------------------------------

    def _give_up(self, round_: Round) -> None:
        """Time out: never again finalize this view or one before, and say which block we would keep."""
        if not self._may_vote(round_.view) or VoteKind.TIMEOUT in round_.own or VoteKind.FINALIZE in round_.own:
            return
        if self._abstain_through > self._high.view:
            return  # we may have voted to finalize what is above our high block
        self._timed_out = round_.view
        vote = self._sign(VoteKind.TIMEOUT, round_.view, self._high.view, NO_DIGEST)
        self._cast(round_, vote, vote)

    def _finalize(self, notarization: Certificate) -> None:
        """Keep to this block: from here on no timeout of ours names a lower one."""
        view = notarization.view
        if not self._may_vote(view) or view <= max(self._final.view, self._round_floor(), self._timed_out):
            return
        round_ = self._round(view)
        if VoteKind.FINALIZE in round_.own:
            return
        vote = self._sign(VoteKind.FINALIZE, view, notarization.parent_view, notarization.digest)
        self._cast(round_, vote, vote)

    def _say(self, outgoing: Outgoing) -> None:
        """Proposals and timeouts go to everyone, other votes to the leader who needs them next."""
        vote, message = outgoing.vote, outgoing.message
        if isinstance(message, Proposal):
            for certificate in self._justification(message):
                if (certificate.kind, certificate.view) not in self._announced:
                    self._effects.append(Broadcast(certificate))
            self._effects.append(Broadcast(message))
        elif vote.kind == VoteKind.NOTARIZE:
            self._send_to_leader(View(vote.view + 1), vote)
        elif vote.kind == VoteKind.FINALIZE:
            self._send_to_leader(View(vote.view + 2), vote)
        else:
            open_votes = self._said() if vote.view == self._view else [vote]
            self._effects.extend(Broadcast(self._carrier(open_vote)) for open_vote in open_votes)

    def _send_to_leader(self, view: View, vote: Vote) -> None:
        collector = self.leader(view)
        if collector != self._me:
            self._effects.append(SendTo(collector, vote))

    def _justification(self, proposal: Proposal) -> list[AnyCertificate]:
        """What others need in order to vote for ``proposal``."""
        before = View(proposal.view - 1)
        timeouts = self._timeouts.get(before) if proposal.parent_view < before else None
        return distinct(timeouts, self._block_certificate(proposal.parent_view))

    def _carrier(self, vote: Vote) -> Message:
        """A timeout vote goes with the certificate of the block that it names."""
        if vote.kind == VoteKind.TIMEOUT:
            return Timeout(vote, self._block_certificate(vote.parent_view))
        return super()._carrier(vote)

    # --- timeouts ---------------------------------------------------------------------------------------------------

    def _on_vote(self, sender: ValidatorIndex, vote: Vote) -> None:
        if vote.kind == VoteKind.TIMEOUT:
            self._on_timeout_vote(sender, Timeout(vote, None))
        else:
            super()._on_vote(sender, vote)

    def _on_timeout(self, sender: ValidatorIndex, message: Timeout | TimeoutCertificate) -> None:
        if isinstance(message, Timeout):
            self._on_timeout_vote(sender, message)
        else:
            self._on_timeout_certificate(sender, message)

    def _on_timeout_vote(self, sender: ValidatorIndex, timeout: Timeout) -> None:
        """Count the vote if its high block is certified: by what we know, or else by what it carries."""
        vote, high = timeout.vote, timeout.high
        if not is_well_formed(timeout):
            self._reject(sender, MALFORMED)
            return
        if self._fault_of_vote(sender, vote) is None and not self._has_block(vote.parent_view):
            if high is None:
                self._reject(sender, UNPROVED)
                return
            if not self._believes(sender, lambda: self._is_certified(high)):
                return
            self._compare_with_votes(high.votes())
            self._accept(high)
        super()._on_vote(sender, vote)

    def _on_timeout_certificate(self, sender: ValidatorIndex, certificate: TimeoutCertificate) -> None:
        high = certificate.high
        if not is_well_formed(certificate):
            self._reject(sender, MALFORMED)
        elif certificate.view <= self._final.view:
            self._reject(sender, STALE)
        elif not self._is_news(certificate):
            self._reject(sender, DUPLICATE)
        elif high is None and certificate.high_view > self._final.view:
            self._reject(sender, UNPROVED)
        elif self._believes(sender, lambda: self._is_timed_out(certificate)):
            self._compare_with_votes(certificate.votes())
            if high is not None and not self._has_block(high.view):
                self._compare_with_votes(high.votes())
                self._learn(high)
            self._accept_timeouts(certificate)

    def _is_news(self, certificate: TimeoutCertificate) -> bool:
        """Whether no other is known, or this one lets the leader of our view build on more."""
        held = self._timeouts.get(certificate.view)
        return held is None or (certificate.view == self._view - 1 and certificate.high_view < held.high_view)

    def _is_timed_out(self, certificate: TimeoutCertificate) -> bool:
        round_ = self._rounds.get(certificate.view)
        tally = None if round_ is None else round_.tally
        return verify_timeout_certificate(certificate, self._validators, self._namespace, self._final.view, tally)

    def _count(self, vote: Vote) -> None:
        if vote.kind != VoteKind.TIMEOUT:
            super()._count(vote)
            return
        round_ = self._rounds.get(vote.view)
        if round_ is None or vote.view <= self._final.view or vote.view in self._timeouts:
            return
        votes, forgers = round_.tally.assemble_timeouts()
        for forger in forgers:
            self._reject(forger, BAD_SIGNATURE)
        if votes:
            high = self._block_certificate(max(one.parent_view for one in votes))
            signatures = tuple((one.signer, one.parent_view, one.signature) for one in votes)
            certificate = TimeoutCertificate(vote.view, high, signatures)
            self._announce(certificate)
            self._accept_timeouts(certificate)

    def _accept_timeouts(self, certificate: TimeoutCertificate) -> None:
        self._timeouts[certificate.view] = certificate
        self._records.append(encode_record(certificate))
        self._effects.append(Nullified(certificate))
        self._move_past(certificate.view)

    # --- certificates of blocks -------------------------------------------------------------------------------------

    def _accept(self, certificate: Certificate) -> None:
        self._learn(certificate)
        self._move_past(certificate.view)

    def _learn(self, certificate: Certificate) -> None:
        """Note a good certificate of a block; it does not end a view yet."""
        self._certificates[certificate.kind][certificate.view] = certificate
        self._records.append(encode_record(certificate))
        if certificate.view > self._high.view:
            self._high = Parent(certificate.view, certificate.digest)
        if certificate.kind == VoteKind.NOTARIZE:
            self._effects.append(Notarized(certificate))
            self._finalize(certificate)
        else:
            self._final = Parent(certificate.view, certificate.digest)
            self._certificates[VoteKind.NOTARIZE].pop(certificate.view, None)
            self._effects.append(Finalized(certificate))

    def _move_past(self, view: View) -> None:
        if view >= self._view:
            self._enter(View(view + 1))
        else:
            self._prune()
        self._retry()

    def _announce(self, certificate: AnyCertificate) -> None:
        super()._announce(certificate)
        self._announced.add((certificate.kind, certificate.view))

    def _block_certificate(self, view: View) -> Certificate | None:
        """What certifies the block of ``view``, while it is retained; the root has none."""
        finalization = self._certificates[VoteKind.FINALIZE].get(view)
        return finalization or self._certificates[VoteKind.NOTARIZE].get(view)

    def _has_block(self, view: View) -> bool:
        """Whether ``view`` is known to have a certified block, or one that is final or overtaken by it."""
        return view <= self._final.view or view in self._certificates[VoteKind.NOTARIZE]

    def _skip_certificate(self, view: View) -> AnyCertificate | None:
        return self._timeouts.get(view)

    def _prune(self) -> None:
        super()._prune()
        retained_from = self._final.view - self._config.retained_views
        for view in [view for view in self._timeouts if view < retained_from]:
            del self._timeouts[view]
        self._announced = {(kind, view) for kind, view in self._announced if view >= self._view - 1}

    # --- contradictions ---------------------------------------------------------------------------------------------

    def _rivals(self, vote: Vote) -> list[Vote]:
        """Finalize and timeout votes also contradict each other across views."""
        rivals = super()._rivals(vote)
        opposite = _CONTRADICTED_ACROSS_VIEWS.get(vote.kind)
        if opposite is None:
            return rivals
        kept = [round_.tally.kept(opposite, vote.signer) for view, round_ in self._rounds.items() if view != vote.view]
        return rivals + [other for other in kept if other is not None and conflict(vote, other) is not None]

    # --- the journal ------------------------------------------------------------------------------------------------

    def _restore_certificate(self, certificate: AnyCertificate) -> None:
        if isinstance(certificate, Certificate):
            super()._restore_certificate(certificate)
            return
        held = self._timeouts.get(certificate.view)
        if held is None or certificate.high_view < held.high_view:
            self._timeouts[certificate.view] = certificate
