"""A small deterministic network of engines: virtual time, one seeded source, opaque bodies.

Every engine sits on a :class:`Host`, which stands for its driver and its machine: a disk that loses what was not yet
synced, a store of block bodies, slow execution. Messages cross as bytes. The network checks itself, at every step,
against what it saw: agreement, ancestry with justified skips, no nullification of a finalized view, one vote of a kind
per signer and view, never nullify and finalize. It takes any engine of :mod:`consensus.interface`; a timeout
certificate is a nullification to it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from blake3 import blake3

from consensus.certificates import verify_certificate, verify_timeout_certificate
from consensus.interface import (
    HARMLESS_REASONS,
    BlockProposed,
    BlockVerified,
    Broadcast,
    Durable,
    Effect,
    Event,
    Finalized,
    Notarized,
    Nullified,
    Parent,
    Persist,
    Propose,
    Received,
    Rejected,
    Report,
    SendTo,
    Start,
    StartTimer,
    TimerExpired,
    Verify,
    ViewEntered,
    VotingConfig,
)
from consensus.journal import encode_record
from consensus.keys import KeyedHashScheme, SignatureScheme, Signer, ValidatorSet
from consensus.messages import (
    AnyCertificate,
    Certificate,
    Evidence,
    Message,
    Proposal,
    Timeout,
    Vote,
    VoteKind,
    conflict,
    decode,
    encode,
    verify_evidence,
)
from consensus.simplex import Simplex
from consensus.types import Digest, ValidatorIndex, View
from consensus.voting import VotingEngine

NAMESPACE = b"test chain"
GENESIS = Digest(blake3(b"genesis").digest())
CONFIG = VotingConfig(leader_timeout_ms=400, advance_timeout_ms=600, rebroadcast_ms=700)


def digest_of(body: bytes) -> Digest:
    return Digest(blake3(body).digest())


def make_body(view: int, parent: Parent, salt: int = 0) -> bytes:
    """An opaque block that names its view and parent."""
    return b"%d %d %d " % (view, parent.view, salt) + parent.digest


class MakeEngine(Protocol):
    """An engine's constructor."""

    def __call__(
        self,
        config: VotingConfig,
        validators: ValidatorSet,
        me: ValidatorIndex | None,
        signer: Signer | None,
        namespace: bytes,
        root: Parent | Digest,
        journal: Iterable[bytes] = ...,
    ) -> VotingEngine: ...


@dataclass
class Faults:
    """How the network misbehaves until ``healed_at_ms``."""

    loss: float = 0.0
    duplication: float = 0.0
    min_delay_ms: int = 10
    max_delay_ms: int = 10
    sync_ms: tuple[int, int] = (0, 0)
    execution_ms: tuple[int, int] = (0, 0)
    partition_every_ms: int = 0
    one_way: bool = False
    crash_every_ms: int = 0
    downtime_ms: tuple[int, int] = (50, 1500)
    torn_writes: bool = False
    compaction: float = 0.0
    healed_at_ms: int = 0


@dataclass
class Host:
    """One machine: engine, disk, bodies. ``index`` is whose key it has, ``place`` is where it stands."""

    index: ValidatorIndex
    place: int
    engine: VotingEngine | None = None
    incarnation: int = 0
    disk: list[bytes] = field(default_factory=list)
    durable: set[bytes] = field(default_factory=set)
    bodies: dict[Digest, bytes] = field(default_factory=dict)
    unsynced: list[Persist] = field(default_factory=list)
    finalized: list[Certificate] = field(default_factory=list)
    entered: list[tuple[int, View]] = field(default_factory=list)
    rejected: dict[str, int] = field(default_factory=dict)

    def write(self, records: Sequence[bytes]) -> None:
        self.disk.extend(records)
        self.durable.update(records)


class Network:
    """``n`` hosts and what lies between them. ``silent`` hosts are never started."""

    def __init__(
        self,
        n: int,
        seed: int,
        faults: Faults | None = None,
        scheme: SignatureScheme | None = None,
        config: VotingConfig = CONFIG,
        silent: tuple[int, ...] = (),
        invalid_leaders: tuple[int, ...] = (),
        twins: tuple[int, ...] = (),
        make_engine: MakeEngine = Simplex,
    ) -> None:
        self.random = Random(seed)
        self.faults = faults or Faults()
        self.config = config
        scheme = scheme or KeyedHashScheme()
        self.signers = [scheme.signer(bytes([index]) * 32) for index in range(n)]
        self.validators = ValidatorSet(tuple(signer.public_key for signer in self.signers), scheme)
        self.now_ms = 0
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.serial = itertools.count()
        keys = [ValidatorIndex(index) for index in (*range(n), *twins)]
        self.hosts = [Host(index, place) for place, index in enumerate(keys)]
        self.twins = twins
        self.make_engine = make_engine
        self.silent = silent
        self.invalid_leaders = invalid_leaders
        self.cut: set[tuple[int, int]] = set()
        self.tracing = False
        self.trace = blake3()
        self.messages = 0
        self.crashes = 0
        self.parents: dict[Digest, Parent] = {}
        self.votes: dict[tuple[VoteKind, View, ValidatorIndex], Vote] = {}
        self.last_words: dict[ValidatorIndex, list[Vote]] = {}
        """The finalize and timeout votes of each, which can contradict each other across views."""
        self.notarizations: dict[View, Certificate] = {}
        self.nullifications: dict[View, AnyCertificate] = {}
        self.finalizations: dict[View, Certificate] = {}
        self.evidence: list[Evidence] = []
        self.certified: set[AnyCertificate] = set()
        self.on_effect: Callable[[Host, Effect], None] | None = None
        for host in self.hosts:
            if host.index not in silent:
                self.at(0, lambda host=host: self.start(host))  # type: ignore[misc]
        if self.faults.partition_every_ms:
            self.at(self.random.randrange(self.faults.partition_every_ms), self.repartition)
        if self.faults.crash_every_ms:
            self.at(self.random.randrange(self.faults.crash_every_ms), self.crash_someone)

    # --- time ---------------------------------------------------------------------------------------------------

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (self.now_ms + delay_ms, next(self.serial), action))

    def run(self, until_ms: int, stop: Callable[[], bool] = lambda: False) -> None:
        while self.queue and self.queue[0][0] <= until_ms and not stop():
            self.now_ms, _, action = heapq.heappop(self.queue)
            action()

    @property
    def faulty(self) -> bool:
        return self.now_ms < self.faults.healed_at_ms

    # --- hosts --------------------------------------------------------------------------------------------------

    def start(self, host: Host) -> None:
        signer = self.signers[host.index]
        host.engine = self.make_engine(self.config, self.validators, host.index, signer, NAMESPACE, GENESIS, host.disk)
        self.feed(host, Start())

    def crash(self, host: Host) -> None:
        """Stop a host; of what it was writing a part may have reached the disk."""
        host.engine = None
        host.finalized.clear()
        host.incarnation += 1
        self.crashes += 1
        if self.faults.torn_writes:
            records = [record for persist in host.unsynced for record in persist.records]
            bodies = [persist.body for persist in host.unsynced if persist.body is not None]
            written = self.random.randint(0, len(records))
            host.write(records[:written])
            host.bodies.update({digest_of(body): body for body in bodies})
        host.unsynced.clear()

    def crash_someone(self) -> None:
        if not self.faulty:
            return
        host = self.random.choice(self.hosts)
        if host.engine is not None:
            self.crash(host)
            self.at(self.random.randint(*self.faults.downtime_ms), lambda: self.start(host))
        self.at(self.random.randrange(1, 2 * self.faults.crash_every_ms), self.crash_someone)

    def repartition(self) -> None:
        self.cut = set()
        if not self.faulty:
            return
        if self.random.random() < 0.7:
            side = {host.place for host in self.hosts if self.random.random() < 0.5}
            pairs = itertools.permutations(range(len(self.hosts)), 2)
            self.cut = {
                (one, other)
                for one, other in pairs
                if (one in side) != (other in side) and not (self.faults.one_way and one in side)
            }
        self.at(self.random.randrange(1, 2 * self.faults.partition_every_ms), self.repartition)

    # --- events and effects -------------------------------------------------------------------------------------

    def feed(self, host: Host, event: Event) -> None:
        assert host.engine is not None
        effects = host.engine.handle(event)
        for effect in effects:
            if self.tracing:
                self.trace.update(b"%d %d " % (self.now_ms, host.place) + repr(effect).encode())
            if self.on_effect is not None:
                self.on_effect(host, effect)
            self.perform(host, effect)

    def later(self, host: Host, delay_ms: int, event: Event) -> None:
        """Answer a host's effect after a delay, unless it crashed in between."""
        incarnation = host.incarnation

        def answer() -> None:
            if host.engine is not None and host.incarnation == incarnation:
                self.feed(host, event)

        self.at(delay_ms, answer)

    def perform(self, host: Host, effect: Effect) -> None:
        match effect:
            case Broadcast(message):
                self.check_sent(host, message)
                self.send(host, [other for other in self.hosts if other.index != host.index], message)
            case SendTo(recipient, message):
                self.check_sent(host, message)
                self.send(host, [other for other in self.hosts if other.index == recipient], message)
            case StartTimer(kind, view, delay_ms):
                self.later(host, delay_ms, TimerExpired(kind, view))
            case Propose(view, parent):
                body = make_body(view, parent, self.random.randrange(1000))
                self.later(
                    host, self.draw(self.faults.execution_ms), BlockProposed(view, parent, digest_of(body), body)
                )
            case Verify():
                self.verify(host, effect)
            case Persist():
                self.persist(host, effect)
            case _:
                self.observe(host, effect)

    def verify(self, host: Host, request: Verify) -> None:
        names = request.body.split(b" ", 3)
        valid = (
            request.digest == digest_of(request.body)
            and names[:2] == [b"%d" % request.view, b"%d" % request.parent.view]
            and names[3] == request.parent.digest
            and request.proposer not in self.invalid_leaders
        )
        answer = BlockVerified(request.view, request.digest, valid)
        self.later(host, self.draw(self.faults.execution_ms), answer)

    def persist(self, host: Host, request: Persist) -> None:
        host.unsynced.append(request)
        incarnation = host.incarnation

        def synced() -> None:
            if host.incarnation != incarnation:
                return
            while host.unsynced and host.unsynced[0].token <= request.token:
                done = host.unsynced.pop(0)
                host.write(done.records)
                if done.body is not None:
                    host.bodies[digest_of(done.body)] = done.body
            self.feed(host, Durable(request.token))
            if host.engine is not None and self.faulty and self.random.random() < self.faults.compaction:
                self.compact(host, host.engine)

        self.at(self.draw(self.faults.sync_ms), synced)

    def compact(self, host: Host, engine: VotingEngine) -> None:
        """Replace the journal by the engine's snapshot, having made durable the bodies that its votes stand for."""
        bodies = [persist.body for persist in host.unsynced if persist.body is not None]
        host.bodies.update({digest_of(body): body for body in bodies})
        host.disk = []
        host.write(engine.journal_snapshot())

    def draw(self, bounds: tuple[int, int]) -> int:
        return self.random.randint(*bounds) if self.faulty else bounds[0]

    def send(self, sender: Host, recipients: Sequence[Host], message: Message) -> None:
        """What arrives is what the bytes say, read once for all: it is frozen throughout."""
        read = decode(encode(message))
        top = self.faults.max_delay_ms if self.faulty else self.faults.min_delay_ms
        for recipient in recipients:
            self.messages += 1
            copies = 1
            if self.faulty:
                lost = (sender.place, recipient.place) in self.cut or self.random.random() < self.faults.loss
                copies = 0 if lost else 1 + (self.random.random() < self.faults.duplication)
            for _ in range(copies):
                delay_ms = self.random.randint(self.faults.min_delay_ms, top)
                self.at(delay_ms, lambda recipient=recipient: self.deliver(sender, recipient, read))  # type: ignore[misc]

    def deliver(self, sender: Host, recipient: Host, message: Message) -> None:
        if recipient.engine is not None:
            self.feed(recipient, Received(sender.index, message))

    # --- checks -------------------------------------------------------------------------------------------------

    def check_sent(self, host: Host, message: Message) -> None:
        """What an honest validator may say; and a vote must be on its disk first."""
        vote = message.vote if isinstance(message, Proposal | Timeout) else message
        if isinstance(message, Proposal):
            parent = Parent(message.parent_view, message.parent_digest)
            assert self.parents.setdefault(message.digest, parent) == parent
        if not isinstance(vote, Vote) or host.index in self.twins:
            return
        assert vote.signer == host.index
        for kind in VoteKind:
            other = self.votes.get((kind, vote.view, vote.signer))
            assert other is None or conflict(other, vote) is None, f"contradiction: {other} {vote}"
        if vote.kind in (VoteKind.FINALIZE, VoteKind.TIMEOUT) and (vote.kind, vote.view, vote.signer) not in self.votes:
            words = self.last_words.setdefault(vote.signer, [])
            assert all(conflict(other, vote) is None for other in words), f"contradiction across views: {vote}"
            words.append(vote)
        if vote.kind == VoteKind.NOTARIZE:
            assert vote.digest in host.bodies, "notarize vote sent before the body was durable"
        assert encode_record(vote) in host.durable, "vote sent before it was durable"
        self.votes[vote.kind, vote.view, vote.signer] = vote

    def observe(self, host: Host, effect: Effect) -> None:
        match effect:
            case Notarized(certificate):
                self.certify(certificate)
                first = self.notarizations.setdefault(certificate.view, certificate)
                assert first.digest == certificate.digest, "two notarized blocks in one view"
            case Nullified(certificate):
                self.certify(certificate)
                self.nullifications.setdefault(certificate.view, certificate)
                assert certificate.view not in self.finalizations, "nullification of a finalized view"
            case Finalized(certificate):
                self.finalize(host, certificate)
            case ViewEntered(view, _):
                host.entered.append((self.now_ms, view))
            case Report(evidence):
                assert verify_evidence(evidence, self.validators, NAMESPACE)
                self.evidence.append(evidence)
            case Rejected(_, reason):
                host.rejected[reason] = host.rejected.get(reason, 0) + 1
            case _:
                raise AssertionError(f"unexpected effect {effect}")

    def certify(self, certificate: AnyCertificate) -> None:
        if certificate not in self.certified:
            if isinstance(certificate, Certificate):
                good = verify_certificate(certificate, self.validators, NAMESPACE)
            else:
                good = verify_timeout_certificate(certificate, self.validators, NAMESPACE, View(0))
            assert good, "not a quorum of good signatures"
            self.certified.add(certificate)

    def finalize(self, host: Host, certificate: Certificate) -> None:
        self.certify(certificate)
        view = certificate.view
        assert not host.finalized or host.finalized[-1].view < view, "finalizations must ascend"
        first = self.finalizations.setdefault(view, certificate)
        assert first.digest == certificate.digest, "two final blocks in one view"
        assert view not in self.nullifications, "finalization of a nullified view"
        host.finalized.append(certificate)

    def chain(self) -> list[Parent]:
        """The final chain from the newest finalization to genesis; checks agreement, ancestry and skips."""
        if not self.finalizations:
            return [Parent(View(0), GENESIS)]
        top = max(self.finalizations)
        chain = [Parent(top, self.finalizations[top].digest)]
        while chain[-1].view > 0:
            child, parent = chain[-1], self.parents[chain[-1].digest]
            for skipped in range(parent.view + 1, child.view):
                assert skipped in self.nullifications, f"view {skipped} was skipped without a nullification"
            chain.append(parent)
        assert chain[-1].digest == GENESIS
        members = {block.view: block.digest for block in chain}
        for view, certificate in self.finalizations.items():
            assert members.get(view) == certificate.digest, f"final block of view {view} is not in the final chain"
        return chain[::-1]

    def misbehaviour(self) -> dict[str, int]:
        """Rejections that honest validators must not cause."""
        found: dict[str, int] = {}
        for host in self.hosts:
            for reason, count in host.rejected.items():
                if reason not in HARMLESS_REASONS:
                    found[reason] = found.get(reason, 0) + count
        return found

    def lowest_final_view(self) -> int:
        live = [host.engine for host in self.hosts if host.engine is not None]
        return min((engine.final_view for engine in live), default=0)
