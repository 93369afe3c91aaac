"""Behaviours that contradict, forge, replay or withhold votes and certificates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from cluster.misbehaviour.byzantine.base import (
    Behaviour,
    BehaviourContext,
    EachView,
    Heard,
    Score,
    consensus_content,
    forget_first,
    forget_old,
    send_consensus,
    send_consensus_unchecked,
    with_vote,
)
from consensus.certificates import verify_certificate
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
    Vote,
    VoteKind,
    conflict,
    verify_vote,
    vote_of,
)
from consensus.types import GENESIS_VIEW, Digest, Signature, ValidatorIndex, View
from validator.node.events import Effect, Send

Subject = tuple[VoteKind, View, Digest]
"""The fields in which votes of one view can differ: kind, parent view and digest."""
TimeoutSignature = tuple[ValidatorIndex, View, Signature]
"""A timeout vote as in a timeout certificate: its signer, the high view that it names, and its signature."""


class Overheard:
    """The valid signatures that one validator received. Its own votes are not included: it can sign anything.

    Behaviours make false certificates of them. Votes are kept by view, kind, parent view and digest; certificates of
    blocks by view. All are verified, so that a certificate made of them is wrong in exactly one respect. The views that
    were heard of first are forgotten.
    """

    def __init__(self, context: BehaviourContext) -> None:
        self._context = context
        self._votes: dict[View, dict[Subject, dict[ValidatorIndex, Signature]]] = {}
        self._certified: dict[View, Certificate] = {}

    def learn(self, message: Message) -> Vote | None:
        """Keep the valid vote and certificates of a message. Returns the peer's vote in it, if it is valid and new."""
        for certificate in _block_certificates(message):
            self._keep_certificate(certificate)
        vote, at = vote_of(message), self._context
        if vote is None or vote.signer == at.index or vote.signer not in at.validators.committee(vote.view):
            return None
        if vote.signer in self.signatures(vote) or not verify_vote(vote, at.validators, at.namespace):
            return None
        subject = (vote.kind, vote.parent_view, vote.digest)
        self._votes.setdefault(vote.view, {}).setdefault(subject, {})[vote.signer] = vote.signature
        forget_first(self._votes)
        return vote

    def signatures(self, vote: Vote) -> dict[ValidatorIndex, Signature]:
        """Members of the view's committee whose vote equals ``vote`` but for the signer, ascending, with their
        signatures."""
        found = self._votes.get(vote.view, {}).get((vote.kind, vote.parent_view, vote.digest), {})
        return dict(sorted(found.items()))

    def timeouts(self, view: View) -> list[TimeoutSignature]:
        """The timeout votes of a view that were received, one per peer, ordered by peer."""
        found: dict[ValidatorIndex, TimeoutSignature] = {}
        for (kind, high_view, _), signatures in self._votes.get(view, {}).items():
            if kind == VoteKind.TIMEOUT:
                for signer, signature in signatures.items():
                    found.setdefault(signer, (signer, high_view, signature))
        return [found[signer] for signer in sorted(found)]

    def certificate(self, view: View) -> Certificate | None:
        """The certificate of a view's block; ``None`` if none was received."""
        return self._certified.get(view)

    def certificate_below(self, view: View) -> Certificate | None:
        """The certificate of the block of the highest known view below ``view``; ``None`` if there is none."""
        below = max((known for known in self._certified if known < view), default=None)
        return None if below is None else self._certified[below]

    def _keep_certificate(self, certificate: Certificate) -> None:
        at = self._context
        is_new = certificate.view not in self._certified and certificate.digest != NO_DIGEST
        if is_new and verify_certificate(certificate, at.validators, at.namespace):
            self._certified[certificate.view] = certificate
            forget_first(self._certified)


def _block_certificates(message: Message) -> Iterator[Certificate]:
    """The message itself if it is a certificate, and the block certificate in its field ``high``."""
    if isinstance(message, Certificate):
        yield message
    carried = getattr(message, "high", None)
    if isinstance(carried, Certificate):
        yield carried


def timeout_certificate(view: View, high: Certificate | None, signatures: list[TimeoutSignature]) -> TimeoutCertificate:
    """Build a timeout certificate of a view from these timeout votes and the certificate ``high``."""
    signed = {signer: (high_view, signature) for signer, high_view, signature in signatures}
    return TimeoutCertificate.of(view, high, signed)


TWO_FACED_KINDS = (VoteKind.NOTARIZE, VoteKind.FINALIZE)
VIEWS_UNTIL_CONTRADICTION = 2


@dataclass(slots=True)
class _Said:
    """The votes sent in a view, keyed by kind and peer; the value is the parent view in the vote."""

    sent: dict[tuple[VoteKind, int], int] = field(default_factory=dict)
    is_contradicted: bool = False


class ConflictingVoter(Behaviour):
    """Sends each peer a vote for the block that the peer votes for, and later one for another block.

    It never sends the votes of the validator inside. Each peer that votes to notarize or finalize a block gets a vote
    for that block, so that peers that disagree both count the voter on their side. Two views later these peers get its
    vote for a block that does not exist. One such validator changes nothing; more than ``f`` together with an
    equivocating leader finalize two blocks of one height.
    """

    name = "conflicting-voter"
    description = "votes for two blocks of a view: for the one that its listener votes for, later for another"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._said: dict[int, _Said] = {}
        self._view = 0

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        if isinstance(message, Vote) and self.is_ours(message) and message.kind in TWO_FACED_KINDS:
            self._view = max(self._view, message.view)
            return
        yield send

    def hear(self, heard: Heard) -> list[Effect]:
        vote = vote_of(heard.message)
        if vote is None or vote.signer != heard.sender or vote.kind not in TWO_FACED_KINDS:
            return []
        return [*self._agree(heard.sender, vote), *self._contradict()]

    def _agree(self, peer: int, vote: Vote) -> Iterator[Effect]:
        said = self._said.setdefault(vote.view, _Said())
        forget_old(self._said)
        self._view = max(self._view, *self._said)
        if (vote.kind, peer) not in said.sent and not said.is_contradicted:
            said.sent[vote.kind, peer] = vote.parent_view
            yield send_consensus(peer, self.context.vote(vote.kind, vote.view, vote.parent_view, vote.digest))

    def _contradict(self) -> Iterator[Effect]:
        for view, said in self._said.items():
            if said.is_contradicted or view > self._view - VIEWS_UNTIL_CONTRADICTION:
                continue
            said.is_contradicted = True
            for (kind, peer), parent_view in said.sent.items():
                yield send_consensus(peer, self.context.vote(kind, view, parent_view, self.context.random_digest()))
            if said.sent:
                self.count_effect()


Signatures = list[tuple[ValidatorIndex, Signature]]


class FalseCertificate(Behaviour):
    """The base class of behaviours that send a certificate which is made of honest votes but has one flaw. It decides
    when, and builds the certificate from signatures.

    A certificate is sent once per view and kind, as soon as enough votes were received. So it is sent before an honest
    validator can have the true one: a liar need not execute the block, nor wait for its disk.
    """

    kinds: ClassVar[tuple[VoteKind, ...]] = (VoteKind.NOTARIZE, VoteKind.NULLIFY, VoteKind.TIMEOUT)
    """Kinds of votes of which the behaviour makes false certificates. After one such certificate, other validators
    ignore its certificates for the rest of their view."""

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._overheard = Overheard(context)
        self._lied: dict[int, set[VoteKind]] = {}

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        self._overheard.learn(message)
        yield send

    def hear(self, heard: Heard) -> list[Effect]:
        vote = self._overheard.learn(heard.message)
        return [] if vote is None else list(self._answer(vote))

    def _answer(self, vote: Vote) -> Iterator[Effect]:
        """The messages with which the behaviour answers a peer's valid and new vote."""
        if vote.kind not in self.kinds or vote.kind in self._lied.get(vote.view, ()):
            return
        peers = list(self._overheard.signatures(vote).items())
        if vote.kind == VoteKind.TIMEOUT:
            peers = [(signer, signature) for signer, _, signature in self._overheard.timeouts(vote.view)]
        signatures = self._signatures(vote, peers)
        if signatures:
            self._lied.setdefault(vote.view, set()).add(vote.kind)
            forget_old(self._lied)
            self.count_effect()
            yield send_consensus(None, self._certificate(vote, signatures))

    def _signatures(self, vote: Vote, peers: Signatures) -> Signatures:
        """The signatures of the false certificate, made from those of peers; empty if they are too few or unusable."""
        raise NotImplementedError

    def _own(self, vote: Vote) -> tuple[ValidatorIndex, Signature]:
        """The liar's index and its signature of the same vote."""
        ours = self.context.vote(vote.kind, vote.view, vote.parent_view, vote.digest)
        return ours.signer, ours.signature

    def _is_member(self, vote: Vote) -> bool:
        return self.context.index in self.context.validators.committee(vote.view)

    def _quorum(self, vote: Vote) -> int:
        return self.context.validators.committee(vote.view).quorum

    def _certificate(self, vote: Vote, signatures: Signatures) -> AnyCertificate:
        if vote.kind != VoteKind.TIMEOUT:
            return Certificate.of(vote.kind, vote.view, vote.parent_view, vote.digest, dict(signatures))
        named = {signer: high_view for signer, high_view, _ in self._overheard.timeouts(vote.view)}
        timeouts = [(signer, named.get(signer, vote.parent_view), signature) for signer, signature in signatures]
        highest = max(high_view for _, high_view, _ in timeouts)
        return timeout_certificate(vote.view, self._overheard.certificate(highest), timeouts)


class ShortCertificate(FalseCertificate):
    """One signature short of a quorum."""

    name = "short-certificate"
    description = "certificates that are one signature short of a quorum"

    def _signatures(self, vote: Vote, peers: Signatures) -> Signatures:
        others = self._quorum(vote) - 2
        if not self._is_member(vote) or len(peers) < others or others < 0:
            return []
        return [*peers[:others], self._own(vote)]


class DoubleSigner(ShortCertificate):
    """As many signatures as a quorum has, one of them a second signature of the liar, in the name of a member that did
    not sign.
    """

    name = "double-signer"
    description = "certificates with its own signature in another's place, too, and so as many as a quorum has"

    def _signatures(self, vote: Vote, peers: Signatures) -> Signatures:
        short = super()._signatures(vote, peers)
        signers = {signer for signer, _ in short}
        others = [member for member in self.context.validators.committee(vote.view).members if member not in signers]
        return [*short, (others[0], self._own(vote)[1])] if short and others else []


class Outsider(FalseCertificate):
    """The liar votes in views whose committee it is not in, and puts its signature in a member's place."""

    name = "outsider"
    description = "votes where it is not in the committee, and signs certificates there in a member's place"
    kinds = (VoteKind.NOTARIZE, VoteKind.FINALIZE, VoteKind.NULLIFY, VoteKind.TIMEOUT)

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._voted: dict[int, set[VoteKind]] = {}

    def _answer(self, vote: Vote) -> Iterator[Effect]:
        if self._is_member(vote):
            return
        if vote.kind in (VoteKind.NOTARIZE, VoteKind.FINALIZE) and vote.kind not in self._voted.get(vote.view, ()):
            self._voted.setdefault(vote.view, set()).add(vote.kind)
            forget_old(self._voted)
            self.count_effect()
            yield send_consensus(None, self.context.vote(vote.kind, vote.view, vote.parent_view, vote.digest))
        yield from super()._answer(vote)

    def _signatures(self, vote: Vote, peers: Signatures) -> Signatures:
        others = self._quorum(vote) - 1
        return [*peers[:others], self._own(vote)] if len(peers) >= others else []


TIMEOUTS_AHEAD = 4
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
    """A false certificate that a view was given up, in which only the liar's signature is valid and the others are
    random. It is a nullification with Simplex, a timeout certificate with HotStuff."""

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
    when to lie.

    It needs the timeouts of all but one of a quorum before an honest validator has a full quorum. So the liar, as
    leader, sends its block to ``f`` of its peers only, and withholds its own timeout: the others give up when no
    proposal comes, those ``f`` later.
    """

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
    """HotStuff timeouts that are validly signed, but the certificate inside is forged."""

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
        if view > MAX_VIEW - TIMEOUTS_AHEAD:
            return []
        vote = self.context.vote(VoteKind.TIMEOUT, view + TIMEOUTS_AHEAD, view + TIMEOUTS_AHEAD - 1, NO_DIGEST)
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
    """HotStuff timeout certificates that hide the highest certified block that their votes name, so that a block on a
    lower one would be justified. There are three kinds, which take turns: the votes are said to name a lower view; a
    lower certificate is inside; or none is.
    """

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


class NullifyAndFinalize(Behaviour):
    """Votes in one view both to give it up and to finalize its block.

    A vote to give up a view names no block: Simplex's nullify, or another protocol's timeout.
    """

    name = "nullify-and-finalize"
    description = "votes both to give up a view and to finalize its block"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._blocks: dict[int, Vote] = {}
        """The first notarize vote seen in each view, from any validator; keyed by view."""

    def hear(self, heard: Heard) -> list[Effect]:
        self._learn(vote_of(heard.message))
        return []

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        yield send
        vote = vote_of(message)
        self._learn(vote)
        if vote is None or not self.is_ours(vote):
            return
        if vote.kind == VoteKind.FINALIZE:
            yield send_consensus(send.recipient, self._giving_up(vote.view))
        elif vote.digest == NO_DIGEST and vote.view in self._blocks:
            block = self._blocks[vote.view]
            yield send_consensus(
                send.recipient, self.context.vote(VoteKind.FINALIZE, block.view, block.parent_view, block.digest)
            )
        else:
            return
        self.count_effect()

    def _giving_up(self, view: int) -> Message:
        """A vote to give up a view, as the protocol sends it; a timeout names the genesis, which needs no proof."""
        kind = self.context.gives_up_by
        vote = self.context.vote(kind, view, NO_PARENT, NO_DIGEST)
        return Timeout(vote, None) if kind == VoteKind.TIMEOUT else vote

    def _learn(self, vote: Vote | None) -> None:
        if vote is not None and vote.kind == VoteKind.NOTARIZE:
            self._blocks.setdefault(vote.view, vote)
            forget_old(self._blocks)


class KindReplayer(Behaviour):
    """The votes that notarized a block, replayed as votes that finalize it: valid signatures, but made for another
    purpose."""

    name = "kind-replayer"
    description = "says the votes that notarized a block again, as votes that finalize it"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._replayed: dict[int, None] = {}

    def hear(self, heard: Heard) -> Iterator[Effect]:
        return self._replay(heard.message)

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        yield from self._replay(message)
        yield send

    def _replay(self, message: Message) -> Iterator[Effect]:
        if not isinstance(message, Certificate) or message.kind != VoteKind.NOTARIZE or message.view in self._replayed:
            return
        if verify_certificate(message, self.context.validators, self.context.namespace):
            self._replayed[message.view] = None
            forget_old(self._replayed)
            self.count_effect()
            yield send_consensus(None, msgspec.structs.replace(message, kind=VoteKind.FINALIZE))


class SisterCertificates(EachView):
    """Certificates of another chain that the same validators run with the same keys."""

    name = "sister-chain"
    description = "certificates of another chain that the same validators run with the same keys"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._kinds = (VoteKind.NOTARIZE, context.gives_up_by, VoteKind.FINALIZE)

    def lie(self, view: View) -> Iterator[Effect]:
        certificate = self._certificate(self._kinds[view % len(self._kinds)], view)
        if certificate is not None:
            self.count_effect()
            yield send_consensus(None, certificate)

    def _certificate(self, kind: VoteKind, view: View) -> AnyCertificate | None:
        """A certificate of this kind and view from the other chain; ``None`` if there is no other chain."""
        sister = self.context.sister
        if sister is None:
            return None
        is_of_block = kind in (VoteKind.NOTARIZE, VoteKind.FINALIZE)
        parent_view = View(view - 1) if is_of_block else NO_PARENT
        digest = self.context.random_digest() if is_of_block else NO_DIGEST
        committee = self.context.validators.committee(view)
        signed = {
            signer: sister.signature(signer, kind, view, parent_view, digest)
            for signer in committee.members[: committee.quorum]
        }
        if kind == VoteKind.TIMEOUT:
            timeouts = {signer: (GENESIS_VIEW, signature) for signer, signature in signed.items()}
            return TimeoutCertificate.of(view, None, timeouts)
        return Certificate.of(kind, view, parent_view, digest, signed)


FORGERIES_AHEAD = 3
"""Maximum number of views by which a forged certificate's view is ahead of the vote's view."""


class SignatureForger(Behaviour):
    """Votes in others' names, votes with bad signatures, and certificates that no validator signed.

    Its forgeries are sent before the honest validator's messages, so that they are the first of their kind.
    """

    name = "signature-forger"
    description = "votes in others' names and with bad signatures, and forges certificates"

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        vote = vote_of(message)
        if vote is not None and self.is_ours(vote):
            at, random = self.context, self.context.random
            peer = ValidatorIndex(random.choice(at.peers))
            in_anothers_name = msgspec.structs.replace(vote, signer=peer, signature=at.random_signature())
            badly_signed = msgspec.structs.replace(vote, signature=at.random_signature())
            for forged in (with_vote(message, badly_signed), in_anothers_name, self._certificate(vote)):
                yield send_consensus(send.recipient, forged)
                self.count_effect()
        yield send

    def _certificate(self, vote: Vote) -> Certificate:
        at, random = self.context, self.context.random
        view = View(min(vote.view + random.randrange(FORGERIES_AHEAD + 1), MAX_VIEW))
        kind = random.choice((VoteKind.NOTARIZE, VoteKind.FINALIZE))
        signatures = at.forged_signatures(view)
        return Certificate.of(kind, view, View(view - 1), at.random_digest(), signatures)


class Twins(Behaviour):
    """A second instance of the validator runs with the same key, on a separate disk with separate state.

    Messages to the key reach both, and the messages of both come from the key; neither hears the other. Both are
    honest: only their number is byzantine. The behaviour takes effect if they contradict each other, which the driver
    detects with :class:`TwinWatch`. The driver, not the wrapper, starts the second one.

    A live validator proves its key on each stream, and a newer stream of a key replaces the older one. Two processes
    with one key would fight over every stream, so there are no live twins.
    """

    name = "twins"
    description = "a second instance with the same key, on its own disk and with its own state"
    simulator_only = "peers keep one stream a key, which two live validators would take from each other"


class TwinWatch:
    """Watches the messages of two validators with one key, and counts when they contradict each other."""

    def __init__(self, score: Score) -> None:
        self._score = score
        self._votes: tuple[dict[int, list[Vote]], dict[int, list[Vote]]] = ({}, {})
        self._contradicted: dict[int, None] = {}

    def note(self, twin: int, payload: bytes) -> None:
        """Note a message of one of the two validators. ``twin`` is its number, 0 or 1."""
        message = consensus_content(payload)
        vote = None if message is None else vote_of(message)
        if vote is None:
            return
        mine, others = self._votes[twin].setdefault(vote.view, []), self._votes[1 - twin].get(vote.view, [])
        if vote not in mine:
            mine.append(vote)
        forget_old(self._votes[twin])
        if vote.view not in self._contradicted and any(conflict(vote, other) is not None for other in others):
            self._contradicted[vote.view] = None
            forget_old(self._contradicted)
            self._score.effects[Twins.name] += 1


class VoteWithholder(Behaviour):
    """Takes part, but sends no votes except those in its own proposals."""

    name = "vote-withholder"
    description = "sends no votes except those in its own proposals"

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        if vote_of(message) is None or isinstance(message, Proposal):
            yield send
        else:
            self.count_effect()


EPOCH_SUFFIX = b"/epoch-1"


class WrongEpoch(Behaviour):
    """Signs its votes for another namespace, like a validator in another epoch of the chain."""

    name = "wrong-epoch"
    description = "signs everything for another epoch's namespace"

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        vote = vote_of(message)
        if vote is None or not self.is_ours(vote):
            yield send
            return
        namespace = self.context.namespace + EPOCH_SUFFIX
        signed = self.context.vote(vote.kind, vote.view, vote.parent_view, vote.digest, namespace)
        yield send_consensus(send.recipient, with_vote(message, signed))
        self.count_effect()
