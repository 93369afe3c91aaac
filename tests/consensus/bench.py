"""One engine on a bench: everything that reaches it, and every signature of its peers, is made by the test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from blake3 import blake3

from consensus.hotstuff import HotStuff
from consensus.interface import (
    BlockProposed,
    BlockVerified,
    Broadcast,
    Durable,
    Effect,
    Event,
    Parent,
    Persist,
    Propose,
    Received,
    Rejected,
    SendTo,
    Start,
    TimerExpired,
    TimerKind,
    VotingConfig,
)
from consensus.journal import Record, decode_record
from consensus.keys import Committee, KeyedHashScheme, SignatureScheme, ValidatorSet
from consensus.messages import (
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
    vote_signing_bytes,
)
from consensus.simplex import Simplex
from consensus.types import GENESIS_VIEW, Digest, PublicKey, Signature, ValidatorIndex, View

NAMESPACE = b"bench"
GENESIS = Digest(blake3(b"genesis").digest())
ROOT = Parent(GENESIS_VIEW, GENESIS)
EffectType = TypeVar("EffectType", bound=Effect)

NOTARIZE, NULLIFY, FINALIZE, TIMEOUT = VoteKind.NOTARIZE, VoteKind.NULLIFY, VoteKind.FINALIZE, VoteKind.TIMEOUT


class CountingScheme(KeyedHashScheme):
    """Counts the signatures that are checked."""

    def __init__(self) -> None:
        self.checks = 0

    def verify(self, public_key: PublicKey, message: bytes, signature: Signature) -> bool:
        self.checks += 1
        return super().verify(public_key, message, signature)


def block(name: str) -> Digest:
    """A block is named by its body."""
    return Digest(blake3(name.encode()).digest())


class Bench:
    """Validator ``me`` of ``n``, and the keys of all."""

    engine_type: type[Any] = Simplex

    def __init__(
        self,
        n: int = 4,
        me: int | None = 0,
        config: VotingConfig | None = None,
        journal: Iterable[bytes] = (),
        root: Parent = ROOT,
        start: bool = True,
        scheme: SignatureScheme | None = None,
        epochs: tuple[Committee, ...] = (),
        **options: Any,
    ) -> None:
        self.scheme = scheme or CountingScheme()
        self.signers = [self.scheme.signer(bytes([index]) * 32) for index in range(n)]
        self.validators = ValidatorSet(tuple(signer.public_key for signer in self.signers), self.scheme, epochs)
        self.me = None if me is None else ValidatorIndex(me)
        signer = None if me is None else self.signers[me]
        self.journal = list(journal)
        self.effects: list[Effect] = []
        parameters = (config or VotingConfig(), self.validators, self.me, signer, NAMESPACE, root, tuple(self.journal))
        self.engine = self.engine_type(*parameters, **options)
        if start:
            self.feed(Start())

    @property
    def quorum(self) -> int:
        """Of everybody."""
        return self.validators.committee(View(1)).quorum

    # --- in and out ---------------------------------------------------------------------------------------------

    def feed(self, *events: Event) -> list[Effect]:
        """The effects of these events; nothing is answered."""
        effects = [effect for event in events for effect in self.engine.handle(event)]
        self.effects += effects
        return effects

    def sync(self, effects: Sequence[Effect]) -> list[Effect]:
        """Write what the effects persist, and tell the engine, until it has nothing more to write."""
        made: list[Effect] = []
        todo = list(effects)
        while todo:
            effect = todo.pop(0)
            if isinstance(effect, Persist):
                self.journal += effect.records
                after = self.feed(Durable(effect.token))
                made += after
                todo += after
        return made

    def do(self, *events: Event) -> list[Effect]:
        """The effects of these events and of the writing that they ask for."""
        effects = self.feed(*events)
        return effects + self.sync(effects)

    def receive(self, sender: int, *messages: Message) -> list[Effect]:
        return self.do(*(Received(ValidatorIndex(sender), message) for message in messages))

    def expire(self, kind: TimerKind, view: int | None = None) -> list[Effect]:
        return self.do(TimerExpired(kind, self.engine.view if view is None else View(view)))

    def verified(self, view: int, name: str, valid: bool = True) -> list[Effect]:
        return self.do(BlockVerified(View(view), block(name), valid))

    def propose(self, effects: Sequence[Effect], name: str) -> list[Effect]:
        """Answer the one ``Propose`` among the effects."""
        (request,) = of(Propose, effects)
        return self.do(BlockProposed(request.view, request.parent, block(name), name.encode()))

    # --- what peers say -----------------------------------------------------------------------------------------

    def vote(self, signer: int, kind: VoteKind, view: int, name: str = "", parent: int | None = None) -> Vote:
        """A good vote; the parent of a block is the view before, unless told otherwise, and so is a high block."""
        parent_view = NO_PARENT if kind == NULLIFY else View(view - 1 if parent is None else parent)
        digest = NO_DIGEST if kind in (NULLIFY, TIMEOUT) else block(name)
        message = vote_signing_bytes(NAMESPACE, kind, View(view), parent_view, digest)
        signature = self.signers[signer].sign(message)
        return Vote(kind, View(view), parent_view, digest, ValidatorIndex(signer), signature)

    def forged(self, signer: int, kind: VoteKind, view: int, name: str = "", parent: int | None = None) -> Vote:
        good = self.vote(signer, kind, view, name, parent)
        return Vote(good.kind, good.view, good.parent_view, good.digest, good.signer, Signature(b"\0" * 64))

    def cast(self, kind: VoteKind, view: int, name: str = "", parent: int | None = None) -> list[Effect]:
        """Votes of a quorum of peers, each sent by its signer."""
        peers = [index for index in range(len(self.validators)) if index != self.me][: self.quorum]
        return [effect for peer in peers for effect in self.receive(peer, self.vote(peer, kind, view, name, parent))]

    def certificate(
        self, kind: VoteKind, view: int, name: str = "", parent: int | None = None, signers: Sequence[int] | None = None
    ) -> Certificate:
        by = range(self.quorum) if signers is None else signers
        votes = [self.vote(signer, kind, view, name, parent) for signer in by]
        signed = {vote.signer: vote.signature for vote in votes}
        return Certificate.of(kind, View(view), votes[0].parent_view, votes[0].digest, signed)

    def proposal(
        self, view: int, name: str, parent: int | None = None, parent_digest: Digest | None = None
    ) -> Proposal:
        """The leader's; its parent is the genesis block if the parent view is 0, else the block named ``b<view>``."""
        vote = self.vote(self.engine.leader(View(view)), NOTARIZE, view, name, parent)
        if parent_digest is None:
            parent_digest = GENESIS if vote.parent_view == 0 else block(f"b{vote.parent_view}")
        return Proposal(vote.view, vote.parent_view, parent_digest, vote.digest, name.encode(), vote)

    def advance_to(self, view: int, notarized: Iterable[int] = ()) -> list[Effect]:
        """Bring the engine into ``view``: those named get notarized blocks ``b<view>``, the others are nullified."""
        effects: list[Effect] = []
        parent, blocks = 0, tuple(notarized)
        for below in range(self.engine.view, view):
            if below in blocks:
                effects = self.receive(1, self.certificate(NOTARIZE, below, f"b{below}", parent))
                parent = below
            else:
                effects = self.receive(1, self.certificate(NULLIFY, below))
        return effects

    # --- what the engine said -----------------------------------------------------------------------------------

    def own_votes(self, effects: Sequence[Effect] | None = None) -> list[tuple[VoteKind, View, Digest]]:
        """Votes of ours that were sent, in order."""
        return [(vote.kind, vote.view, vote.digest) for vote in self.sent(self.effects if effects is None else effects)]

    def sent(self, effects: Sequence[Effect]) -> list[Vote]:
        """The votes among these effects, whatever carries them."""
        votes = [vote_of(effect.message) for effect in effects if isinstance(effect, Broadcast | SendTo)]
        assert all(vote is None or vote.signer == self.me for vote in votes)
        return [vote for vote in votes if vote is not None]

    def journaled(self) -> list[Record]:
        return [decode_record(record) for record in self.journal]


C = TypeVar("C", Certificate, TimeoutCertificate, AnyCertificate)


def resigned(certificate: C, signed: Mapping[Any, Any]) -> C:
    """The certificate with these signatures, by signer."""
    if isinstance(certificate, TimeoutCertificate):
        return TimeoutCertificate.of(certificate.view, certificate.high, signed)
    return Certificate.of(certificate.kind, certificate.view, certificate.parent_view, certificate.digest, signed)


def shortened(certificate: C, signers: int) -> C:
    """The certificate with the signatures of its first signers alone."""
    return resigned(certificate, dict(list(certificate.signed.items())[:signers]))


class HotStuffBench(Bench):
    """The same with HotStuff on it. Blocks are named ``b<view>`` where nothing else is said."""

    engine_type = HotStuff

    def high(self, view: int) -> Certificate | None:
        """What certifies the block of ``view``; the genesis block needs nothing."""
        return None if view == 0 else self.certificate(NOTARIZE, view, f"b{view}")

    def timeout(self, signer: int, view: int, high: int = 0) -> Timeout:
        return Timeout(self.vote(signer, TIMEOUT, view, parent=high), self.high(high))

    def timeouts(self, view: int, *highs: int, signers: Sequence[int] | None = None) -> TimeoutCertificate:
        """A quorum's, of which the last signers have these high views and the others 0."""
        by = range(self.quorum) if signers is None else signers
        padded = (0,) * (len(by) - len(highs)) + highs
        votes = [self.vote(signer, TIMEOUT, view, parent=high) for signer, high in zip(by, padded, strict=True)]
        signed = {vote.signer: (vote.parent_view, vote.signature) for vote in votes}
        return TimeoutCertificate.of(View(view), self.high(max(padded)), signed)

    def advance_to(self, view: int, notarized: Iterable[int] = ()) -> list[Effect]:
        """Bring the engine into ``view``: those named get blocks, in the others all time out."""
        effects: list[Effect] = []
        high, blocks = 0, tuple(notarized)
        for below in range(self.engine.view, view):
            if below in blocks:
                effects = self.receive(1, self.certificate(NOTARIZE, below, f"b{below}"))
                high = below
            else:
                effects = self.receive(1, self.timeouts(below, high))
        return effects


def vote_of(message: Message) -> Vote | None:
    """The vote that a message is, or carries for its sender."""
    if isinstance(message, Proposal | Timeout):
        return message.vote
    return message if isinstance(message, Vote) else None


def of(wanted: type[EffectType], effects: Sequence[Effect]) -> list[EffectType]:
    """The effects of one type."""
    return [effect for effect in effects if isinstance(effect, wanted)]


def reasons(effects: Sequence[Effect]) -> list[tuple[int, str]]:
    return [(effect.sender, effect.reason) for effect in of(Rejected, effects)]
