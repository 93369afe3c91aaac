"""Byzantine behaviours: the base class, and helpers for messages.

A behaviour sees the messages that one honest validator sends and receives, has its signing key, and may change,
withhold, add, redirect or repeat messages. The wrapped validator is the production one and is unaware of it. Behaviours
are pure: they get effects and events, return effects, and draw only from the random source that they are given.

They use only the messages that all consensus engines share. For a message with its sender's vote in a field ``vote``
(such as a proposal), the vote is used without knowing the message's type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Final, cast

import msgspec

from consensus.keys import Signer, ValidatorSet
from consensus.messages import (
    SIGNATURE_BYTES,
    Message,
    Proposal,
    Vote,
    VoteKind,
    encode,
    encode_unchecked,
    vote_signing_bytes,
)
from consensus.types import DIGEST_BYTES, Digest, Signature, ValidatorIndex, View
from validator.chain.messages import ConsensusMessage, PeerMessage, decode_message, encode_message, read_message
from validator.node import events
from validator.node.events import Effect, Event, Send
from validator.primitives.codec import CodecError

VIEWS_REMEMBERED: Final = 32
"""Maximum number of views for which a behaviour keeps state."""
SISTER_CHAIN: Final = b"stampede-sister"
"""Namespace for which votes of the sister chain (:class:`SisterChain`) are signed. No scenario's chain has it."""


@dataclass(slots=True)
class Score:
    """The harness's counts for one byzantine validator."""

    effects: Counter[str] = field(default_factory=Counter)
    """How often each behaviour took effect, keyed by its name."""
    expected_evidence: int = 0
    """Number of views in which the validator gave its peers full proof of its guilt
    (:mod:`cluster.misbehaviour.byzantine.wrapper`)."""


@dataclass(frozen=True, slots=True)
class SisterChain:
    """Another chain of the same validators, with the same keys. Its signatures can be replayed on this chain."""

    signer: Callable[[int], Signer]
    """``signer(index)``: the signer of a validator. Only votes of the other chain are signed with it."""

    def signature(self, signer: int, kind: VoteKind, view: View, parent_view: View, digest: Digest) -> Signature:
        """A validator's signature of a vote on the sister chain."""
        return self.signer(signer).sign(vote_signing_bytes(SISTER_CHAIN, kind, view, parent_view, digest))


@dataclass(slots=True)
class BehaviourContext:
    """The validator that a behaviour wraps, and its network."""

    index: int
    signer: Signer
    validators: ValidatorSet
    chain_id: str
    random: Random
    score: Score
    gives_up_by: VoteKind = VoteKind.NULLIFY
    """The kind of vote by which the chain's protocol gives up a view."""
    sister: SisterChain | None = None
    """Another chain that the same validators run with the same keys, if any."""
    compared_views: range = range(-4, 2)
    """Views whose votes honest validators are sure to compare, as differences from the validator's own view."""

    @property
    def namespace(self) -> bytes:
        """The namespace for which the chain's votes are signed."""
        return self.chain_id.encode()

    @property
    def peers(self) -> list[int]:
        """The indexes of all other validators."""
        return [index for index in range(len(self.validators)) if index != self.index]

    def vote(self, kind: VoteKind, view: int, parent_view: int, digest: bytes, namespace: bytes | None = None) -> Vote:
        """A vote signed with the validator's key, for another chain if ``namespace`` is given."""
        subject = (View(view), View(parent_view), Digest(digest))
        message = vote_signing_bytes(self.namespace if namespace is None else namespace, kind, *subject)
        return Vote(kind, *subject, ValidatorIndex(self.index), self.signer.sign(message))

    def forged_signatures(self, view: View) -> dict[ValidatorIndex, Signature]:
        """Random signatures in the names of a quorum of a view's committee, keyed by member."""
        committee = self.validators.committee(view)
        return {signer: self.random_signature() for signer in committee.members[: committee.quorum]}

    def random_digest(self) -> Digest:
        return Digest(self.random.randbytes(DIGEST_BYTES))

    def random_signature(self) -> Signature:
        return Signature(self.random.randbytes(SIGNATURE_BYTES))


@dataclass(frozen=True, slots=True)
class Heard:
    """A consensus message from a peer."""

    sender: int
    message: Message
    payload: bytes
    """The whole message as received."""


class Behaviour:
    """One kind of misbehaviour. By default it does nothing wrong."""

    name: ClassVar[str]
    """The name that scenarios use."""
    description: ClassVar[str]
    simulator_only: ClassVar[str] = ""
    """The reason why the behaviour is not available on the live testnet; empty if it is available."""
    protocol: ClassVar[str] = ""
    """The consensus protocol whose messages the behaviour needs; empty if any protocol will do."""

    def __init__(self, context: BehaviourContext) -> None:
        self.context = context

    # --- what a behaviour may override ----------------------------------------------------------------------------

    def swallows(self, event: Event) -> bool:
        """Whether an event must not reach the validator, because it answers an effect that the behaviour added."""
        return False

    def react(self, event: Event) -> Iterable[Effect]:
        """The effects that the behaviour adds after the validator handled an event."""
        return ()

    def hear(self, heard: Heard) -> Iterable[Effect]:
        """The effects that the behaviour adds after the validator handled a consensus message."""
        return ()

    def alter(self, effect: Effect) -> list[Effect]:
        """The effects that replace an effect of the validator, or of the previous behaviour."""
        return list(self.send(effect)) if isinstance(effect, Send) else [effect]

    def send(self, send: Send) -> Iterable[Effect]:
        """The effects that replace the sending of a message."""
        message = consensus_content(send.payload)
        return [send] if message is None else self.say(send, message)

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        """The effects that replace the sending of a consensus message, which ``send`` carries."""
        yield send

    # --- helpers --------------------------------------------------------------------------------------------------

    def count_effect(self) -> None:
        self.context.score.effects[self.name] += 1

    def is_ours(self, vote: Vote | None) -> bool:
        return vote is not None and vote.signer == self.context.index


class EachView(Behaviour):
    """A behaviour that lies once in each view, when it receives or makes the view's proposal: before the votes."""

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._begun: dict[View, None] = {}

    def lie(self, view: View) -> Iterator[Effect]:
        """The messages that the behaviour adds in a view."""
        raise NotImplementedError

    def hear(self, heard: Heard) -> Iterator[Effect]:
        return self._begin(heard.message)

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        yield from self._begin(message)
        yield send

    def _begin(self, message: Message) -> Iterator[Effect]:
        if not isinstance(message, Proposal) or message.view in self._begun:
            return
        self._begun[message.view] = None
        forget_first(self._begun)
        yield from self.lie(message.view)


def peer_message(payload: bytes) -> PeerMessage | None:
    """Decode a payload as a peer's message, with its envelope; ``None`` if it cannot be decoded."""
    try:
        return decode_message(payload)
    except CodecError:
        return None


def heard_in(event: Event) -> Heard | None:
    """The consensus message that arrives with an event; ``None`` if none does."""
    if not isinstance(event, events.Message):
        return None
    message = consensus_content(event.payload)
    return None if message is None else Heard(event.sender, message, event.payload)


def consensus_content(payload: bytes) -> Message | None:
    """Decode a payload as a consensus message; ``None`` if it is not one."""
    try:
        message = read_message(payload)
    except CodecError:
        return None
    return message if isinstance(message, Message) else None


def send_consensus(recipient: int | None, message: Message) -> Send:
    """The effect that sends a consensus message to one peer, or to all if ``recipient`` is ``None``."""
    return send_peer_message(recipient, ConsensusMessage(encode(message)))


def send_peer_message(recipient: int | None, message: PeerMessage) -> Send:
    """The effect that sends any message to one peer, or to all if ``recipient`` is ``None``."""
    return Send(recipient, encode_message(message))


def send_consensus_unchecked(recipient: int | None, message: Message) -> Send:
    """The effect that sends a consensus message without a check of its fields, which may be inconsistent."""
    return send_peer_message(recipient, ConsensusMessage(encode_unchecked(message)))


def with_vote(message: Message, vote: Vote) -> Message:
    """A copy of a message with its vote replaced; ``vote`` itself if the message is a vote."""
    return vote if isinstance(message, Vote) else cast(Message, msgspec.structs.replace(cast(Any, message), vote=vote))


def forget_old(by_view: dict[int, Any]) -> None:
    """Remove the lowest views from ``by_view`` until at most :data:`VIEWS_REMEMBERED` are left."""
    while len(by_view) > VIEWS_REMEMBERED:
        del by_view[min(by_view)]


def forget_first(by_view: dict[View, Any]) -> None:
    """Remove the views added first from ``by_view`` until at most :data:`VIEWS_REMEMBERED` are left.

    The highest views are not preferred, since a peer may have invented them.
    """
    while len(by_view) > VIEWS_REMEMBERED:
        del by_view[next(iter(by_view))]


def first_half(peers: Sequence[int], view: int) -> list[int]:
    """One half of the peers, which differs from view to view; the larger half if their number is odd."""
    turn = view % len(peers) if peers else 0
    ring = [*peers[turn:], *peers[:turn]]
    return sorted(ring[: (len(ring) + 1) // 2])
