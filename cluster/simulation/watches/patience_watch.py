"""The watch of patience: a view must not be given up early if its leader's proposal came.

The leader timer gives a view up only if no proposal came. So a validator that holds a good one, or has voted for it,
waits for its advance timer; Simplex lets it follow the leader, who gave up the view itself. The watch reads each
validator's own clock, since timers run on it. It counts a proposal as good if the validator heard it in the view, from
a leader that is honest and runs the code without a mutant, before the leader timer expired; unless it skipped the
leader for being silent on entering the view, or found the block invalid: if that was wrong, other rules show it.

A view in which a validator was started is not judged: its votes of that view may be from before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from cluster.misbehaviour.byzantine.base import vote_of
from cluster.record.rules import SafetyRule as Rule
from cluster.simulation.watches.rule_log import Look
from cluster.simulation.watches.vote_watch import GIVING_UP
from consensus.messages import Proposal, VoteKind
from consensus.types import GENESIS_VIEW, View
from validator.chain.messages import Reading

TOLERANCE_MS: Final = 1.0
"""The most that rounding adds to a timer."""
HEARD_VIEWS: Final = 4
"""A leader of whom a vote of one of so many views before was heard counts as silent with nobody."""


@dataclass(slots=True)
class _Waiting:
    """The watch's knowledge of one validator in its current view. Times are those of its own clock."""

    view: View = GENESIS_VIEW
    proposal_until_ms: float = 0.0
    """When its leader timer expires."""
    waits_until_ms: float = 0.0
    """When its advance timer expires."""
    is_skipped: bool = False
    """Its leader may have been too silent to wait for."""
    must_wait: bool = False
    """A good proposal came, or the validator voted for one."""
    is_judged: bool = False
    """The view is given up, or no look at it is wanted."""
    given_up_by_leader: set[View] = field(default_factory=set)
    """Views, this one or later, whose leaders were heard to give them up."""
    last_heard: dict[int, View] = field(default_factory=dict)
    """By peer, the newest view, no later than this one, of a vote of it."""


class PatienceWatch:
    """One run's, over all validators that are to be honest."""

    def __init__(
        self,
        names: Sequence[str],
        leader: Callable[[View], int],
        look: Look,
        skips_silent_leaders: bool,
    ) -> None:
        self._names = names
        self._leader = leader
        self._tell = look
        self._skips_silent_leaders = skips_silent_leaders
        self._waiting = [_Waiting() for _ in names]

    def starts(self, index: int) -> None:
        """A validator is started; ``enters`` follows when it comes to another view."""
        self._waiting[index] = _Waiting(is_judged=True)

    def enters(self, index: int, view: View, now_ms: float, leader_timeout_ms: int, advance_timeout_ms: int) -> None:
        """A validator enters a view, when its own clock says ``now_ms``."""
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
            given_up_by_leader={later for later in before.given_up_by_leader if later >= view},
            last_heard=before.last_heard,
        )

    def hears(self, index: int, sender: int, is_sound: bool, now_ms: float, message: Reading | None) -> None:
        """A validator hears a peer, which is honest and runs the code without a mutant if it ``is_sound``."""
        waiting, vote = self._waiting[index], vote_of(message)
        if vote is None or vote.signer != sender:
            return
        if vote.view <= waiting.view:
            waiting.last_heard[sender] = max(vote.view, waiting.last_heard.get(sender, GENESIS_VIEW))
        if vote.view < waiting.view or sender != self._leader(vote.view):
            return
        if vote.kind == VoteKind.NULLIFY:
            waiting.given_up_by_leader.add(vote.view)
        elif isinstance(message, Proposal) and vote.view == waiting.view and is_sound and not waiting.is_skipped:
            waiting.must_wait |= now_ms < waiting.proposal_until_ms - TOLERANCE_MS

    def rejects(self, index: int) -> None:
        """A validator finds the block of its view invalid."""
        self._waiting[index].is_judged = True

    def sends(self, index: int, now_ms: float, message: Reading | None) -> None:
        """A validator sends a message; only votes of its current view, and what carries one, are of interest."""
        waiting, vote = self._waiting[index], vote_of(message)
        if vote is None or vote.view != waiting.view or waiting.is_judged:
            return
        if vote.kind == VoteKind.NOTARIZE:
            waiting.must_wait = True
        elif vote.kind in GIVING_UP:
            waiting.is_judged = True
            left_ms = waiting.waits_until_ms - TOLERANCE_MS - now_ms
            follows = waiting.view in waiting.given_up_by_leader
            what = f"{self._names[index]} gives up view {vote.view}, whose proposal came, {left_ms:,.0f} ms too soon"
            self._tell(Rule.PATIENCE, not waiting.must_wait or follows or left_ms <= 0, what)
