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
from cluster.record.rules import SafetyRule as Rule
from cluster.scenario import Scenario
from cluster.simulation.machine import Machine
from cluster.watches.watch import Watch
from consensus.interface import BAD_CERTIFICATE
from consensus.keys import ValidatorSet
from consensus.messages import (
    NO_PARENT,
    SIGNATURE_BYTES,
    AnyCertificate,
    CertificateRequest,
    Proposal,
    Timeout,
    Vote,
    VoteKind,
    encode,
    vote_of,
)
from consensus.types import ValidatorIndex, View
from validator.chain.messages import BlockRequest, Reading
from validator.node.events import PeerFault

ASKED_AT_A_TIME: Final = 3
"""Members asked at once, each time from one place further round the committee."""
BURST_CERTIFICATES: Final = 64
TICK_CERTIFICATES: Final = 8
"""Certificates that each tick adds to what a peer may be sent; :data:`BURST_CERTIFICATES` may be sent at once. Each
counts with the signatures of all validators."""
SLACK_TICKS: Final = 2
"""Number of ticks by which the bound is relaxed: they may have come just before or after the period considered."""


@dataclass(slots=True)
class _Given:
    """The volume of certificates that one validator sent one peer lately, as a leaky bucket."""

    life: int
    at_ms: float
    level: float = 0.0
    """Bytes in the bucket; each tick removes some."""


@dataclass(slots=True)
class _InView:
    """What one validator did and heard in one view."""

    life: int
    view: int
    asked: Counter[int] = field(default_factory=Counter)
    """Number of requests for the certificates of the view, to each peer."""
    heard: set[int] = field(default_factory=set)
    """The peers whose votes of the view it heard."""


@dataclass(slots=True)
class _Leading:
    """How often a validator sent its last proposal, and when. Times are by the validator's clock."""

    life: int
    view: int
    times: Counter[int] = field(default_factory=Counter)
    """How often the proposal was sent to each peer alone."""
    first_ms: dict[int, float] = field(default_factory=dict)
    """When the proposal was first sent to each peer alone."""


class RestraintWatch(Watch):
    """Checks in one run that honest validators send and request nothing unneeded."""

    effects = frozenset({PeerFault})

    def __init__(
        self,
        names: Sequence[str],
        look: Look,
        scenario: Scenario,
        validators: ValidatorSet,
        leader: Callable[[View], ValidatorIndex],
    ) -> None:
        super().__init__(names, look)
        self.forks(scenario)
        self._distrusted_views = scenario.limits.distrusted_views
        self._validators = validators
        self._leader = leader
        self._in_view: dict[int, _InView] = {}
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
        self._forged: dict[tuple[int, int], tuple[int, int]] = {}
        """The life and view of a validator in which it found the last forgery, keyed by validator and forger."""

    def forks(self, scenario: Scenario) -> None:
        self._consensus = scenario.consensus

    def sends(self, machine: Machine, recipient: int | None, payload: bytes, content: Reading | None) -> None:
        """Check a proposal, a request for certificates, or a certificate that a validator sends."""
        if isinstance(content, Proposal):
            self._proposes(machine, recipient, content.view)
        elif recipient is None or machine.validator is None:
            return
        elif isinstance(content, CertificateRequest):
            if content.views == (machine.validator.node.view,):
                self._asks(machine, machine.validator.node.view, recipient)
        elif isinstance(content, AnyCertificate):
            if self._request is not None:
                self._answers.append(content)
            self._gives(machine, recipient, len(encode(content)))

    def _in(self, machine: Machine, view: int) -> _InView:
        known = self._in_view.get(machine.index)
        if known is None or (known.life, known.view) != (machine.incarnation, view):
            known = self._in_view[machine.index] = _InView(machine.incarnation, view)
        return known

    def _asks(self, machine: Machine, view: int, peer: int) -> None:
        asked = self._in(machine, view).asked
        asked[peer] += 1
        spared = (machine.index, self._leader(View(view)))
        others = [each for each in self._validators.committee(View(view)).members if each not in spared]
        if peer in others:
            holds = asked[peer] <= min(asked[each] for each in others) + ASKED_AT_A_TIME
            what = f"{machine.name}, in view {view}, asks {self._names[peer]} ever again, and not all in turn"
            self._look(Rule.RESTRAINT, holds, what)

    def _gives(self, machine: Machine, peer: int, size: int) -> None:
        """Check the volume of certificates when a validator sends one peer another one of ``size`` bytes.

        The time is that of the machine's own clock. Pauses count: a tick that was due in one comes at its end, so that
        a pause brings the next ticks forward.
        """
        if self._is_about_a_block:
            return
        index, now_ms = machine.index, machine.own_clock.now_ms
        given = self._given.get((index, peer))
        if given is None or given.life != machine.incarnation:
            given = self._given[index, peer] = _Given(machine.incarnation, now_ms)
        tick = TICK_CERTIFICATES * self._certificate_bytes
        ticks = (now_ms - given.at_ms) / self._consensus.rebroadcast_ms
        given.level = max(0.0, given.level - tick * ticks) + size
        given.at_ms = now_ms
        holds = given.level <= BURST_CERTIFICATES * self._certificate_bytes + SLACK_TICKS * tick + size
        what = f"{self._names[index]} sends {self._names[peer]} {given.level:,.0f} bytes of certificates at once"
        self._look(Rule.RESTRAINT, holds, what)

    def _proposes(self, machine: Machine, recipient: int | None, view: int) -> None:
        """Check that a validator may send its proposal of a view now to one peer, or to all."""
        index, life, now_ms = machine.index, machine.incarnation, machine.own_clock.now_ms
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
        known = self._in_view.get(index)
        has_heard = known is not None and (known.life, known.view) == (life, view) and recipient in known.heard
        is_often = leading.times[recipient] > 2 + passed_ms / self._consensus.leader_timeout_ms
        why = "of which it heard a vote" if has_heard else "too often"
        what = f"{name} sends its proposal of view {view} again to {self._names[recipient]}, {why}"
        self._look(Rule.RESTRAINT, not (has_heard or is_often), what)

    def counts(self, machine: Machine, sender: Machine, vote: Vote) -> None:
        if sender.byzantine is None and vote.view == machine.view:
            self._in(machine, machine.view).heard.add(vote.signer)

    def hears(self, machine: Machine, sender: Machine, content: Reading | None) -> None:
        """Note an honest peer's vote, or a request for certificates or a block, before the validator gets it."""
        if machine.validator is None:
            return
        node = machine.validator.node
        if (vote := vote_of(content)) is not None:
            is_bare = isinstance(content, Timeout) and content.high is None and vote.parent_view != NO_PARENT
            if sender.byzantine is None and node.diverged is None and vote.view == node.view and not is_bare:
                self._in(machine, node.view).heard.add(vote.signer)
        elif isinstance(content, CertificateRequest | BlockRequest):
            self._answers = []
            self._request = None
            self._is_about_a_block = isinstance(content, BlockRequest)
            if isinstance(content, CertificateRequest) and content.views[-1] >= node.view:
                self._request = (machine.index, sender.index, node.view, content)

    def heard(self, machine: Machine, sender: Machine, content: Reading | None) -> None:
        """Check the certificates with which a validator answered a request."""
        self._is_about_a_block = False
        if self._request is None:
            return
        index, asker, view, request = self._request
        self._request = None
        needless = [
            answer.view
            for answer in self._answers
            if answer.view not in request.views
            and not (answer.kind == VoteKind.FINALIZE and request.views[0] <= answer.view)
        ]
        what = (
            f"{self._names[index]} sends {self._names[asker]}, which is in view {view} too, certificates of {needless}"
        )
        self._look(Rule.RESTRAINT, not needless, what)

    def performs(self, machine: Machine, effect: PeerFault) -> None:
        """Check that a validator that finds a peer's certificate invalid did not have to ignore it."""
        if effect.reason != BAD_CERTIFICATE or machine.validator is None:
            return
        forger, life, view = effect.peer, machine.incarnation, machine.validator.node.view
        _, last_view = self._forged.get((machine.index, forger), (life, view))
        holds = not self.distrusts(machine, view, forger)
        self._forged[machine.index, forger] = life, view
        forged = f"certificates of {self._names[forger]} that do not hold"
        self._look(Rule.RESTRAINT, holds, f"{machine.name} checks {forged} in views {last_view} and {view}")

    def distrusts(self, machine: Machine, view: int, peer: int) -> bool:
        """Whether a validator in this view ignores the certificates of a peer, which forged one lately."""
        last_life, last_view = self._forged.get(
            (machine.index, peer), (machine.incarnation, view - self._distrusted_views)
        )
        return machine.incarnation == last_life and view < last_view + self._distrusted_views
