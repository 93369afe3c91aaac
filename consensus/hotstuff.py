"""HotStuff in two phases: votes go to one collector. A block takes two message delays and is final after five.

Of ``n`` validators up to ``f = (n - 1) // 3`` may be byzantine; a quorum is ``n - f``. Time is cut into views. A view
has one leader, which proposes one block. A block is *certified* when a quorum voted to notarize it, and final when a
quorum voted to finalize it, which a validator does when it sees the notarization. Without faults only leaders
broadcast: every vote goes to the leader that needs it next.

The variant is HotStuff-2 (Malkhi and Nayak, 2023), with the timeouts of Jolteon (Gelashvili and others, 2022):

- HotStuff-2, because its second phase is a vote on the certificate of the first, and does not depend on the next
  leader. A quorum of these votes is one certificate. It proves that a block is final to anyone who knows the validator
  set, as Simplex's finalization does, so code that stores or verifies finalizations need not know the protocol. In a
  chained HotStuff a block is final by its own certificate and that of a child in the next view: the proof is two
  certificates and a header, and each validator signs one vote less per view.
- Jolteon's timeouts, because they are responsive: after a failed view the leader proposes as soon as it holds a quorum
  of timeouts, and these prove that its parent is safe. HotStuff-2's leader waits for a delay bound instead, in case
  another validator holds a higher certificate.

The rules
=========

View 0 (or the root given at the start) is final, and every validator knows its block. A validator's *high block* is the
one of the highest view of which it knows a notarization or a finalization. On entering view ``v``:

1. **Start three timers**: leader, advance and rebroadcast.
2. **The leader proposes** at once, and only once, a block on its high block, of view ``p``. Before the proposal it
   broadcasts the certificates that justify it: that of the parent and, if ``p < v - 1``, a timeout certificate of
   ``v - 1``. It has them, since it entered ``v`` by one of them. The proposal carries the leader's notarize vote.
3. **Notarize** the first proposal of the leader for ``v``, once, if the block executes to its header, its parent is the
   certified block of ``p``, and either ``p = v - 1`` or a timeout certificate of ``v - 1`` is known whose high view is
   not above ``p``. The vote goes to the leader of ``v + 1``. A validator that timed out in ``v`` does not notarize.
4. **Time out** of ``v``, once: when the leader timer expires and no proposal came; when the advance timer expires; when
   the block is invalid or can never be justified. The timeout vote names the view of the validator's high block, and
   carries the certificate of that block; it is broadcast. With it go the validator's notarize vote of ``v`` and its
   finalize votes of ``v - 1`` and ``v - 2``, whose collectors may have failed.

A validator that holds a quorum of equal votes, or of timeout votes of one view, makes a certificate. The leaders of the
next three views broadcast theirs; the votes were sent to two of them:

5. **Notarization** of a block in view ``v``: vote to **finalize** it, unless this validator has timed out in ``v`` or
   in any later view. The vote goes to the leader of ``v + 2``. Enter ``v + 1`` if that is ahead.
6. **Timeout certificate** of ``v``: enter ``v + 1`` if that is ahead. Its *high view* is the highest that its timeouts
   name, and it carries the certificate of the block of that view.
7. **Finalization** of a block in view ``v``: the block and its ancestors are final. Enter ``v + 1`` if that is ahead.

A certificate counts whoever sends it, however far ahead its view is. Of two timeout certificates of the view before the
current one, the one with the lower high view permits more, and is kept.

**Safety.** The lock is the high block, and timeouts respect it: a validator that voted to finalize view ``v`` names
``v`` or a later view in every timeout of ``v`` or later, and one that timed out there before no longer finalizes ``v``.
So if ``v`` is final, each timeout certificate of ``v`` or later has a high view of ``v`` or later, since its quorum
shares an honest validator with the one that finalized ``v``. Therefore a certified block of a view above ``v`` has a
certified parent in ``v`` or above: the view directly before, or one not below that high view. No view has two certified
blocks; by induction over views all certified blocks above ``v`` descend from the one of ``v``. A timeout certificate
may override a lock on a block that is not final, but never a lock on a final one.

**Latency**, if all are honest and only links take time, δ each: the proposal takes the first delay and the votes to the
next leader the second; then that leader proposes: 2δ a block. The certificate takes the third delay, the finalize votes
to the leader of ``v + 2`` the fourth, and the finalization the fifth: the block is final after 4δ for that leader and
5δ for all others. These are the figures of Jolteon and of HotStuff-2 when pipelined. From ``n = 4`` they are exact;
smaller sets are faster, since collectors are part of every quorum. After a view that failed, a leader proposes one
delay after the timeouts of a quorum were sent.

Rules 8 to 10 are in :mod:`consensus.retransmission`. Restarts and hostile input are in ``docs/consensus.md``,
deviations from the papers in ``docs/consensus-reasons.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from consensus.interface import DUPLICATE, STALE, UNPROVED, Broadcast, Parent, Rejected, SendTo
from consensus.journal import Outgoing
from consensus.messages import (
    FINALIZE,
    NO_DIGEST,
    NOTARIZE,
    TIMEOUT,
    AnyCertificate,
    Certificate,
    Proposal,
    Timeout,
    TimeoutCertificate,
    Vote,
    VoteKind,
)
from consensus.retransmission import distinct
from consensus.tally import Round
from consensus.types import ValidatorIndex, View
from consensus.voting import Ancestry, VotingEngine


class HotStuff(VotingEngine):
    """The HotStuff engine of one validator or observer, with the interface of :mod:`consensus.interface`.

    The module docstring has the rules.
    """

    _gives_up: ClassVar[VoteKind] = TIMEOUT
    _finality_lag: ClassVar[int] = 2
    _high: Parent
    """The certified block of the highest known view: we build on it, and our timeouts name it."""
    _timed_out: View
    """The newest view in which we timed out."""

    # --- proposing and verifying ------------------------------------------------------------------------------------

    def _best_parent(self, view: View) -> Ancestry:
        """The parent of our proposal: our high block. The certificate that opened the view justifies it."""
        return Ancestry(self._high)

    def _ancestry_of(self, proposal: Proposal) -> Ancestry:
        """The proposal's parent if it is justified (rule 3), else the views whose certificates are missing for that."""
        known, before, parent_view = self.certificates, View(proposal.view - 1), proposal.parent_view
        if parent_view < known.final.view:
            return Ancestry()
        parent = known.block(parent_view)
        if parent is not None and parent.digest != proposal.parent_digest:
            return Ancestry()
        missing = [] if parent is not None else [parent_view]
        if parent_view < before and not self._permits(known.skips.get(before), parent_view):
            missing.append(before)
        return Ancestry(missing=tuple(missing)) if missing else Ancestry(parent)

    # --- votes to time out and to finalize --------------------------------------------------------------------------

    def _give_up(self, round_: Round) -> None:
        """Vote to time out of the view, if allowed (rule 4). We then never vote to finalize it or an earlier view."""
        if not round_.may_vote or TIMEOUT in round_.own or FINALIZE in round_.own:
            return
        if self._member.abstain_through > self._high.view:
            return  # we may have voted to finalize a block above our high block
        self._timed_out = round_.view
        vote = self._member.sign(TIMEOUT, round_.view, self._high.view, NO_DIGEST)
        self._journal.cast(round_.own, vote, vote)

    def _finalize(self, notarization: Certificate) -> None:
        """Vote to finalize the notarized block, unless we timed out in its view or a later one (rule 5)."""
        view = notarization.view
        floor = max(self.final_view, self._rounds.floor(), self._timed_out)
        if not self._member.may_vote(view) or view <= floor:
            return
        round_ = self._rounds[view]
        if FINALIZE not in round_.own:
            vote = self._member.sign(FINALIZE, view, notarization.parent_view, notarization.digest)
            self._journal.cast(round_.own, vote, vote)

    # --- to whom votes are sent -------------------------------------------------------------------------------------

    def _send(self, outgoing: Outgoing) -> None:
        """Send a durable vote: broadcast it if it is a timeout or in a proposal, else send it to its collector."""
        vote, message = outgoing.vote, outgoing.message
        if isinstance(message, Proposal):
            for certificate in self._justification(message):
                if (certificate.kind, certificate.view) not in self._retransmission.announced:
                    self._effects.append(Broadcast(certificate))
            self._effects.append(Broadcast(message))
        elif vote.kind == NOTARIZE:
            self._send_to_leader(View(vote.view + 1), vote)
        elif vote.kind == FINALIZE:
            self._send_to_leader(View(vote.view + 2), vote)
        else:
            open_votes = self._retransmission.open_votes() if vote.view == self.view else [vote]
            self._effects.extend(Broadcast(self._retransmission.carrier(open_vote)) for open_vote in open_votes)

    def _send_to_leader(self, view: View, vote: Vote) -> None:
        collector = self.leader(view)
        if collector != self._member.index:
            self._effects.append(SendTo(collector, vote))

    def _justification(self, proposal: Proposal) -> list[AnyCertificate]:
        """The certificates that other validators need to vote for ``proposal``."""
        before = View(proposal.view - 1)
        timeouts = self.certificates.skips.get(before) if proposal.parent_view < before else None
        return distinct(timeouts, self.certificates.of_block(proposal.parent_view))

    # --- timeouts ---------------------------------------------------------------------------------------------------

    def _on_vote(self, sender: ValidatorIndex, vote: Vote) -> None:
        if vote.kind == TIMEOUT:
            self._on_timeout_vote(sender, Timeout(vote, None))
        else:
            super()._on_vote(sender, vote)

    def _on_timeout(self, sender: ValidatorIndex, message: Timeout | TimeoutCertificate) -> None:
        if isinstance(message, Timeout):
            self._on_timeout_vote(sender, message)
        else:
            self._on_timeout_certificate(sender, message)

    def _on_timeout_vote(self, sender: ValidatorIndex, timeout: Timeout) -> None:
        """Count a peer's timeout vote, if its high block is certified: by our certificates or the message's."""
        vote, high = timeout.vote, timeout.high
        if self._rounds.fault_of_vote(sender, vote) is None and not self._has_block(vote.parent_view):
            if high is None:
                self._effects.append(Rejected(sender, UNPROVED))
                return
            if not self._accountability.believes(sender, high):
                return
            self._accept(high)
        super()._on_vote(sender, vote)

    def _on_timeout_certificate(self, sender: ValidatorIndex, certificate: TimeoutCertificate) -> None:
        high = certificate.high
        if certificate.view <= self.final_view:
            self._effects.append(Rejected(sender, STALE))
        elif not self._is_news(certificate):
            self._effects.append(Rejected(sender, DUPLICATE))
        elif high is None and certificate.high_view > self.final_view:
            self._effects.append(Rejected(sender, UNPROVED))
        elif self._accountability.believes(sender, certificate):
            if high is not None and not self._has_block(high.view):
                self._accountability.compare(high)
                self._learn(high)
            self._accept(certificate)

    def _is_news(self, certificate: TimeoutCertificate) -> bool:
        """Whether a timeout certificate is our first of its view, or permits more parents than the one that we hold."""
        held = self.certificates.skips.get(certificate.view)
        return held is None or (certificate.view == self.view - 1 and not self._permits(held, certificate.high_view))

    @staticmethod
    def _permits(timeouts: AnyCertificate | None, parent_view: View) -> bool:
        """Whether a timeout certificate lets a leader build on the block of ``parent_view``."""
        return isinstance(timeouts, TimeoutCertificate) and timeouts.high_view <= parent_view

    def _has_block(self, view: View) -> bool:
        """Whether ``view`` has a known certified block, or is at or below the final view."""
        return view <= self.final_view or view in self.certificates.notarizations

    # --- the high block ---------------------------------------------------------------------------------------------

    def _learn(self, certificate: AnyCertificate) -> None:
        if isinstance(certificate, Certificate) and certificate.view > self._high.view:
            self._high = Parent(certificate.view, certificate.digest)
        super()._learn(certificate)

    def _replay(self, journal: Iterable[bytes]) -> None:
        super()._replay(journal)
        known = self.certificates
        self._high = known.block(max((*known.notarizations, known.final.view))) or known.final
        timed_out = (view for view, own in self._journal.own.items() if TIMEOUT in own)
        self._timed_out = max(timed_out, default=known.root.view)
