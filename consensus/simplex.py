"""Simplex: a quorum agrees on a chain of blocks. A block takes two message delays and is final after three.

Of ``n`` validators up to ``f = (n - 1) // 3`` may be byzantine; a quorum is ``n - f``. Time is cut into views. A view
has one leader, and ends for a validator when it holds a certificate of the view: a quorum of equal votes.

The rules
=========

View 0 (or the root given at the start) is final, and every validator knows its block. On entering view ``v``:

1. **Start three timers**: leader, advance and rebroadcast.
2. **The leader proposes** a block on the block of the highest view ``p`` that it knows to be notarized or final, if it
   holds a nullification for every view between ``p`` and ``v``. It requests missing certificates from peers, and
   proposes when they have come. The proposal carries the leader's notarize vote. A leader proposes once in a view.
3. **Notarize** the first proposal of the leader for ``v``, once, if its parent is notarized or final, every view
   between parent and ``v`` is nullified, and the block executes to its header. Missing certificates are requested
   from the leader. A validator that voted to nullify ``v`` does not notarize in ``v``.
4. **Nullify** ``v``, once: when the leader timer expires and no proposal came; when the advance timer expires; when
   the block is invalid, or its parent can never be justified; when the leader itself votes to nullify; at once if the
   leader has been silent for ``skip_views`` views in which a quorum was heard. A validator that notarized in ``v`` may
   nullify ``v``.

A quorum of equal votes is a certificate. Votes are broadcast, so each validator makes its own certificates. The leaders
of the next three views broadcast theirs, for validators that lack a vote:

5. **Notarization** of a block in view ``v``: vote to **finalize** it, unless this validator voted to nullify ``v``,
   knows a nullification of ``v``, or saw the leader of ``v`` equivocate. Enter ``v + 1`` if that is ahead.
6. **Nullification** of ``v``: enter ``v + 1`` if that is ahead.
7. **Finalization** of a block in view ``v``, which may come while the validator is in any view: the block and its
   ancestors are final. Enter ``v + 1`` if that is ahead.

A certificate counts whoever sends it, however far ahead its view is. Finalize votes are counted long after their view
was left; a block becomes final without a later view that succeeds.

**Safety.** No honest validator both nullifies and finalizes a view, so a view cannot have both a finalization and a
nullification: their quorums share an honest validator. No honest validator notarizes twice in a view, so no view has
two notarized blocks. A later block's ancestry must pass through a finalised view: to skip it takes its nullification,
and it has only one block.

**Latency.** The proposal takes one delay, the votes a second: the next leader proposes on a notarization and does not
wait for finality. Finalize votes take a third.

Rules 8 to 10 are in :mod:`consensus.retransmission`. Restarts and hostile input are in ``docs/consensus.md``,
deviations from the paper in ``docs/consensus-reasons.md``. The source is Simplex Consensus (Chan and Pass, 2023), as
Commonware implements it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from consensus.messages import FINALIZE, NO_DIGEST, NO_PARENT, NULLIFY, Certificate, Proposal, Vote, VoteKind
from consensus.tally import Round
from consensus.types import ValidatorIndex, View
from consensus.voting import Ancestry, VotingEngine, to_request


class Simplex(VotingEngine):
    """The Simplex engine of one validator or observer, with the interface of :mod:`consensus.interface`.

    The module docstring has the rules.
    """

    _gives_up: ClassVar[VoteKind] = NULLIFY
    _finality_lag: ClassVar[int] = 1
    _began: View
    """The view in which the engine started."""

    # --- ancestry -----------------------------------------------------------------------------------------------

    def _best_parent(self, view: View) -> Ancestry:
        """The highest notarized or final block below ``view``, if every view between is nullified.

        Else the highest views between that lack a nullification.
        """
        missing: list[View] = []
        below = View(view - 1)
        while (parent := self.certificates.block(below)) is None:  # ends at the final view, if not before
            if below not in self.certificates.skips:
                missing.append(below)
            below = View(below - 1)
        return Ancestry(missing=to_request(missing)) if missing else Ancestry(parent)

    def _ancestry_of(self, proposal: Proposal) -> Ancestry:
        """Whether our certificates justify the proposal's parent and the views that it skips."""
        known = self.certificates
        if proposal.parent_view < known.final.view:
            return Ancestry()
        parent = known.block(proposal.parent_view)
        if parent is not None and parent.digest != proposal.parent_digest:
            return Ancestry()
        skipped = range(proposal.parent_view + 1, proposal.view)
        missing = [View(view) for view in skipped if view not in known.skips]
        if parent is None:
            missing.insert(0, proposal.parent_view)
        return Ancestry(missing=to_request(missing)) if missing else Ancestry(parent)

    # --- votes to nullify and to finalize ---------------------------------------------------------------------------

    def _give_up(self, round_: Round) -> None:
        """Vote to nullify the view, unless we voted to nullify or finalize it before (rule 4)."""
        if round_.may_vote and NULLIFY not in round_.own and FINALIZE not in round_.own:
            vote = self._member.sign(NULLIFY, round_.view, NO_PARENT, NO_DIGEST)
            self._journal.cast(round_.own, vote, vote)

    def _finalize(self, notarization: Certificate) -> None:
        """Vote to finalize the block (rule 5).

        We do not if its view is nullified, if we voted to nullify it, or if its leader equivocated.
        """
        view = notarization.view
        if not self._member.may_vote(view) or view <= max(self.final_view, self._rounds.floor()):
            return
        if view in self.certificates.skips:
            return
        round_ = self._rounds[view]
        if round_.equivocated or NULLIFY in round_.own or FINALIZE in round_.own:
            return
        vote = self._member.sign(FINALIZE, view, notarization.parent_view, notarization.digest)
        self._journal.cast(round_.own, vote, vote)

    # --- leaders that nullify or are silent -------------------------------------------------------------------------

    def _on_vote(self, sender: ValidatorIndex, vote: Vote) -> None:
        super()._on_vote(sender, vote)
        if vote.kind == NULLIFY and vote.view == self.certificates.view:
            self._heed_leaders_nullify(self._rounds[vote.view])

    def _enter(self, view: View) -> None:
        super()._enter(view)
        round_ = self._rounds[view]
        self._heed_leaders_nullify(round_)
        if self._is_silent(round_.leader):
            self._give_up(round_)

    def _heed_leaders_nullify(self, round_: Round) -> None:
        if NULLIFY in round_.own:
            return
        vote = round_.tally.kept(NULLIFY, round_.leader)
        if vote is not None and self._accountability.confirm(vote):
            self._give_up(round_)

    def _is_silent(self, leader: ValidatorIndex) -> bool:
        """Whether a leader is silent: in the last ``skip_views`` views, a quorum sent votes and the leader none."""
        last_heard, me, skip_views = self._rounds.last_heard, self._member.index, self._config.skip_views
        since = self.view - skip_views
        committee = self._member.validators.committee(self.view)
        if skip_views == 0 or leader == me or last_heard[leader] >= since:
            return False
        if since < max(committee.first_view, self._began) - 1:
            return False  # a member of this epoch alone sent nothing before it, and we received nothing before we began
        heard = sum(last_heard[member] >= since for member in committee.members if member != me)
        return heard + self._member.may_vote(self.view) >= committee.quorum

    def _replay(self, journal: Iterable[bytes]) -> None:
        super()._replay(journal)
        self._began = self.view
