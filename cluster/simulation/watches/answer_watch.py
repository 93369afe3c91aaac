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
from cluster.scenario.model import LimitsSection
from consensus.messages import NO_PARENT, AnyCertificate, Proposal, Timeout, Vote, VoteKind
from validator.chain.messages import Reading

TICKS: Final = 2
"""Number of rebroadcast intervals for which a certificate sent to a peer counts as an answer."""
NEAR_VIEWS: Final = 2
"""Number of views whose heard votes are kept: the validator's view and those just behind it. A vote of an older view
must be answered in any case."""


class Hearing(NamedTuple):
    """A vote that a validator, the listener, heard and must answer."""

    listener: int
    life: int
    view: int
    """The listener's view."""
    vote: Vote


@dataclass(slots=True)
class _Memory:
    """The watch's knowledge of one validator, since its last start."""

    life: int = 0
    began: int = 0
    """The first view in which the watch saw the validator."""
    heard: set[tuple[int, VoteKind, int]] = field(default_factory=set)
    """Signer, kind and view of votes that the validator heard lately."""


class AnswerWatch:
    """Checks in one run that honest validators help peers that are stuck in a past view."""

    def __init__(self, names: Sequence[str], look: Look, limits: LimitsSection) -> None:
        self._limits = limits
        self._names = names
        self._most_heard = NEAR_VIEWS * len(VoteKind) * len(names)
        self._tell = look
        self._memories = [_Memory() for _ in names]
        self._sent: dict[tuple[int, int], dict[int, float]] = {}
        """The times of certificates sent to one peer alone: by sender and recipient, then by view."""

    def sends(self, index: int, recipient: int, now_ms: float, message: Reading | None) -> None:
        """Note a message that a validator sends to one peer, at ``now_ms`` by its own clock without pauses."""
        if isinstance(message, AnyCertificate):
            self._sent.setdefault((index, recipient), {})[message.view] = now_ms

    def hears(self, index: int, life: int, view: int, message: Reading | None) -> Hearing | None:
        """Note the vote in an honest peer's message, before a validator in this view gets it. Returns the vote if the
        validator must answer it, otherwise ``None``."""
        window = self._limits.view_window
        if isinstance(message, Timeout):
            vote, is_proved = message.vote, message.high is not None or message.vote.parent_view == NO_PARENT
        elif isinstance(message, Vote):
            vote, is_proved = message, message.kind != VoteKind.TIMEOUT
        elif isinstance(message, Proposal):
            vote, is_proved, window = message.vote, True, self._limits.proposal_window
        else:
            return None
        is_repeated = self.notes(index, life, view, vote, window)
        is_left = vote.view < view - 1 or (vote.view == view - 1 and is_repeated)
        is_answered = vote.kind != VoteKind.FINALIZE and is_proved and view > self._memories[index].began
        return Hearing(index, life, view, vote) if is_left and is_answered else None

    def notes(self, index: int, life: int, view: int, vote: Vote, window: int) -> bool:
        """Note a vote that a validator in this view hears, unless it is more than ``window`` views ahead.

        Returns whether the validator heard the vote before.
        """
        memory = self._memories[index]
        if memory.life != life or not memory.began:
            memory = self._memories[index] = _Memory(life, view)
        name, heard = (vote.signer, vote.kind, vote.view), memory.heard
        if name in heard:
            return True
        if view - NEAR_VIEWS < vote.view <= view + window:
            heard.add(name)
            if len(heard) > self._most_heard:
                memory.heard = {each for each in heard if each[2] > view - NEAR_VIEWS}
        return False

    def heard(self, hearing: Hearing, now_ms: float, rebroadcast_ms: float) -> None:
        """Check that the listener answered a vote, after it handled the message at ``now_ms`` by its own clock without
        pauses."""
        vote, name = hearing.vote, self._names[hearing.listener]
        since = now_ms - TICKS * rebroadcast_ms
        sent = self._sent.get((hearing.listener, vote.signer), {})
        holds = any(view >= vote.view and at >= since for view, at in sent.items())
        what = (
            f"{name}, in view {hearing.view}, hears {self._names[vote.signer]} in view {vote.view}, and does not answer"
        )
        self._tell(Rule.ANSWERS, holds, what)
        if sent:
            self._sent[hearing.listener, vote.signer] = {view: at for view, at in sent.items() if at >= since}
