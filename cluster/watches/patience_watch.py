"""The watch of patience: it checks that a validator does not give up a view early.

Without the leader's proposal a validator waits for its leader timer. The leader timer gives a view up only if no
proposal came. So a validator that holds a good one, or has voted for it, waits for its advance timer. There are two
exceptions in Simplex: a validator may follow a leader that gave up the view, and may skip a leader that had been silent
before the view. The durations of both timers are checked by another watch
(:mod:`cluster.watches.pacing_watch`).

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from cluster.audit.safety.own_votes import GIVING_UP
from cluster.audit.safety.rule_log import Look
from cluster.record.rules import SafetyRule as Rule
from cluster.scenario import Scenario
from cluster.simulation.machine import Machine
from cluster.watches.durable_journal import votes_in
from cluster.watches.watch import Watch
from consensus.messages import FINALIZE, NOTARIZE, NULLIFY, Proposal, Vote, VoteKind, vote_of
from consensus.types import GENESIS_VIEW, View
from validator.chain.block import MAX_BLOCK_BYTES
from validator.chain.messages import Reading
from validator.node.events import Append, PeerFault

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


class PatienceWatch(Watch):
    """Checks in one run that honest validators do not give up a view early."""

    effects = frozenset({Append, PeerFault})

    def __init__(
        self,
        names: Sequence[str],
        look: Look,
        scenario: Scenario,
        leader: Callable[[View], int],
        may_vote: Callable[[int, View], bool],
        factor: Callable[[int], int],
    ) -> None:
        """``may_vote`` says whether a validator is in a view's committee and need not abstain. ``factor`` gives the
        factor of a validator's timeouts in its present view."""
        super().__init__(names, look)
        self.forks(scenario)
        self._leader = leader
        self._skips_silent_leaders = scenario.consensus.protocol == "simplex"
        self._may_vote = may_vote
        self._factor = factor
        self._waiting = [_Waiting() for _ in names]

    def forks(self, scenario: Scenario) -> None:
        self._consensus = scenario.consensus

    def starts(self, machine: Machine) -> None:
        self._waiting[machine.index] = _Waiting(is_judged=True, was_started=True)

    def enters(self, machine: Machine, view: int) -> None:
        """Begin to judge a view, unless it is the first one after a start."""
        before, view = self._waiting[machine.index], View(view)
        if before.view == GENESIS_VIEW and before.is_judged:
            before.view = view
            return
        now_ms, factor = machine.own_clock.now_ms, self._factor(machine.index)
        heard = before.last_heard.get(self._leader(view), GENESIS_VIEW)
        is_skipped = self._skips_silent_leaders and heard < view - HEARD_VIEWS
        self._waiting[machine.index] = _Waiting(
            view,
            now_ms + factor * self._consensus.leader_timeout_ms,
            now_ms + factor * self._consensus.advance_timeout_ms,
            is_skipped,
            proposed={later for later in before.proposed if later >= view},
            given_up_by_leader={later for later in before.given_up_by_leader if later >= view},
            last_heard=before.last_heard,
            cast={(later, kind) for later, kind in before.cast if later >= view},
        )

    def hears(self, machine: Machine, sender: Machine, content: Reading | None) -> None:
        """Note a peer's vote or proposal."""
        waiting, vote = self._waiting[machine.index], vote_of(content)
        if vote is None or vote.signer != sender.index or machine.validator is None:
            return
        if isinstance(content, Proposal) and len(content.body) > MAX_BLOCK_BYTES:
            return
        self.counts(machine, sender, vote)
        is_sound = sender.byzantine is None and sender.deviation is None
        if vote.view < waiting.view or sender.index != self._leader(vote.view):
            return
        if vote.kind == NULLIFY:
            waiting.given_up_by_leader.add(vote.view)
            waiting.hears_leader_give_up = waiting.hears_leader_give_up or (is_sound and vote.view == waiting.view)
        elif isinstance(content, Proposal):
            waiting.proposed.add(vote.view)
            if vote.view == waiting.view and is_sound and not waiting.is_skipped:
                waiting.must_wait |= machine.own_clock.now_ms < waiting.proposal_until_ms - TOLERANCE_MS

    def counts(self, machine: Machine, sender: Machine, vote: Vote) -> None:
        waiting = self._waiting[machine.index]
        if waiting.last_heard.get(sender.index, GENESIS_VIEW) < vote.view <= waiting.view:
            waiting.last_heard[sender.index] = vote.view

    def heard(self, machine: Machine, sender: Machine, content: Reading | None) -> None:
        """Check that a validator followed a leader that gave up its view."""
        waiting = self._waiting[machine.index]
        if not waiting.hears_leader_give_up:
            return
        waiting.hears_leader_give_up, view = False, waiting.view
        if machine.validator is None or machine.validator.node.diverged is not None or waiting.was_started:
            return
        if self._may_vote(machine.index, view) and (view, FINALIZE) not in waiting.cast:
            what = f"{machine.name} hears that the leader of view {view} nullifies it, and does not"
            self._look(Rule.PATIENCE, (view, NULLIFY) in waiting.cast, what)

    def performs(self, machine: Machine, effect: Append | PeerFault) -> None:
        """Note votes for the journal. If a validator finds a block invalid, its view is not judged any more."""
        waiting = self._waiting[machine.index]
        if type(effect) is Append:
            waiting.cast.update((vote.view, vote.kind) for vote in votes_in(effect.data) if vote.view >= waiting.view)
        elif type(effect) is PeerFault and effect.reason == "invalid_block":
            waiting.is_judged = True

    def votes(self, machine: Machine, vote: Vote) -> None:
        """Check that a vote to give up the present view is not early."""
        waiting = self._waiting[machine.index]
        if vote.view != waiting.view or waiting.is_judged:
            return
        if vote.kind == NOTARIZE:
            waiting.must_wait = True
        elif vote.kind in GIVING_UP:
            waiting.is_judged = True
            until_ms, came = waiting.waits_until_ms, "came"
            if not waiting.must_wait:
                until_ms, came = waiting.proposal_until_ms, "did not come"
            is_free = not waiting.must_wait and (waiting.is_skipped or waiting.view in waiting.proposed)
            left_ms = until_ms - TOLERANCE_MS - machine.own_clock.now_ms
            follows = waiting.view in waiting.given_up_by_leader
            what = f"{machine.name} gives up view {vote.view}, whose proposal {came}, {left_ms:,.0f} ms too soon"
            self._look(Rule.PATIENCE, is_free or follows or left_ms <= 0, what)
