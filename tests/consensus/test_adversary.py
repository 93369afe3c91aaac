"""HotStuff against one adversary: it orders all messages, fires all timers, and votes with the fault bound's keys.

There is no time here: whatever was sent may be delivered at any step, late or never, any timer may expire, and any
engine may start again from its journal.
The byzantine key signs whatever fits the moment, and shows each honest validator what it likes. Forks are what the
adversary is after: it wins when two final blocks lie on different branches. Against the rules it never does; against
an engine with one rule of the safety argument removed it must, or the search would prove nothing.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from consensus.hotstuff import HotStuff
from consensus.interface import (
    BlockProposed,
    BlockVerified,
    Broadcast,
    Durable,
    Effect,
    Event,
    Finalized,
    Parent,
    Persist,
    Propose,
    Received,
    SendTo,
    Start,
    TimerExpired,
    TimerKind,
    Verify,
    VotingConfig,
)
from consensus.journal import JournalError
from consensus.keys import KeyedHashScheme, ValidatorSet
from consensus.messages import (
    NO_DIGEST,
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
from consensus.types import Digest, ValidatorIndex, View
from consensus.voting import Ancestry
from tests.consensus.bench import GENESIS, block
from tests.consensus.test_planted import (
    BuildsBelowTimeouts,
    FinalizesAfterTimeout,
    ForgetsItsLock,
    TimesOutWithoutItsLock,
)

NAMESPACE = b"adversary"
CONFIG = VotingConfig(view_window=64, proposal_window=64)
BYZANTINE = ValidatorIndex(3)
HONEST = tuple(ValidatorIndex(index) for index in range(3))
LAST_VIEW = 9
SEEDS = range(200, 320)


class Fork(AssertionError):
    """Two final blocks of which neither descends from the other."""


class Adversary:
    """Three honest engines, one byzantine key, and a pool of all that was ever said."""

    def __init__(self, seed: int, engine_type: type[HotStuff]) -> None:
        self.random = Random(seed)
        scheme = KeyedHashScheme()
        self.signers = [scheme.signer(bytes([index]) * 32) for index in range(4)]
        validators = ValidatorSet(tuple(signer.public_key for signer in self.signers), scheme)
        self.pool: dict[ValidatorIndex, list[tuple[ValidatorIndex, Message]]] = {index: [] for index in HONEST}
        self.known: list[AnyCertificate] = []
        self.blocks: dict[Digest, Parent] = {GENESIS: Parent(View(0), GENESIS)}
        self.views: dict[Digest, View] = {GENESIS: View(0)}
        self.final: list[Digest] = [GENESIS]
        self.validators, self.engine_type = validators, engine_type
        self.journals: dict[ValidatorIndex, list[bytes]] = {index: [] for index in HONEST}
        self.engines: dict[ValidatorIndex, Any] = {}
        for index in HONEST:
            self.start(index)

    # --- honest engines -----------------------------------------------------------------------------------------

    def start(self, index: ValidatorIndex) -> None:
        signer, journal = self.signers[index], self.journals[index]
        try:
            engine = self.engine_type(CONFIG, self.validators, index, signer, NAMESPACE, GENESIS, journal)
        except JournalError:
            return  # a broken engine's journal gives it away; the adversary lets it run on instead
        self.engines[index] = engine
        self.feed(index, Start())

    def feed(self, index: ValidatorIndex, event: Event) -> None:
        for effect in self.engines[index].handle(event):
            self.perform(index, effect)

    def perform(self, index: ValidatorIndex, effect: Effect) -> None:
        match effect:
            case Broadcast(message):
                self.offer(index, message, HONEST)
            case SendTo(recipient, message):
                self.offer(index, message, (recipient,) if recipient in HONEST else HONEST)
            case Persist(token, records):
                self.journals[index] += records
                self.feed(index, Durable(token))
            case Propose(view, parent):
                body = b"%d of %d" % (view, index)
                digest = block(body.decode())
                self.blocks[digest], self.views[digest] = parent, view
                self.feed(index, BlockProposed(view, parent, digest, body))
            case Verify(view, parent, digest):
                self.feed(index, BlockVerified(view, digest, self.blocks[digest] == parent))
            case Finalized(certificate):
                self.settle(certificate.digest)
            case _:
                pass

    def offer(self, sender: ValidatorIndex, message: Message, recipients: tuple[ValidatorIndex, ...]) -> None:
        """What goes to the byzantine validator it may show to anyone."""
        if isinstance(message, Certificate | TimeoutCertificate) and message not in self.known:
            self.known.append(message)
        if isinstance(message, Timeout) and message.high is not None and message.high not in self.known:
            self.known.append(message.high)
        for recipient in recipients:
            if recipient != sender and (sender, message) not in self.pool[recipient]:
                self.pool[recipient].append((sender, message))

    def settle(self, digest: Digest) -> None:
        for other in self.final:
            lower, upper = sorted((other, digest), key=lambda one: self.views[one])
            if lower not in self.line(upper):
                raise Fork
        self.final.append(digest)

    def line(self, digest: Digest) -> list[Digest]:
        line = [digest]
        while line[-1] != GENESIS:
            line.append(self.blocks[line[-1]].digest)
        return line

    # --- the adversary's moves ----------------------------------------------------------------------------------

    def sign(self, kind: VoteKind, view: View, parent_view: View, digest: Digest) -> Vote:
        signature = self.signers[BYZANTINE].sign(vote_signing_bytes(NAMESPACE, kind, view, parent_view, digest))
        return Vote(kind, view, parent_view, digest, BYZANTINE, signature)

    def some(self) -> tuple[ValidatorIndex, ...]:
        """Whom to show something: a random part of the honest."""
        return tuple(index for index in HONEST if self.random.random() < 0.6)

    def step(self) -> None:
        index = self.random.choice(HONEST)
        engine = self.engines[index]
        if engine.view > LAST_VIEW:
            return
        draw = self.random.random()
        if draw < 0.02:
            self.start(index)
        elif draw < 0.74 and self.pool[index]:
            sender, message = self.pool[index].pop(self.random.randrange(len(self.pool[index])))
            self.feed(index, Received(sender, message))
        elif draw < 0.80:
            self.feed(index, TimerExpired(TimerKind.ADVANCE, engine.view))
        elif draw < 0.86 and self.known:
            self.feed(index, Received(BYZANTINE, self.random.choice(self.known[-6:])))
        elif draw < 0.90:
            self.time_out(engine.view)
        elif draw < 0.94 and engine.leader(engine.view) == BYZANTINE:
            self.propose(engine.view)
        else:
            self.vote()

    def deliver(self, kind: VoteKind, view: int) -> None:
        """Everything of one kind and view, whatever carries it, to everyone."""
        for index in HONEST:
            for sender, message in list(self.pool[index]):
                subject = message.vote if isinstance(message, Proposal | Timeout) else message
                if isinstance(subject, Vote | AnyCertificate) and (subject.kind, subject.view) == (kind, view):
                    self.pool[index].remove((sender, message))
                    self.feed(index, Received(sender, message))

    def time_out(self, view: View) -> None:
        """With the lowest high block there is."""
        self.offer(BYZANTINE, Timeout(self.sign(VoteKind.TIMEOUT, view, View(0), NO_DIGEST), None), self.some())

    def propose(self, view: View) -> None:
        """On any block, a different one each time."""
        parent_digest = self.random.choice([digest for digest, of in self.views.items() if of < view])
        self.propose_on(parent_digest, view, self.some())

    def propose_on(self, parent_digest: Digest, view: View, recipients: tuple[ValidatorIndex, ...]) -> None:
        parent = Parent(self.views[parent_digest], parent_digest)
        body = b"%d evil %d" % (view, self.random.randrange(2**32))
        digest = block(body.decode())
        self.blocks[digest], self.views[digest] = parent, view
        vote = self.sign(VoteKind.NOTARIZE, view, parent.view, digest)
        self.offer(BYZANTINE, Proposal(view, parent.view, parent.digest, digest, body, vote), recipients)

    def vote(self) -> None:
        """For a block of late, in both phases."""
        digest = self.random.choice(list(self.blocks)[-4:])
        if digest != GENESIS:
            view, parent_view = self.views[digest], self.blocks[digest].view
            for kind in (VoteKind.NOTARIZE, VoteKind.FINALIZE):
                self.offer(BYZANTINE, self.sign(kind, view, parent_view, digest), self.some())


def play(engine_type: type[HotStuff], seed: int) -> int:
    """How many blocks became final; raises :class:`Fork` if the adversary wins."""
    adversary = Adversary(seed, engine_type)
    for _ in range(700):
        adversary.step()
    return len(set(adversary.final)) - 1


class VotesWithoutLock(HotStuff):
    """Takes any certified parent, whatever the timeouts of the view before name."""

    def _ancestry_of(self, proposal: Proposal) -> Ancestry:
        return Ancestry(self.certificates.block(proposal.parent_view))


@pytest.mark.slow
def test_no_adversary_within_the_fault_bound_makes_a_fork() -> None:
    final = [play(HotStuff, seed) for seed in SEEDS]
    assert sum(final) > len(SEEDS), "runs without final blocks would prove nothing"


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine_type",
    [VotesWithoutLock, FinalizesAfterTimeout, BuildsBelowTimeouts],
)
def test_without_a_rule_of_the_safety_argument_the_same_adversary_wins(engine_type: type[HotStuff]) -> None:
    def play_until_it_wins() -> None:
        for seed in SEEDS:
            play(engine_type, seed)

    with pytest.raises(Fork):
        play_until_it_wins()


def overturn(engine_type: type[HotStuff], restart: bool) -> Adversary:
    """All finalize view 1 and time out of view 2; then the byzantine leader of view 3 builds on the genesis block."""
    adversary = Adversary(1, engine_type)
    for _ in range(3):
        adversary.deliver(VoteKind.NOTARIZE, 1)
    if restart:
        for index in HONEST:
            adversary.start(index)
    for index in HONEST:
        adversary.feed(index, TimerExpired(TimerKind.ADVANCE, View(2)))
    adversary.deliver(VoteKind.TIMEOUT, 2)
    assert {engine.view for engine in adversary.engines.values()} == {3}
    adversary.propose_on(GENESIS, View(3), HONEST)
    for _ in range(3):
        adversary.deliver(VoteKind.NOTARIZE, 3)
    for view in (1, 3):
        adversary.deliver(VoteKind.FINALIZE, view)
    return adversary


@pytest.mark.parametrize(("engine_type", "restart"), [(TimesOutWithoutItsLock, False), (ForgetsItsLock, True)])
def test_the_lock_in_timeouts_keeps_a_final_block_from_being_overturned(
    engine_type: type[HotStuff], restart: bool
) -> None:
    adversary = overturn(HotStuff, restart)
    assert [adversary.views[digest] for digest in adversary.final[:2]] == [0, 1]
    assert {adversary.views[digest] for digest in adversary.final} == {0, 1}
    with pytest.raises(Fork):
        overturn(engine_type, restart)
