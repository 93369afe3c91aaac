"""The watch of restraint: it checks that a validator does not send or request anything unneeded.

- A validator asks for the certificates of its view repeatedly while it has no vote in it. It asks all members of the
  committee in turn: none is asked :data:`ASKED_AT_A_TIME` times more often than another. The leader is asked in
  addition.
- A peer that asks for the certificates of a validator's own view is in that view. The validator sends it nothing but
  certificates of the views that the request names, and the newest finalization if a named view is at or behind that.
- The certificates sent to a peer are bounded over time: by a burst, and by what each tick of the validator adds.
- A leader broadcasts its proposal once. It sends the proposal again to single members, once in a leader timeout by its
  ticks (so twice in a leader timeout at most), and to none whose vote of the view it heard.
- A validator that got an invalid certificate from a peer ignores the peer's certificates for
  ``limits.distrusted_views``.

The rules are those of ``docs/consensus.md``, "When messages are lost" and "Hostile input".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from cluster.audit.safety.rule_log import Look
from cluster.misbehaviour.byzantine.base import vote_of
from cluster.record.rules import SafetyRule as Rule
from consensus.keys import ValidatorSet
from consensus.messages import NO_PARENT, SIGNATURE_BYTES, AnyCertificate, CertificateRequest, Timeout, VoteKind
from consensus.types import ValidatorIndex, View
from validator.chain.messages import BlockRequest, Reading

ASKED_AT_A_TIME: Final = 3
"""Members asked at once, each time from one place further round the committee."""
BURST_CERTIFICATES: Final = 64
TICK_CERTIFICATES: Final = 8
"""Certificates that each tick adds to what a peer may be sent; :data:`BURST_CERTIFICATES` may be sent at once. Each
counts with the signatures of all validators."""
SLACK_TICKS: Final = 2
"""Number of ticks by which the bound is relaxed: they may have come just before or after the period considered."""


@dataclass(slots=True)
class _Asking:
    """The requests of one validator for the certificates of its view."""

    life: int
    view: int
    times: Counter[int] = field(default_factory=Counter)
    """Number of requests to each peer."""


@dataclass(slots=True)
class _Given:
    """The volume of certificates that one validator sent one peer lately, as a leaky bucket."""

    life: int
    at_ms: float
    level: float = 0.0
    """Bytes in the bucket; each tick removes some."""


@dataclass(slots=True)
class _Heard:
    """The peers whose votes a validator heard in its view."""

    life: int
    view: int
    peers: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Leading:
    """How often a validator sent its last proposal, and when. Times are by the validator's clock."""

    life: int
    view: int
    times: Counter[int] = field(default_factory=Counter)
    """How often the proposal was sent to each peer alone."""
    first_ms: dict[int, float] = field(default_factory=dict)
    """When the proposal was first sent to each peer alone."""


class RestraintWatch:
    """Checks in one run that honest validators send and request nothing unneeded."""

    def __init__(
        self,
        names: Sequence[str],
        validators: ValidatorSet,
        leader: Callable[[View], ValidatorIndex],
        look: Look,
        distrusted_views: int,
    ) -> None:
        """``distrusted_views`` is from the section ``limits``."""
        self._distrusted_views = distrusted_views
        self._names = names
        self._validators = validators
        self._leader = leader
        self._look = look
        self._asking: dict[int, _Asking] = {}
        self._request: tuple[int, int, int, CertificateRequest] | None = None
        """The request for certificates that is being answered: its receiver, its sender, the receiver's view, and the
        request."""
        self._answers: list[AnyCertificate] = []
        self._is_about_a_block = False
        """Whether the current message requests a block: a certificate in answer is the node's, not the engine's."""
        self._certificate_bytes = SIGNATURE_BYTES * (len(validators) + 1)
        self._given: dict[tuple[int, int], _Given] = {}
        """Certificates sent, keyed by sender and recipient."""
        self._leading: dict[int, _Leading] = {}
        self._heard: dict[int, _Heard] = {}
        self._forged: dict[tuple[int, int], tuple[int, int]] = {}
        """The life and view of a validator in which it found the last forgery, keyed by validator and forger."""

    def sends(self, index: int, life: int, view: int, recipient: int, message: Reading | None) -> None:
        """Check a request for certificates, or note a certificate, that a validator in this view sends to one peer."""
        if isinstance(message, CertificateRequest):
            if message.views == (view,):
                self._asks(index, life, view, recipient)
        elif isinstance(message, AnyCertificate) and self._request is not None:
            self._answers.append(message)

    def _asks(self, index: int, life: int, view: int, peer: int) -> None:
        asking = self._asking.get(index)
        if asking is None or (asking.life, asking.view) != (life, view):
            asking = self._asking[index] = _Asking(life, view)
        asking.times[peer] += 1
        leader = self._leader(View(view))
        others = [each for each in self._validators.committee(View(view)).members if each not in (index, leader)]
        if peer in others:
            least = min(asking.times[each] for each in others)
            holds = asking.times[peer] <= least + ASKED_AT_A_TIME
            what = f"{self._names[index]}, in view {view}, asks {self._names[peer]} ever again, and not all in turn"
            self._look(Rule.RESTRAINT, holds, what)

    def gives(self, index: int, life: int, peer: int, size: int, now_ms: float, tick_ms: float) -> None:
        """Check the volume of certificates when a validator sends one peer another one of ``size`` bytes.

        ``now_ms`` is by its own clock. Pauses count: a tick that was due in one comes at its end, so that a pause
        brings the next ticks forward.
        """
        if self._is_about_a_block:
            return
        given = self._given.get((index, peer))
        if given is None or given.life != life:
            given = self._given[index, peer] = _Given(life, now_ms)
        tick = TICK_CERTIFICATES * self._certificate_bytes
        given.level = max(0.0, given.level - tick * (now_ms - given.at_ms) / tick_ms) + size
        given.at_ms = now_ms
        holds = given.level <= BURST_CERTIFICATES * self._certificate_bytes + SLACK_TICKS * tick + size
        what = f"{self._names[index]} sends {self._names[peer]} {given.level:,.0f} bytes of certificates at once"
        self._look(Rule.RESTRAINT, holds, what)

    def proposes(
        self, index: int, life: int, recipient: int | None, view: int, now_ms: float, leader_timeout_ms: float
    ) -> None:
        """Check that a validator may send its proposal of a view to one peer, or to all, at ``now_ms`` by its own
        clock."""
        leading = self._leading.get(index)
        is_new = leading is None or (leading.life, leading.view) != (life, view)
        if leading is None or is_new:
            leading = self._leading[index] = _Leading(life, view)
        name = self._names[index]
        if recipient is None:
            self._look(Rule.RESTRAINT, is_new, f"{name} broadcasts its proposal of view {view} again")
            return
        leading.times[recipient] += 1
        passed_ms = now_ms - leading.first_ms.setdefault(recipient, now_ms)
        heard = self._heard.get(index)
        has_heard = heard is not None and (heard.life, heard.view) == (life, view) and recipient in heard.peers
        is_often = leading.times[recipient] > 2 + passed_ms / leader_timeout_ms
        why = "of which it heard a vote" if has_heard else "too often"
        what = f"{name} sends its proposal of view {view} again to {self._names[recipient]}, {why}"
        self._look(Rule.RESTRAINT, not (has_heard or is_often), what)

    def hears_vote(self, index: int, life: int, view: int, message: Reading | None) -> None:
        """Note the vote in an honest peer's message, before a validator in this view gets it."""
        vote = vote_of(message)
        is_bare = isinstance(message, Timeout) and message.high is None and message.vote.parent_view != NO_PARENT
        if vote is not None and vote.view == view and not is_bare:
            self.hears_of(index, life, view, vote.signer)

    def hears_of(self, index: int, life: int, view: int, signer: int) -> None:
        """Note that a validator hears a peer in its view."""
        heard = self._heard.get(index)
        if heard is None or (heard.life, heard.view) != (life, view):
            heard = self._heard[index] = _Heard(life, view)
        heard.peers.add(signer)

    def hears(self, index: int, view: int, sender: int, message: Reading | None) -> None:
        """Note a peer's request for certificates or a block, before a validator in this view gets it."""
        self._answers = []
        self._request = None
        self._is_about_a_block = isinstance(message, BlockRequest)
        if isinstance(message, CertificateRequest) and message.views[-1] >= view:
            self._request = (index, sender, view, message)

    def heard(self) -> None:
        """Check the certificates with which a validator answered a request, after it handled the message."""
        self._is_about_a_block = False
        if self._request is None:
            return
        index, sender, view, request = self._request
        self._request = None
        needless = [
            answer.view
            for answer in self._answers
            if answer.view not in request.views
            and not (answer.kind == VoteKind.FINALIZE and request.views[0] <= answer.view)
        ]
        what = (
            f"{self._names[index]} sends {self._names[sender]}, which is in view {view} too, certificates of {needless}"
        )
        self._look(Rule.RESTRAINT, not needless, what)

    def finds_forged(self, index: int, life: int, view: int, forger: int) -> None:
        """Note that a validator in this view found a peer's certificate invalid, and check that it did not have to
        ignore it."""
        _, last_view = self._forged.get((index, forger), (life, view))
        holds = not self.distrusts(index, life, view, forger)
        self._forged[index, forger] = life, view
        forged = f"certificates of {self._names[forger]} that do not hold"
        self._look(Rule.RESTRAINT, holds, f"{self._names[index]} checks {forged} in views {last_view} and {view}")

    def distrusts(self, index: int, life: int, view: int, peer: int) -> bool:
        """Whether a validator in this view ignores the certificates of a peer, which forged one lately."""
        last_life, last_view = self._forged.get((index, peer), (life, view - self._distrusted_views))
        return life == last_life and view < last_view + self._distrusted_views
