"""Behaviours that send false certificates that a view was given up.

- ``timeout-forger``: a certificate in which only the liar's signature is valid and the others are random. It is a
  nullification with Simplex, a timeout certificate with HotStuff.
- ``false-high-certificate``: HotStuff timeouts that are validly signed, but the certificate inside is forged.
- ``understated-timeouts``: HotStuff timeout certificates that hide the highest certified block that their votes name,
  so that a block on a lower one would be justified. There are three kinds, which take turns: the votes are said to name
  a lower view; a lower certificate is inside; or none is.

The last two need the timeouts of all but one of a quorum before an honest validator has a full quorum. So the liar, as
leader, sends its block to ``f`` of its peers only, and withholds its own timeout: the others give up when no proposal
comes, those ``f`` later.
"""

from __future__ import annotations

from collections.abc import Iterator

from cluster.misbehaviour.byzantine.base import (
    Behaviour,
    BehaviourContext,
    EachView,
    Heard,
    forget_old,
    send_consensus,
    send_consensus_unchecked,
)
from cluster.misbehaviour.byzantine.overheard import Overheard, TimeoutSignature, timeout_certificate
from consensus.messages import (
    MAX_VIEW,
    NO_DIGEST,
    NO_PARENT,
    AnyCertificate,
    Certificate,
    Message,
    Proposal,
    Timeout,
    TimeoutCertificate,
    VoteKind,
)
from consensus.types import GENESIS_VIEW, Signature, ValidatorIndex, View
from validator.node.events import Effect, Send

VIEWS_AHEAD = 4
"""Number of views ahead of which a timeout with a forged certificate is sent: no validator can have the named block."""


def _forged(at: BehaviourContext, kind: VoteKind, view: View) -> dict[ValidatorIndex, Signature]:
    """Signatures in the names of a quorum that includes the liar: its own is valid, for giving up the view; the others
    are random."""
    committee = at.validators.committee(view)
    ours = ValidatorIndex(at.index)
    signers = sorted([ours, *[member for member in committee.members if member != ours][: committee.quorum - 1]])
    own = at.vote(kind, view, NO_PARENT, NO_DIGEST).signature
    return {signer: own if signer == ours else at.random_signature() for signer in signers}


class TimeoutForger(EachView):
    name = "timeout-forger"
    description = "forges certificates that views were given up"

    def lie(self, view: View) -> Iterator[Effect]:
        self.count_effect()
        yield send_consensus(None, self._certificate(view))

    def _certificate(self, view: View) -> AnyCertificate:
        kind = self.context.gives_up_by
        signatures = _forged(self.context, kind, view)
        if kind == VoteKind.TIMEOUT:
            timeouts = {signer: (GENESIS_VIEW, signature) for signer, signature in signatures.items()}
            return TimeoutCertificate.of(view, None, timeouts)
        return Certificate.of(kind, view, NO_PARENT, NO_DIGEST, signatures)


class FalseTimeouts(Behaviour):
    """The base class of behaviours that make false certificates of true timeouts. It makes peers time out, and decides
    when to lie."""

    protocol = "hotstuff"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._overheard = Overheard(context)
        self._lied: dict[int, None] = {}
        self._led: dict[int, None] = {}

    def lie(self, view: View, timeouts: list[TimeoutSignature]) -> Send | None:
        """The false message about a view, made from the timeouts of all but one of a quorum; ``None`` if impossible."""
        raise NotImplementedError

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        self._overheard.learn(message)
        match message:
            case Proposal() if self.is_ours(message.vote):
                self._led[message.view] = None
                forget_old(self._led)
                for peer in self._shown(message.view):
                    if send.recipient in (None, peer):
                        yield send_consensus(peer, message)
            case Timeout() if message.vote.view in self._led:
                pass  # it would complete the quorum of those who saw no block
            case _:
                yield send

    def hear(self, heard: Heard) -> list[Effect]:
        vote = self._overheard.learn(heard.message)
        if vote is None or vote.kind != VoteKind.TIMEOUT or vote.view in self._lied:
            return []
        committee, timeouts = self.context.validators.committee(vote.view), self._overheard.timeouts(vote.view)
        if self.context.index not in committee or len(timeouts) < committee.quorum - 1:
            return []
        send = self.lie(vote.view, timeouts[: committee.quorum - 1])
        if send is None:
            return []
        self._lied[vote.view] = None
        forget_old(self._lied)
        self.count_effect()
        return [send]

    def _shown(self, view: View) -> list[int]:
        """The peers to which the liar, as leader, sends its block of a view: ``f`` members of the committee."""
        committee = self.context.validators.committee(view)
        members = [member for member in committee.members if member != self.context.index]
        return list(members[: committee.faults_withstood])

    def _own(self, view: View, high_view: View) -> TimeoutSignature:
        """The liar's own timeout of a view, which names ``high_view``, true or not."""
        vote = self.context.vote(VoteKind.TIMEOUT, view, high_view, NO_DIGEST)
        return vote.signer, high_view, vote.signature


class FalseHighCertificate(FalseTimeouts):
    name = "false-high-certificate"
    description = "HotStuff: timeouts and timeout certificates with a forged certificate inside"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._has_led = True
        """Whether the liar led since its last lie about a view ahead. After such a lie, other validators ignore it for
        the rest of their view."""

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        self._has_led = self._has_led or isinstance(message, Proposal)
        yield from super().say(send, message)

    def hear(self, heard: Heard) -> list[Effect]:
        effects = super().hear(heard)
        if self._has_led and isinstance(heard.message, Proposal):
            self._has_led = False
            effects += self._ahead(heard.message.view)
        return effects

    def _ahead(self, view: View) -> list[Effect]:
        """The effect that sends a timeout of a view ahead, with a forged certificate of an unknown block."""
        if view > MAX_VIEW - VIEWS_AHEAD:
            return []
        vote = self.context.vote(VoteKind.TIMEOUT, view + VIEWS_AHEAD, view + VIEWS_AHEAD - 1, NO_DIGEST)
        self.count_effect()
        return [send_consensus(None, Timeout(vote, self._forged(vote.parent_view)))]

    def lie(self, view: View, timeouts: list[TimeoutSignature]) -> Send | None:
        high_view = View(max(view - 1, *(named for _, named, _ in timeouts)))
        if high_view == GENESIS_VIEW:
            return None
        return send_consensus(
            None, timeout_certificate(view, self._forged(high_view), [*timeouts, self._own(view, high_view)])
        )

    def _forged(self, view: View) -> Certificate:
        """A forged notarization of a block that does not exist."""
        signatures = self.context.forged_signatures(view)
        return Certificate.of(VoteKind.NOTARIZE, view, View(view - 1), self.context.random_digest(), signatures)


class UnderstatedTimeouts(FalseTimeouts):
    name = "understated-timeouts"
    description = "HotStuff: timeout certificates that hide the highest certified block that their votes name"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._told = 0

    def lie(self, view: View, timeouts: list[TimeoutSignature]) -> Send | None:
        highest = max(named for _, named, _ in timeouts)
        if highest == GENESIS_VIEW:
            return None
        lower = self._overheard.certificate_below(highest)
        low_view = GENESIS_VIEW if lower is None else lower.view
        understated = [(signer, low_view, signature) for signer, _, signature in timeouts]
        votes = [*timeouts, self._own(view, highest)]
        lies = (
            send_consensus(None, timeout_certificate(view, lower, [*understated, self._own(view, low_view)])),
            send_consensus_unchecked(None, timeout_certificate(view, lower, votes)),
            send_consensus(None, timeout_certificate(view, None, votes)),
        )
        self._told += 1
        return lies[(self._told - 1) % len(lies)]
