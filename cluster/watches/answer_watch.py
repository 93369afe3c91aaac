"""The watch of answers: it checks that a validator helps peers that are stuck in a view that it has left.

The rule applies when an honest validator hears an honest peer's notarize, nullify or timeout vote, by itself or in a
proposal, of a view two or more behind its own, or of the view one behind if it heard that vote before. The validator
must answer at once with a certificate of the vote's view or of a later one. It need not if it sent the peer such a
certificate lately: a validator answers a peer once between two ticks of its rebroadcast timer. All times are those of
the validator's own clock. The time of a pause does not count: a tick that was due then comes after the messages that
arrived before it.

A vote more than ``view_window`` views ahead does not count as heard, nor does a proposal more than ``proposal_window``
ahead (section ``limits``): validators drop them (``docs/consensus.md``, "Hostile input").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cluster.audit.safety.rule_log import Look
from cluster.record.rules import SafetyRule as Rule
from cluster.scenario import Scenario
from cluster.simulation.machine import Machine
from cluster.watches.watch import Watch
from consensus.messages import NO_PARENT, AnyCertificate, Proposal, Timeout, Vote, VoteKind
from validator.chain.messages import Reading

TICKS: Final = 2
"""Number of rebroadcast intervals for which a certificate sent to a peer counts as an answer."""
NEAR_VIEWS: Final = 2
"""Number of views whose heard votes are kept: the validator's view and those just behind it. A vote of an older view
must be answered in any case."""


class _Hearing(NamedTuple):
    """A vote that a validator hears and must answer."""

    life: int
    view: int
    """The validator's view."""
    vote: Vote


@dataclass(slots=True)
class _Memory:
    """The watch's knowledge of one validator, since its last start."""

    began: int = 0
    """The first view in which the watch saw the validator."""
    heard: set[tuple[int, VoteKind, int]] = field(default_factory=set)
    """Signer, kind and view of votes that the validator heard lately."""


class AnswerWatch(Watch):
    """Checks in one run that honest validators help peers that are stuck in a past view."""

    def __init__(self, names: Sequence[str], look: Look, scenario: Scenario) -> None:
        super().__init__(names, look)
        self.forks(scenario)
        self._limits = scenario.limits
        self._most_heard = NEAR_VIEWS * len(VoteKind) * len(names)
        self._due: dict[int, _Hearing] = {}
        """The votes that validators hear just now and must answer, keyed by validator."""
        self._memories = [_Memory() for _ in names]
        self._sent: dict[tuple[int, int], dict[int, float]] = {}
        """The times of certificates sent to one peer alone: by sender and recipient, then by view."""

    def forks(self, scenario: Scenario) -> None:
        self._rebroadcast_ms = scenario.consensus.rebroadcast_ms

    def starts(self, machine: Machine) -> None:
        self._memories[machine.index] = _Memory()

    def sends(self, machine: Machine, recipient: int | None, payload: bytes, content: Reading | None) -> None:
        """Note a certificate that a validator sends to one peer."""
        if recipient is not None and isinstance(content, AnyCertificate):
            self._sent.setdefault((machine.index, recipient), {})[content.view] = machine.own_clock.awake_ms

    def counts(self, machine: Machine, sender: Machine, vote: Vote) -> None:
        if sender.byzantine is None:
            self._notes(machine, machine.view, vote, self._limits.view_window)

    def hears(self, machine: Machine, sender: Machine, content: Reading | None) -> None:
        """Note an honest peer's vote, and whether the validator must answer it."""
        validator = machine.validator
        if sender.byzantine is None and validator is not None and validator.node.diverged is None:
            view = validator.node.view
            vote = self._must_answer(machine, view, content)
            if vote is not None:
                self._due[machine.index] = _Hearing(machine.incarnation, view, vote)

    def _must_answer(self, machine: Machine, view: int, message: Reading | None) -> Vote | None:
        """The vote in a message, if a validator in this view must answer it; otherwise ``None``."""
        window = self._limits.view_window
        if isinstance(message, Timeout):
            vote, is_proved = message.vote, message.high is not None or message.vote.parent_view == NO_PARENT
        elif isinstance(message, Vote):
            vote, is_proved = message, message.kind != VoteKind.TIMEOUT
        elif isinstance(message, Proposal):
            vote, is_proved, window = message.vote, True, self._limits.proposal_window
        else:
            return None
        is_repeated = self._notes(machine, view, vote, window)
        is_left = vote.view < view - 1 or (vote.view == view - 1 and is_repeated)
        is_answered = vote.kind != VoteKind.FINALIZE and is_proved and view > self._memories[machine.index].began
        return vote if is_left and is_answered else None

    def _notes(self, machine: Machine, view: int, vote: Vote, window: int) -> bool:
        """Note a vote that a validator in this view hears, unless it is more than ``window`` views ahead.

        Returns whether the validator heard the vote before.
        """
        memory = self._memories[machine.index]
        memory.began = memory.began or view
        name, heard = (vote.signer, vote.kind, vote.view), memory.heard
        if name in heard:
            return True
        if view - NEAR_VIEWS < vote.view <= view + window:
            heard.add(name)
            if len(heard) > self._most_heard:
                memory.heard = {each for each in heard if each[2] > view - NEAR_VIEWS}
        return False

    def heard(self, machine: Machine, sender: Machine, content: Reading | None) -> None:
        """Check that the validator answered the vote, unless it has gone on or stopped meanwhile."""
        due = self._due.pop(machine.index, None)
        if due is None or (machine.incarnation, machine.view) != (due.life, due.view):
            return
        vote, now_ms = due.vote, machine.own_clock.awake_ms
        since = now_ms - TICKS * self._rebroadcast_ms
        sent = self._sent.get((machine.index, vote.signer), {})
        holds = any(view >= vote.view and at >= since for view, at in sent.items())
        peer = self._names[vote.signer]
        what = f"{machine.name}, in view {due.view}, hears {peer} in view {vote.view}, and does not answer"
        self._look(Rule.ANSWERS, holds, what)
        if sent:
            self._sent[machine.index, vote.signer] = {view: at for view, at in sent.items() if at >= since}
