"""The watch of patience: it checks that a validator does not give up a view early.

Without the leader's proposal a validator waits for its leader timer. The leader timer gives a view up only if no
proposal came. So a validator that holds a good one, or has voted for it, waits for its advance timer. There are two
exceptions in Simplex: a validator may follow a leader that gave up the view, and may skip a leader that had been silent
before the view. The durations of both timers are checked by another watch
(:mod:`cluster.simulation.watches.pacing_watch`).

In Simplex a validator must follow such a leader at once: when it hears the leader's nullify vote of its view, it
nullifies the view too. This does not hold if it may not vote, has voted to finalize the block, or was started in this
view.

The watch reads each validator's own clock, since timers run on it. It counts a proposal as good if the validator heard
it in the view before the leader timer expired, from a leader that is honest and runs the code without a mutant; unless
the validator skipped the leader, or found the block invalid: if that was wrong, other rules show it. A proposal with a
body larger than a block may be does not count: validators drop it, with the vote in it.

A view in which a validator was started is not judged: its votes of that view may be from before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from cluster.audit.safety.own_votes import GIVING_UP
from cluster.audit.safety.rule_log import Look
from cluster.misbehaviour.byzantine.base import vote_of
from cluster.record.rules import SafetyRule as Rule
from consensus.messages import FINALIZE, NOTARIZE, NULLIFY, Proposal, Vote, VoteKind
from consensus.types import GENESIS_VIEW, View
from validator.chain.block import MAX_BLOCK_BYTES
from validator.chain.messages import Reading

TOLERANCE_MS: Final = 1.0
"""The most that rounding adds to a timer."""
HEARD_VIEWS: Final = 4
"""No validator counts a leader as silent if it heard the leader's vote of one of this many previous views."""


@dataclass(slots=True)
class _Waiting:
    """The watch's knowledge of one validator in its current view. Times are by the validator's clock."""

    view: View = GENESIS_VIEW
    proposal_until_ms: float = 0.0
    """When the validator's leader timer expires."""
    waits_until_ms: float = 0.0
    """When the validator's advance timer expires."""
    is_skipped: bool = False
    """Whether the validator may skip the view's leader because it was silent in the previous views."""
    must_wait: bool = False
    """Whether a good proposal came, or the validator voted for one."""
    is_judged: bool = False
    """Whether the view needs no further check: it is given up, or is not to be judged."""
    proposed: set[View] = field(default_factory=set)
    """Views, this one or later, whose leaders' proposals were heard, good or bad."""
    given_up_by_leader: set[View] = field(default_factory=set)
    """Views, this one or later, whose leaders were heard to give them up."""
    last_heard: dict[int, View] = field(default_factory=dict)
    """The newest view, up to the present one, of which a vote was heard from each peer; keyed by peer."""
    hears_leader_give_up: bool = False
    """Whether the current message tells the validator that the view's leader, which is sound, gives up the view."""
    cast: set[tuple[View, VoteKind]] = field(default_factory=set)
    """The validator's votes in this view or later ones; a vote may be noted before its view is entered."""
    was_started: bool = False
    """Whether the validator was started in this view, so that its earlier votes are unknown."""


class PatienceWatch:
    """Checks in one run that honest validators do not give up a view early."""

    def __init__(
        self,
        names: Sequence[str],
        leader: Callable[[View], int],
        look: Look,
        skips_silent_leaders: bool,
        may_vote: Callable[[int, View], bool],
    ) -> None:
        """``may_vote`` says whether a validator is in a view's committee and need not abstain."""
        self._names = names
        self._leader = leader
        self._tell = look
        self._skips_silent_leaders = skips_silent_leaders
        self._may_vote = may_vote
        self._waiting = [_Waiting() for _ in names]

    def starts(self, index: int) -> None:
        """Note that a validator is started; ``enters`` follows when it enters another view."""
        self._waiting[index] = _Waiting(is_judged=True, was_started=True)

    def enters(self, index: int, view: View, now_ms: float, leader_timeout_ms: int, advance_timeout_ms: int) -> None:
        """Note that a validator enters a view, at ``now_ms`` by its own clock, with the timeouts of the view."""
        before = self._waiting[index]
        if before.view == GENESIS_VIEW and before.is_judged:
            before.view = view
            return
        heard = before.last_heard.get(self._leader(view), GENESIS_VIEW)
        is_skipped = self._skips_silent_leaders and heard < view - HEARD_VIEWS
        self._waiting[index] = _Waiting(
            view,
            now_ms + leader_timeout_ms,
            now_ms + advance_timeout_ms,
            is_skipped,
            proposed={later for later in before.proposed if later >= view},
            given_up_by_leader={later for later in before.given_up_by_leader if later >= view},
            last_heard=before.last_heard,
            cast={(later, kind) for later, kind in before.cast if later >= view},
        )

    def hears(self, index: int, sender: int, is_sound: bool, now_ms: float, message: Reading | None) -> None:
        """Note a message that a validator gets from a peer.

        ``is_sound``: the peer is honest and runs the code without a mutant.
        """
        waiting, vote = self._waiting[index], vote_of(message)
        if vote is None or vote.signer != sender:
            return
        if isinstance(message, Proposal) and len(message.body) > MAX_BLOCK_BYTES:
            return
        self.hears_of(index, sender, vote.view)
        if vote.view < waiting.view or sender != self._leader(vote.view):
            return
        if vote.kind == NULLIFY:
            waiting.given_up_by_leader.add(vote.view)
            waiting.hears_leader_give_up = waiting.hears_leader_give_up or (is_sound and vote.view == waiting.view)
        elif isinstance(message, Proposal):
            waiting.proposed.add(vote.view)
            if vote.view == waiting.view and is_sound and not waiting.is_skipped:
                waiting.must_wait |= now_ms < waiting.proposal_until_ms - TOLERANCE_MS

    def hears_of(self, index: int, sender: int, view: View) -> None:
        """Note that a validator hears a peer's vote of a view."""
        waiting = self._waiting[index]
        if waiting.last_heard.get(sender, GENESIS_VIEW) < view <= waiting.view:
            waiting.last_heard[sender] = view

    def must_follow(self, index: int) -> bool:
        """Whether the current message tells a validator that the leader of its view, which is sound, gives it up."""
        return self._waiting[index].hears_leader_give_up

    def handled(self, index: int, view: View, votes: Collection[Vote]) -> None:
        """Check that a validator followed a leader that gave up its view, after it handled an event.

        ``view`` is its view after the event, ``votes`` are the votes that it writes to its journal.
        """
        waiting = self._waiting[index]
        if not votes and not waiting.hears_leader_give_up:
            return
        waiting.cast.update((vote.view, vote.kind) for vote in votes if vote.view >= waiting.view)
        is_bound = (
            waiting.hears_leader_give_up
            and not waiting.was_started
            and view == waiting.view
            and self._may_vote(index, view)
        )
        waiting.hears_leader_give_up = False
        if is_bound and (view, FINALIZE) not in waiting.cast:
            what = f"{self._names[index]} hears that the leader of view {view} nullifies it, and does not"
            self._tell(Rule.PATIENCE, (view, NULLIFY) in waiting.cast, what)

    def rejects(self, index: int) -> None:
        """Note that a validator finds the block of its view invalid: the view is not judged any more."""
        self._waiting[index].is_judged = True

    def sends(self, index: int, now_ms: float, message: Reading | None) -> None:
        """Check that a vote to give up a view, in a message that a validator sends, is not early.

        Only votes of its current view, and messages with one, matter.
        """
        waiting, vote = self._waiting[index], vote_of(message)
        if vote is None or vote.view != waiting.view:
            return
        if waiting.is_judged:
            return
        if vote.kind == NOTARIZE:
            waiting.must_wait = True
        elif vote.kind in GIVING_UP:
            waiting.is_judged = True
            until_ms, came = waiting.waits_until_ms, "came"
            if not waiting.must_wait:
                until_ms, came = waiting.proposal_until_ms, "did not come"
            is_free = not waiting.must_wait and (waiting.is_skipped or waiting.view in waiting.proposed)
            left_ms = until_ms - TOLERANCE_MS - now_ms
            follows = waiting.view in waiting.given_up_by_leader
            what = f"{self._names[index]} gives up view {vote.view}, whose proposal {came}, {left_ms:,.0f} ms too soon"
            self._tell(Rule.PATIENCE, is_free or follows or left_ms <= 0, what)
