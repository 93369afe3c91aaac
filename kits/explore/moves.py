"""What may happen to one validator next.

The reductions leave out what leads to no world with more votes. Every rule of safety that is checked is *stable*: a
violation stays one when more is said. So of two worlds that differ in that more may be said in one of them, the other
need not be visited:

1. **Final blocks are judged from the votes.** A finalization tells a validator nothing that the notarization of its
   block does not, and it restrains it. It is delivered to each state and checked, and not followed further.
2. **Eager proposals.** A proposal of an honest leader that gets a vote at once is delivered at once: that vote forbids
   no later one.
3. **Eager certificates.** A certificate of a view that was left is delivered at once if it forbids no later vote, and
   if the validator leads no later view, in which it chooses the parent by what it knows. In HotStuff knowledge raises
   the lock, so there it is delivered at once only when all views are over.
4. **No useless certificates.** In HotStuff, one that raises the lock and serves no proposal and no vote is left out; of
   the timeout certificates of a view the one of the lowest high view is offered, which permits the most.
5. **One timer.** The advance timer does all that the leader timer does, and in more cases.

:mod:`kits.explore.sameness` has the reductions that take worlds for the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final, NamedTuple

from consensus.interface import Received, TimerExpired, TimerKind
from consensus.messages import Timeout, Vote, VoteKind, encode
from consensus.types import ValidatorIndex, View
from kits.explore.forgeries import forgeries
from kits.explore.locals import Local
from kits.explore.offers import Offers, certificate_of, timeout_certificate_of
from kits.explore.replica import RESTART, SYNC, Occurrence
from kits.explore.scope import Scope, What

GIVE_UP: Final = "give up"


class Move(NamedTuple):
    """Something that may happen to a validator."""

    name: object
    """The same name in the same state leads to the same state."""
    occurrences: tuple[Occurrence, ...]
    text: str
    is_probe: bool = False
    """Whether the move is checked and not followed."""
    is_eager: bool = False
    """Whether the move, if it changes anything, is the only one to follow."""

    @property
    def gives_up(self) -> bool:
        """Whether a timer expires that gives a view up."""
        return isinstance(self.name, tuple) and self.name[0] == GIVE_UP


class Moves:
    """The moves of one exploration."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def of(self, index: ValidatorIndex, local: Local, offers: Offers) -> Iterator[Move]:
        """All that may happen to a validator in this state."""
        yield from self._proposals(index, local, offers)
        yield from self._certificates(index, local, offers)
        yield from self._timeouts(index, local, offers)
        if local.view <= self._scope.views and not local.has_cast(self._scope.gives_up, local.view):
            yield self._timer(TimerKind.ADVANCE, local.view)
            if not self._scope.reduced:
                yield self._timer(TimerKind.LEADER, local.view)
        if local.waiting:
            yield Move(SYNC, (SYNC,), "makes a write durable")
        if local.life < self._scope.crashes:
            yield Move(RESTART, (RESTART,), "crashes and restarts from its journal")
        if self._scope.forges:
            yield from self._forgeries(index, offers)

    def _timer(self, kind: TimerKind, view: View) -> Move:
        return Move(
            (GIVE_UP, kind, view), (TimerExpired(kind, view),), f"sees its {kind.value} timer of view {view} expire"
        )

    def _proposals(self, index: ValidatorIndex, local: Local, offers: Offers) -> Iterator[Move]:
        view, scope = local.view, self._scope
        if view > scope.views or local.proposal is not None or any(at == view for at, _ in local.own):
            return
        leader = scope.leader(view)
        for what, proposal in offers.proposals:
            if what.view == view and index != leader:
                is_eager = scope.reduced and leader != scope.byzantine
                text = f"receives the proposal of view {view}: block {named(what)} on view {what.parent_view}"
                yield Move(what, (Received(leader, proposal),), text, is_eager=is_eager)

    # --- certificates ------------------------------------------------------------------------------------------------

    def _certificates(self, index: ValidatorIndex, local: Local, offers: Offers) -> Iterator[Move]:
        for what, votes in offers.certificates.items():
            if what.kind == VoteKind.FINALIZE:
                if what.view > local.final:
                    yield self._certificate(index, what, votes, is_probe=self._scope.reduced)
            elif not local.knows(what.kind, what.view) and what.view > local.final:
                if not self._scope.reduced:
                    yield self._certificate(index, what, votes)
                elif self._serves(index, local, what, offers):
                    yield self._certificate(index, what, votes, is_eager=self._is_gain(index, local, what))

    def _certificate(
        self,
        index: ValidatorIndex,
        what: What,
        votes: tuple[Vote, ...],
        *,
        is_probe: bool = False,
        is_eager: bool = False,
    ) -> Move:
        """The votes of a certificate; if a byzantine validator may have voted twice, the certificate that it makes."""
        quorum, byzantine = self._scope.quorum, self._scope.byzantine
        occurrences: tuple[Occurrence, ...]
        if byzantine is not None:
            occurrences = (Received(ValidatorIndex(byzantine), certificate_of(votes[:quorum])),)
        else:
            others = [vote for vote in votes if vote.signer != index]
            missing = quorum - (len(others) < len(votes))
            occurrences = tuple(Received(vote.signer, vote) for vote in others[:missing])
        block = "" if what.kind == VoteKind.NULLIFY else f" for block {named(what)}"
        text = f"receives a quorum's votes to {what.kind.name.lower()} view {what.view}{block}"
        return Move(what, occurrences, text, is_probe, is_eager)

    def _serves(self, index: ValidatorIndex, local: Local, what: What, offers: Offers) -> bool:
        """Whether a certificate leads to a vote, to a view or to a parent (reduction 4)."""
        view, scope = local.view, self._scope
        if what.view >= view:
            return True
        may_finalize = what.kind == VoteKind.NOTARIZE and self.may_finalize(local, what.view)
        if view > scope.views or may_finalize or not scope.is_hotstuff:
            return may_finalize or view <= scope.views
        wanted = any(each.view == view and each.parent_view == what.view for each, _ in offers.proposals)
        return wanted or self.is_to_lead(index, local)

    def _is_gain(self, index: ValidatorIndex, local: Local, what: What) -> bool:
        """Whether a certificate that serves forbids no later vote (reduction 3)."""
        if what.view >= local.view or local.view > self._scope.views:
            return what.view < local.view
        if self._scope.is_hotstuff or self.is_to_lead(index, local):
            return False
        may_finalize = self.may_finalize(local, what.view)
        return what.kind == VoteKind.NOTARIZE or not may_finalize

    def may_finalize(self, local: Local, view: View) -> bool:
        """Whether the validator votes to finalize the view when it gets to know its notarization."""
        if local.knows(VoteKind.NOTARIZE, view):
            return False
        if self._scope.is_hotstuff:
            return view > local.timed_out
        return not local.knows(VoteKind.NULLIFY, view) and not local.has_cast(VoteKind.NULLIFY, view)

    def is_to_lead(self, index: ValidatorIndex, local: Local) -> bool:
        """Whether the validator leads a view that it has not proposed in."""
        return any(self.to_lead(index, local))

    def to_lead(self, index: ValidatorIndex, local: Local) -> Iterator[View]:
        """The views that the validator leads and has not proposed in."""
        cast = {view for view, kinds in local.own if kinds}
        views = map(View, range(local.view, self._scope.views + 1))
        return (view for view in views if self._scope.leader(view) == index and view not in cast)

    # --- timeouts -----------------------------------------------------------------------------------------------------

    def _timeouts(self, index: ValidatorIndex, local: Local, offers: Offers) -> Iterator[Move]:
        for view, timeouts in offers.timeouts.items():
            if not self._scope.reduced:
                for chosen in combinations(timeouts, self._scope.quorum):
                    yield self._timeout(index, local, view, chosen)
                continue
            chosen = timeouts[: self._scope.quorum]
            held = dict(local.skipped).get(view)
            is_news = held is None or (view == local.view - 1 and chosen[-1].vote.parent_view < held)
            if is_news and local.view - 1 <= view and local.view <= self._scope.views:
                yield self._timeout(index, local, view, chosen)

    def _timeout(self, index: ValidatorIndex, local: Local, view: View, chosen: tuple[Timeout, ...]) -> Move:
        """A quorum of timeouts; as a certificate if not all of them count at this validator."""
        highs = tuple(timeout.vote.parent_view for timeout in chosen)
        has_own = any(timeout.vote.signer == index for timeout in chosen)
        is_counted = self._scope.byzantine is None and not local.knows(VoteKind.TIMEOUT, view)
        occurrences: tuple[Occurrence, ...]
        if is_counted and has_own == local.has_cast(VoteKind.TIMEOUT, view):
            occurrences = tuple(Received(each.vote.signer, each) for each in chosen if each.vote.signer != index)
        else:
            sender = next(each.vote.signer for each in chosen if each.vote.signer != index)
            occurrences = (Received(sender, timeout_certificate_of(chosen)),)
        text = f"receives a quorum's timeouts of view {view}, which name the views {', '.join(map(str, highs))}"
        return Move(("timeouts", view, highs, len(occurrences)), occurrences, text)

    def _forgeries(self, index: ValidatorIndex, offers: Offers) -> Iterator[Move]:
        forger = ValidatorIndex((index + 1) % self._scope.validators)
        for forgery in forgeries(self._scope, forger, offers):
            name = ("forged", forgery.fault, encode(forgery.message))
            text = f"receives a forged {type(forgery.message).__name__}: {forgery.fault}"
            yield Move(name, (Received(forger, forgery.message),), text, is_probe=True)


def named(what: What) -> str:
    """A short name of a block."""
    return what.digest.hex()[:6]
